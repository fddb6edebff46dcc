//! Programs on the kernel: any calls, by any of its threads, and what a machine does meanwhile.
//! All of its memory has to be as it has to be, and who is refused has changed nothing.

use crate::{Input, Seen};
use bulkhead_kernel_fake::random::{Chaos, Source};
use bulkhead_pci_fake::Words;

/// How often all of memory is looked at, in calls.
const AUDIT: u64 = 8;

impl Source for Input<'_> {
    fn below(&mut self, end: u64) -> u64 {
        match usize::try_from(end) {
            Ok(end) => Words::below(self, end) as u64,
            Err(_) => self.next(),
        }
    }
}

/// A few threads with capabilities of everything.
pub fn run(bytes: &[u8]) -> Result<Seen, String> {
    let mut input = Input::new(bytes);
    let fast = input.byte() % 2 == 0;
    let mut chaos = Chaos::new(input, fast);
    let mut steps = 0;
    while !chaos.source().is_empty() {
        steps += 1;
        chaos.step(steps % AUDIT == 0)?;
    }
    chaos.step(true)?;
    Ok(Seen { tried: chaos.came.calls, through: chaos.came.accepted })
}
