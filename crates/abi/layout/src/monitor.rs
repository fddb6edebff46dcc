//! The data that monitors are given and share ([`bulkhead_monitor_abi::monitor`]), and the host's source for it.

use crate::report::State;
pub use bulkhead_monitor_abi::monitor::*;

/// The answer to a denied access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// Make the access harmless (reads all ones, or an exception) and go on.
    Ignore = 0,
    /// Stop the sandbox.
    Stop = 1,
    /// Restart the sandbox.
    Restart = 2,
}

impl Action {
    /// Returns its word in [`Config::ends`].
    #[must_use]
    pub const fn ends_in(self) -> u8 {
        match self {
            Self::Ignore => 0,
            Self::Stop => State::Stopped as u8,
            Self::Restart => State::Launching as u8,
        }
    }
}
