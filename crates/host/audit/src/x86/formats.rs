//! Formats of x86's tables, with four levels. Long-mode tables are those of the AMD64 APM volume 2, 5.3 and 15.25;
//! extended page tables (EPT) those of Intel's manual (SDM) volume 3, 29.3. All constants are from the manuals, not
//! from the code that made the tables.

use crate::paging::{Entry, Format};

/// Tables of long mode. They leave the cacheability of registers to MTRRs.
#[derive(Debug)]
pub struct LongMode;

/// EPT. It has no MTRRs behind it (SDM 29.3.7.2), so the entry itself has to say the cacheability.
#[derive(Debug)]
pub struct Extended;

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

/// Address, kind and errors of an entry that is present: `wrong` are the bits that a page and a table cannot have.
fn common(entry: u64, level: u32, wrong: [u64; 2]) -> (u64, bool, bool) {
    let is_page = level == 0 || entry & PS != 0;
    let inside = (1 << (12 + 9 * level)) - 1;
    let mut wrong = wrong[usize::from(!is_page)];
    if is_page && level > 0 {
        // The address of a large page has zeros below its size.
        wrong |= LARGE_PAT | (inside & FRAME);
    }
    let misplaced = is_page && level == 3 || level == 0 && entry & PS != 0;
    let address = entry & FRAME & !(if is_page { inside } else { 0 });
    (address, is_page, misplaced || entry & wrong != 0)
}

impl Format for LongMode {
    fn page_bits(&self) -> u32 {
        12
    }

    fn levels(&self) -> u32 {
        4
    }

    fn has_halves(&self) -> bool {
        true
    }

    fn entry(&self, entry: u64, level: u32) -> Option<Entry> {
        let (address, is_page, odd) = common(entry, level, [HIGH, CACHE | HIGH]);
        let rights = [entry & RW != 0, entry & NX == 0, entry & US != 0];
        let suits = [entry & CACHE == 0, true];
        (entry & P != 0).then_some(Entry { address, is_page, rights, odd, suits })
    }
}

impl Format for Extended {
    fn page_bits(&self) -> u32 {
        12
    }

    fn levels(&self) -> u32 {
        4
    }

    fn has_halves(&self) -> bool {
        false
    }

    fn entry(&self, entry: u64, level: u32) -> Option<Entry> {
        let wrong = [EPT_UNUSED, EPT_UNUSED | EPT_TYPE | IGNORE_PAT];
        let (address, is_page, odd) = common(entry, level, wrong);
        // Write or fetch without read is a misconfiguration (SDM 29.3.3.1), or needs a capability.
        let odd = odd || entry & P == 0;
        let rights = [entry & RW != 0, entry & X != 0, true];
        let suits = [WRITE_BACK, UNCACHED].map(|kind| entry & (EPT_TYPE | IGNORE_PAT) == kind);
        (entry & ANY != 0).then_some(Entry { address, is_page, rights, odd, suits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::memory::Words;
    use crate::paging::{Regime, translate};

    fn regime(words: &[(u64, u64)]) -> Regime {
        let memory = Fake::new(words);
        Regime::walk(&Words::new(&memory), &LongMode, 0x1000)
    }

    fn extended(words: &[(u64, u64)]) -> Regime {
        let memory = Fake::new(words);
        Regime::walk(&Words::new(&memory), &Extended, 0x1000)
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
        assert_eq!(translate(&words, &Extended, 0x1000, 0x123), Some(0x4000_0123));
        assert_eq!(translate(&words, &LongMode, 0x1000, 0x123), None);
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
        assert!(r.tables.len() <= 20_000);
    }
}
