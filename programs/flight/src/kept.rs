//! The state of a flight, in memory of a role: behind the telemetry's page. Another sandbox goes on from there.
//!
//! There are two slots, for the even steps and the odd ones. Each program writes its own part into the slot of its
//! step. `control` has said before that the slot is in flux, and says afterwards that it is whole. So one slot is whole
//! at each instant.

use bulkhead_program::role::Holder as _;
use bulkhead_program::{Memory, Program};
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// The role, if the flight is one.
pub const ROLE: &str = "controls";
/// Its channel.
pub const CHANNEL: &str = "telemetry";
/// Words of the telemetry's page.
const BEHIND: usize = 512;
/// Words of a slot.
const SLOT: usize = 64;

/// A part of the state: its first word. Word 0 is the step behind which the slot is, counted from 1.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// Attitude and bias, by `estimator`.
    Estimator = 1,
    /// Vehicle and weather.
    World = 5,
    /// Sensors.
    Sensors = 18,
    /// Controller and books, by `control`.
    Control = 24,
}

/// The memory. It may be touched while the sandbox has the role.
#[derive(Clone, Copy, Debug)]
pub struct Kept(&'static [AtomicU64]);

impl Kept {
    /// Finds it, if the flight is a role and the program has its channel.
    #[must_use]
    pub fn find(program: Program) -> Option<Self> {
        program.role(ROLE)?;
        program.find_memory(CHANNEL).and_then(Self::behind)
    }

    fn behind(page: Memory) -> Option<Self> {
        Some(Self(page.words().get(BEHIND..BEHIND + 2 * SLOT)?))
    }

    fn slot(self, step: u32) -> &'static [AtomicU64] {
        let first = step as usize % 2 * SLOT;
        self.0.get(first..first + SLOT).unwrap_or(&[])
    }

    fn part(self, step: u32, part: Part) -> &'static [AtomicU64] {
        self.slot(step).get(part as usize..).unwrap_or(&[])
    }

    /// Says that the slot of a step is in flux.
    pub fn begin(self, step: u32) {
        if let Some(word) = self.slot(step).first() {
            word.store(0, Ordering::Relaxed);
            fence(Ordering::Release);
        }
    }

    /// Says that it is whole.
    pub fn end(self, step: u32) {
        if let Some(word) = self.slot(step).first() {
            word.store(u64::from(step) + 1, Ordering::Release);
        }
    }

    /// Writes a part.
    pub fn put(self, step: u32, part: Part, state: &[u64]) {
        for (word, value) in self.part(step, part).iter().zip(state) {
            word.store(*value, Ordering::Relaxed);
        }
    }

    /// Reads a part.
    #[must_use]
    pub fn get<const N: usize>(self, step: u32, part: Part) -> [u64; N] {
        let words = self.part(step, part);
        core::array::from_fn(|n| words.get(n).map_or(0, |word| word.load(Ordering::Relaxed)))
    }

    /// Returns the newest step of which all is there.
    #[must_use]
    pub fn newest(self) -> Option<u32> {
        let number =
            |slot: u32| self.slot(slot).first().map_or(0, |word| word.load(Ordering::Acquire));
        let newest = number(0).max(number(1));
        newest.checked_sub(1).map(|step| step as u32)
    }
}
