//! A debugger's way into the guest ([`bulkhead_monitor_abi::debug`]): one core, which waits here while it is stopped.

use crate::contract::Monitor;
use crate::outcome::Outcome;
use crate::{link, mail, peer, role};
use bulkhead_monitor_abi::debug::{
    BROKE, GO, MOST, READ, REFLECT, REGISTERS, RUNS, STEP, STEPPED, STOP, STOPPED, WRITE,
};
use bulkhead_monitor_abi::map::GUEST_VA;
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::report::Cause;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Tells if a debugger is let in.
pub fn lets<M: Monitor>(m: &M) -> bool {
    M::has(need::DEBUG) && m.config().debug != 0
}

/// Begins with a life. A debugger may have asked before, and stops the guest at its first instruction then.
pub fn begin<M: Monitor>(m: &M) {
    if !lets(m) {
        return;
    }
    m.listen();
    m.debugger().state.store(RUNS, Relaxed);
    m.debugger().stepping.store(0, Relaxed);
    if asks(m) {
        m.ring(m.config().core_ids[0]);
    }
}

fn asks<M: Monitor>(m: &M) -> bool {
    let (request, answer) = (&m.debugger().request, &m.debugger().answer);
    let wanted = request.load(Acquire);
    wanted != answer.load(Relaxed) && wanted as u8 == STOP
}

/// Looks, at a doorbell, if a debugger wants the guest to stop.
pub fn look<M: Monitor>(m: &M, cause: Cause) -> Option<Outcome> {
    (lets(m) && asks(m)).then(|| hold(m, STOPPED, cause))
}

/// Handles a breakpoint instruction, or the end of a step. `None`: it is the guest's own affair.
pub fn caught<M: Monitor>(m: &M, breakpoint: bool) -> Option<Outcome> {
    if !lets(m) {
        return None;
    }
    if breakpoint {
        return Some(match m.debugger().attached.load(Relaxed) {
            0 => m.reflect(Cause::Exception),
            _ => hold(m, BROKE, Cause::Exception),
        });
    }
    // A debugger's own, once: it is over with the exception.
    let stepped = m.debugger().stepping.swap(0, Relaxed) != 0;
    stepped.then(|| hold(m, STEPPED, Cause::Exception))
}

/// Waits until the debugger lets the guest go on, or another sandbox ends it.
#[inline(never)]
fn hold<M: Monitor>(m: &M, why: u64, cause: Cause) -> Outcome {
    let page = m.debugger();
    // It may be in the midst of a step, too.
    page.stepping.store(0, Relaxed);
    m.step(false);
    m.show(page);
    page.state.store(why, Release);
    loop {
        // Cleared before the look: whoever leaves a request sets it again.
        m.local().doorbell.set(0);
        let request = page.request.load(Acquire);
        if request != page.answer.load(Relaxed) {
            let what = request as u8;
            let done = match what {
                READ | WRITE => copy(m, what == WRITE),
                REGISTERS => {
                    m.adopt(page);
                    true
                }
                _ => true,
            };
            page.refused.store(u64::from(!done), Relaxed);
            if matches!(what, GO | STEP | REFLECT) {
                page.stepping.store(u64::from(what == STEP), Relaxed);
                m.step(what == STEP);
                page.state.store(RUNS, Relaxed);
                page.answer.store(request, Release);
                // Its next exit is at once, and finds all else that came meanwhile.
                m.ring(m.config().core_ids[0]);
                return if what == REFLECT { m.reflect(cause) } else { Outcome::resume(cause) };
            }
            page.answer.store(request, Release);
        }
        if let Some(state) = mail::asked(m) {
            page.state.store(RUNS, Release);
            return Outcome::end(cause, state);
        }
        link::look(m);
        if M::has(need::ROLE) {
            role::look(m);
        }
        m.sleep();
        peer::beat(m);
    }
}

/// Copies between the page and the guest's RAM. False if the words are not all there.
fn copy<M: Monitor>(m: &M, write: bool) -> bool {
    let page = m.debugger();
    // Claims, read once.
    let [at, len] = page.argument.each_ref().map(|word| word.load(Relaxed));
    let inside = |ram: &bulkhead_monitor_abi::monitor::Ram| {
        at.checked_sub(ram.gpa).is_some_and(|offset| offset < ram.len && len <= ram.len - offset)
    };
    if (at | len) % 8 != 0 || len > MOST as u64 || !m.config().ram.iter().any(inside) {
        return false;
    }
    for (n, word) in page.data.iter().enumerate().take(len as usize / 8) {
        let place = m.word(GUEST_VA + at + n as u64 * 8);
        let (from, to) = if write { (word, place) } else { (place, word) };
        to.store(from.load(Relaxed), Relaxed);
    }
    true
}
