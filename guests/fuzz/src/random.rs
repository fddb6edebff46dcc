//! Numbers at random, and again in every run.

use bulkhead_random::SplitMix64;

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// From a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(SplitMix64(seed))
    }

    /// The next one.
    #[expect(clippy::should_implement_trait, reason = "there is no end, and no use for one")]
    pub fn next(&mut self) -> u64 {
        self.0.any()
    }

    /// One below `end`, without a division.
    pub fn below(&mut self, end: usize) -> usize {
        (((self.next() >> 32) * end as u64) >> 32) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of these; there is at least one.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}
