//! Walks translation tables as the processor does: all of them, from the root down. A [`Format`] takes entries apart.

use crate::memory::Words;
use std::fmt::Debug;

/// A format of tables. A table fills a page with entries of 8 bytes.
pub trait Format: Debug + Sync {
    /// Bits of an address within a page.
    fn page_bits(&self) -> u32;
    /// Levels of tables.
    fn levels(&self) -> u32;
    /// True if addresses have halves: the upper one has all bits set above those that are translated.
    fn has_halves(&self) -> bool;
    /// Takes an entry apart; `None` if it leads nowhere. The lowest level is 0.
    fn entry(&self, entry: u64, level: u32) -> Option<Entry>;
}

/// An entry that leads somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Address of the page or of the next table.
    pub address: u64,
    /// It maps a page.
    pub is_page: bool,
    /// Its own rights: write, execute, user.
    pub rights: [bool; 3],
    /// It has bits that have no business there.
    pub odd: bool,
    /// Its cacheability is right for memory, and for the registers of a device.
    pub suits: [bool; 2],
}

/// Lowest bit of an address that a level decides about.
fn shift(format: &dyn Format, level: u32) -> u32 {
    let bits = format.page_bits();
    bits + (bits - 3) * level
}

/// The root in a register, which has other bits beside it.
fn base(format: &dyn Format, root: u64) -> u64 {
    root << 12 >> 12 >> format.page_bits() << format.page_bits()
}

/// Where the entry of a table lies that decides about an address.
fn slot(format: &dyn Format, table: u64, level: u32, address: u64) -> u64 {
    let entries = 1 << (format.page_bits() - 3);
    table + (address >> shift(format, level) & (entries - 1)) * 8
}

/// A page that some address leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The address that is translated.
    pub address: u64,
    /// Where it leads.
    pub frame: u64,
    /// Bytes.
    pub size: u64,
    /// Every entry on the way allows writing.
    pub write: bool,
    /// No entry on the way forbids fetching.
    pub execute: bool,
    /// Every entry on the way is a user's: the others are not reached by a guest.
    pub user: bool,
    /// The entry at the walk's end.
    pub entry: u64,
    /// Its cacheability is right for memory, and for the registers of a device.
    pub suits: [bool; 2],
}

/// Everything that one root leads to.
#[derive(Clone, Debug, Default)]
pub struct Regime {
    /// Ascending.
    pub leaves: Vec<Leaf>,
    /// Frames of the tables themselves.
    pub tables: Vec<u64>,
    /// Entries with bits that have no business there: address, entry.
    pub odd: Vec<(u64, u64)>,
    /// Tables that are no RAM.
    pub lost: Vec<u64>,
}

/// More tables than any system has: a loop.
const TOO_MANY: usize = 20_000;

impl Regime {
    /// Walks from a root.
    pub fn walk(words: &Words, format: &dyn Format, root: u64) -> Self {
        let mut regime = Self::default();
        let (root, top) = (base(format, root), format.levels() - 1);
        regime.table(words, format, (root, top), 0, [true; 3]);
        regime
    }

    fn table(
        &mut self,
        words: &Words,
        format: &dyn Format,
        (table, level): (u64, u32),
        base: u64,
        above: [bool; 3],
    ) {
        if self.tables.len() >= TOO_MANY {
            return;
        }
        if words.word(table).is_none() {
            self.lost.push(table);
            return;
        }
        self.tables.push(table);
        let entries = 1 << (format.page_bits() - 3);
        for index in 0..entries {
            let at = table + index * 8;
            let word = words.word(at).unwrap_or(0);
            // An entry that is not present maps nothing, with any other bits.
            let Some(entry) = format.entry(word, level) else { continue };
            let mut address = base + (index << shift(format, level));
            // Canonical addresses. Guest-physical ones have no halves.
            let top = level + 1 == format.levels();
            if top && format.has_halves() && index >= entries / 2 {
                address |= u64::MAX << shift(format, level + 1);
            }
            let rights = [0, 1, 2].map(|n: usize| above[n] && entry.rights[n]);
            if entry.odd {
                self.odd.push((at, word));
            }
            if !entry.is_page && level > 0 {
                self.table(words, format, (entry.address, level - 1), address, rights);
                continue;
            }
            let [write, execute, user] = rights;
            let (frame, size, suits) = (entry.address, 1 << shift(format, level), entry.suits);
            self.leaves.push(Leaf {
                address,
                frame,
                size,
                write,
                execute,
                user,
                entry: word,
                suits,
            });
        }
    }

    /// The page in which an address lies.
    #[must_use]
    pub fn leaf(&self, address: u64) -> Option<&Leaf> {
        let after = self.leaves.partition_point(|l| l.address <= address);
        let leaf = self.leaves[..after].last()?;
        (address - leaf.address < leaf.size).then_some(leaf)
    }
}

impl Leaf {
    /// The address after it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }

    /// True if its entry asks for another cacheability than the usual.
    #[must_use]
    pub fn odd_caching(&self) -> bool {
        !self.suits(false)
    }

    /// True if its entry's cacheability is right for memory, or for the registers of a device.
    #[must_use]
    pub fn suits(&self, device: bool) -> bool {
        self.suits[usize::from(device)]
    }
}

/// Translates an address as the processor does for a fetch or a read; `None` where
/// it would fault.
#[must_use]
pub fn translate(words: &Words, format: &dyn Format, root: u64, address: u64) -> Option<u64> {
    let mut table = base(format, root);
    for level in (0..format.levels()).rev() {
        let entry = format.entry(words.word(slot(format, table, level, address))?, level)?;
        if entry.is_page {
            return Some(entry.address | address & ((1 << shift(format, level)) - 1));
        }
        table = entry.address;
    }
    None
}

/// Where in memory the entry lies that decides about an address.
pub fn entry_at(words: &Words, format: &dyn Format, root: u64, address: u64) -> u64 {
    let (mut table, mut level) = (base(format, root), format.levels() - 1);
    loop {
        let at = slot(format, table, level, address);
        match format.entry(words.word(at).unwrap_or(0), level) {
            Some(entry) if !entry.is_page && level > 0 => {
                (table, level) = (entry.address, level - 1)
            }
            _ => return at,
        }
    }
}
