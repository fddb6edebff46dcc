//! Channels made at run time, for a bare guest: [`Links`] of its [`Context`].

use crate::{Context, hypercall};
pub use bulkhead_channel_memory::link::{Link, Links, Phase, Refused, State};
use bulkhead_layout::info::LINK;

// SAFETY: the information page is the monitor's word that nothing but the link lies there. An access to memory that is
// not mapped is denied, and ends in no memory of this program's.
unsafe impl Links for Context {
    fn sandboxes(&self) -> [u32; 2] {
        let info = self.info();
        [info.sandbox, info.sandboxes]
    }

    fn links(&self) -> impl Iterator<Item = Link> {
        let info = self.info();
        let windows = &info.window[..(info.windows as usize).min(info.window.len())];
        windows.iter().filter(|w| w.kind == LINK).map(|w| Link {
            number: w.message,
            owner: w.messages,
            mine: w.writable != 0,
            start: w.gpa,
            size: w.size,
        })
    }

    fn call(&self, number: u64, first: u64, second: u64) -> u64 {
        hypercall::raw(number, first, second, 0, 0)
    }
}
