//! A sandbox's life: launch, end, restart, and the waiting in between. The
//! first core leads; the others wait parked until the guest starts them.

use crate::contract::Monitor;
use crate::outcome::End;
use crate::record::record;
use crate::{debug, ladder, link, mail, peer, role, running, signal, snapshot, watch};
use bulkhead_monitor_abi::cores::To;
use bulkhead_monitor_abi::hypercall::{BAD_ARGUMENT, NO_CALL, OK, STATUS_LOCKED};
use bulkhead_monitor_abi::load::{HEAD, PROGRAM_GPA, sum};
use bulkhead_monitor_abi::map::GUEST_VA;
use bulkhead_monitor_abi::monitor::Slice;
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::record::{RecordMemory, play};
use bulkhead_monitor_abi::report::{Cause, Condition, State};
use core::sync::atomic::Ordering;

/// Begins on a core that has entered its monitor. Returns when its guest can run.
pub fn begin<M: Monitor>(m: &M) {
    if running::runs(m) {
        return running::begin(m);
    }
    role::begin(m);
    if let Some(how) = peer::taken(m) {
        return end(m, how);
    }
    if !m.is_first() {
        return park(m, 0);
    }
    // No core is rung before it can take a doorbell.
    next(m, State::of(m.config().begin));
}

/// Begins the next life, after a wait in `then`. Its text is there once, as no exit in steady state comes here.
#[inline(never)]
fn next<M: Monitor>(m: &M, then: State) {
    peer::pause(m);
    assemble(m);
    settle(m, then);
    peer::pause(m);
    launch(m);
}

/// Plays the launch record: the guest is as at its first start.
fn launch<M: Monitor>(m: &M) {
    let report = m.report();
    if running::runs(m) && !running::begins_anew(m) {
        // Its memory holds what is left of it, and no record can make it anew.
        fail(m);
    }
    // The guest's pending interrupts may have hidden a doorbell. From here on none is lost before the guest runs.
    link::look(m);
    report.begin_ticks.store(m.now(), Ordering::Relaxed);
    m.shared(0).life.fetch_add(1, Ordering::SeqCst);
    report.restarts.store(u64::from(incarnation(m)), Ordering::Relaxed);
    report.loaded.store(0, Ordering::Relaxed);
    state(m, State::Launching);
    snapshot::begin(m);
    role::settle(m);
    let loaded = load(m);
    match loaded {
        None => play(&mut m.memory(), m.ops(ladder::start(m).launch), 0),
        Some(_) => report.loaded.store(1, Ordering::Relaxed),
    }
    report.played_ticks.store(m.now(), Ordering::Relaxed);
    let start = ladder::start(m);
    fresh(m, start.first_state);
    m.begin([u64::from(incarnation(m)), start.argument], loaded);
    state(m, State::Running);
    report.launch_ticks.store(m.now(), Ordering::Relaxed);
    ladder::begun(m);
}

/// Fills memory with the program that another sandbox has left, if it is whole; its first instruction. Not for the
/// first life: the memory of programs has not been cleared then.
fn load<M: Monitor>(m: &M) -> Option<u64> {
    let config = m.config();
    if !M::has(need::LOADS) || config.loads == 0 || incarnation(m) == 0 || ladder::replaced(m) {
        return None;
    }
    // Copied once: the sender may change it at any time.
    let head = m.head();
    if !head.fits(config.room) && M::enforced("load-head") {
        return None;
    }
    let mut memory = m.memory();
    play(&mut memory, m.ops(config.empty), 0);
    // The copy is summed up and run: the channel may change.
    memory.copy(GUEST_VA + PROGRAM_GPA, config.loads + HEAD, head.len);
    (sum(m.program(head.len)) == head.sum || !M::enforced("load-sum")).then_some(head.entry)
}

/// Sets the guest's state on this core as a record says.
fn fresh<M: Monitor>(m: &M, record: Slice) {
    m.reset(m.ops(record));
    m.local().incarnation.set(incarnation(m));
    watch::begin(m);
    debug::begin(m);
    // The steady phase begins anew with the guest.
    m.counters().steady_ticks.store(0, Ordering::Relaxed);
}

/// Leaves a guest's exit code in the report.
pub fn leave<M: Monitor>(m: &M, code: u32) {
    m.report().exit_code.store(code, Ordering::Relaxed);
}

/// Ends the guest's life, and begins the next one, sooner or later.
pub fn end<M: Monitor>(m: &M, end: End) {
    if !m.is_first() {
        // The first core leads; this one waits for the next life's start-up.
        let how = u32::from(end.by(m.index()).bits());
        signal::send(m, 0, signal::END | how << signal::END_HOW);
        return park(m, m.local().incarnation.get() * 2 + 1);
    }
    m.report().violation_ticks.store(m.now(), Ordering::Relaxed);
    let then = ladder::answer(m, end, incarnation(m));
    m.shared(0).life.fetch_add(1, Ordering::SeqCst);
    if M::has(need::CORES) {
        signal::send_each(m, To::Others, signal::PARK);
    }
    next(m, then);
}

/// Restarts of the sandbox so far. A few times a life, so its text is there once.
#[inline(never)]
fn incarnation<M: Monitor>(m: &M) -> u32 {
    m.shared(0).life.load(Ordering::Acquire).saturating_sub(1) / 2
}

/// Waits until every other core has parked and has seen that there is no life:
/// none leaves before the next one, whatever was signalled before. They are in
/// guests or in handlers that wait a millisecond at most, so this ends; if one failed, so has
/// the sandbox.
fn assemble<M: Monitor>(m: &M) {
    let patience = 500_000 * M::MICROSECOND;
    let cores = m.cores();
    let (begin, seen) = (m.now(), m.shared(0).life.load(Ordering::Acquire) + 1);
    let absent = |index: u32| m.shared(index).parked.load(Ordering::Acquire) != seen;
    while (1..cores).any(absent) {
        if m.now().wrapping_sub(begin) > patience {
            fail(m);
        }
        core::hint::spin_loop();
    }
    // They were sent in the life that has ended.
    (0..cores).for_each(|i| m.shared(i).signals.store(0, Ordering::Release));
    // The guest writes no more. The interrupts of its last doorbells go with the rest below.
    mail::bury(m);
    link::end(m);
    // Not before: a core that still ran could have opened a line again. Interrupts that a
    // line has left pending go with the rest.
    m.silence_lines();
    // Also before the first life: the firmware has used devices. Interrupts that they have
    // sent go with the rest.
    if let Err(register) = m.quiet() {
        record(m, Condition::DeviceRest, register, 0);
        fail(m);
    }
    m.silence();
    role::end(m);
}

/// Stays, because the sandbox cannot be started again.
fn fail<M: Monitor>(m: &M) -> ! {
    state(m, State::Failed);
    // The last one: a peer is to find it.
    peer::beat(m);
    loop {
        m.sleep();
    }
}

/// Waits in `then` if that is not a launch. A request's doorbell may have been taken on the way here, and will not
/// come again: so it looks for requests.
fn settle<M: Monitor>(m: &M, mut then: State) {
    loop {
        if then != State::Launching {
            wait_for_start(m, then);
            ladder::reset(m);
        }
        if !mail::stop_requested(m) {
            return;
        }
        then = State::Stopped;
    }
}

/// Sleeps in a state until a sandbox with the right to it asks for a start.
fn wait_for_start<M: Monitor>(m: &M, in_state: State) {
    state(m, in_state);
    peer::beat(m);
    let starts = || mail::start_requested(m) || role::calls(m, in_state);
    while !starts() {
        m.local().doorbell.set(0);
        if starts() {
            return;
        }
        m.sleep();
        // A monitor that is not the one that was built says nothing any more.
        if in_state != State::Failed {
            peer::beat(m);
        }
        link::look(m);
    }
}

/// Waits for a start-up and makes the core ready for it. Not in the life `ended`, for which
/// this core has asked the end; 0 is none.
pub fn park<M: Monitor>(m: &M, ended: u32) {
    let (own, life) = (m.own(), &m.shared(0).life);
    m.silence();
    let signals = loop {
        m.local().doorbell.set(0);
        link::look(m);
        let seen = life.load(Ordering::SeqCst);
        own.parked.store(seen + 1, Ordering::SeqCst);
        // Without a life signals are the last one's, and the first core drops them.
        if seen % 2 != 0 && seen != ended {
            let signals = own.signals.swap(0, Ordering::SeqCst);
            if signals & signal::START != 0 {
                // Interrupts that other cores sent to the parked one are not for the new life.
                m.silence();
                // A doorbell from here on stays pending until the guest runs; an earlier one
                // shows here.
                let init = own.signals.load(Ordering::SeqCst) & signal::PARK;
                if init == 0 && life.load(Ordering::SeqCst) == seen {
                    break signals;
                }
                continue;
            }
        }
        m.sleep();
        peer::beat(m);
    };
    // The guest's pending interrupts may have hidden a doorbell. From here on none is lost before the guest runs.
    link::look(m);
    own.parked.store(0, Ordering::Release);
    fresh(m, ladder::start(m).other_state);
    m.startup(signals as u8);
}

/// Sets the state where the host and other monitors look. A few times a life, so its text is there once.
#[inline(never)]
pub fn state<M: Monitor>(m: &M, state: State) {
    let report = m.report();
    report.state_ticks.store(m.now(), Ordering::Relaxed);
    report.state.store(state as u32, Ordering::Relaxed);
    let loaded = report.loaded.load(Ordering::Relaxed);
    // One word, so that no reader sees the state of one life with the number of another.
    let mut status = state as u64 | u64::from(incarnation(m)) << 8 | u64::from(loaded) << 40;
    // A lock outlives a guest that begins anew, and no other end.
    if M::has(need::LOCK) && report.locked.load(Ordering::Relaxed) != 0 {
        match state {
            State::Launching | State::Running => status |= STATUS_LOCKED,
            _ => report.locked.store(0, Ordering::Relaxed),
        }
    }
    m.mailbox(m.config().sandbox).status.store(status, Ordering::Release);
}

/// Locks the sandbox, or unlocks it. The first core takes requests, so each comes before or behind this.
#[inline(always)]
pub fn lock<M: Monitor>(m: &M, locked: u64) -> u64 {
    if m.config().lockable == 0 {
        return NO_CALL;
    }
    if locked > 1 || !m.is_first() {
        return BAD_ARGUMENT;
    }
    m.report().locked.store(locked as u32, Ordering::Relaxed);
    let status = &m.mailbox(m.config().sandbox).status;
    let others = status.load(Ordering::Relaxed) & !STATUS_LOCKED;
    status.store(others | (locked * STATUS_LOCKED), Ordering::Release);
    OK
}

/// Tells if no other sandbox may end the guest.
pub fn locked<M: Monitor>(m: &M) -> bool {
    M::has(need::LOCK) && m.report().locked.load(Ordering::Relaxed) != 0 && M::enforced("lock")
}

/// Begins the steady phase on this core: exits count as steady after this one, which counts for `cause`. Once
/// a life, so that a guest cannot hide its exits, and so its text is there once.
#[inline(never)]
pub fn steady<M: Monitor>(m: &M, cause: Cause) {
    let counters = m.counters();
    if counters.steady_ticks.load(Ordering::Relaxed) != 0 {
        return;
    }
    for (boot, exits) in counters.boot_exits.iter().zip(&counters.exits) {
        boot.store(exits.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    crate::record::add(&counters.boot_exits[cause as usize]);
    counters.steady_ticks.store(m.now(), Ordering::Relaxed);
}
