//! Memory, ports and devices that each party can touch, for a reader.

use crate::check::Context;
use crate::report::{Reach, letters};

impl Context<'_> {
    /// Pages as runs: neighbours in address and frame, with equal rights and owner.
    pub(crate) fn reach(
        &self,
        pages: impl Iterator<Item = (u64, u64, u64, bool, bool)>,
    ) -> Vec<Reach> {
        let mut out: Vec<Reach> = Vec::new();
        for (address, frame, len, write, execute) in pages {
            let (rights, owner) = (letters(write, execute), self.owner(frame));
            match out.last_mut() {
                Some(last)
                    // Or one frame again and again, as the page of ones.
                    if last.address + last.len == address
                        && (last.frame + last.len == frame || last.frame == frame)
                        && last.rights == rights
                        && last.owner == owner =>
                {
                    last.len += len;
                }
                _ => out.push(Reach { address, frame, len, rights, owner }),
            }
        }
        out
    }
}
