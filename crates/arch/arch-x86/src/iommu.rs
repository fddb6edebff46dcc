//! AMD-Vi: device table entries, I/O page tables, interrupt remapping entries.
//! References are to the AMD I/O Virtualization Technology (IOMMU)
//! Specification, 48882, revision 3.10.

use bulkhead_arch::{Entry, Memory, PageFormat, Rights};

/// I/O page tables of version 1 with four levels (2.2.3).
pub struct IoPages;

const PRESENT: u64 = 1 << 0;
const READ: u64 = 1 << 61;
const WRITE: u64 = 1 << 62;
const NEXT_LEVEL: u32 = 9;
const ADDRESS: u64 = 0x000F_FFFF_FFFF_F000;

impl PageFormat for IoPages {
    const LEVELS: u32 = 4;
    const LARGEST: u32 = 2;

    /// Returns a page of the level's default size: next level 0.
    fn page(pa: u64, rights: Rights, _: Memory, _: u32) -> u64 {
        pa | PRESENT | READ | if rights.write { WRITE } else { 0 }
    }

    fn table(pa: u64, level: u32) -> u64 {
        // Levels are counted from 1 there; a table's rights limit all below it.
        pa | PRESENT | READ | WRITE | (u64::from(level) + 1) << NEXT_LEVEL
    }

    fn decode(entry: u64, _: u32) -> Entry {
        if entry & PRESENT == 0 {
            Entry::Empty
        } else if entry >> NEXT_LEVEL & 7 != 0 {
            Entry::Table(entry & ADDRESS)
        } else {
            let rights = Rights { write: entry & WRITE != 0, execute: false };
            Entry::Page(entry & ADDRESS, rights, Memory::Normal)
        }
    }

    fn empty() -> u64 {
        0
    }
}

/// Bytes of a device table entry.
pub const ENTRY: usize = 32;

/// Rights of a requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requester {
    /// Root of its I/O page tables; `None`: no memory at all.
    pub root: Option<u64>,
    /// Domain: requesters with equal tables share one.
    pub domain: u16,
    /// Treatment of its interrupt messages.
    pub messages: Messages,
}

/// Treatment of fixed and lowest-priority messages; all other kinds are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Messages {
    /// Refused.
    #[default]
    Abort,
    /// Passed on as they are.
    Pass,
    /// Not looked at, so all kinds pass. For an IOAPIC alone, of which each entry was checked.
    Unseen,
    /// Remapped by the table of 512 entries at this address.
    Remap(u64),
}

/// Makes a device table entry (2.2.2.1). No entry is left invalid: that would let everything through.
/// [`Messages::Unseen`] clears IV alone.
#[must_use]
pub fn device_entry(requester: &Requester) -> [u64; 4] {
    const VALID: u64 = 1 << 0;
    const TRANSLATION_VALID: u64 = 1 << 1;
    const MODE: u64 = (IoPages::LEVELS as u64) << 9;
    const INTERRUPTS_VALID: u64 = 1 << 0;
    /// Length of the remapping table: 2 to the power of 9.
    const TABLE_512: u64 = 9 << 1;
    const CONTROL: u32 = 60;
    // Without rights in the entry itself, no table is ever read.
    let translation = match requester.root {
        Some(root) => root | MODE | READ | WRITE,
        None => 0,
    };
    let messages = match requester.messages {
        Messages::Unseen => 0,
        Messages::Abort => INTERRUPTS_VALID,
        Messages::Pass => INTERRUPTS_VALID | 1 << CONTROL,
        Messages::Remap(table) => INTERRUPTS_VALID | table | TABLE_512 | 2 << CONTROL,
    };
    [VALID | TRANSLATION_VALID | translation, u64::from(requester.domain), messages, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_never_invalid() {
        let blocked = device_entry(&Requester::default());
        assert_eq!(blocked, [3, 0, 1, 0]);
        let owned = Requester { root: Some(0x1000), domain: 7, messages: Messages::Remap(0x2000) };
        assert_eq!(device_entry(&owned), [0x6000_0000_0000_1803, 7, 0x2000_0000_0000_2013, 0]);
        let unseen = Requester { messages: Messages::Unseen, ..Requester::default() };
        assert_eq!(device_entry(&unseen), [3, 0, 0, 0]);
    }

    #[test]
    fn tables_name_the_level_below() {
        assert_eq!(IoPages::table(0x5000, 2) >> 9 & 7, 3);
        let page = IoPages::page(0x20_0000, Rights::R, Memory::Normal, 1);
        assert_eq!(page, 0x2000_0000_0020_0001);
        assert_eq!(IoPages::decode(page, 1), Entry::Page(0x20_0000, Rights::R, Memory::Normal));
    }
}
