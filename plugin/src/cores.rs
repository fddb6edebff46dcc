//! Which core ran how much. All cores share one thread (QEMU's `-icount`) and one set of counters. Counts since the
//! last switch belong to the core that ran until then.

use crate::gather::{CLASSES, Counters};

/// A core, by the address of its state in QEMU.
#[derive(Debug)]
struct Core {
    cpu: usize,
    /// Its index, once known.
    index: Option<u32>,
    counters: Counters,
}

/// All cores that ran so far.
#[derive(Debug, Default)]
pub struct Cores {
    cores: Vec<Core>,
    running: usize,
    credited: [u64; CLASSES],
}

impl Cores {
    /// The core at `cpu` goes on; `counts` are the shared counters. True if it
    /// is seen for the first time.
    pub fn switch(&mut self, cpu: usize, counts: [u64; CLASSES]) -> bool {
        self.credit(counts);
        let known = self.cores.iter().position(|core| core.cpu == cpu);
        self.running = known.unwrap_or_else(|| {
            // The first core to run is the one that boots, index 0.
            let index = self.cores.is_empty().then_some(0);
            self.cores.push(Core { cpu, index, counters: Counters::default() });
            self.cores.len() - 1
        });
        known.is_none()
    }

    /// Credits the counts to the running core.
    pub fn credit(&mut self, counts: [u64; CLASSES]) {
        if let Some(core) = self.cores.get_mut(self.running) {
            for (class, count) in counts.iter().enumerate() {
                core.counters.class[class] += count - self.credited[class];
            }
            self.credited = counts;
        }
    }

    /// The running core has this index.
    pub fn identify(&mut self, index: u32) {
        if let Some(core) = self.cores.get_mut(self.running) {
            core.index = Some(index);
        }
    }

    /// The running core executes VMRUN.
    pub fn vmrun(&mut self) {
        if let Some(core) = self.cores.get_mut(self.running) {
            core.counters.vmruns += 1;
        }
    }

    /// Address of the state of the core with this index, if it has run.
    #[must_use]
    pub fn state_of(&self, index: u32) -> Option<usize> {
        self.cores.iter().find(|core| core.index == Some(index)).map(|core| core.cpu)
    }

    /// Index and counters of the running core; a core that was not identified
    /// has an index from 1000 on.
    #[must_use]
    pub fn running(&self) -> (u32, Counters) {
        let core = self.cores.get(self.running);
        core.map_or((u32::MAX, Counters::default()), |core| {
            (core.index.unwrap_or(1000 + self.running as u32), core.counters)
        })
    }

    /// Instructions of each core by index, up to the last one that is known.
    #[must_use]
    pub fn totals(&self) -> Vec<u64> {
        let mut totals = Vec::new();
        for core in &self.cores {
            let Some(index) = core.index.map(|index| index as usize) else { continue };
            totals.resize(totals.len().max(index + 1), 0);
            totals[index] = core.counters.total();
        }
        totals
    }

    /// Counters by index.
    #[must_use]
    pub fn all(&self) -> Vec<(u32, Counters)> {
        let mut all: Vec<_> = self
            .cores
            .iter()
            .enumerate()
            .map(|(n, core)| (core.index.unwrap_or(1000 + n as u32), core.counters))
            .collect();
        all.sort_by_key(|(index, _)| *index);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(n: u64) -> [u64; CLASSES] {
        let mut counts = [0; CLASSES];
        counts[0] = n;
        counts
    }

    #[test]
    fn each_core_gets_what_it_ran() {
        let mut cores = Cores::default();
        cores.switch(0xA, counts(0));
        cores.switch(0xB, counts(100));
        cores.identify(2);
        cores.switch(0xA, counts(130));
        cores.credit(counts(131));
        assert_eq!(cores.running().0, 0);
        let all: Vec<_> = cores.all().iter().map(|(n, at)| (*n, at.total())).collect();
        assert_eq!(all, [(0, 101), (2, 30)]);
        assert_eq!(cores.totals(), [101, 0, 30]);
    }

    #[test]
    fn nothing_that_ran_is_lost_before_the_index_is_known() {
        let mut cores = Cores::default();
        cores.switch(0xA, counts(0));
        cores.switch(0xB, counts(10));
        cores.switch(0xA, counts(15));
        cores.switch(0xB, counts(20));
        assert_eq!(cores.running().0, 1001);
        cores.identify(1);
        assert_eq!(cores.running(), (1, cores.all()[1].1));
        assert_eq!(cores.all()[1].1.total(), 5);
    }
}
