//! The data that monitors are given and share ([`bulkhead_monitor_abi::monitor`]), and the host's source for it.

use crate::report::State;
pub use bulkhead_monitor_abi::monitor::*;

/// The answer to a denied access, or to another finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make the access harmless (reads all ones, or an exception) and go on.
    Ignore,
    /// Stop the sandbox.
    Stop,
    /// Restart the sandbox.
    Restart,
    /// Take a rung of the ladder of this number.
    Ladder(u8),
}

impl Action {
    /// Returns its word in [`Config::ends`].
    #[must_use]
    pub const fn ends_in(self) -> u8 {
        match self {
            Self::Ignore => 0,
            Self::Stop => State::Stopped as u8,
            Self::Restart => State::Launching as u8,
            Self::Ladder(number) => LADDER + number,
        }
    }
}
