//! Intel's VT-d: registers, root and context tables, second-stage tables, the interrupt remapping table.
//! Bits are those of the VT-d specification (D51397), revision 4.1: 9.1 root entry, 9.3 context entry, 9.8 second-stage
//! entries, 9.10 interrupt entry, 11.4 registers.

use super::registers::Vtd;
use super::{FIRST_VECTOR, PAGE, lines};
use crate::check::Context;
use crate::claim::{Claim, Place};
use crate::dma::{self, Arrival, Leaf, Pages, Wrong, name};
use crate::given::Given;
use crate::memory::Words;
use crate::registers::Registers;
use std::collections::BTreeMap;

const ADDRESS: u64 = 0x000F_FFFF_FFFF_F000;

/// Global status.
const TES: u64 = 1 << 31;
const IRES: u64 = 1 << 25;
const CFIS: u64 = 1 << 23;
/// Root table address: translation table mode; 0 is legacy.
const MODE: u64 = 0b11 << 10;
/// Interrupt remapping table address: destinations are x2APIC IDs.
const EIME: u64 = 1 << 11;
/// Protected memory enable, and its status.
const PROTECTED: u64 = 1 << 31 | 1;

const P: u64 = 1;
/// Context entry, first word: translation type; reserved bits.
const TT: u64 = 0b11 << 2;
const CONTEXT_LOW: u64 = 0xFF << 4;
/// Second word: reserved bits.
const CONTEXT_HIGH: u64 = 1 << 7 | !0xFF_FFFF;

/// Second-stage entry.
const READ: u64 = 1;
const WRITE: u64 = 1 << 1;
const LARGE: u64 = 1 << 7;
/// Bits 63:52 but 62, which nobody looks at; the memory type and what scalable mode has.
const RESERVED: u64 = 0b1011 << 60 | 0xFF << 52 | 0b111_1100 | 1 << 11;

/// A context entry that is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Requester ID.
    pub bdf: u16,
    /// Where it lies.
    pub at: u64,
    words: [u64; 2],
}

impl Entry {
    fn root(&self) -> u64 {
        self.words[0] & ADDRESS
    }

    /// Levels of its tables: address width 2 is four of them.
    fn levels(&self) -> u64 {
        (self.words[1] & 0b111) + 2
    }

    fn domain(&self) -> u64 {
        self.words[1] >> 8 & 0xFFFF
    }
}

/// An interrupt entry that is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub index: u64,
    /// Where it lies.
    pub at: u64,
    words: [u64; 2],
}

impl Interrupt {
    /// The APIC that it interrupts.
    pub fn destination(&self) -> u32 {
        (self.words[0] >> 32) as u32
    }

    /// The vector.
    pub fn vector(&self) -> u8 {
        (self.words[0] >> 16) as u8
    }

    fn level(&self) -> bool {
        self.words[0] & 1 << 4 != 0
    }

    /// The one requester that may use it; `None`: all may, or several.
    fn source(&self) -> Option<u16> {
        (self.words[1] >> 16 & 0b1111 == 0b0100).then_some(self.words[1] as u16)
    }

    /// Rule that it breaks with any owner, and how.
    fn wrong(&self) -> Option<(&'static str, &'static str)> {
        let [low, high] = self.words;
        let form = |what| Some(("message-form", what));
        match () {
            () if low >> 5 & 0b111 != 0 => form("another delivery mode than fixed"),
            () if low >> 2 & 1 != 0 => form("a logical destination"),
            () if low >> 3 & 1 != 0 => form("a redirection hint"),
            () if low >> 15 & 1 != 0 => form("the format of posted interrupts"),
            () if low & (0b111 << 12 | 0xFF << 24) != 0 || high >> 20 != 0 => form("reserved bits"),
            () if self.vector() < FIRST_VECTOR => {
                Some(("message-vector", "a vector that no APIC takes"))
            }
            () => None,
        }
    }
}

/// The unit and its tables.
pub struct Unit {
    registers: Vtd,
    entries: Vec<Entry>,
    /// Second-stage tables by root and levels.
    walked: BTreeMap<(u64, u64), Pages>,
    interrupts: Vec<Interrupt>,
    /// Frames of the root table and of context tables.
    frames: Vec<u64>,
    /// Root entries that make no sense, and tables that are no RAM: where.
    odd: Vec<u64>,
}

impl Unit {
    /// Reads it, if its registers are known.
    pub fn read(registers: &Registers, words: &Words) -> Option<Self> {
        let registers = registers.own.vtd.clone()?;
        let mut unit = Self {
            registers,
            entries: Vec::new(),
            walked: BTreeMap::new(),
            interrupts: Vec::new(),
            frames: Vec::new(),
            odd: Vec::new(),
        };
        unit.contexts(words);
        let table = unit.registers.interrupts & ADDRESS;
        for index in 0..unit.interrupt_entries() {
            let at = table + index * 16;
            let entry = [0, 8].map(|part| words.word(at + part).unwrap_or(0));
            if index == 0 && words.word(at).is_none() {
                unit.odd.push(at);
                break;
            }
            if entry[0] & P != 0 {
                unit.interrupts.push(Interrupt { index, at, words: entry });
            }
        }
        Some(unit)
    }

    fn contexts(&mut self, words: &Words) {
        let root = self.registers.root & ADDRESS;
        self.frames.push(root);
        for bus in 0..256 {
            let at = root + bus * 16;
            let [low, high] = [0, 8].map(|part| words.word(at + part));
            let Some((low, high)) = low.zip(high) else {
                self.odd.push(at);
                return;
            };
            if low & 0xFFE != 0 || high != 0 {
                self.odd.push(at);
            }
            if low & P == 0 {
                continue;
            }
            let table = low & ADDRESS;
            self.frames.push(table);
            for function in 0..256 {
                let at = table + function * 16;
                let entry = [0, 8].map(|part| words.word(at + part).unwrap_or(0));
                if words.word(at).is_none() {
                    self.odd.push(at);
                    break;
                }
                if entry[0] & P == 0 {
                    continue;
                }
                let entry = Entry { bdf: (bus << 8 | function) as u16, at, words: entry };
                if (3..=5).contains(&entry.levels()) {
                    let key = (entry.root(), entry.levels());
                    self.walked.entry(key).or_insert_with(|| walk(words, key));
                }
                self.entries.push(entry);
            }
        }
    }

    /// Entries of the interrupt table; none where nothing is remapped.
    fn interrupt_entries(&self) -> u64 {
        if self.registers.status & IRES == 0 { 0 } else { 2 << (self.registers.interrupts & 0xF) }
    }

    /// The interrupt entry with a number, if it is present.
    pub fn interrupt(&self, index: u64) -> Option<&Interrupt> {
        let at = self.interrupts.binary_search_by_key(&index, |entry| entry.index);
        at.ok().map(|at| &self.interrupts[at])
    }

    fn pages(&self, entry: &Entry) -> Option<&Pages> {
        self.walked.get(&(entry.root(), entry.levels()))
    }
}

impl dma::Unit for Unit {
    // No monitor maps one of them.
    fn tables(&self, _: &Claim) -> Vec<(u64, String)> {
        let what = |frame: u64, what: &str| (frame, format!("{what} of the IOMMU"));
        let mut out: Vec<_> =
            self.frames.iter().map(|&frame| what(frame, "root or context table")).collect();
        let pages = self.walked.values().flat_map(|pages| &pages.tables);
        out.extend(pages.map(|&frame| what(frame, "I/O page table")));
        let table = self.registers.interrupts & ADDRESS;
        let bytes = self.interrupt_entries() * 16;
        let frames = (0..bytes).step_by(PAGE as usize);
        out.extend(frames.map(|at| what(table + at, "interrupt remapping table")));
        // Its size: a power of two of pages.
        let queue = self.registers.queue;
        let pages = (0..1 << (queue & 0b111)).filter(|_| queue & ADDRESS != 0);
        out.extend(pages.map(|n: u64| what((queue & ADDRESS) + n * PAGE, "invalidation queue")));
        out
    }

    fn check(&self, context: &mut Context, given: &[Vec<Given>]) {
        context.vtd(self, given);
    }

    fn line(&self, context: &Context, entry: u64) -> Vec<Arrival> {
        // It sees all messages.
        let remaps = context.claim.iommu.as_ref().is_some_and(|iommu| iommu.remaps);
        vec![if remaps { context.indexed(self, entry) } else { lines::direct(entry) }]
    }
}

/// Walks second-stage tables.
fn walk(words: &Words, (root, levels): (u64, u64)) -> Pages {
    let mut pages = Pages::default();
    table(&mut pages, words, root, levels, 0, (true, true));
    pages
}

fn table(pages: &mut Pages, words: &Words, table: u64, level: u64, base: u64, above: (bool, bool)) {
    /// More tables than any system has.
    const TOO_MANY: usize = 20_000;
    if pages.tables.len() >= TOO_MANY || words.word(table).is_none() {
        pages.odd.push((table, 0));
        return;
    }
    pages.tables.push(table);
    let shift = 12 + 9 * (level - 1);
    for index in 0..512 {
        let at = table + index * 8;
        let entry = words.word(at).unwrap_or(0);
        if entry & (READ | WRITE) == 0 {
            continue;
        }
        let (address, frame) = (base | index << shift, entry & ADDRESS);
        let (read, write) = (above.0 && entry & READ != 0, above.1 && entry & WRITE != 0);
        let is_page = level == 1 || entry & LARGE != 0;
        if entry & RESERVED != 0 || level > 3 && is_page {
            pages.odd.push((at, entry));
        }
        if !is_page {
            self::table(pages, words, frame, level - 1, address, (read, write));
        } else if frame & ((1 << shift) - 1) == 0 {
            pages.leaves.push(Leaf { address, frame, size: 1 << shift, read, write });
        } else {
            pages.odd.push((at, entry));
        }
    }
}

impl Context<'_> {
    /// Everything about devices' memory accesses and messages.
    fn vtd(&mut self, unit: &Unit, given: &[Vec<Given>]) {
        self.switched_on(unit);
        if unit.registers.status & TES == 0 {
            // Everything passes; what its tables would say does not matter.
            return;
        }
        let mut wrong = Wrong::new();
        self.contexts(unit, &mut wrong);
        self.interrupts(unit, &mut wrong);
        self.tell(wrong);
        let claim = self.claim;
        for function in &claim.functions {
            let Some(i) = function.owner else { continue };
            let requesters = [function.bdf].into_iter().chain(function.aliases.iter().copied());
            for bdf in requesters {
                let entry = unit.entries.iter().find(|entry| entry.bdf == bdf);
                let pages = entry.and_then(|entry| unit.pages(entry));
                let own = unit.interrupts.iter().filter(|r| r.source() == Some(bdf));
                let interrupts = own.map(|r| (r.destination(), r.vector().into())).collect();
                self.reaches((i, bdf), function, &given[i], pages, interrupts);
            }
        }
    }

    fn switched_on(&mut self, unit: &Unit) {
        let r = &unit.registers;
        let claimed = self.claim.iommu.as_ref();
        let expected = claimed.map_or(0, |iommu| iommu.registers.start);
        let remaps = claimed.is_some_and(|iommu| iommu.remaps);
        let mut wrong = Vec::new();
        if r.base != expected {
            wrong.push((format!("its registers are at {:#x}", r.base), format!("{expected:#x}")));
        }
        let mut is = |bad: bool, what: &str, right: &str| {
            if bad {
                wrong.push((what.to_owned(), right.to_owned()));
            }
        };
        is(r.status & TES == 0, "it is switched off", "TES set");
        is(r.root & MODE != 0, "its root table is in another mode", "legacy mode (TTM = 0)");
        is(r.protected & PROTECTED != 0, "it protects memory by registers", "EPM and PRS clear");
        if remaps {
            is(r.status & IRES == 0, "it remaps no interrupts: messages pass", "IRES set");
            is(
                r.status & CFIS != 0,
                "messages in compatibility format pass (CFIS = 1)",
                "CFIS clear",
            );
            is(
                r.interrupts & EIME == 0,
                "messages in compatibility format can pass (EIME = 0)",
                "EIME set",
            );
        }
        if let Some(at) = unit.odd.first() {
            let what = format!("a table's entry at {at:#x} makes no sense, or is no RAM");
            wrong.push((what, "tables in RAM without reserved bits".into()));
        }
        for (what, right) in wrong {
            let message = format!("the IOMMU: {what}");
            self.find("iommu-control", &Place::default(), Some(r.base), message, right);
        }
    }

    fn contexts(&self, unit: &Unit, wrong: &mut Wrong) {
        let mut domains: BTreeMap<u64, (u16, u64)> = BTreeMap::new();
        for entry in &unit.entries {
            let mut is = |rule: &'static str, what: String, right: &str| {
                let key = (rule, what, right.to_owned());
                wrong.entry(key).or_default().push((entry.bdf, entry.at));
            };
            let [low, high] = entry.words;
            if low & TT != 0 {
                is(
                    "device-table",
                    format!("has translation type {}: ways around its tables", low >> 2 & 0b11),
                    "type 0",
                );
            }
            if low & CONTEXT_LOW != 0 || high & CONTEXT_HIGH != 0 {
                is("device-table", "has reserved bits".into(), "those bits clear");
            }
            if !(3..=5).contains(&entry.levels()) {
                is("device-table", format!("has {} levels", entry.levels()), "3 to 5");
            }
            let owned = self.claim.requester(entry.bdf).is_some_and(|f| f.owner.is_some());
            let pages = unit.pages(entry);
            if !owned && pages.is_some_and(|pages| !pages.leaves.is_empty()) {
                let what = format!(
                    "belongs to nobody and reaches what the table at {:#x} maps",
                    entry.root()
                );
                is("dma-map", what, "nothing");
            }
            for (at, odd) in pages.into_iter().flat_map(|pages| &pages.odd) {
                is(
                    "device-table",
                    format!("has I/O tables with the entry {odd:#x} at {at:#x}"),
                    "no reserved bits, tables in RAM",
                );
            }
            let first = domains.entry(entry.domain()).or_insert((entry.bdf, entry.root()));
            if first.1 != entry.root() {
                let text = format!(
                    "has the domain {} of {}, whose tables are others",
                    entry.domain(),
                    name(first.0)
                );
                is("device-table", text, "a domain of its own");
            }
        }
    }

    /// Each entry takes one requester's messages, to a core of the requester's owner. An IOAPIC belongs to all
    /// sandboxes with lines: their entries are looked at line by line.
    fn interrupts(&self, unit: &Unit, wrong: &mut Wrong) {
        let ioapic = self.claim.iommu.as_ref().and_then(|iommu| iommu.lines);
        for entry in &unit.interrupts {
            let source = entry.source();
            let mut is = |rule: &'static str, what: String, right: &str| {
                let key = (rule, what, right.to_owned());
                let who = source.unwrap_or(entry.words[1] as u16);
                wrong.entry(key).or_default().push((who, entry.at));
            };
            let number = entry.index;
            if let Some((rule, what)) = entry.wrong() {
                let what = format!("has {what} in entry {number}");
                is(rule, what, "fixed, physical, from vector 16 on");
            }
            let Some(source) = source else {
                let what = format!("is not the only one whose messages entry {number} takes");
                is("dma-messages", what, "validation of all 16 bits of the requester ID");
                continue;
            };
            let lines = ioapic == Some(source);
            let sends = |function: &&crate::claim::Function| function.role.is_none();
            let owner = self.claim.requester(source).filter(sends);
            let owner = owner.and_then(|function| function.owner);
            let owners = self.claim.sandboxes.iter().enumerate();
            let mut owners =
                owners.filter(|(i, s)| owner == Some(*i) || lines && !s.lines.is_empty());
            let (to, vector) = (entry.destination(), entry.vector());
            if !owners.any(|(_, s)| s.core_ids.contains(&to)) {
                let what = format!("interrupts APIC {to} with vector {vector} by entry {number}");
                is("message-core", what, "cores of its own sandbox");
            }
            if entry.level() && !lines {
                let what = format!("has a level in entry {number}");
                is("message-form", what, "an edge: messages have no level");
            }
        }
    }

    /// Returns APIC and vector of a line, if it arrives. An entry without an index is blocked.
    ///
    /// # Errors
    /// The rule that the line breaks by naming this entry.
    fn indexed(&self, unit: &Unit, line: u64) -> Arrival {
        const FORMAT: u64 = 1 << 48;
        const LEVEL: u64 = 1 << 15;
        let ioapic = self.claim.iommu.as_ref().and_then(|iommu| iommu.lines);
        if unit.registers.status & IRES == 0 || line & FORMAT == 0 {
            return Ok(None);
        }
        let index = line >> 49 | (line >> 11 & 1) << 15;
        let Some(entry) = unit.interrupt(index) else { return Ok(None) };
        if entry.source().is_some_and(|source| Some(source) != ioapic) {
            return Ok(None);
        }
        if line as u8 != entry.vector() || (line & LEVEL != 0) != entry.level() {
            let what = format!("has another vector or trigger than entry {index}");
            return Err(("line-vector", what));
        }
        Ok(Some((entry.destination(), entry.vector().into())))
    }
}
