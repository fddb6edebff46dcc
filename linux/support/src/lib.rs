//! The parts that the programs of a Linux guest share, so that they themselves need no `unsafe`. These are [`mark`],
//! [`ticks`], windows into physical memory ([`devmem`]), hypercalls ([`call`]), channels ([`channel`], [`message`],
//! [`link`]), mapped files ([`map`]), and other programs and terminals ([`run`], [`terminal`]). [`setup`] prepares for
//! measuring.

mod arch;
pub mod bell;
pub mod call;
pub mod channel;
pub mod devmem;
pub mod guest;
pub mod late;
pub mod link;
pub mod map;
pub mod message;
pub mod nbd;
pub mod run;
pub mod section;
pub mod serve;
pub mod setup;
pub mod terminal;
pub mod tun;
pub mod ublk;

#[cfg(target_arch = "x86_64")]
pub use arch::x86::port;
pub use bulkhead_layout::marker;

use bulkhead_guest::{Here, Instructions};
use bulkhead_layout::mark;

/// Executes the marker `CODE` with a value ([`marker`]): nothing to the processor, an observation to the measuring
/// plugin.
#[inline(always)]
pub fn mark<const CODE: u16>(value: u64) {
    mark!(CODE, value);
}

/// The span `ID` begins.
#[inline(always)]
pub fn begin<const ID: u16>() {
    mark!(marker::BEGIN | ID);
}

/// The span `ID` ends.
#[inline(always)]
pub fn end<const ID: u16>() {
    mark!(marker::END | ID);
}

/// Reads the counter of the monitors' clock. With QEMU's `-icount shift=0` it has the instructions of all cores.
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    Here::counter()
}
