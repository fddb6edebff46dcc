//! On the host there are no other cores to start.

use crate::Context;

/// Entry of another core, which a host does not start.
pub type Entry = fn(Context, usize);

/// Starts nothing.
#[must_use]
pub fn start(_: Context, _: usize, _: Entry) -> bool {
    false
}
