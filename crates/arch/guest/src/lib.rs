//! Instructions of guests that Rust has no words for: counter, hypercalls, doorbells, and accesses to a device's
//! registers. Bare guests, the kernel, its programs and processes of a Linux share this contract. Each environment has
//! beside it only what differs: entries, interrupts and timers, calls of the kernel, rights that a Linux gives. The
//! words of pages that describe a guest are read here, too.
#![no_std]

mod registers;
pub mod role;
pub mod text;

pub use registers::Registers;

#[cfg(target_arch = "x86_64")]
pub mod x86;

#[cfg(target_arch = "x86_64")]
pub use x86::X86 as Here;

use bulkhead_layout::info::{Info, Window};

/// Returns the windows that an information page has in use, each with its word of [`Info::bells`].
pub fn windows(info: &Info) -> impl Iterator<Item = (&Window, u32)> {
    info.window.iter().zip(info.bells).take(info.windows as usize)
}

/// Multiplies by a factor that has 32 fraction bits. The product has 128 bits: a counter alone fills 64 in the end.
#[inline(always)]
#[must_use]
pub const fn scale(value: u64, factor: u64) -> u64 {
    ((value as u128 * factor as u128) >> 32) as u64
}

/// Packs text into words, zeros behind it; bytes that do not fit are cut off.
#[inline(always)]
#[must_use]
pub fn packed<const N: usize>(text: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, part) in words.iter_mut().zip(text.chunks(8)) {
        *word = part.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    words
}

/// The contract of an architecture.
pub trait Instructions {
    /// Reads the counter of the clock.
    fn counter() -> u64;
    /// Reads it in order with earlier instructions.
    fn ordered_counter() -> u64;
    /// Chooses the instruction of [`Instructions::call`], by the kind of monitor that the information page names.
    fn set_calls(monitors: u64);
    /// Makes a hypercall, in a kernel or a bare guest. No call touches memory of the caller, or a register other than
    /// the result's.
    fn call(number: u64, arguments: [u64; 4]) -> u64;
    /// Makes a hypercall with two arguments, in a process too, if it has the right.
    fn call_as_user(number: u64, first: u64, second: u64) -> u64;
    /// Rings a doorbell of a channel, in a process too, if it has the right.
    fn ring(bell: u16);
}

/// A number that is read from and written to a device's registers by one plain move. A monitor that answers for
/// registers carries out no other instruction. The compiler may make a comparison with memory of a volatile read.
pub trait Moved: Sized {
    /// Reads it.
    ///
    /// # Safety
    /// Registers of a device, of this size, lie at the address, and the effect of a read leaves this program's world
    /// intact.
    unsafe fn load(at: u64) -> Self;
    /// Writes it. Earlier stores to memory are there for the device.
    ///
    /// # Safety
    /// As for reading, and they may be written.
    unsafe fn store(self, at: u64);
}
