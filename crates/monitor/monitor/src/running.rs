//! A Linux that ran before its monitor did: taken over on each of its cores, and given back. A fresh one can begin in
//! its place, as any guest begins anew ([`life`]).

use crate::contract::Monitor;
use crate::life;
use crate::outcome::Outcome;
use bulkhead_monitor_abi::hypercall::{BUSY, NO_CALL};
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::report::{Cause, State};
use core::sync::atomic::Ordering;

/// Microseconds until a core has been taken out of its monitor.
const DISMISSED: u64 = 100;

/// Tells if the guest of this sandbox is such a Linux.
#[inline(always)]
pub fn runs<M: Monitor>(m: &M) -> bool {
    M::has(need::RUNNING) && m.config().begin == State::Running as u32
}

/// Tells if the image keeps a guest that begins anew in that Linux' place: then it has an argument. A monitor without
/// code for devices would not stop them.
#[inline(always)]
pub fn begins_anew<M: Monitor>(m: &M) -> bool {
    M::has(need::RUNNING) && M::has(need::DEVICES) && m.config().start.argument != 0
}

/// Takes this core over: its control block has the guest's state.
pub fn begin<M: Monitor>(m: &M) {
    m.local().incarnation.set(0);
    if m.is_first() {
        m.shared(0).life.store(1, Ordering::SeqCst);
        m.report().begin_ticks.store(m.now(), Ordering::Relaxed);
        m.report().launch_ticks.store(m.now(), Ordering::Relaxed);
        life::state(m, State::Running);
    }
}

/// Gives this core back, by an instruction of `length` bytes, if all other sandboxes have ended.
///
/// From then on this core is confined no more. So before it leaves, the core that leads each other sandbox is taken out
/// of its monitor, and no request can begin one any more. A start that is under way at this moment is lost.
///
/// The first core decides for all, and leaves first. It also leads each restart of this sandbox, in which it waits for
/// all others: so none of them is gone then (`crates/monitor/launch/tests/leaving.rs`).
#[inline(never)]
pub fn call<M: Monitor>(m: &M, length: u8) -> Outcome {
    // A program can make calls by a port, and its tables do not lead back. Nor do those of a Linux that began anew.
    let refused = if !runs(m) || m.privilege() != 0 || m.local().incarnation.get() != 0 {
        NO_CALL
    } else if !leaves(m) && M::enforced("release-last") {
        BUSY
    } else {
        m.give_back();
        NO_CALL
    };
    m.answer(refused);
    Outcome::skip(Cause::Hypercall, length)
}

/// Tells if this core may leave. No other sandbox begins a life then.
fn leaves<M: Monitor>(m: &M) -> bool {
    let (config, left) = (m.config(), &m.shared(0).left);
    if !m.is_first() {
        return left.load(Ordering::Acquire) != 0;
    }
    let others = || (0..config.sandboxes).filter(|sandbox| *sandbox != config.sandbox);
    let lives = |sandbox: u32| {
        let status = m.mailbox(sandbox).status.load(Ordering::Acquire);
        matches!(State::of(status as u8 as u32), State::Launching | State::Running)
    };
    if others().any(lives) {
        return false;
    }
    // Its other cores wait for that one.
    let first = |sandbox: u32| config.first_core.get(sandbox as usize);
    others().filter_map(first).for_each(|id| m.dismiss(*id));
    // Until it has come: a monitor takes it in its next window.
    let begin = m.now();
    while m.now().wrapping_sub(begin) < DISMISSED * M::MICROSECOND {
        core::hint::spin_loop();
    }
    left.store(1, Ordering::Release);
    true
}
