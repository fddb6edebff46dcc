//! Walks translation tables as the processor does (AMD64 APM volume 2, 5.3 and
//! 15.25): all of them, from the root down. Its constants are from the manual,
//! not from the code that made the tables.

use crate::memory::Words;

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

const P: u64 = 1;
const RW: u64 = 1 << 1;
const US: u64 = 1 << 2;
/// PWT and PCD: another cacheability than the guest's own choice.
const CACHE: u64 = 0b11 << 3;
const PS: u64 = 1 << 7;
/// PAT, in an entry that maps a large page.
const LARGE_PAT: u64 = 1 << 12;
/// Above the address: available, or reserved, or a protection key.
const HIGH: u64 = 0x7FF << 52;
const NX: u64 = 1 << 63;
const FRAME: u64 = 0x000F_FFFF_FFFF_F000;
/// More tables than any system has: a loop.
const TOO_MANY: usize = 20_000;

impl Regime {
    /// Walks from a root with four levels.
    pub fn walk(words: &Words, root: u64) -> Self {
        let mut regime = Self::default();
        let all = (true, true, true);
        regime.table(words, root & FRAME, 3, 0, all);
        regime
    }

    fn table(
        &mut self,
        words: &Words,
        table: u64,
        level: u32,
        base: u64,
        above: (bool, bool, bool),
    ) {
        if self.tables.len() >= TOO_MANY {
            return;
        }
        if words.word(table).is_none() {
            self.lost.push(table);
            return;
        }
        self.tables.push(table);
        let shift = 12 + 9 * level;
        for index in 0..512 {
            let at = table + index * 8;
            let entry = words.word(at).unwrap_or(0);
            if entry & P == 0 {
                // Whatever an entry that is not present says, it maps nothing.
                continue;
            }
            // Canonical addresses: the upper half begins at entry 256 of the root.
            let mut address = base + (index << shift);
            if level == 3 && index >= 256 {
                address |= 0xFFFF << 48;
            }
            let (write, execute, user) = above;
            let here =
                (write && entry & RW != 0, execute && entry & NX == 0, user && entry & US != 0);
            let is_page = level == 0 || entry & PS != 0;
            // A page's cacheability is its reader's to judge: a device's may differ.
            let mut wrong = if is_page { HIGH } else { CACHE | HIGH };
            if is_page && level > 0 {
                // The address of a large page has zeros below its size.
                wrong |= LARGE_PAT | (((1 << shift) - 1) & FRAME);
            }
            if is_page && level == 3 || level == 0 && entry & PS != 0 || entry & wrong != 0 {
                self.odd.push((at, entry));
            }
            if is_page {
                let frame = entry & FRAME & !((1 << shift) - 1);
                let (write, execute, user) = here;
                let size = 1 << shift;
                self.leaves.push(Leaf { address, frame, size, write, execute, user, entry });
            } else {
                self.table(words, entry & FRAME, level - 1, address, here);
            }
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

    /// Whether its entry asks for another cacheability than the usual.
    #[must_use]
    pub fn odd_caching(&self) -> bool {
        self.entry & CACHE != 0
    }
}

/// Translates an address as the processor does for a fetch or a read; `None` where
/// it would fault.
#[must_use]
pub fn translate(words: &Words, root: u64, address: u64) -> Option<u64> {
    let mut table = root & FRAME;
    for level in (0..4).rev() {
        let shift = 12 + 9 * level;
        let entry = words.word(table + (address >> shift & 511) * 8)?;
        if entry & P == 0 {
            return None;
        }
        if level == 0 || entry & PS != 0 {
            let inside = (1 << shift) - 1;
            return Some(entry & FRAME & !inside | address & inside);
        }
        table = entry & FRAME;
    }
    None
}

/// Where in memory the entry lies that decides about an address.
pub fn entry_at(words: &Words, root: u64, address: u64) -> u64 {
    let mut table = root & FRAME;
    for level in (0..4).rev() {
        let at = table + (address >> (12 + 9 * level) & 511) * 8;
        let entry = words.word(at).unwrap_or(0);
        if level == 0 || entry & P == 0 || entry & PS != 0 {
            return at;
        }
        table = entry & FRAME;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn regime(words: &[(u64, u64)]) -> Regime {
        let memory = Fake::new(words);
        Regime::walk(&Words::new(&memory), 0x1000)
    }

    #[test]
    fn rights_are_those_of_all_levels() {
        let r = regime(&[
            (0x1000 + 8 * 511, 0x2000 | P | RW | US),
            (0x2000 + 8 * 2, 0x4000_0000 | P | US | PS),
            (0x2000 + 8 * 3, 0x3000 | P | US | NX),
            (0x3000 + 8, 0x4000 | P | RW),
            (0x4000, 0x9000 | P | RW | US),
            (0x4000 + 8, 0xA000 | RW),
        ]);
        assert_eq!(r.tables, [0x1000, 0x2000, 0x3000, 0x4000]);
        assert_eq!(r.leaves.len(), 2);
        let huge = r.leaves[0];
        assert_eq!(
            (huge.address, huge.frame, huge.size),
            (0xFFFF_FF80_8000_0000, 1 << 30, 1 << 30)
        );
        assert!(!huge.write && huge.execute && huge.user);
        let small = r.leaves[1];
        assert_eq!((small.address, small.frame, small.size), (0xFFFF_FF80_C020_0000, 0x9000, 4096));
        assert!(!small.write && !small.execute && !small.user);
        assert!(r.odd.is_empty());
        assert_eq!(r.leaf(0xFFFF_FF80_C020_0FFF), Some(&small));
        assert_eq!(r.leaf(0xFFFF_FF80_C020_1000), None);
    }

    #[test]
    fn odd_entries_are_listed() {
        for entry in [0x9000 | P | 1 << 55, 0x9000 | P | PS, 0x4000_1000 | P | PS] {
            let level = if entry & PS != 0 && entry & 0x4000_0000 != 0 { 0x2000 } else { 0x4000 };
            let r = regime(&[
                (0x1000, 0x2000 | P),
                (0x2000, if level == 0x2000 { entry } else { 0x3000 | P }),
                (0x3000, 0x4000 | P),
                (0x4000, entry),
            ]);
            assert_eq!(r.odd, [(level, entry)], "{entry:#x}");
        }
    }

    #[test]
    fn a_table_that_names_itself_ends_the_walk() {
        let r = regime(&[(0x1000, 0x1000 | P), (0x1008, 0x1000 | P)]);
        assert!(r.tables.len() <= TOO_MANY);
    }
}
