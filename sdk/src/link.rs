//! Channels made at run time, for a bare guest: [`Slots`] of its [`Context`].

use crate::{Context, hypercall};
pub use bulkhead_channel_memory::slots::{Phase, Refused, Slot, Slots, State};
use bulkhead_layout::info::SLOT;

// SAFETY: the information page is the monitor's word that nothing but the slot lies there. An access to memory that is
// not mapped is denied, and ends in no memory of this program's.
unsafe impl Slots for Context {
    fn sandboxes(&self) -> [u32; 2] {
        let info = self.info();
        [info.sandbox, info.sandboxes]
    }

    fn slots(&self) -> impl Iterator<Item = Slot> {
        let info = self.info();
        let windows = &info.window[..(info.windows as usize).min(info.window.len())];
        windows.iter().filter(|w| w.kind == SLOT).map(|w| Slot {
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
