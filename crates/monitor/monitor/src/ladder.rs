//! Answers to failures by ladders ([`bulkhead_monitor_abi::ladder`]), and guests that take the place of the first one.
//! The sandbox's first core alone is here.

use crate::contract::Monitor;
use crate::outcome::End;
use crate::record::add;
use crate::role;
use bulkhead_monitor_abi::ladder::Rung;
use bulkhead_monitor_abi::monitor::Start;
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::report::{DEEDS, State};
use bulkhead_monitor_abi::snapshot::Found;
use core::sync::atomic::Ordering::{Relaxed, Release};

/// Returns how the guest begins that has the place.
pub fn start<M: Monitor>(m: &M) -> &Start {
    let own = &m.config().start;
    if !M::has(need::LADDER) {
        return own;
    }
    // Guest 0 is the sandbox's own.
    let guest = m.shared(0).guest.load(Relaxed) as usize;
    m.alternatives().get(guest.wrapping_sub(1)).unwrap_or(own)
}

/// Tells if another guest has taken the place of the sandbox's own.
pub fn replaced<M: Monitor>(m: &M) -> bool {
    M::has(need::LADDER) && m.shared(0).guest.load(Relaxed) != 0
}

/// Answers an end: the state to go to. A ladder's deed is in the report before it is done.
pub fn answer<M: Monitor>(m: &M, end: End, incarnation: u32) -> State {
    let Some(number) = end.ladder().filter(|_| M::has(need::LADDER)) else {
        return end.in_state();
    };
    climb(m, number.into(), end, incarnation)
}

#[inline(never)]
fn climb<M: Monitor>(m: &M, number: usize, end: End, incarnation: u32) -> State {
    let (ladders, climbs) = (m.ladders(), &m.local().climbs);
    let (Some(ladder), Some(climb)) = (ladders.get(number), climbs.get(number)) else {
        return State::Stopped;
    };
    let now = m.now();
    // A ladder without an end is not baked; if one ends, so does the sandbox.
    let stop = Rung { action: Rung::STOP, ..Rung::default() };
    let take = || climb.take(ladder, now, m.clock().hz);
    let taken = if M::enforced("ladder") { take() } else { Some(0) };
    let (at, rung) = match taken {
        Some(at) => (at, ladder.rungs.get(at).copied().unwrap_or(stop)),
        None => (ladder.rungs.len(), stop),
    };
    let guest = &m.shared(0).guest;
    if rung.action == Rung::ALTERNATIVE {
        guest.store(rung.guest.into(), Relaxed);
    }
    if M::has(need::SNAPSHOT) {
        m.local().warm.set(rung.action == Rung::WARM);
    }
    let fails_over = M::has(need::ROLE) && rung.action == Rung::FAILOVER;
    // 0 says that each role chooses: one less is `STAYS`.
    let named = u32::from(rung.guest).wrapping_sub(1);
    let (roles, party) = if fails_over { role::choose(m, named) } else { (0, 0) };
    let what = What { action: rung.action, rung: at as u8, roles, party };
    note(m, now, 0, [end.condition(), end.core()], incarnation, what);
    match rung.action {
        Rung::STOP => State::Stopped,
        // A sandbox that begins for a role waits for the next one.
        Rung::FAILOVER if roles != 0 => role::rest(m, roles),
        _ => State::Launching,
    }
}

/// A deed, without its cause.
struct What {
    action: u8,
    rung: u8,
    roles: u32,
    party: u32,
}

/// Leaves a deed in the report, found at a time in a condition and by a core. The guest runs again since `begun`; 0:
/// not yet.
#[inline(never)]
fn note<M: Monitor>(
    m: &M,
    found: u64,
    begun: u64,
    [condition, core]: [u16; 2],
    incarnation: u32,
    what: What,
) {
    let before = add(&m.report().deeds_done);
    let deed = &m.report().deeds[before as usize % DEEDS];
    deed.seq.store(0, Relaxed);
    core::sync::atomic::fence(Release);
    deed.found.store(found, Relaxed);
    deed.begun.store(begun, Relaxed);
    deed.condition.store(condition, Relaxed);
    deed.core.store(core, Relaxed);
    deed.action.store(what.action, Relaxed);
    deed.rung.store(what.rung, Relaxed);
    deed.guest.store(m.shared(0).guest.load(Relaxed) as u16, Relaxed);
    deed.incarnation.store(incarnation, Relaxed);
    if M::has(need::SNAPSHOT) {
        deed.broken.store(0, Relaxed);
        deed.snapshot.store(0, Relaxed);
    }
    if M::has(need::ROLE) {
        deed.roles.store(what.roles, Relaxed);
        deed.party.store(what.party, Relaxed);
    }
    deed.seq.store(before + 1, Release);
}

/// Notes that roles have come from another sandbox.
pub fn took<M: Monitor>(m: &M, roles: u32, from: u32) {
    let what = What { action: Rung::TOOK, rung: 0, roles, party: from };
    let incarnation = m.local().incarnation.get();
    add(&m.report().took);
    let now = m.now();
    // A guest that begins for it notes when.
    let runs = m.report().state.load(Relaxed) == State::Running as u32;
    note(m, now, if runs { now } else { 0 }, [0, 0], incarnation, what);
}

/// Notes the snapshot that the next life is offered.
pub fn found<M: Monitor>(m: &M, found: Found) {
    let done = m.report().deeds_done.load(Relaxed);
    let deed = &m.report().deeds[done.wrapping_sub(1) as usize % DEEDS];
    deed.broken.store(found.broken, Relaxed);
    deed.snapshot.store(found.generation, Relaxed);
}

/// Notes that the guest runs again.
pub fn begun<M: Monitor>(m: &M) {
    let done = m.report().deeds_done.load(Relaxed);
    if !M::has(need::LADDER) || done == 0 {
        return;
    }
    let deed = &m.report().deeds[(done - 1) as usize % DEEDS];
    // Once: a later launch is another request's.
    if deed.begun.load(Relaxed) == 0 && deed.action.load(Relaxed) != Rung::STOP {
        deed.begun.store(m.now(), Relaxed);
    }
}

/// Begins with the sandbox's own guest and the lowest rungs: another sandbox has asked for a start.
pub fn reset<M: Monitor>(m: &M) {
    if M::has(need::LADDER) {
        m.shared(0).guest.store(0, Relaxed);
        m.local().climbs.iter().for_each(|climb| climb.reset());
        m.local().warm.set(false);
    }
}
