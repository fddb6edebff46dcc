//! What a monitor is told and what monitors share ([`bulkhead_resident::monitor`]),
//! and what the host makes it from.

use crate::report::State;
pub use bulkhead_resident::monitor::*;

/// What to do after a denied access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// Make the access harmless (reads all ones, #GP for an MSR) and go on.
    Ignore = 0,
    /// Stop the sandbox.
    Stop = 1,
    /// Restart the sandbox.
    Restart = 2,
}

impl Action {
    /// Its word in [`Config::ends`].
    #[must_use]
    pub const fn ends_in(self) -> u8 {
        match self {
            Self::Ignore => 0,
            Self::Stop => State::Stopped as u8,
            Self::Restart => State::Launching as u8,
        }
    }
}
