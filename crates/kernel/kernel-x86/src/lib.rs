//! Addresses and register places of the kernel on x86-64. Its shell (`kernel/`) and the host that bakes its image share
//! them.
//!
//! | address | what |
//! |---|---|
//! | up to [`Layout::USER_END`] | a program's |
//! | [`DEVICES`] | registers that the kernel itself writes: masks of interrupts |
//! | [`WINDOW`] and 2 GiB above | the sandbox's memory, for the kernel only: its own text executable, all else not |
//!
//! At its first instructions the kernel is on tables that map the first 4 GiB to themselves, too. Then it is on its own
//! root table, which has no program's half, until a thread runs.
#![no_std]

mod ports;

use bulkhead_kernel::abi::{Label, Status};
use bulkhead_kernel::{Cap, Core, Layout, REGISTERS, Vectors};
pub use ports::{Port, ports};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Where offset 0 of the sandbox's memory lies for the kernel.
pub const WINDOW: u64 = 0xFFFF_FFFF_8000_0000;
/// Where the kernel sees pages of devices' registers, one behind the other.
pub const DEVICES: u64 = 0xFFFF_FFFF_4000_0000;
/// Most of these pages.
pub const DEVICE_PAGES: usize = 512;
/// Index in a root table of what the kernel is reached through.
pub const WINDOW_INDEX: usize = 511;

/// Interrupt vectors that there are entries for: the exceptions, and those from
/// [`FIRST_LEVEL`] on.
pub const VECTORS: usize = 96;
/// First vector that is no exception's, and first of the lowest class (APM volume 2, section 16.6.4) that is left then.
/// In it is the level-triggered line that a kernel's programs may have. It stays in service
/// from its delivery to its driver's acknowledgement, and that holds nothing up but itself: all else is of a higher
/// class.
pub const FIRST_LEVEL: u8 = 32;
/// First vector of all other interrupts.
pub const FIRST_VECTOR: u8 = 48;
/// The local APIC's spurious vector: its low four bits are ones (APM volume 2, section 16.4.7).
pub const SPURIOUS: u8 = 0x5F;
/// The local APIC timer's.
pub const TIMER: u8 = 0x5E;
/// Vectors for messages and edges: from [`FIRST_VECTOR`] up to the timer's.
pub const EDGE_VECTORS: usize = (TIMER - FIRST_VECTOR) as usize;
/// Vectors for devices: from [`FIRST_LEVEL`] up to the timer's.
pub const DEVICE_VECTORS: usize = (TIMER - FIRST_LEVEL) as usize;

/// Without a monitor: offset of the information page, which the boot code copies with its clocks.
pub const INFO: u32 = 0xA000;
/// Without a monitor: offset of the report that the kernel writes in a monitor's place: the sandbox's page, then
/// the core's two.
pub const REPORT: u32 = 0xB000;

/// Selectors. SYSCALL and SYSRET want this order (APM volume 2, section 6.1.1).
pub mod selector {
    /// Kernel's code; data follows.
    pub const KERNEL_CODE: u16 = 0x08;
    /// Kernel's data.
    pub const KERNEL_DATA: u16 = 0x10;
    /// User's data, at CPL 3.
    pub const USER_DATA: u16 = 0x18 | 3;
    /// User's code, at CPL 3.
    pub const USER_CODE: u16 = 0x20 | 3;
    /// Task state.
    pub const TASK: u16 = 0x28;
}

/// Indices of [`bulkhead_kernel::Registers`], of which x86-64 uses the first ones. The processor pushes the last five
/// at an interrupt, onto a stack that ends where the registers do.
pub mod register {
    /// R15; R14, R13 and R12 follow.
    pub const R15: usize = 0;
    /// RBP.
    pub const RBP: usize = 4;
    /// RBX.
    pub const RBX: usize = 5;
    /// RDX; R8, R9 and R10 follow.
    pub const RDX: usize = 6;
    /// RAX.
    pub const RAX: usize = 10;
    /// RDI.
    pub const RDI: usize = 11;
    /// RSI.
    pub const RSI: usize = 12;
    /// R11.
    pub const R11: usize = 13;
    /// RCX.
    pub const RCX: usize = 14;
    /// Not 0: R11 and RCX matter, too. After an interrupt or exception its vector plus 1.
    pub const ALL: usize = 15;
    /// Error code, where there is one.
    pub const ERROR: usize = 16;
    /// RIP.
    pub const RIP: usize = 17;
    /// CS.
    pub const CS: usize = 18;
    /// RFLAGS.
    pub const RFLAGS: usize = 19;
    /// RSP.
    pub const RSP: usize = 20;
    /// SS.
    pub const SS: usize = 21;
    /// How many.
    pub const COUNT: usize = 22;
}

/// [`Layout`] of x86-64. A call is `SYSCALL` (APM volume 2, section 6.1.1); RCX and R11 are destroyed by the
/// instruction.
#[derive(Clone, Copy, Debug)]
pub struct X86;

const _: () = assert!(register::COUNT <= REGISTERS);
// XSAVE area (APM volume 2, section 11.5): x87, SSE and AVX take 832 bytes.
const _: () = assert!(size_of::<Vectors>() >= 832 && align_of::<Vectors>() >= 64);

impl Layout for X86 {
    const OP: usize = register::RAX;
    const NAMED: usize = register::RDI;
    const INFO: usize = register::RSI;
    const WORDS: usize = register::RDX;
    const IP: usize = register::RIP;
    const SP: usize = register::RSP;
    const FLAGS: usize = register::RFLAGS;
    const ARGUMENTS: [usize; 2] = [register::RDI, register::RSI];
    const ALL: usize = register::ALL;
    const CALL_LEN: u64 = 2;
    // Interrupts on; bit 1 is always set.
    const START_FLAGS: u64 = 0x202;
    // MXCSR, with all exceptions masked: XRSTOR loads it even where the area has no SSE state (APM volume 2,
    // section 11.5.9).
    const START_VECTORS: (usize, u64) = (3, 0x1F80);
    // One page less than the processor's lower half: a SYSCALL in its last bytes would return to an address that is
    // none.
    const USER_END: u64 = 0x0000_7FFF_FFFF_F000;
    type Access = Port;

    #[inline(always)]
    fn access(cap: &Cap, method: Label, words: &[u64; 4]) -> Result<Port, Status> {
        ports::access(cap, method, words)
    }
}

/// A step of a script ([`bulkhead_kernel::Machine::play`]): 32 bits to be written. An address of 0 ends it, and that of
/// [`END_OF_INTERRUPT`] tells the local APIC that what it has in service is done.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Step {
    /// Where, in [`DEVICES`].
    pub address: u64,
    /// Its value.
    pub value: u64,
}

/// See [`Step`]: no device's register.
pub const END_OF_INTERRUPT: u64 = 4;

/// The words that the host bakes into the kernel's image, at its symbol `BAKED`.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub struct Baked {
    /// The core, with everything that its first threads need.
    pub core: Core,
    /// Physical address of offset 0: 0 in a sandbox.
    pub base: u64,
    /// Offset of the page with the [`bulkhead_kernel::abi::Clock`], which the kernel fills.
    pub clock: u32,
    /// Zero.
    pub unused: u32,
    /// Offset of the object of each device vector, or 0.
    pub interrupts: [u32; DEVICE_VECTORS],
    /// Offset of the script that is played at the start: devices' interrupts are routed.
    pub script: u64,
    /// Serial port for the console where no monitor is, else 0.
    pub console: u64,
    /// The entry of every root table at [`WINDOW_INDEX`].
    pub window: u64,
    /// 1: there is no monitor; see [`INFO`] and [`REPORT`].
    pub alone: u64,
    /// Offset of the ring that a kernel writes which traces itself, or 0.
    pub trace: u32,
    /// How many records it has, a power of two.
    pub trace_records: u32,
    /// Padding.
    pub reserved: [u64; PADDING],
}

const USED: usize = size_of::<Core>() + 8 + 4 + 4 + 4 * DEVICE_VECTORS + 8 + 8 + 8 + 8 + 8;
const PADDING: usize = (USED.next_multiple_of(4096) - USED) / 8;
