//! Hypercalls ([`bulkhead_monitor_abi::hypercall`]).

use crate::contract::Monitor;
use crate::outcome::Outcome;
use crate::record::{add, deny};
use crate::{life, link, mail, role, running, snapshot};
use bulkhead_monitor_abi::hypercall::{
    Call, DENIED, GIVE, KEEP, LOCK, NO_CALL, NULL, OK, RELEASE, SNAPSHOT, decide, number,
};
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::report::{CONSOLE, Cause, Condition, Kind, State};
use core::sync::atomic::Ordering;

/// Handles a call by an instruction of `length` bytes that only a guest's kernel may use.
#[inline(always)]
pub fn handle<M: Monitor>(m: &M, length: u8) -> Outcome {
    let call = number(m.call(), m.privilege(), M::enforced);
    // The measured call stays short: nothing of it is out of line.
    if call == NULL {
        m.answer(OK);
        return Outcome::skip(Cause::Hypercall, length);
    }
    decided(m, call, length)
}

/// Handles a call by an instruction that the guest's kernel let its caller use.
#[inline(always)]
pub fn decided<M: Monitor>(m: &M, call: u64, length: u8) -> Outcome {
    if M::has(need::SNAPSHOT) && (call == KEEP || call == SNAPSHOT) {
        return snapshot::call(m, call, length);
    }
    if M::has(need::ROLE) && call == GIVE {
        return role::call(m, length);
    }
    if M::has(need::RUNNING) && call == RELEASE {
        return running::call(m, length);
    }
    other(m, call, length)
}

#[inline(never)]
fn other<M: Monitor>(m: &M, call: u64, length: u8) -> Outcome {
    let config = m.config();
    let arguments = [m.argument(0), m.argument(1)];
    let wanted = decide(call, arguments, config.sandboxes, &config.rights, M::enforced);
    let done = Outcome::skip(Cause::Hypercall, length);
    let result = match wanted {
        Call::Answer(NO_CALL) if M::has(need::LOCK) && call == LOCK => life::lock(m, arguments[0]),
        Call::Console(length) => console(m, length),
        Call::Exit(code) => {
            life::leave(m, code);
            let exited = Outcome::end(Cause::Hypercall, State::Exited);
            let failed = M::has(need::LADDER) && code != 0;
            if failed && config.ends[Kind::Failure as usize] != 0 {
                return deny(m, Condition::Failure, code.into(), 0, exited);
            }
            return exited;
        }
        Call::Restart => return Outcome::end(Cause::Hypercall, State::Launching),
        // Steady state begins after this call.
        Call::Ready => {
            life::steady(m, Cause::Hypercall);
            OK
        }
        Call::Control(to, request) => mail::post(m, to, request),
        // One load of one word: state and number of restarts are of one moment.
        Call::Status(of) => m.mailbox(of).status.load(Ordering::Acquire),
        Call::Link(link) => link::call(m, call, link, arguments),
        Call::Answer(result) => result,
        Call::Denied(lacks) => {
            // A reader needs both arguments to say what would have granted the call.
            let [first, second] = arguments;
            let info = first.min(u64::from(u32::MAX)) | second << 32;
            m.answer(DENIED);
            return deny(m, lacks, call, info, Outcome::skip(Cause::Denied, length));
        }
    };
    m.answer(result);
    done
}

/// Appends bytes to this core's console ring.
fn console<M: Monitor>(m: &M, length: u64) -> u64 {
    let words = [m.argument(1), m.argument(2), m.argument(3)];
    let counters = m.counters();
    for i in 0..length as usize {
        // From registers: the monitor reads no memory of the guest.
        let byte = words.get(i / 8).map_or(0, |w| (w >> (i % 8 * 8)) as u8);
        let at = counters.console_written.load(Ordering::Relaxed);
        counters.console[at as usize % CONSOLE].store(byte, Ordering::Relaxed);
        add(&counters.console_written);
    }
    OK
}
