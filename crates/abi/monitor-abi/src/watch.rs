//! Watchdogs: a monitor gets control at a rate that its guest cannot change, and looks at what the manifest names.

use crate::MAX_CORES;
use core::sync::atomic::AtomicU64;
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The watchdog of a sandbox. All zero: it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Watch {
    /// Microseconds from a tick on until a doorbell may be the next one; 0: there is no watchdog.
    ///
    /// A doorbell has no source, so the clock tells a tick from one that another monitor rang. Where a timer beside the
    /// core sends it, this is 7/8 of the period: two clocks differ, and a tick may be late.
    pub least: u32,
    /// Ticks without a move of a core's progress word after which the core hangs; 0: nobody looks.
    pub alive: u32,
    /// Ticks until the first move of it in a life; 0: without a limit.
    pub first: u32,
    /// Padding.
    pub reserved: u32,
}

/// Words of a page that a tick sums up at a time, at least.
pub const PART: usize = 64;
/// Parts of a page.
pub const PARTS: u32 = (crate::PAGE as usize / 8 / PART) as u32;

/// A page that nothing changes while its guest runs, and the sum of its 64-bit words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct FixedPage {
    /// Monitor-virtual address.
    pub at: u64,
    /// [`sum`] of its words.
    pub sum: u64,
}

/// Adds words to a sum, eight at a time. One word that is another one changes it, and so does one bit.
#[inline(always)]
#[must_use]
pub fn sum(before: u64, words: &[u64; PART]) -> u64 {
    let (eights, _) = words.as_chunks::<8>();
    eights.iter().fold(before, |sum, &[a, b, c, d, e, f, g, h]| {
        let add = u64::wrapping_add;
        add(add(add(add(add(add(add(add(sum, a), b), c), d), e), f), g), h)
    })
}

/// Words that a guest moves while it goes on, one for each of its cores: any other value will do. A core with the word
/// 0 does not say anything yet, or any more.
#[repr(C)]
pub struct Progress {
    /// The words, by the core's number in its sandbox.
    pub cores: [ProgressWord; MAX_CORES],
}

/// A core's progress word, in a cache line of its own.
#[repr(C, align(64))]
pub struct ProgressWord(pub AtomicU64);

const _: () = assert!(size_of::<Progress>() as u64 <= crate::PAGE);
