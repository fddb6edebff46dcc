//! Time: nanoseconds since the processor's start, by its counter; no call is needed to read it.

use crate::call::{Error, Message, send};
use crate::names::Program;
use crate::objects::Notification;
use crate::start::current;
use bulkhead_guest::{Here, Instructions, scale};
use bulkhead_kernel_abi::Op;

const NANO: u64 = 1_000_000_000;

/// A deadline that never comes.
pub const FOREVER: u64 = u64::MAX;

/// Reads the time.
#[must_use]
#[inline]
pub fn now() -> u64 {
    nanos(Here::counter())
}

/// Converts ticks of the counter to nanoseconds of [`now`], rounded down.
#[must_use]
#[inline]
pub fn nanos(ticks: u64) -> u64 {
    scale(ticks, current().map_or(1 << 32, |program: Program| program.clock().nanos))
}

/// Converts nanoseconds to ticks of the counter. Cores that number releases by the counter alone come to one number.
#[must_use]
pub fn ticks(nanos: u64) -> u64 {
    let hz = current().map_or(NANO, |program: Program| program.clock().hz);
    (u128::from(nanos) * u128::from(hz) / u128::from(NANO)) as u64
}

/// Gives up the rest of the budget until it is refilled; the last of its priority then.
pub fn yield_now() {
    // Nothing can be wrong with it.
    let _ = send(Op::Yield, 0, 0, Message::default());
}

/// Sleeps until a time: waits for a notification that is never signalled.
///
/// # Errors
/// [`bulkhead_kernel_abi::Code::NoContext`]: the thread runs on another thread's time.
pub fn sleep_until(notification: Notification, until: u64) -> Result<(), Error> {
    match notification.wait_until(until) {
        Err(error) if error.code() != Some(bulkhead_kernel_abi::Code::TimedOut) => Err(error),
        _ => Ok(()),
    }
}

/// Waits for bits until a time; none if it came first.
///
/// # Errors
/// As [`Notification::wait_until`], but not the time.
pub fn wait_until(notification: Notification, until: u64) -> Result<Option<u64>, Error> {
    match notification.wait_until(until) {
        Ok(bits) => Ok(Some(bits)),
        Err(error) if error.code() == Some(bulkhead_kernel_abi::Code::TimedOut) => Ok(None),
        Err(error) => Err(error),
    }
}
