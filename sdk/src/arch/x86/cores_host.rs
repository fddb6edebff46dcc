//! On the host there are no other cores to start.

use crate::Context;
use crate::cores::Entry;

/// Starts nothing.
pub(crate) fn start(_: Context, _: usize, _: Entry) -> bool {
    false
}
