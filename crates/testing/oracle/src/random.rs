//! Numbers that look random and repeat in each run.

use bulkhead_random::SplitMix64;

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// The sequence of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(SplitMix64(seed))
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0.any()
    }

    /// 0 to `end` - 1; 0 if there is nothing below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.any()) * u128::from(end)) >> 64) as u64
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// A number in [0, 1).
    pub fn share(&mut self) -> f64 {
        (self.any() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}
