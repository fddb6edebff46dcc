//! Channels made at run time, for a bare guest: [`Links`] of its [`Context`].

use crate::{Context, hypercall};
pub use bulkhead_channel_memory::link::{Link, Links, Phase, Refused, State};

// SAFETY: the information page is the monitor's word that nothing but the link lies there. An access to memory that is
// not mapped is denied, and ends in no memory of this program's.
unsafe impl Links for Context {
    fn sandboxes(&self) -> [u32; 2] {
        let info = self.info();
        [info.sandbox, info.sandboxes]
    }

    fn links(&self) -> impl Iterator<Item = Link> {
        Link::all(self.info())
    }

    fn call(&self, number: u64, first: u64, second: u64) -> u64 {
        hypercall::raw(number, first, second, 0, 0)
    }
}
