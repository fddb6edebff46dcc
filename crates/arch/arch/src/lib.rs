//! The contract of an architecture: what planning, table building and the
//! launch need to know of a processor, and nothing else. Each architecture has
//! a crate beside this one; `arch-fake` is deliberately odd, so that code that assumes
//! an encoding fails a unit test.
#![no_std]

mod tables;

pub use tables::{Leaf, MapError, Run, TableMemory, entries, leaves, lowest, map, walk};

/// Rights of a mapping. Everything mapped can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// May be written.
    pub write: bool,
    /// May be executed.
    pub execute: bool,
}

impl Rights {
    /// Read only.
    pub const R: Self = Self { write: false, execute: false };
    /// Read and write.
    pub const RW: Self = Self { write: true, execute: false };
    /// Read and execute.
    pub const RX: Self = Self { write: false, execute: true };
    /// Everything.
    pub const RWX: Self = Self { write: true, execute: true };
}

/// Type of the memory behind a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// RAM: cached.
    #[default]
    Normal,
    /// Registers of a device: each access reaches it, in order.
    Device,
}

/// Meaning of a table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nothing is mapped.
    Empty,
    /// The next table's physical address.
    Table(u64),
    /// A page's physical address, rights and memory type.
    Page(u64, Rights, Memory),
}

/// How one translation regime of a processor encodes its tables: a table fills a
/// page with entries of 64 bits. A format names its regimes by [`Stage1`] and
/// [`Stage2`].
pub trait PageFormat {
    /// Bytes of a page and of a table: 4, 16 or 64 KiB.
    const PAGE: u64 = 4096;
    /// Levels of tables; level 0 maps pages of [`Self::PAGE`].
    const LEVELS: u32;
    /// Largest level at which an entry may be a page.
    const LARGEST: u32;
    /// Returns a page at `level`. A format without memory types leaves `memory` out.
    fn page(pa: u64, rights: Rights, memory: Memory, level: u32) -> u64;
    /// Returns a table with entries of `level`.
    fn table(pa: u64, level: u32) -> u64;
    /// Reads an entry at `level`.
    fn decode(entry: u64, level: u32) -> Entry;
    /// Returns an entry that maps nothing.
    fn empty() -> u64;
}

/// A format of the tables of a monitor, a kernel or a guest: from virtual addresses.
pub trait Stage1: PageFormat {}

/// A format of the tables that confine a guest: from guest-physical addresses.
pub trait Stage2: PageFormat {}

/// A machine at boot, as the launch sequence sees it.
pub trait BootMachine {
    /// Tells if all of a range of memory is there and free for us.
    fn is_ram(&self, start: u64, len: u64) -> bool;
    /// Tells if a core with this ID exists.
    fn has_core(&self, id: u32) -> bool;
    /// Returns the core that runs this.
    fn this_core(&self) -> u32;
    /// Sends another core into its monitor. If it is started again, it goes to the spare one; without one it rests.
    fn start_core(&mut self, id: u32, start: CoreStart, spare: Option<CoreStart>);
    /// Waits until the core says that it has arrived; false when it did not in time.
    fn wait_for(&mut self, id: u32) -> bool;
}

/// Where a core enters its monitor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CoreStart {
    /// Root of the monitor's page tables.
    pub root: u64,
    /// First instruction.
    pub entry: u64,
    /// Top of the stack.
    pub stack: u64,
}
