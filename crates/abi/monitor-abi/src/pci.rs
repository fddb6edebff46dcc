//! PCI functions as a monitor knows them. For each function that a sandbox sees, the host bakes the registers that are
//! more than "read the hardware, ignore writes". Nothing is parsed on the target. `bulkhead_pci` acts by them.

use crate::monitor::Slice;
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A function that a sandbox sees: its own, a bridge above it, or a placeholder
/// where function 0 of a device belongs to somebody else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Function {
    /// Requester ID: bus in bits 15:8, device in 7:3, function in 2:0.
    pub bdf: u32,
    /// Words of shadow in which [`Self::vectors`] times four are its MSI-X table.
    pub shadow: u32,
    /// Monitor-virtual address of its configuration page: the hardware's, or a
    /// baked one.
    pub config_va: u64,
    /// Registers ([`Register`]).
    pub registers: Slice,
    /// Steps that stop the function before its sandbox starts anew ([`Reset`]).
    pub resets: Slice,
    /// First guest-physical address of the pages that hold its MSI-X table.
    pub trap: u64,
    /// Bytes of these pages; 0: none.
    pub trap_len: u64,
    /// Guest-physical address of its MSI-X table; physical, too.
    pub table: u64,
    /// Entries of that table.
    pub vectors: u32,
    /// Offset of its MSI capability; 0: none.
    pub msi: u16,
    /// Offset of the register with the MSI data.
    pub msi_data: u16,
    /// First of three words of shadow: MSI address, its upper half, data.
    pub msi_shadow: u32,
    /// Line that the pin of a channel's end leads to, in the guest's own table; 0: none.
    pub line: u32,
    /// Entry of a channel's end in the peers' state table, as an offset from [`crate::map::MMIO_VA`]. 0: this is no
    /// channel's end.
    pub state: u64,
    /// Registers of a channel's end, as such an offset; the guest sees them in the first page of [`Self::trap`]. Its
    /// MSI-X table is in shadow alone.
    pub end: u64,
    /// Offset of the MSI-X capability of a channel's end.
    pub msix: u16,
    /// Word of the mailbox that says where interrupts of a woken end go, from 1 on; 0: none.
    pub woken: u16,
    /// Doorbell that an end rings, from 1 on; 0: none.
    pub bell: u16,
    /// Number of the peer that it rings.
    pub peer: u16,
    /// Monitor-virtual address of its interrupt remapping table of [`SLOTS`]
    /// entries; 0: its messages are not remapped; below 65,536: [`Remapping::Entries`].
    pub remap_va: u64,
    /// The role that it belongs to, from 1 on; 0: it is the sandbox's own. A role's sends no messages.
    pub role: u32,
    /// Further requester ID of its messages; 0: none.
    pub alias: u32,
}

/// How a function's messages find their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remapping {
    /// They name core and interrupt.
    None,
    /// By a table of [`SLOTS`] entries at this address, which the monitor fills.
    Table(u64),
    /// By a table that nobody changes, with an entry for each interrupt on each of the sandbox's cores; the number of
    /// the first one.
    Entries(u32),
}

impl Function {
    /// Returns the way of its messages.
    #[must_use]
    pub const fn remapping(&self) -> Remapping {
        match self.remap_va {
            0 => Remapping::None,
            first @ ..0x1_0000 => Remapping::Entries(first as u32),
            table => Remapping::Table(table),
        }
    }
}

/// Entries of an interrupt remapping table: the index is in bits 8:0 of a message's data.
pub const SLOTS: usize = 512;

/// Registers of a channel's end (ivshmem version 2, register region) that hold what is written.
pub mod end {
    /// Interrupt control; bit 0: interrupts are wanted.
    pub const CONTROL: u64 = 0x08;
    /// Rings a peer: its number in bits 31:16, an interrupt of its in the others.
    pub const DOORBELL: u64 = 0x0C;
    /// The own state, which peers see in the state table.
    pub const STATE: u64 = 0x10;
}

/// Offset of the command register.
pub const COMMAND: u16 = 0x04;
/// In the command register: the function does not use its interrupt line.
pub const INTX_OFF: u32 = 1 << 10;

/// A 32-bit register of a function's configuration space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Register {
    /// Its offset, a multiple of 4.
    pub offset: u16,
    /// One of the constants below.
    pub kind: u16,
    /// Bits that a guest may write.
    pub write: u32,
    /// A read gives the hardware's value with these bits; [`Self::BAR`]: its address.
    pub keep: u32,
    /// And with these bits set; where a guest may write, a write sets them, too.
    pub set: u32,
    /// Bits outside of `write` that a write leaves as they are. The others are written as 0, which is right for those
    /// that a 1 clears.
    pub hold: u32,
    /// Word of shadow, for the kinds that have one.
    pub shadow: u32,
}

impl Register {
    /// Written to the hardware as the masks say.
    pub const PLAIN: u16 = 0;
    /// Half of a base address register: it never moves. `write`: its address
    /// bits; `set`: its low bits.
    pub const BAR: u16 = 1;
    /// The command register: as [`Self::PLAIN`], after the BARs were written.
    pub const COMMAND: u16 = 2;
    /// Bits in `write` must stay as they are.
    pub const FIXED: u16 = 3;
    /// MSI address or data.
    pub const MESSAGE: u16 = 4;
    /// MSI control.
    pub const MSI: u16 = 5;
}

/// A step that stops a function: a write as its owner could make it, or a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Reset {
    /// [`Self::CONFIG`]: offset in the configuration space, a multiple of 4. Else the
    /// physical address of a register in a memory BAR, aligned to its size.
    pub at: u64,
    /// One of the constants below.
    pub kind: u16,
    /// Bytes of a register in a BAR: 1, 2 or 4.
    pub size: u8,
    /// When it is carried out: one of the constants below.
    pub when: u8,
    /// Value that is written, or waited for.
    pub value: u32,
    /// [`Self::AWAIT`]: the bits that must be so. [`Self::STORE`]: the bits that a write leaves as they are.
    pub mask: u32,
    /// Milliseconds: [`Self::CONFIG`] waits so long afterwards, [`Self::AWAIT`] at most.
    pub wait: u32,
}

impl Reset {
    /// Writes a register of the configuration space.
    pub const CONFIG: u16 = 0;
    /// Writes a register in a BAR.
    pub const STORE: u16 = 1;
    /// Waits until a register in a BAR has a value.
    pub const AWAIT: u16 = 2;
    /// Carried out in any case. A wait that ends without the value: the function is not at rest.
    pub const ALWAYS: u8 = 0;
    /// Part of a reset that is tried, while all waits of it got their values. A wait that does not get it ends the try.
    pub const TRY: u8 = 1;
    /// Part of the reset in its place, once a try has ended so.
    pub const ELSE: u8 = 2;
}

const _: () = assert!(size_of::<Function>() == 112);
const _: () = assert!(size_of::<Register>() == 24);
const _: () = assert!(size_of::<Reset>() == 24);
