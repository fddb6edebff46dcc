//! A processor that does not exist. Its page-table entries are inverted and shuffled, its "execute" is a forbid bit at
//! an odd place, and empty entries are not zero. Code that passes on it and on x86-64 assumes no encoding. Its second
//! stage has another encoding than its first one, larger pages, fewer levels and memory types. [`target`], [`devices`],
//! [`kernel`] and [`messages`] make a whole machine of it, for which [`system`] is planned and baked.
//!
//! [`FakeMachine`] boots and plays launch records in a `Vec`.

use bulkhead_arch::{
    BootMachine, CoreStart, Entry, Memory, PageFormat, Rights, Stage1, Stage2, TableMemory,
};
use bulkhead_layout::record::RecordMemory;
use std::collections::{BTreeMap, BTreeSet};

pub mod devices;
pub mod elf;
pub mod kernel;
pub mod messages;
pub mod system;
pub mod target;

/// The odd page format: 4 levels, pages up to level 1. The smallest ones have `PAGE` bytes.
#[derive(Clone, Copy, Debug)]
pub struct FakeOwn<const PAGE: u64>;

/// That format with pages of 4 KiB.
pub type FakeFormat = FakeOwn<4096>;

const KEY: u64 = 0xA5A5_0000_0000_05A5;
const TABLE: u64 = 1 << 3;
const PAGE_BIT: u64 = 1 << 5;
const FORBID_WRITE: u64 = 1 << 7;
const FORBID_EXECUTE: u64 = 1 << 1;
const ADDRESS: u64 = 0x0000_FFFF_FFFF_F000;

impl<const PAGE: u64> Stage1 for FakeOwn<PAGE> {}

impl<const PAGE: u64> PageFormat for FakeOwn<PAGE> {
    const PAGE: u64 = PAGE;
    const LEVELS: u32 = 4;
    const LARGEST: u32 = 1;

    fn page(pa: u64, rights: Rights, _: Memory, _: u32) -> u64 {
        let write = if rights.write { 0 } else { FORBID_WRITE };
        let execute = if rights.execute { 0 } else { FORBID_EXECUTE };
        (pa | PAGE_BIT | write | execute) ^ KEY
    }

    fn table(pa: u64, _: u32) -> u64 {
        (pa | TABLE) ^ KEY
    }

    fn decode(entry: u64, level: u32) -> Entry {
        let entry = entry ^ KEY;
        let pa = entry & ADDRESS;
        if entry & PAGE_BIT != 0 {
            assert!(level <= Self::LARGEST, "a page at level {level}");
            let rights =
                Rights { write: entry & FORBID_WRITE == 0, execute: entry & FORBID_EXECUTE == 0 };
            Entry::Page(pa, rights, Memory::Normal)
        } else if entry & TABLE != 0 {
            Entry::Table(pa)
        } else {
            assert_eq!(entry, 0, "an entry that was never made empty");
            Entry::Empty
        }
    }

    fn empty() -> u64 {
        KEY
    }
}

/// The odd page format of its second stage: 16 KiB, 3 levels, pages at level 0 alone, device memory.
/// Addresses are shifted up by 8 bits; one bit forbids and one allows.
#[derive(Clone, Copy, Debug)]
pub struct FakeNested;

const NESTED_EMPTY: u64 = 0xEE;
const NESTED_TABLE: u64 = 0x40;
const NESTED_PAGE: u64 = 0x20;
const NESTED_WRITE: u64 = 1 << 2;
const NESTED_NO_EXECUTE: u64 = 1 << 1;
const NESTED_DEVICE: u64 = 1 << 63;

impl Stage2 for FakeNested {}

impl PageFormat for FakeNested {
    const PAGE: u64 = target::PAGE;
    const LEVELS: u32 = 3;
    const LARGEST: u32 = 0;

    fn page(pa: u64, rights: Rights, memory: Memory, _: u32) -> u64 {
        let write = if rights.write { NESTED_WRITE } else { 0 };
        let execute = if rights.execute { 0 } else { NESTED_NO_EXECUTE };
        let device = if memory == Memory::Device { NESTED_DEVICE } else { 0 };
        pa << 8 | NESTED_PAGE | write | execute | device
    }

    fn table(pa: u64, level: u32) -> u64 {
        pa << 8 | NESTED_TABLE | u64::from(level)
    }

    fn decode(entry: u64, level: u32) -> Entry {
        let pa = (entry & !NESTED_DEVICE) >> 8;
        if entry == NESTED_EMPTY {
            return Entry::Empty;
        }
        if entry & NESTED_TABLE != 0 {
            assert_eq!(entry & 7, u64::from(level - 1), "a table of another level");
            return Entry::Table(pa);
        }
        assert!(entry & NESTED_PAGE != 0 && level == 0, "no page: {entry:#x} at level {level}");
        let rights =
            Rights { write: entry & NESTED_WRITE != 0, execute: entry & NESTED_NO_EXECUTE == 0 };
        let device = entry & NESTED_DEVICE != 0;
        Entry::Page(pa, rights, if device { Memory::Device } else { Memory::Normal })
    }

    fn empty() -> u64 {
        NESTED_EMPTY
    }
}

/// Tables in a map, handed out from `next` up to `end`.
#[derive(Default)]
pub struct FakeTables {
    /// Next free physical address.
    pub next: u64,
    /// End of the space for tables.
    pub end: u64,
    tables: BTreeMap<u64, Vec<u64>>,
}

impl TableMemory for FakeTables {
    fn alloc(&mut self, bytes: u64) -> Option<u64> {
        let pa = self.next.next_multiple_of(bytes);
        if pa + bytes > self.end {
            return None;
        }
        self.next = pa + bytes;
        self.tables.insert(pa, vec![0; bytes as usize / 8]);
        Some(pa)
    }

    fn read(&self, pa: u64, index: usize) -> u64 {
        self.tables[&pa][index]
    }

    fn write(&mut self, pa: u64, index: usize, entry: u64) {
        self.tables.get_mut(&pa).expect("a table of ours")[index] = entry;
    }
}

/// A machine in memory.
pub struct FakeMachine {
    /// Free RAM: start and length.
    pub ram: Vec<(u64, u64)>,
    /// Cores that exist; the first one boots.
    pub cores: Vec<u32>,
    /// Cores that never arrive.
    pub dead: BTreeSet<u32>,
    /// Cores started, in order.
    pub started: Vec<(u32, CoreStart)>,
    /// Cores that another core can take, and where they go then.
    pub spare: Vec<(u32, CoreStart)>,
    /// Memory, by address.
    pub memory: Vec<u8>,
}

impl BootMachine for FakeMachine {
    fn is_ram(&self, start: u64, len: u64) -> bool {
        self.ram.iter().any(|&(s, l)| start >= s && len <= l && start - s <= l - len)
    }

    fn has_core(&self, id: u32) -> bool {
        self.cores.contains(&id)
    }

    fn this_core(&self) -> u32 {
        self.cores[0]
    }

    fn start_core(&mut self, id: u32, start: CoreStart, spare: Option<CoreStart>) {
        self.started.push((id, start));
        self.spare.extend(spare.map(|spare| (id, spare)));
    }

    fn wait_for(&mut self, id: u32) -> bool {
        !self.dead.contains(&id)
    }
}

impl RecordMemory for FakeMachine {
    fn zero(&mut self, dst: u64, len: u64) {
        self.memory[dst as usize..(dst + len) as usize].fill(0);
    }

    fn copy(&mut self, dst: u64, src: u64, len: u64) {
        let (src, dst, len) = (src as usize, dst as usize, len as usize);
        self.memory.copy_within(src..src + len, dst);
    }

    fn store(&mut self, dst: u64, value: u64) {
        self.memory[dst as usize..dst as usize + 8].copy_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_arch::{Leaf, MapError, Run, map, walk};

    fn tables(count: u64) -> FakeTables {
        FakeTables { next: 0x10_0000, end: 0x10_0000 + count * 4096, ..Default::default() }
    }

    fn run(va: u64, pa: u64, len: u64, rights: Rights) -> Run {
        Run { va, pa, len, rights, memory: Memory::Normal }
    }

    #[test]
    fn the_largest_pages_that_fit() {
        let mut memory = tables(16);
        let all = run(0x1F_F000, 0x4000_0000 - 0x1000, 0x40_2000, Rights::RW);
        let root = map::<FakeFormat>(&mut memory, None, all).unwrap();
        let at = |va| walk::<FakeFormat>(&memory, root, va);
        let leaf = |pa, size| Some(Leaf { pa, rights: Rights::RW, memory: Memory::Normal, size });
        assert_eq!(at(0x1F_F008), leaf(0x3FFF_F008, 4096));
        assert_eq!(at(0x20_0000), leaf(0x4000_0000, 2 << 20));
        assert_eq!(at(0x60_0FFF), leaf(0x4040_0FFF, 4096));
        assert_eq!(at(0x60_1000), None);
        assert_eq!(at(0x1F_EFFF), None);
    }

    #[test]
    fn the_second_stage_keeps_memory_types_and_rights() {
        let mut memory = tables(64);
        let registers =
            Run { memory: Memory::Device, ..run(0xFE00_0000, 0xFE00_0000, 0x8000, Rights::RW) };
        let root = map::<FakeNested>(&mut memory, None, registers).unwrap();
        let text = run(0x20_0000, 0x7_0000_0000, 0x20_0000, Rights::RX);
        map::<FakeNested>(&mut memory, Some(root), text).unwrap();
        let at = |va| walk::<FakeNested>(&memory, root, va);
        let leaf = |pa, rights, memory| Some(Leaf { pa, rights, memory, size: 16 << 10 });
        assert_eq!(at(0xFE00_5004), leaf(0xFE00_5004, Rights::RW, Memory::Device));
        assert_eq!(at(0x3F_FFFF), leaf(0x7_001F_FFFF, Rights::RX, Memory::Normal));
        assert_eq!((at(0xFE00_8000), at(0x40_0000), at(0)), (None, None, None));
    }

    #[test]
    fn an_overlap_is_refused() {
        let mut memory = tables(16);
        let root = map::<FakeFormat>(&mut memory, None, run(0, 0, 0x20_0000, Rights::RX)).unwrap();
        let again = map::<FakeFormat>(&mut memory, Some(root), run(0x1000, 0, 0x1000, Rights::R));
        assert_eq!(again, Err(MapError::Overlap(0x1000)));
    }

    #[test]
    fn no_space_and_odd_addresses_are_errors() {
        assert_eq!(
            map::<FakeFormat>(&mut tables(2), None, run(0, 0, 4096, Rights::R)),
            Err(MapError::NoTable)
        );
        assert_eq!(
            map::<FakeFormat>(&mut tables(9), None, run(8, 0, 4096, Rights::R)),
            Err(MapError::Misaligned(4096 | 8))
        );
    }
}
