//! The sandbox's other cores.

use crate::Context;
use crate::arch::{Architecture, This};

/// Entry of another core, with its context and its index. When it returns, the core sleeps.
pub type Entry = fn(Context, usize);

/// Starts core `index` (from 1) with `entry`. False if it did not come up within
/// 100 ms or there is no such core.
#[must_use]
pub fn start(context: Context, index: usize, entry: Entry) -> bool {
    This::start_core(context, index, entry)
}

/// Index of the calling core among the sandbox's cores.
#[must_use]
pub fn index() -> usize {
    This::core()
}
