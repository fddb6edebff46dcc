//! Work that is done once in each period.

use crate::call::Error;
use crate::objects::Notification;
use crate::time::{now, wait_until};

/// Releases at absolute times, so that none is late because another one was.
#[derive(Clone, Copy, Debug)]
pub struct Periodic {
    wakes: Notification,
    due: u64,
    period: u64,
}

/// Why a thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The time of a release has come.
    Release {
        /// When it was due, in nanoseconds of [`now`].
        due: u64,
        /// How many releases passed before it because the thread came too late for them.
        missed: u64,
    },
    /// The notification was signalled before that: its bits.
    Signal(u64),
}

impl Periodic {
    /// The first release is due at `first`, the others every `period` (at least 1) nanoseconds. A thread that
    /// waits for them also wakes by signals of `wakes`.
    #[must_use]
    pub fn new(wakes: Notification, first: u64, period: u64) -> Self {
        Self { wakes, due: first, period: period.max(1) }
    }

    /// Waits for the next release, or for a signal. If the times of several releases have come it is the latest one.
    ///
    /// # Errors
    /// As [`Notification::wait_until`], but not the time.
    pub fn wait(&mut self) -> Result<Woken, Error> {
        if let Some(bits) = wait_until(self.wakes, self.due)? {
            return Ok(Woken::Signal(bits));
        }
        let missed = now().saturating_sub(self.due) / self.period;
        let due = self.due + missed * self.period;
        self.due = due + self.period;
        Ok(Woken::Release { due, missed })
    }
}
