//! Hypercalls ([`bulkhead_layout::hypercall`]), for root.

use crate::arch::{Architecture, This};
use bulkhead_guest::{Here, Instructions};
use std::io;

/// Lets this program make hypercalls.
///
/// # Errors
/// If it is not root's, or the kernel lacks the call.
pub fn allow() -> io::Result<()> {
    This::allow_calls()
}

/// Makes a hypercall with two arguments. The program ends by a signal without [`allow`].
#[must_use]
pub fn call(number: u64, first: u64, second: u64) -> u64 {
    Here::call_as_user(number, first, second)
}
