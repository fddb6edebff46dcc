//! Extended page tables of VT-x (SDM volume 3, 29.3.2). References are to Intel's
//! Software Developer's Manual (SDM), revision 085.

use bulkhead_arch::{Entry, Memory, PageFormat, Rights, Stage2};

/// 4-level tables with 4 KiB, 2 MiB and 1 GiB pages; accessed and dirty flags are off,
/// so the processor never writes to a table.
pub struct Ept;

impl Stage2 for Ept {}

const READ: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
const EXECUTE: u64 = 1 << 2;
/// Memory types as MTRRs number them (12.11.1). MTRRs themselves have no effect
/// on what EPT maps (29.3.7.2). A guest's PAT still makes its own mappings uncached or
/// write-combining: bit 6 (ignore PAT) is clear.
const WRITE_BACK: u64 = 6 << 3;
const TYPE: u64 = 0b111 << 3;
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000F_FFFF_FFFF_F000;

impl PageFormat for Ept {
    const LEVELS: u32 = 4;
    const LARGEST: u32 = 2;

    fn page(pa: u64, rights: Rights, memory: Memory, level: u32) -> u64 {
        let mut entry = pa | READ;
        if rights.write {
            entry |= WRITE;
        }
        if rights.execute {
            entry |= EXECUTE;
        }
        if memory == Memory::Normal {
            entry |= WRITE_BACK;
        }
        if level > 0 {
            entry |= LARGE;
        }
        entry
    }

    /// A table's entry limits nothing. Its type bits are reserved: 0.
    fn table(pa: u64, _: u32) -> u64 {
        pa | READ | WRITE | EXECUTE
    }

    fn decode(entry: u64, level: u32) -> Entry {
        if entry & (READ | WRITE | EXECUTE) == 0 {
            Entry::Empty
        } else if level > 0 && entry & LARGE == 0 {
            Entry::Table(entry & ADDRESS)
        } else {
            let rights = Rights { write: entry & WRITE != 0, execute: entry & EXECUTE != 0 };
            let normal = entry & TYPE == WRITE_BACK;
            let memory = if normal { Memory::Normal } else { Memory::Device };
            Entry::Page(entry & ADDRESS, rights, memory)
        }
    }

    fn empty() -> u64 {
        0
    }
}

/// Returns the EPT pointer (25.6.11): tables are write-back memory, walks have four
/// levels, accessed and dirty flags are off.
#[must_use]
pub const fn pointer(root: u64) -> u64 {
    root | 6 | (Ept::LEVELS as u64 - 1) << 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_the_manuals() {
        assert_eq!(Ept::page(0x1000, Rights::RWX, Memory::Normal, 0), 0x1037);
        assert_eq!(Ept::page(0x20_0000, Rights::RX, Memory::Normal, 1), 0x20_00B5);
        assert_eq!(Ept::page(0x4000_0000, Rights::R, Memory::Normal, 2), 0x4000_00B1);
        assert_eq!(Ept::page(0xFED0_0000, Rights::RW, Memory::Device, 0), 0xFED0_0003);
        assert_eq!(Ept::table(0x5000, 2), 0x5007);
        assert_eq!(pointer(0x7000), 0x701E);
    }

    #[test]
    fn a_page_is_read_as_it_was_written() {
        for rights in [Rights::R, Rights::RW, Rights::RX, Rights::RWX] {
            for memory in [Memory::Normal, Memory::Device] {
                for level in 0..=Ept::LARGEST {
                    let pa = 0x40_0000_0000;
                    let entry = Ept::page(pa, rights, memory, level);
                    assert_eq!(Ept::decode(entry, level), Entry::Page(pa, rights, memory));
                    // Write without read is a misconfiguration; so is a type that is reserved (29.3.3.1).
                    assert_eq!(entry & READ, READ);
                    assert!(matches!(entry & TYPE, 0 | WRITE_BACK));
                }
            }
        }
        assert_eq!(Ept::decode(Ept::table(0x5000, 2), 3), Entry::Table(0x5000));
        assert_eq!(Ept::decode(Ept::empty(), 1), Entry::Empty);
    }
}
