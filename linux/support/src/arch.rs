//! The contract of an architecture, beside a guest's [`bulkhead_guest::Instructions`]: the rights that a process needs
//! of Linux. A module below has one each, and all other modules are portable.

use std::io;

#[cfg(target_arch = "x86_64")]
pub mod x86;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::X86 as This;

/// Linux as this architecture has it.
pub(crate) trait Architecture {
    /// Linux' clock source while Linux refines the counter's frequency, if it does so.
    const EARLY_CLOCK: Option<&'static str>;

    /// Lets this program make hypercalls.
    fn allow_calls() -> io::Result<()>;
    /// Lets this program ring doorbells.
    fn allow_bells() -> io::Result<()>;
}
