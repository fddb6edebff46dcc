//! Walks translation tables as the processor does: all of them, from the root down. Long-mode tables are those of the
//! AMD64 APM volume 2, 5.3 and 15.25; extended page tables (EPT) those of Intel's manual (SDM) volume 3, 29.3. All
//! constants are from the manuals, not from the code that made the tables.

use crate::memory::Words;

/// Format of tables with four levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Long mode.
    #[default]
    LongMode,
    /// EPT.
    Extended,
}

impl Format {
    /// True if an entry leads anywhere.
    fn is_present(self, entry: u64) -> bool {
        match self {
            Self::LongMode => entry & P != 0,
            Self::Extended => entry & ANY != 0,
        }
    }

    /// An entry's own rights: write, execute, user.
    fn rights(self, entry: u64) -> (bool, bool, bool) {
        match self {
            Self::LongMode => (entry & RW != 0, entry & NX == 0, entry & US != 0),
            Self::Extended => (entry & RW != 0, entry & X != 0, true),
        }
    }

    /// Bits that must be clear in a present entry. A page's cacheability is judged by [`Leaf::suits`].
    fn reserved(self, is_page: bool) -> u64 {
        match (self, is_page) {
            (Self::LongMode, true) => HIGH,
            (Self::LongMode, false) => CACHE | HIGH,
            (Self::Extended, true) => EPT_UNUSED,
            (Self::Extended, false) => EPT_UNUSED | EPT_TYPE | IGNORE_PAT,
        }
    }

    /// Bits of an entry that must be set if it is present.
    fn needed(self) -> u64 {
        match self {
            Self::LongMode => 0,
            // Write or fetch without read is a misconfiguration (SDM 29.3.3.1), or needs a capability.
            Self::Extended => P,
        }
    }
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
    /// Format of that entry.
    pub format: Format,
}

/// Everything that one root leads to.
#[derive(Clone, Debug, Default)]
pub struct Regime {
    /// Format of all tables.
    pub format: Format,
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
/// EPT: fetch. Read is bit 0, write is bit 1.
const X: u64 = 1 << 2;
/// EPT: any right.
const ANY: u64 = 0b111;
/// EPT: memory type, and two of its values.
const EPT_TYPE: u64 = 0b111 << 3;
const UNCACHED: u64 = 0;
const WRITE_BACK: u64 = 6 << 3;
/// EPT: the guest's PAT has no say.
const IGNORE_PAT: u64 = 1 << 6;
/// EPT: accessed, dirty, fetch in user mode, and all above the address. No feature in use has them.
const EPT_UNUSED: u64 = 0b111 << 8 | 1 << 11 | 0xFFF << 52;
/// More tables than any system has: a loop.
const TOO_MANY: usize = 20_000;

impl Regime {
    /// Walks from a root with four levels.
    pub fn walk(words: &Words, format: Format, root: u64) -> Self {
        let mut regime = Self { format, ..Self::default() };
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
            let format = self.format;
            if !format.is_present(entry) {
                // An entry that is not present maps nothing, with any other bits.
                continue;
            }
            // Canonical addresses: the upper half begins at entry 256 of the root. Guest-physical ones have no halves.
            let mut address = base + (index << shift);
            if level == 3 && index >= 256 && format == Format::LongMode {
                address |= 0xFFFF << 48;
            }
            let (write, execute, user) = above;
            let own = format.rights(entry);
            let (write, execute, user) = (write && own.0, execute && own.1, user && own.2);
            let is_page = level == 0 || entry & PS != 0;
            let mut wrong = format.reserved(is_page);
            if is_page && level > 0 {
                // The address of a large page has zeros below its size.
                wrong |= LARGE_PAT | (((1 << shift) - 1) & FRAME);
            }
            let lacks = entry & format.needed() != format.needed();
            let place = is_page && level == 3 || level == 0 && entry & PS != 0;
            if place || lacks || entry & wrong != 0 {
                self.odd.push((at, entry));
            }
            if is_page {
                let frame = entry & FRAME & !((1 << shift) - 1);
                let size = 1 << shift;
                let leaf = Leaf { address, frame, size, write, execute, user, entry, format };
                self.leaves.push(leaf);
            } else {
                let here = (write, execute, user);
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

    /// True if its entry asks for another cacheability than the usual.
    #[must_use]
    pub fn odd_caching(&self) -> bool {
        !self.suits(false)
    }

    /// True if its entry's cacheability is right for memory, or for the registers of a device. Long-mode tables leave
    /// those to MTRRs. EPT has no MTRRs behind it (SDM 29.3.7.2), so the entry itself has to say it.
    #[must_use]
    pub fn suits(&self, device: bool) -> bool {
        match self.format {
            Format::LongMode => device || self.entry & CACHE == 0,
            Format::Extended => {
                let right = if device { UNCACHED } else { WRITE_BACK };
                self.entry & (EPT_TYPE | IGNORE_PAT) == right
            }
        }
    }
}

/// Translates an address as the processor does for a fetch or a read; `None` where
/// it would fault.
#[must_use]
pub fn translate(words: &Words, format: Format, root: u64, address: u64) -> Option<u64> {
    let mut table = root & FRAME;
    for level in (0..4).rev() {
        let shift = 12 + 9 * level;
        let entry = words.word(table + (address >> shift & 511) * 8)?;
        if !format.is_present(entry) {
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
pub fn entry_at(words: &Words, format: Format, root: u64, address: u64) -> u64 {
    let mut table = root & FRAME;
    for level in (0..4).rev() {
        let at = table + (address >> (12 + 9 * level) & 511) * 8;
        let entry = words.word(at).unwrap_or(0);
        if level == 0 || !format.is_present(entry) || entry & PS != 0 {
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
        Regime::walk(&Words::new(&memory), Format::LongMode, 0x1000)
    }

    fn extended(words: &[(u64, u64)]) -> Regime {
        let memory = Fake::new(words);
        Regime::walk(&Words::new(&memory), Format::Extended, 0x1000)
    }

    #[test]
    fn extended_tables_have_rights_and_types_of_their_own() {
        let (all, memory) = (ANY, WRITE_BACK);
        let r = extended(&[
            // Guest-physical addresses have no upper half.
            (0x1000 + 8 * 256, 0x2000 | all),
            (0x2000 + 8, 0x4000_0000 | all | memory | PS),
            (0x2000 + 8 * 2, 0x3000 | P | X),
            (0x3000, 0x4000 | all),
            (0x4000, 0x9000 | all | memory),
            (0x4000 + 8, 0xA000 | P | RW),
        ]);
        assert_eq!((r.odd.len(), r.leaves.len()), (0, 3));
        let [huge, small, device] = r.leaves[..] else { panic!("three") };
        assert_eq!((huge.address, huge.frame), (1 << 47 | 1 << 30, 1 << 30));
        assert!(huge.write && huge.execute && huge.suits(false) && !huge.suits(true));
        assert!(!small.write && small.execute, "rights are those of all levels");
        assert!(device.suits(true) && !device.suits(false));
        let words = Fake::new(&[(0x1000, 0x2000 | all), (0x2000, 0x4000_0000 | X | PS)]);
        let words = Words::new(&words);
        assert_eq!(translate(&words, Format::Extended, 0x1000, 0x123), Some(0x4000_0123));
        assert_eq!(translate(&words, Format::LongMode, 0x1000, 0x123), None);
    }

    #[test]
    fn odd_entries_of_extended_tables_are_listed() {
        let page = 0x9000 | ANY | WRITE_BACK;
        // Accessed, dirty, user fetch, suppressed #VE, a large page's bit; write without read.
        for entry in
            [8, 9, 10, 11, 57, 63, 7].map(|bit| page | 1 << bit).into_iter().chain([page & !P])
        {
            let r = extended(&[
                (0x1000, 0x2000 | ANY),
                (0x2000, 0x3000 | ANY),
                (0x3000, 0x4000 | ANY),
                (0x4000, entry),
            ]);
            assert_eq!(r.odd, [(0x4000, entry)], "{entry:#x}");
        }
        // A table's entry has no type.
        assert_eq!(extended(&[(0x1000, 0x2000 | ANY | WRITE_BACK)]).odd.len(), 1);
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
