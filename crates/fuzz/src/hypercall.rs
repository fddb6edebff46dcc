//! Hypercalls with any arguments, from any sandbox, at any privilege level: what a
//! monitor carries out reaches no sandbox that the manifest does not name.

use crate::{Input, Seen};
use bulkhead_layout::hypercall::{self as calls, Call, decide, number};
use bulkhead_pci_fake::Words;

/// Sandboxes that there are, and those of them that it may control, as a set.
#[derive(Clone, Copy, Debug)]
struct Rights {
    sandboxes: u32,
    control: u32,
}

/// Calls of one sandbox after another.
pub fn run(bytes: &[u8]) -> Result<Seen, String> {
    without("", bytes)
}

/// The same with a rule left out.
fn without(rule: &str, bytes: &[u8]) -> Result<Seen, String> {
    let mut input = Input::new(bytes);
    let mut seen = Seen::default();
    let sandboxes = 1 + input.below(bulkhead_layout::MAX_SANDBOXES) as u32;
    let rights = Rights { sandboxes, control: input.next() as u32 };
    while !input.is_empty() {
        let rax = match input.below(4) {
            0 => input.next(),
            _ => calls::NULL + input.below(9) as u64,
        };
        let [first, second] = [argument(&mut input), argument(&mut input)];
        let cpl = input.pick(&[0, 0, 0, 0, 0, 1, 2, 3]);
        let enforced = |name: &str| name != rule;
        let Rights { sandboxes, control } = rights;
        let call = number(rax, cpl, enforced);
        let decided = decide(call, [first, second], sandboxes, control, enforced);
        if !may(rax, first, second, cpl, rights, decided) {
            return Err(format!(
                "{rights:?}: {rax:#x}({first:#x}, {second:#x}) at {cpl}: {decided:?}"
            ));
        }
        seen.add(!matches!(decided, Call::Denied | Call::Answer(_)));
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
fn may(rax: u64, first: u64, second: u64, cpl: u8, rights: Rights, decided: Call) -> bool {
    let named =
        |to: u32| u64::from(to) == first && to < rights.sandboxes && rights.control & 1 << to != 0;
    if cpl != 0 {
        return decided == Call::Answer(calls::NO_CALL);
    }
    match decided {
        Call::Answer(calls::OK) => rax == calls::NULL,
        Call::Answer(calls::BAD_ARGUMENT) => {
            rax == calls::CONSOLE && first > 24
                || rax == calls::CONTROL && !(1..=3).contains(&second)
        }
        Call::Answer(calls::NO_CALL) => !(calls::NULL..=calls::STATUS).contains(&rax),
        Call::Answer(_) => false,
        Call::Console(length) => rax == calls::CONSOLE && length == first && length <= 24,
        Call::Exit(code) => rax == calls::EXIT && code == first as u32,
        Call::Ready => rax == calls::READY,
        Call::Restart => rax == calls::RESTART,
        Call::Control(to, request) => {
            rax == calls::CONTROL && named(to) && request == second && (1..=3).contains(&request)
        }
        Call::Status(of) => rax == calls::STATUS && named(of),
        Call::Denied => {
            let other = first >= 32 || !named(first as u32);
            matches!(rax, calls::CONTROL | calls::STATUS) && other
        }
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
        for rule in ["control-right", "hypercall-cpl", "hypercall-length", "hypercall-number"] {
            assert!(inputs.iter().any(|input| without(rule, input).is_err()), "{rule}");
        }
        let through: u64 = inputs.iter().map(|input| run(input).unwrap().through).sum();
        assert!(through > 500, "{through} carried out");
    }
}
