//! Cores: the state behind each guest, and the work of each core now.

use crate::check::Context;
use crate::claim::{Place, Processor};
use crate::locate::Area;
use crate::memory::Words;
use crate::paging::{Regime, translate};
use crate::registers::Core;

/// CR0.PG.
const PAGING: u64 = 1 << 31;
/// CR4.LA57.
const LA57: u64 = 1 << 12;

impl Context<'_> {
    /// The host behind a guest: its core comes back into its monitor, with nothing of
    /// the boot code's behind it.
    pub fn host_state(&mut self, i: usize, core: usize, area: &Area, root: u64, monitor: &Regime) {
        let mut wrong = Vec::new();
        if area.cr3 != root {
            wrong.push((format!("CR3 is {:#x}", area.cr3), format!("{root:#x}, its monitor's")));
        }
        if !area.certain {
            let what = format!("RIP is {:#x}", area.rip);
            let right = match self.claim.processor {
                Processor::Svm => "behind a VMRUN of its monitor",
                Processor::Vmx => "where its monitor reads the reason of an exit",
            };
            wrong.push((what, right.into()));
        }
        let tables = area.tables.map(|[gdt, idt]| [("GDTR", gdt, false), ("IDTR", idt, false)]);
        let state = [("RIP", area.rip, true), ("RSP", area.rsp.wrapping_sub(8), false)];
        for (what, address, execute) in state.into_iter().chain(tables.into_iter().flatten()) {
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
    pub fn cores(&mut self, nested: &[Option<Regime>], roots: &[Option<(u64, u64)>]) {
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
        if core.cr3 == monitor {
            return true;
        }
        let guest = |gpa: u64| translate(self.words, nested.format, root, gpa);
        let fetched = if core.cr0 & PAGING == 0 {
            Some(core.cs_base.wrapping_add(core.rip) & 0xFFFF_FFFF)
        } else if core.cr4 & LA57 != 0 || core.efer & 1 << 10 == 0 {
            // Five levels, or a 32-bit guest's tables: nothing is concluded from them.
            return true;
        } else {
            walk(self.words, core.cr3, core.rip, guest)
        };
        fetched.and_then(|gpa| nested.leaf(gpa)).is_some_and(|l| l.execute)
    }
}

/// A guest's own translation of an address, its tables read through another.
fn walk(
    words: &Words,
    root: u64,
    address: u64,
    through: impl Fn(u64) -> Option<u64>,
) -> Option<u64> {
    const FRAME: u64 = 0x000F_FFFF_FFFF_F000;
    let mut table = root & FRAME;
    for level in (0..4).rev() {
        let shift = 12 + 9 * level;
        let entry = words.word(through(table + (address >> shift & 511) * 8)?)?;
        if entry & 1 == 0 {
            return None;
        }
        if level == 0 || entry & 1 << 7 != 0 {
            let inside = (1 << shift) - 1;
            return Some(entry & FRAME & !inside | address & inside);
        }
        table = entry & FRAME;
    }
    None
}
