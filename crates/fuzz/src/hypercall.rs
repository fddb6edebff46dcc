//! Hypercalls with any arguments, from any sandbox, at any privilege level: what a
//! monitor carries out reaches no sandbox that the manifest does not name.

use crate::{Input, Seen};
use bulkhead_layout::hypercall::{self as calls, Call, Rights, decide, number};
use bulkhead_layout::report::Condition;
use bulkhead_pci_fake::Words;

/// Calls of one sandbox after another.
pub fn run(bytes: &[u8]) -> Result<Seen, String> {
    without("", bytes)
}

/// The same with a rule left out.
fn without(rule: &str, bytes: &[u8]) -> Result<Seen, String> {
    let mut input = Input::new(bytes);
    let mut seen = Seen::default();
    let sandboxes = 1 + input.below(bulkhead_layout::MAX_SANDBOXES) as u32;
    let [stop, start, restart, connect, slots] = [0; 5].map(|_| input.next() as u32);
    let rights = Rights { control: [stop, start, restart], connect, slots };
    while !input.is_empty() {
        let rax = match input.below(4) {
            0 => input.next(),
            _ => calls::NULL + input.below(13) as u64,
        };
        let [first, second] = [argument(&mut input), argument(&mut input)];
        let cpl = input.pick(&[0, 0, 0, 0, 0, 1, 2, 3]);
        let enforced = |name: &str| name != rule;
        let call = number(rax, cpl, enforced);
        let decided = decide(call, [first, second], sandboxes, &rights, enforced);
        if !may(rax, [first, second], cpl, (sandboxes, rights), decided) {
            return Err(format!(
                "{rights:?}: {rax:#x}({first:#x}, {second:#x}) at {cpl}: {decided:?}"
            ));
        }
        seen.add(!matches!(decided, Call::Denied(_) | Call::Answer(_)));
    }
    Ok(seen)
}

/// A sandbox's number, a length, or anything.
fn argument(input: &mut Input) -> u64 {
    match input.below(4) {
        0 => input.next(),
        1 => u64::MAX - input.below(256) as u64,
        2 => (input.below(256) as u64) << 32 | input.below(256) as u64,
        _ => input.below(40) as u64,
    }
}

/// Whether the manual allows it (docs/hypercalls.md).
fn may(
    rax: u64,
    [first, second]: [u64; 2],
    cpl: u8,
    (sandboxes, rights): (u32, Rights),
    decided: Call,
) -> bool {
    let has = |set: u32| first < 32 && set & 1 << first != 0;
    let [stop, start, restart] = rights.control;
    let asked = match (rax, second) {
        (calls::CONTROL, calls::CONTROL_STOP) => stop,
        (calls::CONTROL, calls::CONTROL_START) => start,
        (calls::CONTROL, calls::CONTROL_RESTART) => restart,
        _ => stop | start | restart,
    };
    let named = |to: u32| u64::from(to) == first && to < sandboxes && has(asked);
    if cpl != 0 {
        return decided == Call::Answer(calls::NO_CALL);
    }
    match decided {
        Call::Answer(calls::OK) => rax == calls::NULL,
        Call::Answer(calls::BAD_ARGUMENT) => {
            rax == calls::CONSOLE && first > 24
                || rax == calls::CONTROL && !(1..=3).contains(&second)
        }
        Call::Answer(calls::NO_CALL) => !(calls::NULL..=calls::SLOT).contains(&rax),
        Call::Answer(_) => false,
        Call::Console(length) => rax == calls::CONSOLE && length == first && length <= 24,
        Call::Exit(code) => rax == calls::EXIT && code == first as u32,
        Call::Ready => rax == calls::READY,
        Call::Restart => rax == calls::RESTART,
        Call::Control(to, request) => {
            rax == calls::CONTROL && named(to) && request == second && (1..=3).contains(&request)
        }
        Call::Status(of) => rax == calls::STATUS && named(of),
        Call::Slot(slot) if rax == calls::OFFER => {
            u64::from(slot) == second & 0xFFFF && has(rights.connect)
        }
        Call::Slot(slot) => {
            (calls::ACCEPT..=calls::SLOT).contains(&rax)
                && u64::from(slot) == first
                && has(rights.slots)
        }
        Call::Denied(lacks) => match rax {
            calls::CONTROL | calls::STATUS => {
                lacks == Condition::Control && (first >= 32 || !named(first as u32))
            }
            calls::OFFER => lacks == Condition::Connect && !has(rights.connect),
            calls::ACCEPT..=calls::SLOT => lacks == Condition::Slot && !has(rights.slots),
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Random;

    #[test]
    fn a_rule_that_is_left_out_is_told() {
        let mut random = Random::new(1);
        let inputs: Vec<Vec<u8>> =
            (0..200).map(|_| (0..400).map(|_| random.next() as u8).collect()).collect();
        for rule in [
            "connect-right",
            "control-right",
            "hypercall-cpl",
            "hypercall-length",
            "hypercall-number",
        ] {
            assert!(inputs.iter().any(|input| without(rule, input).is_err()), "{rule}");
        }
        let through: u64 = inputs.iter().map(|input| run(input).unwrap().through).sum();
        assert!(through > 500, "{through} carried out");
    }
}
