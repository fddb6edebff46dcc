//! Signs of life for the watchdog of the sandbox's monitor.

use crate::{Context, cores};
use bulkhead_layout::map::PROGRESS_GPA;
use bulkhead_layout::watch::Progress;
use core::sync::atomic::Ordering;

/// Moves the calling core's progress word: the core goes on. Without a watchdog that looks there is nothing to do.
///
/// The core has to call it within each [`alive`]. A core that waits for long calls [`rest`] before.
pub fn kick(context: Context) {
    // 0 says something else, and comes around after 2^64 kicks.
    set(context, |word| word.wrapping_add(1).max(1));
}

/// Says that the calling core does not report any more, until it does again: for a core that is put aside.
pub fn rest(context: Context) {
    set(context, |_| 0);
}

/// Longest time from a kick to the next, nanoseconds; `None`: nobody looks.
#[must_use]
pub fn alive(context: Context) -> Option<u64> {
    let microseconds = context.info().alive;
    (microseconds != 0).then_some(microseconds * 1_000)
}

fn set(context: Context, next: impl FnOnce(u64) -> u64) {
    if context.info().alive == 0 {
        return;
    }
    // SAFETY: the information page is the monitor's word that this page is mapped, writable, as long as the sandbox
    // runs; its fields are atomics.
    let progress = unsafe { &*(PROGRESS_GPA as *const Progress) };
    if let Some(word) = progress.cores.get(cores::index()) {
        word.0.store(next(word.0.load(Ordering::Relaxed)), Ordering::Relaxed);
    }
}
