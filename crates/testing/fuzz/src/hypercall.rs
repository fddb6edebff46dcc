//! Hypercalls with any arguments, from any sandbox, at any privilege level. A monitor's act reaches no sandbox that the
//! manifest does not name ([`bulkhead_laws::hypercall`]).

use crate::{Input, Seen};
use bulkhead_laws::hypercall::called;
use bulkhead_layout::hypercall::{self as calls, Rights};
use bulkhead_pci_fake::Words;

/// Calls of one sandbox after another.
pub fn run(bytes: &[u8]) -> Result<Seen, String> {
    without("", bytes)
}

/// Makes calls with a rule left out.
fn without(rule: &str, bytes: &[u8]) -> Result<Seen, String> {
    let mut input = Input::new(bytes);
    let mut seen = Seen::default();
    let sandboxes = 1 + input.below(bulkhead_layout::MAX_SANDBOXES) as u32;
    let [stop, start, restart, offer, links] = [0; 5].map(|_| input.next() as u32);
    let rights = Rights { control: [stop, start, restart], offer, links };
    while !input.is_empty() {
        let rax = match input.below(4) {
            0 => input.next(),
            _ => calls::NULL + input.below(13) as u64,
        };
        let [first, second] = [argument(&mut input), argument(&mut input)];
        let cpl = input.pick(&[0, 0, 0, 0, 0, 1, 2, 3]);
        let enforced = |name: &str| name != rule;
        let law = called(rax, [first, second], cpl, (sandboxes, &rights), enforced);
        let wrong =
            |what| format!("{rights:?}: {rax:#x}({first:#x}, {second:#x}) at {cpl}: {what}");
        seen.add(law.map_err(wrong)?);
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

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_random::SplitMix64;

    #[test]
    fn a_rule_that_is_left_out_is_told() {
        let mut random = SplitMix64(1);
        let inputs: Vec<Vec<u8>> =
            (0..200).map(|_| (0..400).map(|_| random.any() as u8).collect()).collect();
        for rule in
            ["link-right", "control-right", "hypercall-cpl", "hypercall-length", "hypercall-number"]
        {
            assert!(inputs.iter().any(|input| without(rule, input).is_err()), "{rule}");
        }
        let through: u64 = inputs.iter().map(|input| run(input).unwrap().through).sum();
        assert!(through > 500, "{through} carried out");
    }
}
