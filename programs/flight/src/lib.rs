//! The interfaces of the flight controller's programs. `systems/demo.toml` has all of it: calls, shared memory and
//! time.
//!
//! These steps come once a millisecond:
//!
//! 1. `control` calls `estimator`, which takes in the last sensor values and answers with the vehicle's attitude.
//! 2. It looks up the wanted attitude in the trajectory that `mission` wrote.
//! 3. It calls `airframe` with motor commands. This moves the world on by that millisecond and writes the new sensor
//!    values.
//!
//! A flight can be a role ([`kept`]): another sandbox with these programs goes on where the last one ended.
#![no_std]

/// A release of `control`, ns.
pub const PERIOD_NS: u64 = 1_000_000;
/// Releases of `control` for one of `mission`.
pub const DIVIDER: u32 = 20;

/// Calls of `estimator`.
pub mod estimator {
    /// Take in the last sensor values in the step of the word; answered with the estimated attitude and the rates, two
    /// words each.
    pub const UPDATE: u64 = 1;
    /// Go on behind the step of the word.
    pub const RESUME: u64 = 2;
}

/// Calls of `airframe`.
pub mod airframe {
    /// Fly a millisecond with the motor commands of two words, in the step of the third one. The answer is the true
    /// attitude in two words, which a real vehicle would not know.
    pub const FLY: u64 = 1;
    /// Go on behind the step of the word.
    pub const RESUME: u64 = 2;
}

pub mod kept;

/// The answer to an unknown request.
pub const REFUSED: u64 = 1;

/// `control`'s record of a release for `logger`, in words of shared memory: a ring.
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

    /// Goes on behind so many that another sandbox wrote.
    pub fn resume(words: &[AtomicU64], count: u64) {
        words.iter().take(1).for_each(|word| word.store(count, Ordering::Release));
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
