//! The watchdog: ticks that come whatever the guest does, and the looks that each of them takes
//! ([`bulkhead_monitor_abi::watch`]).

use crate::contract::Monitor;
use crate::outcome::Outcome;
use crate::record::{deny, record};
use crate::{ladder, peer};
use bulkhead_monitor_abi::map::{GUEST_VA, MMIO_VA};
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::report::{Cause, Condition, State};
use bulkhead_monitor_abi::watch::{FixedPage, PARTS, sum};
use core::sync::atomic::Ordering;

/// Begins with a fresh guest on this core.
pub fn begin<M: Monitor>(m: &M) {
    if !M::has(need::WATCHDOG) || m.config().watch.least == 0 {
        return;
    }
    next(m);
    peer::beat(m);
    // The last life's word is no move of this one's.
    moved(m, word(m));
    m.local().patience.set(m.config().watch.first);
    again(m);
}

/// Tells if a doorbell is a tick, or may have hidden one.
///
/// One that another monitor rings shortly before the tick is taken for it. Then the tick itself counts as a doorbell:
/// each period has one look.
pub fn due<M: Monitor>(m: &M) -> bool {
    if !M::has(need::WATCHDOG) || m.config().watch.least == 0 || m.now() < m.local().due.get() {
        return false;
    }
    next(m);
    true
}

/// Sets when the next tick may come.
fn next<M: Monitor>(m: &M) {
    let ticks = u64::from(m.config().watch.least).wrapping_mul(m.clock().hz) / 1_000_000;
    let due = m.now().wrapping_add(ticks);
    m.local().due.set(due);
    m.tick_at(due);
}

/// Looks at the guest, and at the monitor itself, at a tick. The outcome is the one that the manifest demands; else
/// `done`.
#[inline(never)]
pub fn look<M: Monitor>(m: &M, done: Outcome) -> Outcome {
    peer::beat(m);
    if m.is_first() {
        peer::look(m);
    }
    match progress(m, done) {
        gone if gone != done => gone,
        _ => sweep(m, done),
    }
}

/// Looks whether the guest goes on.
fn progress<M: Monitor>(m: &M, done: Outcome) -> Outcome {
    let (watch, local) = (m.config().watch, m.local());
    if watch.alive == 0 {
        return done;
    }
    // A claim: it can only say that this core of this guest goes on.
    let now = word(m);
    if now != local.progress.get() {
        moved(m, now);
        local.patience.set(if now == 0 { watch.first } else { watch.alive });
        return done;
    }
    let still = local.still.get().saturating_add(1);
    local.still.set(still);
    // Once, so that a guest that is to go on does not fill its records.
    if still == local.patience.get() && M::enforced("watchdog") {
        return deny(m, Condition::Hang, now, still.into(), done);
    }
    done
}

/// Looks at the core's control block, and on the first core at a few parts of the pages that nothing changes.
fn sweep<M: Monitor>(m: &M, done: Outcome) -> Outcome {
    let start = ladder::start(m);
    let [pages, steady] = start.fixed;
    if !M::enforced("sweep") {
        return done;
    }
    if let Some([field, value]) = m.altered(m.ops(steady)) {
        return deny(m, Condition::ControlBlock, field, value, done);
    }
    if !m.is_first() {
        return done;
    }
    let (local, pages) = (m.local(), m.fixed_pages(pages));
    for _ in 0..start.parts {
        let part = local.part.get();
        let Some(page) = pages.get((part / PARTS) as usize) else {
            again(m);
            continue;
        };
        let sum = sum(local.sum.get(), m.part(page, part % PARTS));
        local.part.set(part.wrapping_add(1));
        local.sum.set(sum);
        if part % PARTS != PARTS - 1 {
            continue;
        }
        local.sum.set(0);
        if sum != page.sum {
            return wrong(m, page, sum, done);
        }
    }
    done
}

/// Begins a sweep.
fn again<M: Monitor>(m: &M) {
    m.local().part.set(0);
    m.local().sum.set(0);
}

/// A page has another sum.
#[inline(never)]
fn wrong<M: Monitor>(m: &M, page: &FixedPage, sum: u64, done: Outcome) -> Outcome {
    match page.at.checked_sub(GUEST_VA) {
        Some(gpa) if page.at < MMIO_VA => deny(m, Condition::GuestSum, gpa, sum, done),
        // No manifest has it go on: it is not the one that was built.
        _ => {
            record(m, Condition::MonitorSum, page.at, sum);
            Outcome::end(Cause::Watchdog, State::Failed)
        }
    }
}

/// Notes a move of the progress word.
fn moved<M: Monitor>(m: &M, to: u64) {
    m.local().progress.set(to);
    m.local().still.set(0);
}

/// Returns this core's progress word.
fn word<M: Monitor>(m: &M) -> u64 {
    if m.config().watch.alive == 0 {
        return 0;
    }
    let word = m.progress().cores.get(m.index() as usize);
    word.map_or(0, |word| word.0.load(Ordering::Relaxed))
}
