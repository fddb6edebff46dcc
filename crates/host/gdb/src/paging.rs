//! Addresses of a guest as its own tables translate them (APM volume 2, 5.3).

use bulkhead_layout::x86::debug::{CR0, CR3, CR4, EFER};

const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000F_FFFF_FFFF_F000;

/// Translates an address with these registers. `word` reads guest-physical memory. `None`: there is nothing.
pub fn translate(
    registers: &[u64],
    address: u64,
    mut word: impl FnMut(u64) -> Option<u64>,
) -> Option<u64> {
    const PG: u64 = 1 << 31;
    const PAE: u64 = 1 << 5;
    const LA57: u64 = 1 << 12;
    const LMA: u64 = 1 << 10;
    if registers[CR0] & PG == 0 {
        return Some(address);
    }
    let cr4 = registers[CR4];
    if registers[EFER] & LMA == 0 {
        // A 32-bit guest on its way to 64 bits: tables of two levels, or of three (PAE).
        return if cr4 & PAE == 0 {
            two(registers, address, word)
        } else {
            three(registers, address, word)
        };
    }
    let levels = if cr4 & LA57 == 0 { 4 } else { 5 };
    let mut table = registers[CR3] & ADDRESS;
    for level in (0..levels).rev() {
        let shift = 12 + 9 * level;
        let entry = word(table + (address >> shift & 511) * 8)?;
        if entry & PRESENT == 0 {
            return None;
        }
        let large = level == 1 || level == 2;
        if level == 0 || large && entry & LARGE != 0 {
            let offset = (1 << shift) - 1;
            return Some(entry & ADDRESS & !offset | address & offset);
        }
        table = entry & ADDRESS;
    }
    None
}

fn two(registers: &[u64], address: u64, mut word: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
    // Entries of 32 bits.
    let mut half = |at: u64| Some(word(at & !7)? >> (at % 8 * 8) & 0xFFFF_FFFF);
    let directory = half((registers[CR3] & 0xFFFF_F000) + (address >> 22 & 1023) * 4)?;
    match (directory & PRESENT, directory & LARGE) {
        (0, _) => None,
        (_, 0) => {
            let entry = half((directory & 0xFFFF_F000) + (address >> 12 & 1023) * 4)?;
            (entry & PRESENT != 0).then_some(entry & 0xFFFF_F000 | address & 0xFFF)
        }
        _ => Some(directory & 0xFFC0_0000 | address & 0x3F_FFFF),
    }
}

fn three(registers: &[u64], address: u64, mut word: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
    let pointer = word((registers[CR3] & 0xFFFF_FFE0) + (address >> 30 & 3) * 8)?;
    let directory = word((pointer & ADDRESS) + (address >> 21 & 511) * 8);
    let directory = directory.filter(|entry| pointer & entry & PRESENT != 0)?;
    if directory & LARGE != 0 {
        return Some(directory & ADDRESS & !0x1F_FFFF | address & 0x1F_FFFF);
    }
    let entry = word((directory & ADDRESS) + (address >> 12 & 511) * 8)?;
    (entry & PRESENT != 0).then_some(entry & ADDRESS | address & 0xFFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_layout::debug::COUNT;
    use std::collections::BTreeMap;

    /// Registers with paging on and tables at 1000h.
    fn long(cr4: u64) -> [u64; COUNT] {
        let mut all = [0; COUNT];
        (all[CR0], all[CR3], all[CR4], all[EFER]) = (1 << 31 | 1, 0x1000, cr4, 1 << 10);
        all
    }

    #[test]
    fn each_size_of_page_is_found_and_what_is_not_there_is_not() {
        let tables = BTreeMap::from([
            (0x1000, 0x2003u64),
            (0x2000, 0x3003),
            (0x2008, 0x4000_0083),
            (0x3000, 0x4003),
            (0x3008, 0x60_0083),
            (0x4000 + 5 * 8, 0x8000_0000_0007_7003),
        ]);
        let word = |at: u64| Some(tables.get(&at).copied().unwrap_or(0));
        let find = |address| translate(&long(1 << 5), address, word);
        assert_eq!(find(0x5123), Some(0x7_7123));
        assert_eq!(find(0x6123), None);
        assert_eq!(find(0x20_0123), Some(0x60_0123));
        assert_eq!(find(0x4000_0123), Some(0x4000_0123));
        assert_eq!(find(0x1_0000_0000), None);
        assert_eq!(translate(&long(0), 0x5123, |_| None), None);
        // Five levels: the table at 1000h is the outermost one.
        let five = |at: u64| if at == 0x1000 { Some(0x1003) } else { word(at) };
        assert_eq!(translate(&long(1 << 5 | 1 << 12), 0x5123, five), None);
        assert_eq!(translate(&[0; COUNT], 0x5123, |_| None), Some(0x5123));
    }

    #[test]
    fn a_guest_with_32_bits_has_its_own_tables() {
        let mut registers = long(0);
        registers[EFER] = 0;
        let tables =
            BTreeMap::from([(0x1000, 0x0080_0083_0000_2003u64), (0x2010, 0x9003 << 32 | 0x3003)]);
        let word = |at: u64| Some(tables.get(&at).copied().unwrap_or(0));
        assert_eq!(translate(&registers, 0x4123, word), Some(0x3123));
        assert_eq!(translate(&registers, 0x5123, word), Some(0x9123));
        assert_eq!(translate(&registers, 0x40_0123, word), Some(0x80_0123));
        assert_eq!(translate(&registers, 0x80_0000, word), None);
        registers[CR4] = 1 << 5;
        let tables = BTreeMap::from([
            (0x1000, 0x2001u64),
            (0x2000, 0x3003),
            (0x2008, 0x60_0083),
            (0x3000 + 32, 0x7003),
        ]);
        let word = |at: u64| Some(tables.get(&at).copied().unwrap_or(0));
        assert_eq!(translate(&registers, 0x4123, word), Some(0x7123));
        assert_eq!(translate(&registers, 0x20_0123, word), Some(0x60_0123));
        assert_eq!(translate(&registers, 0x4000_0000, word), None);
    }
}
