//! Hypercalls (docs/hypercalls.md).

use crate::Lawful;
use bulkhead_monitor_abi::hypercall::{self as calls, Call, Rights, decide, number};
use bulkhead_monitor_abi::report::Condition;

/// A call from privilege level `cpl` with its first two arguments, by a sandbox with these rights in a machine of
/// `sandboxes`. The monitor carries out only a call that was asked for and granted. `enforced` leaves a rule out, for
/// tests of this.
///
/// # Errors
/// The law that is broken, in words.
pub fn called(
    rax: u64,
    [first, second]: [u64; 2],
    cpl: u8,
    (sandboxes, rights): (u32, &Rights),
    enforced: impl Fn(&str) -> bool + Copy,
) -> Lawful {
    let decided = decide(number(rax, cpl, enforced), [first, second], sandboxes, rights, enforced);
    let has = |set: u32| first < 32 && set >> first & 1 != 0;
    let [stop, start, restart] = rights.control;
    let asked = match (rax, second) {
        (calls::CONTROL, calls::CONTROL_STOP) => stop,
        (calls::CONTROL, calls::CONTROL_START) => start,
        (calls::CONTROL, calls::CONTROL_RESTART) => restart,
        _ => stop | start | restart,
    };
    let named = |to: u32| u64::from(to) == first && to < sandboxes && has(asked);
    let links = |call| (calls::ACCEPT..=calls::LOOK).contains(&call);
    let right = match decided {
        Call::Answer(calls::NO_CALL) => cpl != 0 || !(calls::NULL..=calls::LOOK).contains(&rax),
        _ if cpl != 0 => false,
        Call::Answer(calls::OK) => rax == calls::NULL,
        Call::Answer(calls::BAD_ARGUMENT) => {
            rax == calls::CONSOLE && first > 24
                || rax == calls::CONTROL && !(1..=3).contains(&second)
        }
        Call::Answer(_) => false,
        Call::Console(length) => rax == calls::CONSOLE && length == first && length <= 24,
        Call::Exit(code) => rax == calls::EXIT && code == first as u32,
        Call::Ready => rax == calls::READY,
        Call::Restart => rax == calls::RESTART,
        Call::Control(to, request) => {
            rax == calls::CONTROL && named(to) && request == second && (1..=3).contains(&request)
        }
        Call::Status(of) => rax == calls::STATUS && named(of),
        Call::Link(link) if rax == calls::OFFER => {
            u64::from(link) == second & 0xFFFF && has(rights.offer)
        }
        Call::Link(link) => links(rax) && u64::from(link) == first && has(rights.links),
        Call::Denied(lacks) => match rax {
            calls::CONTROL | calls::STATUS => {
                lacks == Condition::Control && (first >= u64::from(sandboxes) || !has(asked))
            }
            calls::OFFER => lacks == Condition::Offer && !has(rights.offer),
            _ => links(rax) && lacks == Condition::Link && !has(rights.links),
        },
    };
    match right {
        true => Ok(!matches!(decided, Call::Denied(_) | Call::Answer(_))),
        false => Err("not what was asked for, or not granted"),
    }
}
