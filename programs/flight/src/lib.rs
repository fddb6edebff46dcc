//! What the programs of the flight controller agree on. `systems/demo.toml` has the whole: who calls whom, who
//! sees what, who gets which time.
//!
//! Once a millisecond `control` calls `estimator`, which takes in what the sensors said last and answers where the
//! vehicle points, looks up where it should point in the trajectory that `mission` wrote, and calls `airframe` with
//! motor commands, which moves the world on by that millisecond and writes what the sensors say then.
#![no_std]

/// A release of `control`, ns.
pub const PERIOD_NS: u64 = 1_000_000;
/// Releases of `control` for one of `mission`.
pub const DIVIDER: u32 = 20;

/// What `estimator` is called for.
pub mod estimator {
    /// Take in what the sensors said last; answered with the estimated attitude and the rates, two words each.
    pub const UPDATE: u64 = 1;
}

/// What `airframe` is called for.
pub mod airframe {
    /// Fly a millisecond with the motor commands of two words; answered with the true attitude in two words, which
    /// a real vehicle would not know.
    pub const FLY: u64 = 1;
}

/// The answer to what nobody understands.
pub const REFUSED: u64 = 1;

/// What `control` tells `logger` of a release, in words of shared memory: a ring.
pub mod recorder {
    use core::sync::atomic::{AtomicU64, Ordering};

    /// Releases that it holds.
    pub const ENTRIES: u64 = 2_048;
    /// Word 0 is how many were written.
    const HEADER: u64 = 1;

    fn place(words: &[AtomicU64], number: u64) -> Option<&AtomicU64> {
        words.get((HEADER + number % ENTRIES) as usize)
    }

    /// Writes the next one: error in microradians, lateness in nanoseconds.
    pub fn put(words: &[AtomicU64], error: u64, late: u64) {
        let Some(count) = words.first() else { return };
        let number = count.load(Ordering::Relaxed);
        if let Some(place) = place(words, number) {
            let half = |value: u64| value.min(u32::MAX.into());
            place.store(half(error) | half(late) << 32, Ordering::Relaxed);
        }
        count.store(number + 1, Ordering::Release);
    }

    /// How many were written.
    #[must_use]
    pub fn count(words: &[AtomicU64]) -> u64 {
        words.first().map_or(0, |count| count.load(Ordering::Acquire))
    }

    /// Error and lateness of a number among the last [`ENTRIES`].
    #[must_use]
    pub fn get(words: &[AtomicU64], number: u64) -> (u64, u64) {
        let word = place(words, number).map_or(0, |place| place.load(Ordering::Relaxed));
        (word & u64::from(u32::MAX), word >> 32)
    }
}
