//! The two ends of a channel, whatever it carries: messages are bytes here, since C has them as nothing else. Their
//! patience is a limit.
#![forbid(unsafe_code)]

use crate::bell::{Bed, Call};
use crate::machine;
use bulkhead_channel_memory::waiting::{self, Patience};

/// The end that sends.
pub type Sender = waiting::Sender<'static, Call>;
/// The end that receives.
pub type Receiver = waiting::Receiver<'static, Bed>;

/// Until when to wait.
#[derive(Clone, Copy, Debug)]
pub struct Limit(Option<u64>);

impl Limit {
    /// No limit: for ever.
    pub const NONE: Self = Self(None);

    /// Milliseconds from now, as C has them: 0 doesn't wait, below 0 is for ever.
    #[must_use]
    pub fn of(millis: i64) -> Self {
        let nanos = u64::try_from(millis).ok().map(|millis| millis.saturating_mul(1_000_000));
        Self(nanos.map(|nanos| match nanos {
            0 => 0,
            _ => machine::counter().saturating_add(machine::ticks(nanos)),
        }))
    }

    /// As a value of the counter, the last of all for none.
    pub(crate) fn at(self) -> u64 {
        self.0.unwrap_or(u64::MAX)
    }
}

impl Patience for Limit {
    fn is_over(&self) -> bool {
        self.0.is_some_and(|until| until == 0 || machine::counter() >= until)
    }

    fn rest(&mut self) {
        core::hint::spin_loop();
    }
}
