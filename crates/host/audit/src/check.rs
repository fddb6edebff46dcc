//! The audit: finds the tables, walks them, compares.

use crate::arch::{Area, Block};
use crate::claim::{Claim, Place};
use crate::dma::Unit;
use crate::given::{self, Given};
use crate::memory::{Memory, Words};
use crate::monitor::{self, Parts};
use crate::paging::{Regime, translate};
use crate::registers::Registers;
use crate::report::{Access, Finding, Report};
use std::collections::BTreeMap;

/// An audit under way.
pub struct Context<'a> {
    /// State that is intended.
    pub claim: &'a Claim,
    /// Registers of the machine.
    pub registers: &'a Registers,
    /// Memory of the machine.
    pub words: &'a Words<'a>,
    /// Parts that the monitors' tables show, by sandbox.
    pub(crate) parts: Vec<Parts>,
    /// Frames of the image, and other tables' frames, with their owners.
    pub(crate) image: BTreeMap<u64, String>,
    /// Frames of tables that confine somebody, with a description.
    pub(crate) confining: Vec<(u64, String)>,
    /// Frames of remapping tables by function (its requester ID).
    pub(crate) remapping: BTreeMap<u16, Vec<u64>>,
    /// Frames of the IOMMU's command buffer.
    pub(crate) commands: Vec<u64>,
    /// Pages that a guest writes in place of memory taken from it: its sandbox, and the address.
    pub(crate) instead: BTreeMap<u64, (usize, u64)>,
    /// Reach of each sandbox, for the report.
    pub access: Vec<Access>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) remarks: Vec<String>,
}

/// Looks at everything.
#[must_use]
pub fn audit(claim: &Claim, registers: &Registers, memory: &dyn Memory) -> Report {
    let words = Words::new(memory);
    let mut context = Context {
        claim,
        registers,
        words: &words,
        parts: vec![Parts::default(); claim.sandboxes.len()],
        image: BTreeMap::new(),
        confining: Vec::new(),
        remapping: BTreeMap::new(),
        commands: Vec::new(),
        instead: BTreeMap::new(),
        access: { claim.sandboxes.iter() }
            .map(|s| Access { sandbox: s.name.clone(), ..Access::default() })
            .collect(),
        findings: Vec::new(),
        remarks: Vec::new(),
    };
    context.run()
}

/// Tables of one sandbox.
struct Found {
    /// Root and walk of its monitor's tables.
    monitor: Option<(u64, Regime)>,
    /// Control block of its first core that runs on one.
    block: Option<Block>,
    /// Host state by its cores.
    cores: Vec<Option<Area>>,
}

impl Context<'_> {
    /// Name of a sandbox.
    #[must_use]
    pub fn name(&self, i: usize) -> &str {
        &self.claim.sandboxes[i].name
    }

    /// Bytes of a page.
    pub(crate) fn page(&self) -> u64 {
        self.claim.arch.places().page
    }

    /// Notes a difference.
    pub fn find(
        &mut self,
        rule: &'static str,
        place: &Place,
        address: Option<u64>,
        message: impl Into<String>,
        right: impl Into<String>,
    ) {
        debug_assert!(crate::RULES.iter().any(|r| r.name == rule), "{rule}");
        let place = if place.line == 0 { &self.claim.place } else { place };
        let owner = address.map_or_else(String::new, |a| self.owner(a));
        self.findings.push(Finding {
            rule,
            message: message.into(),
            address,
            owner,
            place: place.clone(),
            right: right.into(),
            on_its_way: false,
        });
    }

    /// Marks all findings from a number on: a monitor at work can end them.
    fn on_its_way(&mut self, from: usize) {
        for finding in self.findings.iter_mut().skip(from) {
            finding.on_its_way = true;
        }
    }

    fn run(&mut self) -> Report {
        let count = self.claim.sandboxes.len();
        let found = self.locate();
        let nested = found.iter().map(|f| f.block.as_ref());
        let format = self.claim.arch.nested();
        let nested = nested.map(|b| b.map(|b| Regime::walk(self.words, format, b.root)));
        let nested: Vec<_> = nested.collect();
        self.know(&found, &nested);
        let unit = self.iommu_tables();
        let monitors: Vec<_> =
            found.iter().map(|f| f.monitor.as_ref().map(|m| m.1.clone())).collect();
        let mut given: Vec<Vec<Given>> = Vec::new();
        for i in 0..count {
            let mut choices = given::to_guests(self.claim, &self.parts, i);
            let fits = nested[i].as_ref().map_or(0, |regime| self.running(i, regime, &choices));
            given.push(choices.swap_remove(fits));
            if let Some(regime) = &nested[i] {
                self.guest(i, regime, &given[i]);
                self.links(i, regime);
                self.roles(i, regime);
                let pages = regime.leaves.iter();
                let pages = pages.map(|l| (l.address, l.frame, l.size, l.write, l.execute));
                self.access[i].memory = self.reach(pages);
            }
            if let Some((_, regime)) = &found[i].monitor {
                self.monitor(i, regime);
            }
            self.confinement(i, &found);
            self.encoding(i, nested[i].iter().chain(monitors[i].iter()));
        }
        self.shared(&nested, &monitors);
        self.unmapped(&nested, &monitors);
        let roots: Vec<_> = found
            .iter()
            .map(|f| f.monitor.as_ref().map(|m| (m.0, f.block.as_ref().map_or(0, |b| b.root))))
            .collect();
        self.cores(&nested, &roots);
        self.dma(unit.as_deref(), &given);
        match self.claim.running().map(|i| self.name(i).to_owned()) {
            Some(name) => self.remarks.push(format!(
                "devices and interrupt lines are {name}'s, which ran before: not confined, nor looked at"
            )),
            None => self.claim.arch.lines(self, unit.as_deref()),
        }
        let mut pages: BTreeMap<u64, usize> = BTreeMap::new();
        nested
            .iter()
            .flatten()
            .flat_map(|r| &r.leaves)
            .for_each(|l| *pages.entry(l.size).or_default() += 1);
        let frames = self.account();
        Report {
            system: self.claim.system.clone(),
            access: std::mem::take(&mut self.access),
            frames,
            findings: std::mem::take(&mut self.findings),
            remarks: std::mem::take(&mut self.remarks),
            tables: self.confining.len(),
            pages: pages.into_iter().collect(),
        }
    }

    /// Finds the guest that the tables of a sandbox are for: the first that they fit without a finding, else its own.
    fn running(&mut self, i: usize, regime: &Regime, choices: &[Vec<Given>]) -> usize {
        let (findings, remarks) = (self.findings.len(), self.remarks.len());
        let mut fits = |given: &Vec<Given>| {
            self.guest(i, regime, given);
            let fits = self.findings.len() == findings;
            self.findings.truncate(findings);
            self.remarks.truncate(remarks);
            fits
        };
        // One guest needs no choice.
        if choices.len() == 1 { 0 } else { choices.iter().position(&mut fits).unwrap_or(0) }
    }

    /// Gives every host save area to a sandbox and its core.
    fn locate(&mut self) -> Vec<Found> {
        let arch = self.claim.arch;
        let areas = arch.areas(self.claim, self.registers, self.words);
        // Roots of monitors, from the host's state behind guests and from cores that are in their monitor now. A root's
        // view of a sandbox's RAM tells its owner.
        let mut walked: BTreeMap<u64, Regime> = BTreeMap::new();
        let certain = areas.iter().filter(|a| a.certain).map(|a| a.root & !0xFFF);
        // Where a core runs its guest, the root is that guest's to choose: only the image
        // holds roots of monitors.
        let now = self.registers.cores.iter().map(|c| c.root & !0xFFF);
        for root in certain.chain(now.filter(|root| self.claim.image.contains(*root))) {
            walked.entry(root).or_insert_with(|| Regime::walk(self.words, arch.own(), root));
        }
        let mut found: Vec<Found> = Vec::new();
        for (i, sandbox) in self.claim.sandboxes.iter().enumerate() {
            // The root that most of its cores have, among those that serve it.
            let votes = |root: u64| areas.iter().filter(|a| a.root & !0xFFF == root).count();
            let mine = walked.iter().filter(|(_, r)| monitor::serves(self.claim, r) == Some(i));
            let mine: Vec<u64> = mine.map(|(root, _)| *root).collect();
            let root = mine.iter().copied().max_by_key(|root| votes(*root));
            let root = root.map(|root| self.after_a_take(i, root, &mine, &areas, &walked[&root]));
            let monitor = root.map(|root| (root, walked[&root].clone()));
            if let Some((_, regime)) = &monitor {
                self.parts[i] = monitor::parts(self.claim, i, regime);
            }
            found.push(Found { monitor, block: None, cores: vec![None; sandbox.cores.len()] });
        }
        let mut left = Vec::new();
        for area in areas {
            match self.owner_of(&area, &found) {
                Some((i, n)) if area.certain || found[i].cores[n].is_none() => {
                    if let Some(other) = found[i].cores[n].replace(area) {
                        left.push(other);
                    }
                }
                // An area that merely looks like one, and belongs to no core, is none.
                _ if !area.certain => {}
                _ => left.push(area),
            }
        }
        for area in left.iter().filter(|a| a.certain) {
            let message = format!(
                "a host runs on the tables at {:#x} behind the control block at {:#x}, which is no core's",
                area.root, area.block
            );
            self.find("host-state", &Place::default(), area.page, message, "one for each core");
        }
        for (i, f) in found.iter_mut().enumerate() {
            let blocks: Vec<Block> = { f.cores.iter().flatten() }
                .filter_map(|a| arch.block(self.words, a.block))
                .filter(|b| b.launched)
                .collect();
            // If blocks differ, the one is taken that has tables beginning with the sandbox's RAM.
            let serves = |b: &&Block| {
                let first = self.claim.sandboxes[i].ram.first();
                let gpa = first.map_or(self.page(), |ram| ram.gpa);
                let ram = translate(self.words, arch.nested(), b.root, gpa);
                ram.and_then(|pa| self.claim.in_ram_of(pa)) == Some(i)
            };
            f.block = blocks.iter().find(serves).or(blocks.first()).cloned();
        }
        for (i, f) in found.iter().enumerate() {
            self.missing(i, f);
        }
        found
    }

    /// Returns the root that the first core of a sandbox came from last, where a peer can take it. Further cores may
    /// wait, with areas of the monitor before.
    fn after_a_take(
        &self,
        i: usize,
        root: u64,
        mine: &[u64],
        areas: &[Area],
        regime: &Regime,
    ) -> u64 {
        // Both monitors have control blocks in one place.
        let block = monitor::parts(self.claim, i, regime).blocks.first().copied().flatten();
        let first = areas.iter().find(|area| Some(area.block) == block && area.certain);
        let last = first.map(|area| area.root & !0xFFF).filter(|root| mine.contains(root));
        last.filter(|_| self.claim.sandboxes[i].taken).unwrap_or(root)
    }

    /// Finds an area's sandbox and core: by the control block that it names or, if none has that, by the stack
    /// that it is on.
    fn owner_of(&self, area: &Area, found: &[Found]) -> Option<(usize, usize)> {
        let by_register = area.core.and_then(|number| {
            let position = |s: &crate::claim::Sandbox| s.cores.iter().position(|c| *c == number);
            self.claim.sandboxes.iter().enumerate().find_map(|(i, s)| Some((i, position(s)?)))
        });
        let by_block = || {
            let has = |p: &Parts| p.blocks.iter().position(|v| *v == Some(area.block));
            self.parts.iter().enumerate().find_map(|(i, p)| Some((i, has(p)?)))
        };
        let by_stack = || {
            let mine = |f: &Found| f.monitor.as_ref().is_some_and(|m| m.0 == area.root & !0xFFF);
            let i = found.iter().position(mine).filter(|_| area.certain)?;
            let n = monitor::core_of(self.page(), area.sp)?;
            (n < found[i].cores.len() && found[i].cores[n].is_none()).then_some((i, n))
        };
        by_register.or_else(by_block).or_else(by_stack)
    }

    fn missing(&mut self, i: usize, found: &Found) {
        let sandbox = &self.claim.sandboxes[i];
        let place = sandbox.place.clone();
        if found.monitor.is_none() {
            let message = format!("no core has {}'s monitor's tables", self.name(i));
            self.find("host-state", &place, None, message, "its cores run its monitor");
        }
        if found.block.is_none() && !sandbox.starts {
            self.remarks.push(format!(
                "{} was never started: its nested tables are not in use",
                sandbox.name
            ));
            return;
        }
        for (n, _) in found.cores.iter().enumerate().filter(|c| c.1.is_none()) {
            if sandbox.starts && n == 0 {
                let message =
                    format!("{} core {n}: no host's state behind its guest", self.name(i));
                let from = self.findings.len();
                self.find("host-state", &place, None, message, "an entry by its monitor");
                self.on_its_way(from);
            } else {
                self.remarks.push(format!("{} core {n} has not run its guest yet", sandbox.name));
            }
        }
    }

    /// Notes the owners of frames that the walks came by.
    fn know(&mut self, found: &[Found], nested: &[Option<Regime>]) {
        for i in 0..found.len() {
            let name = self.name(i).to_owned();
            for (frame, what) in self.parts[i].frames.clone() {
                let mailbox = what.starts_with("mailbox");
                let whose = if mailbox { what } else { format!("{what} of {name}'s monitor") };
                self.image.insert(frame, whose);
            }
            let absent = nested[i].iter().flat_map(|r| &r.leaves);
            let absent: Vec<u64> =
                absent.filter(|l| self.is_absent(i, l)).map(|l| l.frame).collect();
            for frame in absent {
                let what = || format!("page of ones for {name}");
                self.image.entry(frame).or_insert_with(what);
            }
            let taken = nested[i].iter().flat_map(|r| &r.leaves);
            let taken: Vec<u64> = taken.filter(|l| self.is_taken(i, l)).map(|l| l.frame).collect();
            for frame in taken {
                let what = || format!("page in place of a channel taken from {name}");
                self.image.entry(frame).or_insert_with(what);
            }
            let mut tables = Vec::new();
            let regimes = [
                (found[i].monitor.as_ref().map(|m| &m.1), "page table of", "'s monitor"),
                (nested[i].as_ref(), "nested table of", ""),
            ];
            for (regime, what, whose) in regimes {
                let frames = regime.iter().flat_map(|r| r.tables.iter().copied());
                tables.extend(frames.map(|f| (f, format!("{what} {name}{whose}"))));
            }
            for area in found[i].cores.iter().flatten() {
                tables.extend(area.page.map(|p| (p, format!("host save area of {name}"))));
                let block = self.claim.arch.block(self.words, area.block).filter(|b| b.launched);
                let maps = block.into_iter().flat_map(|block| block.maps);
                tables.extend(maps.map(|(at, what)| (at, format!("{what} of {name}"))));
            }
            self.confine(tables);
        }
    }

    /// Adds tables.
    pub(crate) fn confine(&mut self, tables: Vec<(u64, String)>) {
        for (frame, what) in tables {
            self.image.insert(frame, what.clone());
            self.confining.push((frame, what));
        }
        self.confining.sort();
        self.confining.dedup_by_key(|c| c.0);
    }

    /// Control blocks, maps and hosts of a sandbox's cores.
    fn confinement(&mut self, i: usize, found: &[Found]) {
        let Some(first) = &found[i].block else {
            return;
        };
        let others = found.iter().enumerate().filter(|(o, _)| *o != i);
        let others: Vec<u64> =
            others.filter_map(|(_, f)| f.block.as_ref().map(|b| b.tag)).collect();
        for (n, area) in found[i].cores.iter().enumerate() {
            let Some(area) = area else {
                continue;
            };
            let from = self.findings.len();
            self.block(i, n, area, first, &others);
            if let Some((root, regime)) = &found[i].monitor {
                // A restart writes the control block anew, word by word.
                let sandbox = &self.claim.sandboxes[i];
                let waits = self.registers.is_on_tables(sandbox.cores[n], *root);
                if waits {
                    self.on_its_way(from);
                }
                if waits && sandbox.taken && area.root != *root {
                    // Since a peer took it, it has not been in its guest.
                    continue;
                }
                self.host_state(i, n, area, *root, regime);
            }
        }
        self.claim.arch.registers(self, i, first);
    }

    fn encoding<'r>(&mut self, i: usize, regimes: impl Iterator<Item = &'r Regime>) {
        let place = self.claim.sandboxes[i].place.clone();
        for regime in regimes {
            for &(at, entry) in &regime.odd {
                let message = format!("the entry {entry:#x} of {}'s tables", self.name(i));
                self.find("encoding", &place, Some(at), message, "no reserved or needless bit set");
            }
            for &at in &regime.lost {
                let message =
                    format!("{}'s tables lead to a table at {at:#x}: no RAM", self.name(i));
                self.find("encoding", &place, Some(at), message, "a table in RAM");
            }
        }
    }

    /// Frames of the remapping tables of a sandbox's functions, and of the lines' if it has some.
    pub(crate) fn remapping_frames(
        &self,
        i: usize,
    ) -> impl Iterator<Item = crate::claim::Range> + '_ {
        let own = move |f: &&crate::claim::Function| f.owner == Some(i) && f.role.is_none();
        let functions = self.claim.functions.iter().filter(own);
        let lines = !self.claim.sandboxes[i].lines.is_empty();
        let frames = functions.filter_map(|f| self.remapping.get(&f.bdf)).flatten();
        let shared = self.lines_frames().filter(move |_| lines);
        frames.chain(shared).map(|&start| crate::claim::Range { start, len: self.page() })
    }

    /// Frames of the lines' remapping table.
    pub(crate) fn lines_frames(&self) -> impl Iterator<Item = &u64> + '_ {
        let sender = self.claim.iommu.as_ref().and_then(|iommu| iommu.lines);
        sender.and_then(|bdf| self.remapping.get(&bdf)).into_iter().flatten()
    }

    fn iommu_tables(&mut self) -> Option<Box<dyn Unit>> {
        let unit = self.claim.arch.unit(self.claim, self.registers, self.words)?;
        self.confine(unit.tables(self.claim));
        self.remapping = unit.remapping();
        self.commands = unit.commands();
        Some(unit)
    }
}
