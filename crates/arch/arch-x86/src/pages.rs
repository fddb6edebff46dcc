//! Long-mode page tables (APM 5.3). Nested tables have this format, too (APM 15.25.5); there every access counts as a
//! user access, so all entries are user entries. A monitor runs without SMEP and SMAP, which makes the one
//! format serve both.

use bulkhead_arch::{Entry, Memory, PageFormat, Rights, Stage1, Stage2};

/// 4-level tables with 4 KiB, 2 MiB and 1 GiB pages. Their entries leave the memory
/// type to the machine's MTRRs, which make the registers of devices uncached (APM
/// 7.8.5, 15.25.8).
pub struct LongMode;

impl Stage1 for LongMode {}
/// Nested paging of SVM.
impl Stage2 for LongMode {}

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
/// Set beforehand, so that the processor never writes to a table for them.
const ACCESSED_DIRTY: u64 = 0b11 << 5;
const LARGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000F_FFFF_FFFF_F000;

impl PageFormat for LongMode {
    const LEVELS: u32 = 4;
    const LARGEST: u32 = 2;

    fn page(pa: u64, rights: Rights, _: Memory, level: u32) -> u64 {
        let mut entry = pa | PRESENT | USER | ACCESSED_DIRTY;
        if rights.write {
            entry |= WRITABLE;
        }
        if !rights.execute {
            entry |= NO_EXECUTE;
        }
        if level > 0 {
            entry |= LARGE;
        }
        entry
    }

    // All rights: the processor takes the least of a walk, so a page's own entry decides alone.
    fn table(pa: u64, _: u32) -> u64 {
        pa | PRESENT | WRITABLE | USER | 1 << 5
    }

    fn decode(entry: u64, level: u32) -> Entry {
        if entry & PRESENT == 0 {
            Entry::Empty
        } else if level > 0 && entry & LARGE == 0 {
            Entry::Table(entry & ADDRESS)
        } else {
            let rights = Rights { write: entry & WRITABLE != 0, execute: entry & NO_EXECUTE == 0 };
            Entry::Page(entry & ADDRESS, rights, Memory::Normal)
        }
    }

    fn empty() -> u64 {
        0
    }
}
