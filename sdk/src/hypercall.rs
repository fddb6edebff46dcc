//! The monitor's services ([`bulkhead_layout::hypercall`]).

use crate::arch::{Architecture, This};
use bulkhead_guest::{Here, Instructions, packed};
use bulkhead_layout::hypercall as call;
pub use bulkhead_layout::hypercall::{
    BAD_ARGUMENT, BUSY, CONTROL_RESTART, CONTROL_START, CONTROL_STOP, DENIED, LOCKED, NO_CALL, OK,
    STATUS_LOCKED,
};

/// Makes any hypercall, also one that does not exist.
pub fn raw(number: u64, a: u64, b: u64, c: u64, d: u64) -> u64 {
    Here::call(number, [a, b, c, d])
}

/// Does nothing.
pub fn null() -> u64 {
    raw(call::NULL, 0, 0, 0, 0)
}

/// Writes up to 24 bytes to the console; bytes beyond are cut off.
pub fn console(bytes: &[u8]) -> u64 {
    let [a, b, c] = packed(bytes);
    raw(call::CONSOLE, bytes.len().min(24) as u64, a, b, c)
}

/// Ends the sandbox.
pub fn exit(code: u32) -> ! {
    raw(call::EXIT, u64::from(code), 0, 0, 0);
    // It came back: there is no monitor, or it is broken.
    This::stop()
}

/// Declares that the guest has booted.
pub fn ready() {
    raw(call::READY, 0, 0, 0, 0);
}

/// Launches this sandbox anew.
pub fn restart() -> ! {
    raw(call::RESTART, 0, 0, 0, 0);
    // It came back: there is no monitor, or it is broken.
    This::stop()
}

/// Locks this sandbox, or unlocks it: while it is locked, no other sandbox stops or restarts it. From the first core,
/// and where the manifest has `lockable`.
#[must_use]
pub fn lock(locked: bool) -> u64 {
    raw(call::LOCK, u64::from(locked), 0, 0, 0)
}

/// Asks another sandbox's monitor for one of the `CONTROL_*`.
#[must_use]
pub fn control(sandbox: u32, request: u64) -> u64 {
    raw(call::CONTROL, u64::from(sandbox), request, 0, 0)
}

/// State and restarts of another sandbox, as [`call::STATUS`] gives them.
#[must_use]
pub fn status(sandbox: u32) -> u64 {
    raw(call::STATUS, u64::from(sandbox), 0, 0, 0)
}
