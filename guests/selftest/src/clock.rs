//! Timers fire when they should.

use crate::{Wrong, ensure};
use bulkhead_sdk::time::Periodic;
use bulkhead_sdk::{Context, interrupt, time};
use core::sync::atomic::{AtomicU64, Ordering};

const MILLISECOND: u64 = 1_000_000;

fn allowed(context: Context) -> u64 {
    context.arg_u64("late").unwrap_or(100_000)
}

/// Sleeps end neither early nor late.
pub fn one_shot(context: Context) -> Result<(), Wrong> {
    for n in 1..=10 {
        let due = time::counter() + time::ticks(n * MILLISECOND / 4);
        time::sleep_until(due);
        let late = time::nanos(time::counter() - due);
        ensure(late <= allowed(context), "late by ns", late)?;
    }
    Ok(())
}

static RELEASES: AtomicU64 = AtomicU64::new(0);
static DUE: AtomicU64 = AtomicU64::new(0);
static WORST: AtomicU64 = AtomicU64::new(0);

fn released(_: &mut interrupt::Frame, now: u64) {
    let due = DUE.load(Ordering::Relaxed);
    if now < due {
        time::arm(due);
        return;
    }
    let next = due + time::ticks(MILLISECOND);
    time::arm(next);
    DUE.store(next, Ordering::Relaxed);
    WORST.fetch_max(now - due, Ordering::Relaxed);
    RELEASES.fetch_add(1, Ordering::Relaxed);
}

/// Fifty releases at absolute times: no drift.
pub fn periodic(context: Context) -> Result<(), Wrong> {
    const COUNT: u64 = 50;
    let start = time::counter() + time::ticks(MILLISECOND);
    DUE.store(start, Ordering::Relaxed);
    Periodic::new(start, time::ticks(MILLISECOND)).start(0x41, released);
    while RELEASES.load(Ordering::Relaxed) < COUNT {
        interrupt::wait();
    }
    time::disarm();
    let took = time::nanos(time::counter() - start);
    let drift = took.abs_diff((COUNT - 1) * MILLISECOND);
    ensure(drift <= allowed(context), "drift in ns", drift)?;
    let worst = time::nanos(WORST.load(Ordering::Relaxed));
    ensure(worst <= allowed(context), "late by ns", worst)
}
