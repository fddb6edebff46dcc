//! A Linux that ran before its monitor did: taken over on each of its cores, and given back.

use crate::contract::Monitor;
use crate::life;
use crate::outcome::Outcome;
use bulkhead_monitor_abi::hypercall::{BUSY, NO_CALL};
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::report::{Cause, State};
use core::sync::atomic::Ordering;

/// Tells if the guest of this sandbox is such a Linux.
#[inline(always)]
pub fn runs<M: Monitor>(m: &M) -> bool {
    M::has(need::RUNNING) && m.config().begin == State::Running as u32
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
#[inline(never)]
pub fn call<M: Monitor>(m: &M, length: u8) -> Outcome {
    let config = m.config();
    let live = |sandbox: &u32| {
        let status = m.mailbox(*sandbox).status.load(Ordering::Acquire);
        matches!(State::of(status as u8 as u32), State::Launching | State::Running)
    };
    let mut others = (0..config.sandboxes).filter(|sandbox| *sandbox != config.sandbox);
    // A program can make calls by a port, and its tables do not lead back.
    let refused = if !runs(m) || m.privilege() != 0 {
        NO_CALL
    } else if M::enforced("release-last") && others.any(|sandbox| live(&sandbox)) {
        BUSY
    } else {
        m.give_back();
        NO_CALL
    };
    m.answer(refused);
    Outcome::skip(Cause::Hypercall, length)
}
