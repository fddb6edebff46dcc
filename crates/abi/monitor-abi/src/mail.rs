//! Requests of one sandbox's monitor to another's: to stop, to start, to restart its guest.
//!
//! The sender's mailbox has one numbered request for each receiver; the receiver acknowledges its number, and then
//! acts. No party waits for another. A request is posted, and the receiver's doorbell rung, only if
//!
//! * it changes something: the receiver's monitor says in its own mailbox what its guest is doing;
//! * the one before is acknowledged;
//! * its right's time between two requests is over. The sender's monitor keeps that time in the *token*: the clock's
//!   ticks from which on the next one may be posted. Only one of the sender's cores takes it.
//!
//! So a holder of rights rings the receiver as often as the manifest's arithmetic says, whatever it calls.

use crate::bell::Word;
use crate::hypercall::{
    BUSY, CONTROL_RESTART, CONTROL_START, CONTROL_STOP, LOCKED, NOT_RUNNING, OK, REQUESTS, index,
};
use crate::report::State;

/// The words of one request from one sandbox to another.
pub struct Way<'a, W> {
    /// The sender's: `number << 8 | request`.
    pub request: &'a W,
    /// The receiver's: number of the last one that it has acknowledged.
    pub done: &'a W,
    /// The sender's: ticks of the clock from which on the next request of this kind may be posted.
    pub token: &'a W,
}

/// Effect of a request on a guest in a [`State`], as its monitor tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Something, when the receiver comes to it: to be posted.
    Change,
    /// This answer, at once: it changes nothing, or nobody is there to take it.
    Answer(u64),
}

/// Returns the effect that a request would have. `starts`: its sender may start the receiver, too. `locked`: the
/// receiver lives, and has locked itself.
#[must_use]
pub fn effect(request: u64, state: u32, starts: bool, locked: bool) -> Effect {
    const LAUNCHING: u32 = State::Launching as u32;
    const RUNNING: u32 = State::Running as u32;
    const STOPPED: u32 = State::Stopped as u32;
    const EXITED: u32 = State::Exited as u32;
    match (request, state) {
        (CONTROL_STOP, STOPPED | EXITED) | (CONTROL_START, LAUNCHING | RUNNING) => {
            Effect::Answer(OK)
        }
        _ if locked => Effect::Answer(LOCKED),
        (CONTROL_RESTART, STOPPED | EXITED) if !starts => Effect::Answer(NOT_RUNNING),
        (_, LAUNCHING | RUNNING | STOPPED | EXITED) => Effect::Change,
        // One that has not come up cannot be rung yet, and one that has failed does nothing more.
        _ => Effect::Answer(BUSY),
    }
}

/// Posts a request at a time, `pace` before the next one of its kind; whether the receiver is to be rung for it.
pub fn post<W: Word>(way: &Way<W>, what: u64, now: u64, pace: u64) -> bool {
    let old = way.request.load();
    if way.done.load() != old >> 8 {
        return false;
    }
    // The request was read before the token is taken: if another core has had both meanwhile, the last exchange fails.
    let due = way.token.load();
    if now < due || !way.token.replace(due, now.saturating_add(pace)) {
        return false;
    }
    way.request.replace(old, ((old >> 8) + 1) << 8 | what)
}

/// Takes a request that is not acknowledged yet, if there is one, and acknowledges it. Before it is carried out, so
/// that no outcome holds its sender up.
pub fn take<W: Word>(request: &W, done: &W) -> Option<u64> {
    let value = request.load();
    let last = done.load();
    (value >> 8 != last && done.replace(last, value >> 8)).then_some(value & 0xFF)
}

/// Finds the part of a sender's request that a receiver carries out; 0: nothing. `rights` has the sender's rights, by
/// [`index`]. A restart takes the right to start where nothing runs.
#[must_use]
pub fn wanted(request: u64, rights: [bool; REQUESTS], runs: bool) -> u64 {
    let has = |request: u64| rights.get(index(request)).copied().unwrap_or(false);
    let takes = match request {
        CONTROL_STOP | CONTROL_RESTART => runs,
        CONTROL_START => !runs,
        _ => false,
    };
    let restarts = !runs && request == CONTROL_RESTART && has(CONTROL_START);
    if has(request) && (takes || restarts) { request } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU64, Ordering};

    fn words() -> [AtomicU64; 3] {
        [0; 3].map(AtomicU64::new)
    }

    fn way([request, done, token]: &[AtomicU64; 3]) -> Way<'_, AtomicU64> {
        Way { request, done, token }
    }

    #[test]
    fn a_flood_rings_once_in_each_pace() {
        let words = words();
        let mut rings = 0;
        for now in 0..10_000 {
            rings += u64::from(post(&way(&words), CONTROL_STOP, now, 100));
            // The receiver is as fast as it can be.
            take(&words[0], &words[1]);
        }
        assert_eq!(rings, 100);
    }

    #[test]
    fn nothing_is_posted_over_what_is_pending() {
        let words = words();
        assert!(post(&way(&words), CONTROL_STOP, 0, 0));
        assert!((0..100).all(|now| !post(&way(&words), CONTROL_RESTART, now, 0)));
        assert_eq!(take(&words[0], &words[1]), Some(CONTROL_STOP));
        assert_eq!(take(&words[0], &words[1]), None);
        assert!(post(&way(&words), CONTROL_RESTART, 100, 0));
        assert_eq!(take(&words[0], &words[1]), Some(CONTROL_RESTART));
        // Also where time ends.
        assert!(post(&way(&words), CONTROL_STOP, u64::MAX - 1, u64::MAX));
        assert_eq!(words[2].load(Ordering::Relaxed), u64::MAX);
    }

    /// All requests in all states: what the sender's monitor posts, the receiver's carries out, and nothing else.
    #[test]
    fn what_is_posted_changes_something() {
        for request in 0..6 {
            for state in 0..8 {
                for set in 0..8u8 {
                    let rights = [0, 1, 2].map(|n| set >> n & 1 != 0);
                    let starts = rights[index(CONTROL_START)];
                    let runs = matches!(state, 1 | 2);
                    let has = rights.get(index(request)).copied().unwrap_or(false);
                    let posts = has && effect(request, state, starts, false) == Effect::Change;
                    let acts = wanted(request, rights, runs) != 0 && (1..5).contains(&state);
                    assert_eq!(posts, acts, "{request} in {state} with {rights:?}");
                }
            }
        }
    }

    #[test]
    fn a_locked_sandbox_is_not_ended() {
        for state in [State::Launching, State::Running] {
            let effect = |request, locked| effect(request, state as u32, true, locked);
            for request in [CONTROL_STOP, CONTROL_RESTART] {
                assert_eq!(effect(request, true), Effect::Answer(LOCKED));
                assert_eq!(effect(request, false), Effect::Change);
            }
            assert_eq!(effect(CONTROL_START, true), Effect::Answer(OK));
        }
    }
}
