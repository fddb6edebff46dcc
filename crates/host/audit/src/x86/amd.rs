//! AMD's IOMMU: control, device table, I/O page tables, interrupt remapping tables.
//! Bits are those of the IOMMU specification (48882): 2.2.2.1 device table entry,
//! 2.2.3 I/O page tables, 2.2.5.2 remapping table entry with 32 bits, 3.4 registers.

use super::{FIRST_VECTOR, PAGE, lines, registers};
use crate::check::Context;
use crate::claim::{Claim, Function, Place, Range};
use crate::dma::{self, Arrival, Leaf, Pages, Wrong, name};
use crate::given::{Given, pages};
use crate::memory::Words;
use crate::registers::Registers;
use std::collections::BTreeMap;

const ADDRESS: u64 = 0x000F_FFFF_FFFF_F000;
/// Control register.
const IOMMU_EN: u64 = 1;
const GT_EN: u64 = 1 << 16;
const GA_EN: u64 = 1 << 17;
const DEV_TBL_SEG_EN: u64 = 0b111 << 34;
const XT_EN: u64 = 1 << 50;
/// Exclusion Base register: ExEn, Allow.
const EXCLUSION: u64 = 0b11;

/// First quadword of a device table entry.
const V: u64 = 1;
const TV: u64 = 1 << 1;
/// HAD, PPR, GPRP, GIoV, GV: accesses by other rules than these tables.
const OTHER_WAYS: u64 = 0b11 << 7 | 0b1111 << 52;
const IR: u64 = 1 << 61;
const IW: u64 = 1 << 62;
/// Second: I (the device may translate by itself), IoCtl, EX, SysMgt.
const SECOND: u64 = 1 << 32 | 0b11 << 35 | 1 << 39 | 0b11 << 40;
/// Third: IV; INITPass, EIntPass, NMIPass, Lint0Pass, Lint1Pass.
const IV: u64 = 1;
const PASS: u64 = 0b111 << 56 | 0b11 << 62;
const INT_ROOT: u64 = 0x000F_FFFF_FFFF_FFC0;
/// IntTabLen beyond this is reserved: 2048 entries.
const MOST_ENTRIES: u64 = 11;

/// Treatment of a function's interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupts {
    Aborted,
    PassedThrough,
    Remapped,
    Reserved,
}

/// A device table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Requester ID.
    pub bdf: u16,
    /// Where it lies.
    pub at: u64,
    words: [u64; 4],
}

impl Entry {
    fn mode(&self) -> u64 {
        self.words[0] >> 9 & 0b111
    }

    fn root(&self) -> u64 {
        self.words[0] & ADDRESS
    }

    fn rights(&self) -> (bool, bool) {
        (self.words[0] & IR != 0, self.words[0] & IW != 0)
    }

    fn translates(&self) -> bool {
        self.words[0] & (V | TV) == V | TV
            && (1..=6).contains(&self.mode())
            && self.rights() != (false, false)
    }

    pub fn interrupts(&self) -> Interrupts {
        if self.words[0] & V == 0 || self.words[2] & IV == 0 {
            return Interrupts::PassedThrough;
        }
        match self.words[2] >> 60 & 0b11 {
            0 => Interrupts::Aborted,
            1 => Interrupts::PassedThrough,
            2 => Interrupts::Remapped,
            _ => Interrupts::Reserved,
        }
    }

    fn remapping(&self) -> Range {
        let entries = 1 << (self.words[2] >> 1 & 0b1111);
        Range { start: self.words[2] & INT_ROOT, len: entries * 4 }
    }
}

/// Registers with head and tail of the rings: a page (3.4.12).
pub const RINGS: u64 = 0x2000;
const PR: u64 = 1;
/// Reserved in an entry that is present: bits 58:52.
const RESERVED: u64 = 0x7F << 52;
/// More tables than any system has.
const TOO_MANY: usize = 20_000;

impl Pages {
    /// Walks a table of `level` (1 to 6) with the entry's rights above it.
    pub fn walk(words: &Words, root: u64, level: u64, rights: (bool, bool)) -> Self {
        let mut pages = Self::default();
        pages.table(words, root, level, 0, rights);
        pages
    }

    fn table(&mut self, words: &Words, table: u64, level: u64, base: u64, above: (bool, bool)) {
        if self.tables.len() >= TOO_MANY || words.word(table).is_none() {
            self.odd.push((table, 0));
            return;
        }
        self.tables.push(table);
        let shift = 12 + 9 * (level - 1);
        // Level 6 decides about bits 63:57.
        let entries = if level == 6 { 128 } else { 512 };
        for index in 0..entries {
            let at = table + index * 8;
            let entry = words.word(at).unwrap_or(0);
            if entry & PR == 0 {
                continue;
            }
            let address = base | index << shift;
            let rights = (above.0 && entry & IR != 0, above.1 && entry & IW != 0);
            let next = entry >> 9 & 0b111;
            if entry & RESERVED != 0 {
                self.odd.push((at, entry));
            }
            match next {
                0 | 7 => self.leaf(at, entry, shift, address, rights),
                // A level may be left out, but never repeated.
                _ if next < level => {
                    self.table(words, entry & ADDRESS, next, address, rights);
                }
                _ => self.odd.push((at, entry)),
            }
        }
    }

    fn leaf(&mut self, at: u64, entry: u64, shift: u64, address: u64, (read, write): (bool, bool)) {
        let frame = entry & ADDRESS;
        let bits = if entry >> 9 & 0b111 == 7 {
            // The lowest zero of the address says how long the page is (table 14).
            let ones = (frame >> 12).trailing_ones();
            u64::from(12 + ones + 1)
        } else {
            shift
        };
        let within = |bits: u64| if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        if bits >= 52 || bits < shift || bits == shift && frame & within(bits) != 0 {
            self.odd.push((at, entry));
            return;
        }
        // A page longer than its entry's reach has an entry for each part of it.
        let size = 1u64 << shift;
        let frame = frame & !within(bits) | address & within(bits) & !within(shift);
        self.leaves.push(Leaf { address, frame, size, read, write });
    }
}

/// A remapping table's valid entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remapped {
    pub index: u64,
    pub at: u64,
    entry: u32,
}

impl Remapped {
    pub fn destination(self) -> u32 {
        self.entry >> 8 & 0xFF
    }

    pub fn vector(self) -> u8 {
        (self.entry >> 16) as u8
    }

    /// Rule that it breaks with any owner, and how: IntType is not fixed, logical destination, guest mode, reserved
    /// bits, a vector that no APIC takes.
    pub fn wrong(self) -> Option<(&'static str, &'static str)> {
        let form = |what| Some(("message-form", what));
        match self.entry {
            e if e >> 2 & 0b111 != 0 => form("another delivery mode than fixed"),
            e if e & 1 << 6 != 0 => form("a logical destination"),
            e if e & (1 << 7 | 0xFF << 24) != 0 => form("reserved bits"),
            _ if self.vector() < FIRST_VECTOR => {
                Some(("message-vector", "a vector that no APIC takes"))
            }
            _ => None,
        }
    }
}

/// The IOMMU and its tables.
pub struct Unit {
    registers: registers::Iommu,
    /// One for each requester ID up to the table's length.
    pub entries: Vec<Entry>,
    /// I/O page tables by root, level and rights.
    walked: BTreeMap<(u64, u64, (bool, bool)), Pages>,
    /// The table's frames that are no RAM.
    lost: Vec<u64>,
}

impl Unit {
    /// Reads it, if its registers are known.
    pub fn read(registers: &Registers, words: &Words) -> Option<Self> {
        let registers = registers.own.iommu.clone()?;
        let table = registers.device_table & ADDRESS;
        // Bits 8:0: frames, less one.
        let frames = (registers.device_table & 0x1FF) + 1;
        let mut unit =
            Self { registers, entries: Vec::new(), walked: BTreeMap::new(), lost: Vec::new() };
        for n in 0..frames * (PAGE / 32) {
            let (at, Ok(bdf)) = (table + n * 32, u16::try_from(n)) else {
                break;
            };
            let mut entry = [0; 4];
            let parts = entry.iter_mut().zip(0..);
            parts.for_each(|(word, i)| *word = words.word(at + i * 8).unwrap_or(0));
            if at.is_multiple_of(PAGE) && words.word(at).is_none() {
                unit.lost.push(at);
            }
            let entry = Entry { bdf, at, words: entry };
            if entry.translates() {
                let key = (entry.root(), entry.mode(), entry.rights());
                let walk = || Pages::walk(words, key.0, key.1, key.2);
                unit.walked.entry(key).or_insert_with(walk);
            }
            unit.entries.push(entry);
        }
        Some(unit)
    }

    /// Its entry for a requester.
    pub fn entry(&self, bdf: u16) -> Option<&Entry> {
        self.entries.get(usize::from(bdf))
    }

    fn pages(&self, entry: &Entry) -> Option<&Pages> {
        self.walked.get(&(entry.root(), entry.mode(), entry.rights()))
    }

    /// Frames of a ring.
    fn ring(&self, buffer: u64) -> impl Iterator<Item = u64> + use<> {
        // ComLen, EventLen (59:56): a power of two of 16-byte entries, from 256 on.
        let len = 16u64 << (buffer >> 56 & 0xF);
        let frames = (0..len).step_by(PAGE as usize).filter(move |_| buffer & ADDRESS != 0);
        frames.map(move |at| (buffer & ADDRESS) + at)
    }

    /// Valid entries of a function's remapping table.
    pub fn remapped(&self, words: &Words, entry: &Entry) -> Vec<Remapped> {
        let table = entry.remapping();
        let read = |n: u64| {
            let at = table.start + n * 4;
            let word = words.word(at & !7).unwrap_or(0) >> (at % 8 * 8);
            Remapped { index: n, at, entry: word as u32 }
        };
        (0..table.len / 4).map(read).filter(|r| r.entry & 1 != 0).collect()
    }
}

impl dma::Unit for Unit {
    fn tables(&self, claim: &Claim) -> Vec<(u64, String)> {
        let r = &self.registers;
        let mut out: Vec<(u64, String)> = { self.entries.iter() }
            .filter(|e| e.at.is_multiple_of(PAGE))
            .map(|e| (e.at, "device table of the IOMMU".into()))
            .collect();
        let pages = self.walked.values().flat_map(|p| &p.tables);
        out.extend(pages.map(|&t| (t, "I/O page table of the IOMMU".into())));
        for (buffer, what) in [(r.command_buffer, "command buffer"), (r.event_log, "event log")] {
            out.extend(self.ring(buffer).map(|at| (at, format!("{what} of the IOMMU"))));
        }
        for (bdf, frames) in self.remapping() {
            let whose = claim.requester(bdf).map_or_else(|| name(bdf), |f| f.name.clone());
            let what = format!("interrupt remapping table of {whose}");
            out.extend(frames.into_iter().map(|f| (f, what.clone())));
        }
        out
    }

    fn commands(&self) -> Vec<u64> {
        self.ring(self.registers.command_buffer).collect()
    }

    /// Frames of remapping tables by requester. An entry that refuses all messages may have a table that is not looked
    /// at. Such an IOAPIC sends messages that the IOMMU does not see.
    fn remapping(&self) -> BTreeMap<u16, Vec<u64>> {
        let has_table = |e: &&Entry| match e.interrupts() {
            Interrupts::Remapped => true,
            Interrupts::Aborted => e.remapping().start != 0,
            _ => false,
        };
        let remapped = self.entries.iter().filter(has_table);
        let frames = |e: &Entry| pages(e.remapping(), PAGE).map(|p| p.start).collect();
        remapped.map(|e| (e.bdf, frames(e))).collect()
    }

    fn check(&self, context: &mut Context, given: &[Vec<Given>]) {
        context.amd(self, given);
    }

    /// Nothing says whether the IOMMU sees the message: it has to stay with its owner either way.
    fn line(&self, context: &Context, entry: u64) -> Vec<Arrival> {
        let remapped = context.remapped(self, entry);
        remapped.into_iter().chain([lines::direct(entry)]).collect()
    }
}

impl Context<'_> {
    fn amd(&mut self, unit: &Unit, given: &[Vec<Given>]) {
        self.control(unit);
        if unit.registers.control & IOMMU_EN == 0 {
            // Everything passes; what its tables would say does not matter.
            return;
        }
        let mut wrong = Wrong::new();
        let claim = self.claim;
        for entry in &unit.entries {
            let function = claim.requester(entry.bdf);
            self.entry(unit, entry, function, &mut wrong);
        }
        let mut domains: BTreeMap<u64, (u16, u64)> = BTreeMap::new();
        for entry in unit.entries.iter().filter(|e| e.translates()) {
            let domain = entry.words[1] & 0xFFFF;
            let first = domains.entry(domain).or_insert((entry.bdf, entry.root()));
            if first.1 != entry.root() {
                let text = format!(
                    "has the domain {domain} of {}, whose tables are others",
                    name(first.0)
                );
                let key = ("device-table", text, "a domain of its own".to_owned());
                wrong.entry(key).or_default().push((entry.bdf, entry.at));
            }
        }
        self.tell(wrong);
        for function in &claim.functions {
            let requesters = [function.bdf].into_iter().chain(function.aliases.iter().copied());
            for bdf in requesters.filter(|_| function.owner.is_some()) {
                let i = function.owner.unwrap_or_default();
                self.function(unit, i, bdf, function, &given[i]);
            }
        }
    }

    /// APIC and vector of a line that is not masked, by the IOMMU's table, if it has one for the IOAPIC.
    fn remapped(&self, unit: &Unit, entry: u64) -> Option<Arrival> {
        let device = unit.entry(self.claim.iommu.as_ref()?.lines?)?;
        if device.interrupts() != Interrupts::Remapped {
            return None;
        }
        // Bits 10:0 of the message, delivery mode and vector, are the index.
        let index = entry & (lines::DELIVERY | 0xFF);
        let all = unit.remapped(self.words, device);
        let found = all.iter().find(|r| r.index == index);
        Some(Ok(found.map(|r| (r.destination(), r.vector().into()))))
    }

    fn control(&mut self, unit: &Unit) {
        let r = &unit.registers;
        let mut wrong = Vec::new();
        let expected = self.claim.iommu.as_ref().map_or(0, |i| i.registers.start);
        if r.base != expected {
            wrong.push((format!("its registers are at {:#x}", r.base), format!("{expected:#x}")));
        }
        if r.control & IOMMU_EN == 0 {
            wrong.push(("it is switched off".into(), "IommuEn set".into()));
        }
        for (bits, what) in [
            (GT_EN, "guest translation (GTEn)"),
            (GA_EN, "128-bit remapping entries (GAEn)"),
            (XT_EN, "x2APIC destinations (XTEn)"),
            (DEV_TBL_SEG_EN, "device table segments (DevTblSegEn)"),
        ] {
            if r.control & bits != 0 {
                wrong.push((
                    format!("{what} are on: tables beyond those that are looked at"),
                    "off".into(),
                ));
            }
        }
        if r.exclusion_base & EXCLUSION != 0 {
            let what = format!(
                "addresses from {:#x} to {:#x} are excluded from translation",
                r.exclusion_base & ADDRESS,
                r.exclusion_limit & ADDRESS | 0xFFF
            );
            wrong.push((what, "no exclusion (ExEn, Allow clear)".into()));
        }
        if !unit.lost.is_empty() {
            wrong
                .push((format!("its device table at {:#x} is no RAM", unit.lost[0]), "RAM".into()));
        }
        for (what, right) in wrong {
            let message = format!("the IOMMU: {what}");
            self.find("iommu-control", &Place::default(), Some(r.base), message, right);
        }
    }

    /// One entry, by what it is, not by what its tables lead to.
    fn entry(&self, unit: &Unit, entry: &Entry, function: Option<&Function>, wrong: &mut Wrong) {
        let [first, second, third, _] = entry.words;
        let mut is = |rule: &'static str, what: String, right: &str| {
            let key = (rule, what, right.to_owned());
            wrong.entry(key).or_default().push((entry.bdf, entry.at));
        };
        let owned = function.is_some_and(|f| f.owner.is_some());
        let ioapic = self.claim.iommu.as_ref().is_some_and(|i| i.lines == Some(entry.bdf));
        if first & V == 0 {
            is("device-table", "is not valid (V = 0): all it does passes".into(), "V set");
            return;
        }
        if first & TV == 0 {
            is("device-table", "has no translation (TV = 0)".into(), "TV set");
        }
        let level = ioapic
            && self.claim.sandboxes.iter().flat_map(|s| &s.lines).any(|l| l.level != Some(false));
        // An IOAPIC with a level-triggered line: its entries are checked one by one.
        if third & IV == 0 && !level {
            is(
                "device-table",
                "has no interrupt control (IV = 0): its messages pass".into(),
                "IV set",
            );
        }
        if first & OTHER_WAYS != 0 || second & SECOND != 0 {
            let bits = (first & OTHER_WAYS, second & SECOND);
            is(
                "device-table",
                format!("has ways around its tables: {:#x}, {:#x}", bits.0, bits.1),
                "those bits clear",
            );
        }
        if third & PASS != 0 {
            is(
                "device-table",
                format!("lets INIT, NMI or external interrupts pass: {:#x}", third & PASS),
                "those bits clear",
            );
        }
        match entry.mode() {
            7 => is("device-table", "has the reserved mode 7".into(), "1 to 6"),
            0 if first & TV != 0 && entry.rights() != (false, false) => {
                is(
                    "dma-map",
                    "reaches all of memory, untranslated (mode 0)".into(),
                    "its sandbox's memory alone",
                );
            }
            _ => {}
        }
        if !owned && unit.pages(entry).is_some_and(|p| p.leaves.iter().any(|l| l.read || l.write)) {
            is(
                "dma-map",
                format!("belongs to nobody and reaches what the table at {:#x} maps", entry.root()),
                "nothing",
            );
        }
        for (at, odd) in unit.pages(entry).into_iter().flat_map(|p| &p.odd) {
            is(
                "device-table",
                format!("has I/O tables with the entry {odd:#x} at {at:#x}"),
                "no reserved bits, levels that descend",
            );
        }
        match entry.interrupts() {
            Interrupts::PassedThrough if third & IV != 0 && !level => {
                is(
                    "dma-messages",
                    "has its messages passed unmapped (IntCtl = 1)".into(),
                    "IntCtl = 2, or 0",
                );
            }
            Interrupts::Reserved => {
                is("dma-messages", "has the reserved IntCtl 3".into(), "IntCtl = 2, or 0")
            }
            _ => {}
        }
        self.remapping_table(unit, entry, function, ioapic, &mut is);
    }

    fn remapping_table(
        &self,
        unit: &Unit,
        entry: &Entry,
        function: Option<&Function>,
        ioapic: bool,
        is: &mut impl FnMut(&'static str, String, &str),
    ) {
        if entry.interrupts() != Interrupts::Remapped {
            return;
        }
        let len = entry.words[2] >> 1 & 0b1111;
        if len > MOST_ENTRIES {
            is("dma-messages", format!("has the reserved IntTabLen {len}"), "at most 11");
            return;
        }
        if self.words.word(entry.remapping().start & !7).is_none() {
            is("dma-messages", "has a remapping table that is no RAM".into(), "a table in RAM");
        }
        for r in unit.remapped(self.words, entry) {
            let owners = self.claim.sandboxes.iter().enumerate().filter(|(i, s)| {
                // A role's function sends no messages.
                let own = |f: &Function| f.owner == Some(*i) && f.role.is_none();
                function.is_some_and(own) || ioapic && !s.lines.is_empty()
            });
            let mut cores = owners.flat_map(|(_, s)| &s.core_ids);
            let (to, vector) = (r.destination(), r.vector());
            if let Some((rule, what)) = r.wrong() {
                is(
                    rule,
                    format!("has {what} in entry {} at {:#x}", r.index, r.at),
                    "fixed, physical, from vector 16 on",
                );
            }
            if !cores.any(|c| *c == to) {
                let what = format!(
                    "interrupts APIC {to} with vector {vector} by entry {} at {:#x}",
                    r.index, r.at
                );
                is("message-core", what, "cores of its own sandbox");
            }
        }
    }

    /// Checks the reach of an owned function.
    fn function(&mut self, unit: &Unit, i: usize, bdf: u16, function: &Function, given: &[Given]) {
        let Some(entry) = unit.entry(bdf) else {
            let message = format!("{} of {} is beyond the device table", name(bdf), self.name(i));
            self.find("device-table", &function.place, None, message, "an entry for it");
            return;
        };
        let remapped = match entry.interrupts() {
            Interrupts::Remapped => unit.remapped(self.words, entry),
            _ => Vec::new(),
        };
        let interrupts = remapped.iter().map(|r| (r.destination(), r.vector().into())).collect();
        self.reaches((i, bdf), function, given, unit.pages(entry), interrupts);
    }
}

#[cfg(test)]
mod tests;
