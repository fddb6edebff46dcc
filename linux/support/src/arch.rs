//! The contract of an architecture. A module below has one each, and all other modules are portable. A second part of
//! the contract is the macro `instruction!`: it executes a marker. The marker's code may depend on a generic parameter.

use std::io;

#[cfg(target_arch = "x86_64")]
#[macro_use]
pub mod x86;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::X86 as This;

/// Instructions that Rust has no words for, and the rights that they need of Linux.
pub(crate) trait Architecture {
    /// Linux' clock source while Linux refines the counter's frequency, if it does so.
    const EARLY_CLOCK: Option<&'static str>;

    /// Reads the counter of the monitors' clock.
    fn counter() -> u64;
    /// Lets this program make hypercalls.
    fn allow_calls() -> io::Result<()>;
    /// Makes a hypercall with two arguments.
    fn call(number: u64, first: u64, second: u64) -> u64;
    /// Lets this program ring doorbells.
    fn allow_bells() -> io::Result<()>;
    /// Rings a doorbell.
    fn ring(bell: u16);
}
