//! Cores: the state behind each guest, and the work of each core now.

use crate::arch::Area;
use crate::check::Context;
use crate::claim::Place;
use crate::paging::{Regime, translate};
use crate::registers::Core;

impl Context<'_> {
    /// The host behind a guest: its core comes back into its monitor, with nothing of
    /// the boot code's behind it.
    pub(crate) fn host_state(
        &mut self,
        i: usize,
        core: usize,
        area: &Area,
        root: u64,
        monitor: &Regime,
    ) {
        let mut wrong = Vec::new();
        if area.root != root {
            let what = format!("the root of tables is {:#x}", area.root);
            wrong.push((what, format!("{root:#x}, its monitor's")));
        }
        if !area.certain {
            let what = format!("the instruction pointer is {:#x}", area.pc);
            wrong.push((what, self.claim.arch.comes_back().into()));
        }
        let tables = area.tables.iter().map(|&(what, address)| (what, address, false));
        let stack = ("the stack pointer", area.sp.wrapping_sub(8), false);
        let state = [("the instruction pointer", area.pc, true), stack];
        for (what, address, execute) in state.into_iter().chain(tables) {
            match monitor.leaf(address) {
                Some(leaf) if leaf.execute || !execute => {}
                _ => wrong.push((
                    format!("{what} is {address:#x}, which its monitor does not map"),
                    "an address of its monitor".into(),
                )),
            }
        }
        let place = self.claim.sandboxes[i].place.clone();
        for (what, right) in wrong {
            let message = format!("{} core {core}: {what}", self.name(i));
            self.find("host-state", &place, area.page, message, right);
        }
    }

    /// Checks the work of each core: it is in its sandbox's monitor, or its guest's code is there in its sandbox's
    /// memory. Two sandboxes with equal programs cannot be told apart so: a core is only found wrong if it fits another
    /// sandbox and not its own.
    pub(crate) fn cores(&mut self, nested: &[Option<Regime>], roots: &[Option<(u64, u64)>]) {
        let owner =
            |number: usize| self.claim.sandboxes.iter().position(|s| s.cores.contains(&number));
        let mut wrong = Vec::new();
        for core in &self.registers.cores {
            let fits = |s: usize| {
                roots[s].zip(nested[s].as_ref()).is_some_and(|(roots, n)| self.fits(core, roots, n))
            };
            match owner(core.number) {
                None if !core.halted => {
                    wrong.push((
                        core.number,
                        Place::default(),
                        "belongs to no sandbox and runs".into(),
                        "asleep",
                    ));
                }
                Some(i) if !fits(i) => {
                    if let Some(other) = (0..nested.len()).find(|&o| o != i && fits(o)) {
                        let what = format!("runs in {}, not in {}", self.name(other), self.name(i));
                        wrong.push((
                            core.number,
                            self.claim.sandboxes[i].place.clone(),
                            what,
                            "in its own sandbox",
                        ));
                    }
                }
                _ => {}
            }
        }
        for (number, place, what, right) in wrong {
            self.find("core-state", &place, None, format!("core {number} {what}"), right);
        }
        let shown: Vec<_> = self.registers.cores.iter().map(|c| c.number).collect();
        for i in 0..self.claim.sandboxes.len() {
            for core in self.claim.sandboxes[i].cores.iter().filter(|c| !shown.contains(c)) {
                let message = format!("core {core} of {} shows no registers", self.name(i));
                let place = self.claim.sandboxes[i].place.clone();
                self.find("core-state", &place, None, message, "a core that the machine has");
            }
        }
    }

    fn fits(&self, core: &Core, (monitor, root): (u64, u64), nested: &Regime) -> bool {
        if core.root == monitor {
            return true;
        }
        let arch = self.claim.arch;
        let through = |gpa: u64| translate(self.words, arch.nested(), root, gpa);
        let executes = |gpa: u64| nested.leaf(gpa).is_some_and(|leaf| leaf.execute);
        arch.runs(self.words, core, &through, &executes)
    }
}
