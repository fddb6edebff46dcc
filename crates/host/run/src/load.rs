//! The exits of a Linux under a load that it announces on its console. The host counts them, from the first look that
//! is certainly after the start to the last one certainly before the end.

use bulkhead_explain::{SandboxSnapshot, Untrusted};
use bulkhead_layout::marker::{LOAD_BEGINS, LOAD_ENDS};
use bulkhead_layout::report::{ALL_CAUSES, CAUSE_NAMES};
use std::collections::BTreeMap;

type Exits = [u64; ALL_CAUSES];

/// Observation of one sandbox' load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    first: Exits,
    last: Exits,
    /// Looks at it.
    pub looks: u32,
}

impl Load {
    /// So many looks at least make a judgement.
    pub const LOOKS: u32 = 5;

    /// Exits between the first and the last look, by cause.
    #[must_use]
    pub fn exits(&self) -> BTreeMap<&'static str, u64> {
        let taken = self.first.iter().zip(self.last).map(|(first, last)| last - first);
        CAUSE_NAMES.into_iter().zip(taken).filter(|(_, n)| *n > 0).collect()
    }

    /// Enters a look into what there is.
    pub fn enter(so_far: &mut Option<Self>, sandbox: &SandboxSnapshot) {
        let mut now = [0; ALL_CAUSES];
        for core in &sandbox.cores {
            now.iter_mut().zip(core.exits).for_each(|(sum, n)| *sum += n);
        }
        let load = so_far.get_or_insert(Self { first: now, last: now, looks: 0 });
        load.last = now;
        load.looks += 1;
    }
}

/// Tells if a console's text says that a load is going on.
#[must_use]
pub fn is_on(console: &Untrusted) -> bool {
    console.contains(LOAD_BEGINS) && !console.contains(LOAD_ENDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_on_between_its_lines() {
        let begun = format!("x\r\n{LOAD_BEGINS}\r\n");
        let on = |text: &str| is_on(&Untrusted::new(text));
        assert!(!on("x") && on(&begun) && !on(&format!("{begun}{LOAD_ENDS}\r\n")));
    }

    #[test]
    fn what_happens_between_looks_is_counted() {
        let mut load = Load { first: [7; ALL_CAUSES], last: [7; ALL_CAUSES], looks: 2 };
        assert!(load.exits().is_empty());
        load.last[1] += 2;
        assert_eq!(load.exits(), BTreeMap::from([("cpuid", 2)]));
    }
}
