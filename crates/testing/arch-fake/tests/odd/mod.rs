//! The auditor's back end for the odd machine. It shares no code with the tables' builder, and is written from the
//! manual of a machine that does not exist:
//!
//! * Pages have 16 KiB, tables 2048 entries. Own tables have 4 levels. Their entries are XORed with a key; bit 5 is a
//!   page, at the two lowest levels, bit 3 a table. Bit 7 forbids to write, bit 1 to fetch.
//! * Nested tables have 3 levels and pages at the lowest one. The address stands 8 bits higher. Bit 5 is a page, bit 6
//!   a table, with its level in the bits 2:0. In a page bit 2 allows to write, bit 1 forbids to fetch, and bit 63 is a
//!   device's. 0xEE is empty.
//! * A control block is a page of words. Word 0xA1 has the root, and the tag from bit 56 on. 0xB0 and 0xB1 are traps.
//! * A line has a page with one word. Bit 63 lets it through, bit 62 is a level. The interrupt stands in bits 47:24,
//!   the core below.
//! * The IOMMU's first word is its table, and bit 0 turns it on. Entries of 32 bytes descend from stream 255: root,
//!   domain and table for messages, inverted. Tables for DMA are reversed and have 3 levels; an entry is rotated by 13
//!   bits. Bit 0 is a page, bit 2 allows to write, and all ones are empty.
//! * A table for messages has a page of words. Bit 63 makes an entry valid. The interrupt stands in bits 47:24, from
//!   1000 to 2899, the core below.

use bulkhead_audit::arch::{Architecture, Area, Block, Places, REST, Wrong};
use bulkhead_audit::claim::{Claim, Place, Range, Sandbox};
use bulkhead_audit::dma::{self, Arrival, Leaf, Pages};
use bulkhead_audit::memory::Words;
use bulkhead_audit::paging::{Entry, Format};
use bulkhead_audit::registers::{Core, Registers};
use bulkhead_audit::{Context, Given};
use std::collections::BTreeMap;

const PAGE: u64 = 0x4000;
const KEY: u64 = 0xA5A5_0000_0000_05A5;
/// Words of a control block.
pub const ROOT: u64 = 0xA1 * 8;
pub const TRAPS: u64 = 0xB0 * 8;
/// Lines that a controller has.
const LINES: u64 = 16;

#[derive(Debug)]
pub struct Own;

impl Format for Own {
    fn page_bits(&self) -> u32 {
        14
    }

    fn levels(&self) -> u32 {
        4
    }

    fn has_halves(&self) -> bool {
        true
    }

    fn entry(&self, entry: u64, level: u32) -> Option<Entry> {
        const ADDRESS: u64 = 0x0000_FFFF_FFFF_C000;
        let bits = entry ^ KEY;
        let is_page = bits & 0x20 != 0;
        let (rights, reserved) = match is_page {
            true => ([bits & 0x80 == 0, bits & 2 == 0, true], !(ADDRESS | 0xA2)),
            false => ([true; 3], !(ADDRESS | 8)),
        };
        let large = is_page && level > 0 && (level > 1 || bits & ADDRESS & 0x1FF_FFFF != 0);
        let odd = bits & reserved != 0 || large || !is_page && level == 0;
        let address = bits & ADDRESS;
        (bits & 0x28 != 0).then_some(Entry { address, is_page, rights, odd, suits: [true; 2] })
    }
}

#[derive(Debug)]
pub struct Nested;

impl Format for Nested {
    fn page_bits(&self) -> u32 {
        14
    }

    fn levels(&self) -> u32 {
        3
    }

    fn has_halves(&self) -> bool {
        false
    }

    fn entry(&self, entry: u64, level: u32) -> Option<Entry> {
        const DEVICE: u64 = 1 << 63;
        if entry == 0xEE {
            return None;
        }
        let address = (entry & !DEVICE) >> 8;
        let is_page = entry & 0x60 == 0x20;
        let (device, kind) = (entry & DEVICE != 0, entry & 0xFF);
        let right = match is_page {
            true => level == 0 && kind & !0x26 == 0,
            false => level > 0 && kind == 0x40 | u64::from(level - 1) && !device,
        };
        let odd = !right || address % PAGE != 0;
        let rights = [!is_page || entry & 4 != 0, !is_page || entry & 2 == 0, true];
        Some(Entry {
            address: address / PAGE * PAGE,
            is_page,
            rights,
            odd,
            suits: [!device, device],
        })
    }
}

const PLACES: Places = Places {
    page: PAGE,
    larger: &[],
    start_code: None,
    vectors: false,
    own_page: Some("processor's own page"),
    lock: false,
    info: 0x1_1000_0000,
    progress: 0x1_1800_0000,
    roles: 0x1_1880_0000,
    snapshots: 0x1_1900_0000,
    reports: [0x1_2000_0000, 0x10_0000],
    function: PAGE,
    configuration: Range { start: 0x1_4000_0000, len: 256 * PAGE },
    // No Linux runs before its monitor here.
    machine: [Range { start: 0, len: 0 }; 2],
};

#[derive(Debug)]
pub struct Odd;

impl Architecture for Odd {
    fn places(&self) -> &'static Places {
        &PLACES
    }

    fn own(&self) -> &'static dyn Format {
        &Own
    }

    fn nested(&self) -> &'static dyn Format {
        &Nested
    }

    fn areas(&self, _: &Claim, registers: &Registers, _: &Words) -> Vec<Area> {
        let area = |core: &Core| {
            let [root, pc, sp] = core.host?;
            let certain = pc == 0xFFFF_FFFF_8000_0000;
            let (core, block) = (Some(core.number), core.block?);
            Some(Area { page: None, core, root, pc, sp, tables: Vec::new(), block, certain })
        };
        registers.cores.iter().filter_map(area).collect()
    }

    fn comes_back(&self) -> &'static str {
        "at the monitor's first instruction"
    }

    fn block(&self, words: &Words, at: u64) -> Option<Block> {
        let root = words.word(at + ROOT)?;
        let (tag, launched) = (root >> 56, root != 0);
        Some(Block { root: root << 8 >> 8, maps: Vec::new(), tag, launched })
    }

    fn judge(&self, words: &Words, sandbox: &Sandbox, area: &Area, first: &Block) -> Wrong {
        let traps = [0xF0F0, !(sandbox.cores.len() as u64)];
        let at = |n: u64| words.word(area.block + TRAPS + n * 8).unwrap_or(0);
        let traps = traps.into_iter().zip(0..).filter(|(right, n)| at(*n) != *right);
        let trap = |(right, n)| {
            ("registers", format!("trap register {n} is {:#x}", at(n)), format!("{right:#x}"))
        };
        let mut wrong: Wrong = traps.map(trap).collect();
        let root = self.block(words, area.block).map_or(0, |block| block.root);
        if root != first.root {
            wrong.push((REST, format!("its root is {root:#x}"), format!("{:#x}", first.root)));
        }
        wrong
    }

    // Trap registers are a part of the control block.
    fn registers(&self, _: &mut Context, _: usize, _: &Block) {}

    fn runs(
        &self,
        _: &Words,
        core: &Core,
        _: &dyn Fn(u64) -> Option<u64>,
        executes: &dyn Fn(u64) -> bool,
    ) -> bool {
        executes(core.pc)
    }

    fn unit(&self, claim: &Claim, _: &Registers, words: &Words) -> Option<Box<dyn dma::Unit>> {
        Some(Box::new(Unit::read(claim.iommu.as_ref()?.registers.start, words)?))
    }

    fn line_registers(&self, claim: &Claim, sandbox: usize) -> Vec<Range> {
        let own = claim.sandboxes[sandbox].lines.iter();
        let page = |pin: u32| claim.controller.map(|base| base + u64::from(pin) * PAGE);
        own.filter_map(|line| Some(Range { start: page(line.pin)?, len: PAGE })).collect()
    }

    fn lines(&self, context: &mut Context, _: Option<&dyn dma::Unit>) {
        let claim = context.claim;
        let Some(base) = claim.controller else { return };
        for n in 0..LINES {
            let (at, pin) = (base + n * PAGE, n as u32);
            let word = context.words.word(at).unwrap_or(0);
            if word >> 63 == 0 {
                continue;
            }
            let has = |s: &Sandbox| s.lines.iter().find(|line| line.pin == pin).copied();
            let owner = claim.sandboxes.iter().enumerate().find_map(|(i, s)| Some((i, has(s)?)));
            let Some((i, line)) = owner else {
                let message = format!("line {n} is let through and belongs to nobody");
                context.find("line-owner", &Place::default(), Some(at), message, "bit 63 clear");
                continue;
            };
            let (core, interrupt) = (word as u32 & 0xFF_FFFF, (word >> 24) as u32 & 0xFF_FFFF);
            for (wrong, rule) in [
                (!claim.sandboxes[i].core_ids.contains(&core), "line-core"),
                (interrupt != 3000 - 7 * pin, "line-vector"),
                (Some(word >> 62 & 1 != 0) != line.level, "line-mode"),
            ] {
                if wrong {
                    let message = format!("line {n} of {} has {word:#x}", context.name(i));
                    context.find(rule, &claim.sandboxes[i].place, Some(at), message, "its own");
                }
            }
            context.access[i].lines.push((pin, core, interrupt));
        }
    }
}

/// A stream: where its entry lies, root, domain, table for messages.
struct Stream {
    number: u16,
    at: u64,
    root: u64,
    domain: u64,
    messages: u64,
}

/// The IOMMU.
struct Unit {
    base: u64,
    register: u64,
    streams: Vec<Stream>,
    walked: BTreeMap<u64, Pages>,
    /// Valid entries of tables for messages, by table: place, entry.
    messages: BTreeMap<u64, Vec<(u64, u64)>>,
}

impl Unit {
    fn read(base: u64, words: &Words) -> Option<Self> {
        let register = words.word(base)?;
        let (streams, walked, messages) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let mut unit = Self { base, register, streams, walked, messages };
        for number in 0..256 {
            let at = register / PAGE * PAGE + (255 - number) * 32;
            let word = |n: u64| words.word(at + 8 * n).map(|word| !word);
            let (root, domain, messages) = (word(0)?, word(1)?, word(2)?);
            if [root, domain, messages] == [0; 3] {
                continue;
            }
            let number = number as u16;
            unit.streams.push(Stream { number, at, root, domain, messages });
            unit.walked.entry(root).or_insert_with(|| {
                let mut pages = Pages::default();
                if root != 0 {
                    walk(&mut pages, words, root, 2, 0);
                }
                pages
            });
            let entries = (messages..messages.saturating_add(PAGE)).step_by(8);
            let valid = |at: u64| Some((at, words.word(at)?)).filter(|entry| entry.1 >> 63 != 0);
            unit.messages.insert(messages, entries.filter_map(valid).collect());
        }
        Some(unit)
    }
}

/// Core and interrupt of a message.
fn arrival(entry: u64) -> (u32, u32) {
    (entry as u32 & 0xFF_FFFF, (entry >> 24) as u32 & 0xFF_FFFF)
}

fn walk(pages: &mut Pages, words: &Words, table: u64, level: u32, base: u64) {
    if words.word(table).is_none() {
        pages.odd.push((table, 0));
        return;
    }
    pages.tables.push(table);
    for index in 0..2048 {
        let at = table + (2047 - index) * 8;
        let bits = words.word(at).unwrap_or(u64::MAX).rotate_right(13);
        let address = base + (index << (14 + 11 * level));
        let to = bits / PAGE * PAGE;
        match (bits, bits % PAGE, level) {
            (u64::MAX, ..) => {}
            (_, 1 | 5, 0) => {
                let write = bits & 4 != 0;
                pages.leaves.push(Leaf { address, frame: to, size: PAGE, read: true, write });
            }
            (_, 0, 1..) => walk(pages, words, to, level - 1, address),
            _ => pages.odd.push((at, bits)),
        }
    }
}

impl dma::Unit for Unit {
    fn tables(&self, _: &Claim) -> Vec<(u64, String)> {
        let tables = self.walked.values().flat_map(|pages| pages.tables.iter().copied());
        let messages = self.messages.keys().copied();
        let all = tables.chain(messages).chain([self.register / PAGE * PAGE]);
        all.map(|table| (table, "table of the IOMMU".into())).collect()
    }

    fn remapping(&self) -> BTreeMap<u16, Vec<u64>> {
        self.streams.iter().map(|s| (s.number, vec![s.messages])).collect()
    }

    fn check(&self, context: &mut Context, given: &[Vec<Given>]) {
        let nobody = Place::default();
        if self.register & 1 == 0 {
            let message = "the IOMMU is switched off";
            context.find("iommu-control", &nobody, Some(self.base), message, "bit 0 set");
        }
        let claim = context.claim;
        for &Stream { number, at, root, domain, messages } in &self.streams {
            let name = dma::name(number);
            let owner = claim.requester(number).and_then(|function| function.owner);
            if owner.is_none() {
                let message = format!("{name} belongs to nobody and has a root");
                context.find("dma-map", &nobody, Some(at), message, "all ones");
            }
            if !claim.image.contains(messages) || messages % PAGE != 0 {
                let message = format!("{name} has its table for messages at {messages:#x}");
                context.find("dma-messages", &nobody, Some(at), message, "a page of the image");
            }
            let shares = |s: &&Stream| s.messages == messages && s.number != number;
            if self.streams.iter().any(|s| shares(&s)) {
                let message = format!("{name} has another's table for messages");
                context.find("dma-messages", &nobody, Some(at), message, "a table of its own");
            }
            for &(at, entry) in &self.messages[&messages] {
                let (core, interrupt) = arrival(entry);
                let cores = owner.map(|owner| &claim.sandboxes[owner].core_ids);
                for (wrong, rule) in [
                    (!cores.is_some_and(|cores| cores.contains(&core)), "message-core"),
                    (entry << 1 >> 49 != 0, "message-form"),
                    (!(1000..2900).contains(&interrupt), "message-vector"),
                ] {
                    if wrong {
                        let message = format!("{name} has the message {entry:#x}");
                        context.find(rule, &nobody, Some(at), message, "its owner's");
                    }
                }
            }
            let other = |s: &&Stream| s.domain == domain && s.root != root;
            if self.streams.iter().any(|s| other(&s)) || domain == 0 {
                let message = format!("{name} has domain {domain}, not alone");
                context.find("device-table", &nobody, Some(at), message, "a domain of its own");
            }
            for (at, bits) in &self.walked[&root].odd {
                let message = format!("{name} has the entry {bits:#x}");
                context.find("device-table", &nobody, Some(*at), message, "a page, or a table");
            }
        }
        for function in &claim.functions {
            let Some(i) = function.owner else { continue };
            let stream = self.streams.iter().find(|s| s.number == function.bdf);
            let pages = stream.and_then(|stream| self.walked.get(&stream.root));
            let messages = stream.and_then(|stream| self.messages.get(&stream.messages));
            let arrivals = messages.into_iter().flatten().map(|&(_, entry)| arrival(entry));
            context.reaches((i, function.bdf), function, &given[i], pages, arrivals.collect());
        }
    }

    fn line(&self, _: &Context, _: u64) -> Vec<Arrival> {
        Vec::new()
    }
}
