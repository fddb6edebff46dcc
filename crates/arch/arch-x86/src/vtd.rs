//! Intel VT-d: root, context and page tables, interrupt remapping entries, registers. References are to the Intel
//! Virtualization Technology for Directed I/O Architecture Specification (D51397), revision 4.1.

use bulkhead_arch::{Entry, Memory, PageFormat, Rights};

/// Second-stage tables with four levels (9.8), for guest-physical addresses of 48 bits.
pub struct IoPages;

const READ: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
/// The entry is a page, though its level has tables.
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000F_FFFF_FFFF_F000;

impl PageFormat for IoPages {
    const LEVELS: u32 = 4;
    /// Pages of 2 MiB; those of 1 GiB are rarer among units.
    const LARGEST: u32 = 1;

    fn page(pa: u64, rights: Rights, _: Memory, level: u32) -> u64 {
        let large = if level > 0 { LARGE } else { 0 };
        pa | READ | large | if rights.write { WRITE } else { 0 }
    }

    fn table(pa: u64, _: u32) -> u64 {
        // A table's rights limit all below it.
        pa | READ | WRITE
    }

    fn decode(entry: u64, level: u32) -> Entry {
        if entry & (READ | WRITE) == 0 {
            Entry::Empty
        } else if level > 0 && entry & LARGE == 0 {
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

/// Returns a root entry (9.1): the context table of a bus. Without one, requests of the bus are refused.
#[must_use]
pub fn root_entry(context_table: u64) -> [u64; 2] {
    [context_table | 1, 0]
}

/// Returns a context entry (9.3): the tables and the domain of a requester. Translation type 0: what a device says that
/// it has translated itself is refused. Without an entry, all requests of the function are refused.
#[must_use]
pub fn context_entry(root: u64, domain: u16) -> [u64; 2] {
    const FOUR_LEVELS: u64 = 0b010;
    [root | 1, u64::from(domain) << 8 | FOUR_LEVELS]
}

/// Bytes of an interrupt remapping entry.
pub const ENTRY: u64 = 16;
/// Entries of a table at most: an index has 16 bits.
pub const MOST_ENTRIES: u64 = 1 << 16;

/// Returns an interrupt remapping entry (9.10): a fixed interrupt by physical destination, for messages of one
/// requester.
#[must_use]
pub fn interrupt_entry(core: u32, vector: u8, level: bool, source: u16) -> [u64; 2] {
    const PRESENT: u64 = 1;
    const LEVEL: u64 = 1 << 4;
    /// Validation type: all 16 bits of the requester ID, by qualifier 0.
    const ALL_OF_SOURCE: u64 = 0b01 << 18;
    let trigger = if level { LEVEL } else { 0 };
    let to = u64::from(core) << 32 | u64::from(vector) << 16;
    [PRESENT | trigger | to, ALL_OF_SOURCE | u64::from(source)]
}

/// Offsets of registers (11.4).
pub mod register {
    /// Capabilities.
    pub const CAP: u16 = 0x08;
    /// Extended capabilities.
    pub const ECAP: u16 = 0x10;
    /// Global command.
    pub const COMMAND: u16 = 0x18;
    /// Global status.
    pub const STATUS: u16 = 0x1C;
    /// Root table.
    pub const ROOT: u16 = 0x20;
    /// Fault status.
    pub const FAULTS: u16 = 0x34;
    /// Fault event control.
    pub const FAULT_CONTROL: u16 = 0x38;
    /// Protected memory.
    pub const PROTECTED: u16 = 0x64;
    /// Tail of the invalidation queue.
    pub const QUEUE_TAIL: u16 = 0x88;
    /// Address of the invalidation queue.
    pub const QUEUE: u16 = 0x90;
    /// Invalidation completion status.
    pub const COMPLETED: u16 = 0x9C;
    /// Invalidation event control.
    pub const COMPLETED_CONTROL: u16 = 0xA0;
    /// Interrupt remapping table.
    pub const INTERRUPTS: u16 = 0xB8;
}

/// Bits of the global command register; the global status register shows them in their places (11.4.4).
pub mod global {
    /// Translation.
    pub const TRANSLATION: u32 = 1 << 31;
    /// Takes the root table's address.
    pub const ROOT: u32 = 1 << 30;
    /// Queued invalidation.
    pub const QUEUE: u32 = 1 << 26;
    /// Interrupt remapping.
    pub const REMAPPING: u32 = 1 << 25;
    /// Takes the interrupt remapping table's address.
    pub const INTERRUPTS: u32 = 1 << 24;
    /// Messages in the format without an index pass.
    pub const COMPATIBILITY: u32 = 1 << 23;
}

/// Bits that a unit must have. Lower half of the capabilities: four levels. Upper half: pages of 2 MiB. Lower half of
/// the extended ones: queued invalidation, interrupt remapping, x2APIC IDs.
pub const NEEDED: [u32; 3] = [1 << 10, 1 << 2, 1 << 1 | 1 << 3 | 1 << 4];

/// Invalidates all that a unit has in its caches (6.5.2): contexts, translations with reads and writes drained,
/// interrupt entries. The last command waits for the others and says so in [`register::COMPLETED`].
pub const INVALIDATE_ALL: [[u64; 2]; 4] = [
    [0x1 | 0b01 << 4, 0],
    [0x2 | 0b01 << 4 | 1 << 6 | 1 << 7, 0],
    [0x4, 0],
    [0x5 | 1 << 4 | 1 << 6, 0],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_as_the_manual_has_them() {
        assert_eq!(root_entry(0x5000), [0x5001, 0]);
        assert_eq!(context_entry(0x6000, 3), [0x6001, 0x302]);
        // Present, vector 0x31 to core 2; source validation by 00:08.0.
        assert_eq!(interrupt_entry(2, 0x31, false, 0x40), [0x2_0031_0001, 0x4_0040]);
        assert_eq!(interrupt_entry(0x101, 0x31, true, 0xFF00), [0x101_0031_0011, 0x4_FF00]);
    }

    #[test]
    fn pages_have_a_bit_where_tables_could_be() {
        assert_eq!(IoPages::page(0x20_0000, Rights::R, Memory::Normal, 1), 0x20_0081);
        assert_eq!(IoPages::page(0x3000, Rights::RW, Memory::Normal, 0), 0x3003);
        let page = |pa, rights| Entry::Page(pa, rights, Memory::Normal);
        assert_eq!(IoPages::decode(0x20_0081, 1), page(0x20_0000, Rights::R));
        assert_eq!(IoPages::decode(0x3003, 0), page(0x3000, Rights::RW));
        assert_eq!(IoPages::decode(IoPages::table(0x3000, 1), 1), Entry::Table(0x3000));
        assert_eq!(IoPages::decode(0, 1), Entry::Empty);
    }
}
