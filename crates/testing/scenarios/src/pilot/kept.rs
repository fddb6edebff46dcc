//! The state of a flight, in memory that is the role's. There are two slots: one of them is whole at each instant.

use bulkhead_flight::copies::{STATE, State};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Words of a slot: the release behind which it is, then the state. 0: it is in flux, or was never written.
const SLOT: usize = 1 + STATE;

/// The role's memory.
#[derive(Clone, Copy)]
pub struct Kept(pub &'static [AtomicU64]);

impl Kept {
    fn slot(&self, number: u64) -> &'static [AtomicU64] {
        let first = number as usize % 2 * SLOT;
        self.0.get(first..first + SLOT).unwrap_or(&[])
    }

    /// Says that the slot of a release is in flux.
    pub fn begin(&self, release: u64) {
        if let Some(word) = self.slot(release).first() {
            word.store(0, Relaxed);
            core::sync::atomic::fence(Release);
        }
    }

    /// Keeps the state behind a release. [`Kept::begin`] has been called.
    pub fn put(&self, release: u64, state: &State) {
        let Some((word, rest)) = self.slot(release).split_first() else { return };
        rest.iter().zip(state).for_each(|(to, from)| to.store(*from, Relaxed));
        word.store(release, Release);
    }

    /// Returns the newest state, and its release.
    pub fn newest(&self) -> Option<(u64, State)> {
        let whole = |slot: &'static [AtomicU64]| {
            let (word, rest) = slot.split_first()?;
            let release = word.load(Acquire);
            let mut state = State::default();
            state.iter_mut().zip(rest).for_each(|(to, from)| *to = from.load(Relaxed));
            (release != 0).then_some((release, state))
        };
        [0, 1].into_iter().filter_map(|n| whole(self.slot(n))).max_by_key(|(release, _)| *release)
    }
}
