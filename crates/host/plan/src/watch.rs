//! Watchdogs: who has one, and which timers bring their ticks.

use crate::{Machine, Plan, Sandbox};

/// A watchdog: its monitor looks at its guest at this rate, whatever the guest does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// Nanoseconds from a tick to the next; whole microseconds.
    pub period: u64,
    /// Demands on its cores' progress words, if it looks at them.
    pub alive: Option<Alive>,
    /// Nanoseconds in which it has looked at each byte that nothing may change, if it does.
    pub sweep: Option<u64>,
}

/// Moves of a core's progress word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alive {
    /// Nanoseconds from a move to the next, at most.
    pub every: u64,
    /// Nanoseconds from the core's start to its first move, at most; `None`: without a limit.
    pub first: Option<u64>,
}

impl Watch {
    /// Nanoseconds from a look to the next, at least. A tick may be late, and two clocks differ. Another monitor's
    /// doorbell may be taken for a tick.
    #[must_use]
    pub const fn least(&self) -> u64 {
        self.period * 7 / 8
    }

    /// Looks in a row without a move that show that a time has passed, whoever rings.
    #[must_use]
    pub const fn patience(&self, time: u64) -> u64 {
        let least = self.least();
        time / if least == 0 { 1 } else { least } + 1
    }

    /// Nanoseconds after which a core that has stopped is found, at most. It may stop right behind a tick.
    #[must_use]
    pub const fn found_within(&self, alive: Alive) -> u64 {
        (self.patience(alive.every) + 1) * self.period
    }
}

/// Timers beside the cores that send messages: a High Precision Event Timer (IA-PC HPET 1.0a).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hpet {
    /// Address of its registers.
    pub base: u64,
    /// Comparators that repeat by themselves and send messages.
    pub comparators: u32,
    /// Femtoseconds of a tick of its counter.
    pub period: u32,
}

/// A comparator that brings the ticks of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Number of the comparator.
    pub comparator: u32,
    /// Identity of the core.
    pub core: u32,
    /// Nanoseconds between two ticks.
    pub period: u64,
}

impl Plan {
    /// Comparators in use: one for each core of a sandbox with a watchdog, where cores have no such timer of their
    /// own.
    #[must_use]
    pub fn ticks(&self) -> Vec<Tick> {
        ticks(&self.machine, &self.sandboxes)
    }
}

/// See [`Plan::ticks`].
#[must_use]
pub fn ticks(machine: &Machine, sandboxes: &[Sandbox]) -> Vec<Tick> {
    if !machine.arch.facts().ticks_beside {
        return Vec::new();
    }
    let watched = sandboxes.iter().filter_map(|s| Some((s, s.watch?.period)));
    let cores = watched.flat_map(|(s, period)| s.core_ids.iter().map(move |id| (*id, period)));
    let tick = |(comparator, (core, period))| Tick { comparator, core, period };
    (0..).zip(cores).map(tick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arch;

    #[test]
    fn a_core_is_found_behind_its_time_and_no_sooner() {
        let watch = Watch { period: 10, alive: None, sweep: None };
        let alive = |every| watch.found_within(Alive { every, first: None });
        assert_eq!([1, 7, 8, 15, 16].map(alive), [20, 20, 30, 30, 40]);
        let watch = Watch { period: 80, alive: None, sweep: None };
        for every in 1..1_000 {
            // If all looks come as soon as they can: the core has had its time.
            assert!(watch.patience(every) * watch.least() > every);
        }
    }

    #[test]
    fn each_watched_core_has_a_comparator_of_its_own() {
        let watch = |period| Some(Watch { period, alive: None, sweep: None });
        let sandbox = |core_ids: &[u32], watch| Sandbox {
            core_ids: core_ids.to_vec(),
            watch,
            ..Sandbox::default()
        };
        let all = [sandbox(&[0], watch(5)), sandbox(&[1], None), sandbox(&[4, 3], watch(7))];
        let machine = Machine::default();
        let told: Vec<_> =
            ticks(&machine, &all).iter().map(|t| (t.comparator, t.core, t.period)).collect();
        assert_eq!(told, [(0, 0, 5), (1, 4, 7), (2, 3, 7)]);
        assert!(ticks(&Machine { arch: Arch::Vmx, ..machine }, &all).is_empty());
    }
}
