//! The parts that the programs of a Linux guest share, so that they themselves need no `unsafe`. These are [`mark`],
//! [`ticks`], windows into physical memory ([`devmem`]), ports ([`port`]), channels ([`channel`], [`message`],
//! [`link`]), and other programs and terminals ([`run`], [`terminal`]). [`setup`] prepares for measuring.

pub mod bell;
pub mod channel;
pub mod devmem;
pub mod guest;
pub mod link;
pub mod message;
pub mod port;
pub mod run;
pub mod section;
pub mod setup;
pub mod terminal;
pub mod tun;

pub use bulkhead_layout::marker;

/// The marker's instruction. `$code` may depend on a generic parameter.
macro_rules! instruction {
    ($code:expr, $value:expr) => {
        // SAFETY: an eight-byte NOP; it reads and writes nothing. Without `nomem`
        // the compiler keeps memory accesses on their side of the marker.
        unsafe {
            core::arch::asm!(
                ".byte {}, {}, {}, {}, {}, {}, {}, {}",
                const marker::encode($code)[0], const marker::encode($code)[1],
                const marker::encode($code)[2], const marker::encode($code)[3],
                const marker::encode($code)[4], const marker::encode($code)[5],
                const marker::encode($code)[6], const marker::encode($code)[7],
                in("rax") $value,
                options(nostack, preserves_flags),
            );
        }
    };
}

/// Executes the marker `CODE` with RAX = `value` ([`marker`]): a NOP to the
/// processor, an observation to the measuring plugin.
#[inline(always)]
pub fn mark<const CODE: u16>(value: u64) {
    instruction!(CODE, value);
}

/// The span `ID` begins.
#[inline(always)]
pub fn begin<const ID: u16>() {
    instruction!(marker::BEGIN | ID, 0u64);
}

/// The span `ID` ends.
#[inline(always)]
pub fn end<const ID: u16>() {
    instruction!(marker::END | ID, 0u64);
}

/// The time stamp counter; with QEMU's `-icount shift=0` the instructions of all cores.
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    // SAFETY: reading the counter has no side effect, and Linux allows it.
    unsafe { core::arch::x86_64::_rdtsc() }
}
