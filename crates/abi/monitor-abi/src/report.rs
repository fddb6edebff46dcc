//! A sandbox's report: counters, records of denied accesses, console. Its
//! monitor writes it; the host reads it out of the machine's RAM, and sandboxes
//! with `observe` in the manifest map it read-only
//! (docs/decisions/0007-observe.md). Each core writes its own part, so no cache
//! line is shared on an exit path.

use crate::MAX_CORES;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, fence};
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Newest denials kept for each core.
pub const DENIALS: usize = 32;
/// Newest deeds kept for each sandbox.
pub const DEEDS: usize = 16;
/// First denials of a life kept for each core.
pub const FIRST: usize = 15;
/// Bytes of a core's console ring, a power of two.
pub const CONSOLE: usize = 4096;

/// State of a sandbox ([`Report::state`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Not launched yet.
    Absent = 0,
    /// Its launch record is being played.
    Launching = 1,
    /// The guest runs.
    Running = 2,
    /// Stopped by its own power-off, by a control request or by a health action.
    Stopped = 3,
    /// The guest ended with [`Report::exit_code`].
    Exited = 4,
    /// Its monitor failed; see [`Report::fault`].
    Failed = 5,
}

impl State {
    /// Returns the state with this number; of no state's number, [`State::Failed`].
    #[must_use]
    pub const fn of(number: u32) -> Self {
        match number {
            0 => Self::Absent,
            1 => Self::Launching,
            2 => Self::Running,
            3 => Self::Stopped,
            4 => Self::Exited,
            _ => Self::Failed,
        }
    }
}

/// Causes by which exits are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// A hypercall.
    Hypercall = 0,
    /// Question about the processor: CPUID, an ID register.
    Cpuid = 1,
    /// An IPI between the sandbox's own cores.
    Ipi = 2,
    /// Choice of the interrupt of a core's own timer or counters.
    Lvt = 3,
    /// Another mediated register of the processor.
    Msr = 4,
    /// An emulated or absent register that only instructions reach: an I/O port.
    Port = 5,
    /// The monitors' doorbell.
    Doorbell = 6,
    /// An instruction on a whole cache.
    Cache = 7,
    /// A reflected exception.
    Exception = 8,
    /// A denied access of any kind.
    Denied = 9,
    /// Anything else.
    Other = 10,
    /// Configuration of a device: PCI, MSI-X tables, interrupt lines.
    Config = 11,
    /// Ringing the receiver of a channel.
    Ring = 12,
    /// A tick of the watchdog ([`crate::watch`]).
    Watchdog = 13,
    /// A write to the page of a core's own interrupt controller. Only where a running Linux has left one there.
    Xapic = 14,
    /// A register among shared ones ([`crate::mmio`]).
    Mmio = 15,
}

/// Number of causes that each core counts in its own part of the report.
pub const CAUSES: usize = 14;
/// Number of all causes.
pub const ALL_CAUSES: usize = CAUSES + 2;

/// Kinds of denied accesses, and of other findings; a manifest's `[[health]] on` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Guest-physical memory that is not the sandbox's, or not with that right.
    Memory = 0,
    /// A register that only instructions reach: an I/O port.
    Port = 1,
    /// A register of the processor.
    Msr = 2,
    /// An interrupt to a core of another sandbox, or of a forbidden kind.
    Ipi = 3,
    /// A privileged instruction that no guest may run.
    Instruction = 4,
    /// A hypercall without the right to it.
    Hypercall = 5,
    /// A guest that the processor cannot run on: its state is refused, or its exceptions cannot be delivered.
    Shutdown = 6,
    /// A register of a mediated device (PCI configuration, MSI-X table, interrupt controller) that
    /// is not the sandbox's, or a value that it may not have.
    Device = 7,
    /// No access: a core that does not go on.
    Hang = 8,
    /// No access: a guest that has ended with an exit code other than 0.
    Failure = 9,
    /// No access: memory or a control block that is not as it was.
    Corruption = 10,
    /// No access: the monitor of a sandbox has stopped, and a peer has found it.
    Monitor = 11,
}

/// Number of kinds.
pub const KINDS: usize = 12;

/// Conditions that refuse an access: which of a kind's rules did. Each has a counter and a first
/// record of its own, so that accesses that one condition refuses hide none that another does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Condition {
    /// Read of guest-physical memory.
    MemoryRead = 0,
    /// Write of it.
    MemoryWrite = 1,
    /// Instruction fetch from it.
    MemoryFetch = 2,
    /// Read of an I/O port.
    PortRead = 3,
    /// Write of one.
    PortWrite = 4,
    /// Read of a register of the processor.
    MsrRead = 5,
    /// Write of one.
    MsrWrite = 6,
    /// An interrupt request with reserved bits.
    IpiReserved = 7,
    /// A fixed interrupt that is level-triggered.
    IpiLevel = 8,
    /// A kind of interrupt that no guest may send.
    IpiMode = 9,
    /// A reset, start or unmaskable interrupt with a shorthand that it does not go with.
    IpiShorthand = 10,
    /// A reset, start or unmaskable interrupt to a logical destination.
    IpiLogical = 11,
    /// A destination with a core that is not the sandbox's own.
    IpiDestination = 12,
    /// A privileged instruction.
    Instruction = 13,
    /// A request to, or the status of, a sandbox that it does not control.
    Control = 14,
    /// An offer of a link to a sandbox that the manifest does not name.
    Offer = 15,
    /// A link that does not concern it.
    Link = 16,
    /// A guest that the processor cannot run on.
    Shutdown = 17,
    /// Read of a mediated device's register.
    DeviceRead = 18,
    /// Write of one.
    DeviceWrite = 19,
    /// A device's register that did not show rest in time, at a new life.
    DeviceRest = 20,
    /// A core that has not moved its progress word in time ([`crate::watch::Progress`]).
    Hang = 21,
    /// A guest that has ended with an exit code other than 0.
    Failure = 22,
    /// A page of the guest that nothing may change has another sum ([`crate::watch::FixedPage`]).
    GuestSum = 23,
    /// A page of its monitor has.
    MonitorSum = 24,
    /// A field of a core's control block has another value.
    ControlBlock = 25,
    /// A core of another sandbox has not moved its heartbeat in time ([`crate::peer`]).
    MonitorHang = 26,
    /// Memory for a snapshot that is not the sandbox's.
    Snapshot = 27,
}

/// Number of conditions.
pub const CONDITIONS: usize = 28;

impl Condition {
    /// Returns the kind of access that it refuses.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::MemoryRead | Self::MemoryWrite | Self::MemoryFetch => Kind::Memory,
            Self::PortRead | Self::PortWrite => Kind::Port,
            Self::MsrRead | Self::MsrWrite => Kind::Msr,
            Self::IpiReserved
            | Self::IpiLevel
            | Self::IpiMode
            | Self::IpiShorthand
            | Self::IpiLogical
            | Self::IpiDestination => Kind::Ipi,
            Self::Instruction => Kind::Instruction,
            Self::Control | Self::Offer | Self::Link | Self::Snapshot => Kind::Hypercall,
            Self::Shutdown => Kind::Shutdown,
            Self::DeviceRead | Self::DeviceWrite | Self::DeviceRest => Kind::Device,
            Self::Hang => Kind::Hang,
            Self::Failure => Kind::Failure,
            Self::GuestSum | Self::MonitorSum | Self::ControlBlock => Kind::Corruption,
            Self::MonitorHang => Kind::Monitor,
        }
    }
}

/// A type that lies in memory which one core writes while others read it.
pub trait InMemory {
    /// The type there.
    type Cells;
}

impl InMemory for u8 {
    type Cells = AtomicU8;
}

impl InMemory for u16 {
    type Cells = AtomicU16;
}

impl InMemory for u32 {
    type Cells = AtomicU32;
}

impl InMemory for u64 {
    type Cells = AtomicU64;
}

impl<T: InMemory, const N: usize> InMemory for [T; N] {
    type Cells = [T::Cells; N];
}

/// Defines a record once, for its readers, which have a copy, and for its writer, which has it in memory.
macro_rules! in_memory {
    ($repr:meta; $(#[$meta:meta])* pub struct $plain:ident, $cells:ident {
        $($(#[$doc:meta])* pub $field:ident: $type:ty,)*
    }) => {
        $(#[$meta])*
        #[$repr]
        pub struct $plain {
            $($(#[$doc])* pub $field: $type,)*
        }

        #[doc = concat!("[`", stringify!($plain), "`] in memory.")]
        #[$repr]
        pub struct $cells {
            $($(#[$doc])* pub $field: <$type as InMemory>::Cells,)*
        }

        impl InMemory for $plain {
            type Cells = $cells;
        }

        const _: () = assert!(size_of::<$plain>() == size_of::<$cells>());
        const _: () = assert!(align_of::<$plain>() == align_of::<$cells>());
    };
}

in_memory! {
    repr(C);
    /// One denied access. Sandbox and core follow from where it lies; owner, rule
    /// text and manifest line are worked out by the reader from the plan.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
    pub struct Denial, DenialCells {
        /// 1 for a core's first denial, and so on; written last, 0 while in flux.
        pub seq: u64,
        /// Clock, ticks.
        pub ticks: u64,
        /// Address of the guest's instruction.
        pub instruction: u64,
        /// Guest-physical address, number of a register, interrupt request, exit code, call number or
        /// device register, by kind.
        pub address: u64,
        /// Value written, or the architecture's word on the access, by kind.
        pub info: u64,
        /// [`Kind`].
        pub kind: u16,
        /// [`Condition`].
        pub condition: u16,
        /// Incarnation of the sandbox (0 = first launch).
        pub incarnation: u32,
    }
}

impl DenialCells {
    /// Stores a record. Its `seq` is 0 while the rest is written, so that a reader can tell.
    #[inline(never)]
    pub fn keep(&self, denial: &Denial) {
        self.seq.store(0, Relaxed);
        fence(Release);
        self.ticks.store(denial.ticks, Relaxed);
        self.instruction.store(denial.instruction, Relaxed);
        self.address.store(denial.address, Relaxed);
        self.info.store(denial.info, Relaxed);
        self.kind.store(denial.kind, Relaxed);
        self.condition.store(denial.condition, Relaxed);
        self.incarnation.store(denial.incarnation, Relaxed);
        self.seq.store(denial.seq, Release);
    }
}

in_memory! {
    repr(C);
    /// Refusals by one condition on a core since the first launch.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
    pub struct Tally, TallyCells {
        /// Accesses.
        pub count: u64,
        /// The first of them; never overwritten.
        pub first: Denial,
    }
}

in_memory! {
    repr(C);
    /// An answer to a failure, by a ladder ([`crate::ladder`]).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
    pub struct Deed, DeedCells {
        /// 1 for a sandbox's first deed, and so on; written last, 0 while in flux.
        pub seq: u64,
        /// Clock when the sandbox's first core heard of the failure.
        pub found: u64,
        /// Clock when the guest ran again; 0: it does not, or not yet.
        pub begun: u64,
        /// [`Condition`] of the failure.
        pub condition: u16,
        /// Core that found it, by its number in the sandbox.
        pub core: u16,
        /// [`crate::ladder::Rung::action`] that was taken.
        pub action: u8,
        /// The rung, from 0.
        pub rung: u8,
        /// Guest that runs then: 0 is the sandbox's own, others are its alternatives.
        pub guest: u16,
        /// Incarnation of the sandbox that failed.
        pub incarnation: u32,
        /// [`crate::ladder::Rung::WARM`]: snapshots that were not whole.
        pub broken: u32,
        /// [`crate::ladder::Rung::WARM`]: generation of the snapshot that was offered; 0: none was whole.
        pub snapshot: u64,
        /// Roles that went ([`crate::ladder::Rung::FAILOVER`]), or came ([`crate::ladder::Rung::TOOK`]), as a set.
        pub roles: u32,
        /// Sandbox that the first of them went to, or came from.
        pub party: u32,
    }
}

in_memory! {
    repr(C, align(4096));
    /// One core's part of a report.
    #[derive(Clone, Copy)]
    #[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
    pub struct CoreReport, CoreReportCells {
        /// Exits by cause since the first launch.
        pub exits: [u64; CAUSES],
        /// Denied accesses since the first launch.
        pub denials: u64,
        /// `exits` as they were when the guest had booted.
        pub boot_exits: [u64; CAUSES],
        /// Bytes ever written to the console ring.
        pub console_written: u64,
        /// Clock when the guest had booted on this core (first sign of user mode, or
        /// [`crate::hypercall::READY`]); 0 before, in each life.
        pub steady_ticks: u64,
        /// The last denials; number `n` lies at `(n - 1) % DENIALS`.
        pub ring: [Denial; DENIALS],
        /// Offers made and accepted of channels made at run time: for each of them the other party may ring once.
        pub consents: u64,
        /// The first denials of the last life that has any; behind them those of earlier lives.
        pub first: [Denial; FIRST],
        /// Tallies by [`Condition`]: chaff of another condition cannot overwrite them.
        pub tallies: [Tally; CONDITIONS],
        /// `denials` when the first of `first` came.
        pub life_denials: u64,
        /// The incarnation that `first` is of.
        pub life: u32,
        /// Padding to the console.
        pub reserved: [u32; 1],
        /// Console bytes; byte `n` lies at `n % CONSOLE`.
        pub console: [u8; CONSOLE],
    }
}

in_memory! {
    repr(C, align(4096));
    /// The part of a report that its first core writes.
    #[derive(Clone, Copy, Debug)]
    #[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
    pub struct Report, ReportCells {
        /// `bulkhead_layout::report::MAGIC`.
        pub magic: u64,
        /// `bulkhead_layout::report::VERSION`.
        pub version: u32,
        /// Index of the sandbox.
        pub sandbox: u32,
        /// [`State`].
        pub state: u32,
        /// Exit code in [`State::Exited`].
        pub exit_code: u32,
        /// Launches after the first one.
        pub restarts: u64,
        /// Clock when the monitor began the last launch.
        pub begin_ticks: u64,
        /// Clock when the launch record had been played.
        pub played_ticks: u64,
        /// Clock at the last entry to the guest's first instruction.
        pub launch_ticks: u64,
        /// Clock at the last violation that led to a restart.
        pub violation_ticks: u64,
        /// Clock at the last change of `state`.
        pub state_ticks: u64,
        /// First word of the failed monitor's exception frame, and the address that it touched.
        pub fault: [u64; 2],
        /// The two words after it.
        pub fault_detail: [u64; 2],
        /// Cores with a [`CoreReport`] after this page.
        pub cores: u32,
        /// 1: it runs a program that another sandbox has left for it ([`crate::load`]), not the image's.
        pub loaded: u32,
        /// Number of deeds since the first launch.
        pub deeds_done: u64,
        /// The last of them; number `n` lies at `(n - 1) % DEEDS`.
        pub deeds: [Deed; DEEDS],
        /// How often a role has come to it from another sandbox: each time that one may ring once.
        pub took: u64,
        /// By core, the exits of the causes behind [`CAUSES`]: [`Cause::Xapic`], [`Cause::Mmio`]. Each core writes a
        /// cache line of its own.
        pub xapic: [[u64; 8]; MAX_CORES],
        /// 1: it has locked itself ([`crate::hypercall::LOCK`]).
        pub locked: u32,
        /// Padding.
        pub reserved: [u32; 511],
    }
}

const _: () = assert!(size_of::<Denial>() == 48);
const _: () = assert!(size_of::<Tally>() == 56);
const _: () = assert!(size_of::<Deed>() == 56);
const _: () = assert!(size_of::<CoreReport>() == 8192);
const _: () = assert!(core::mem::offset_of!(CoreReport, console) == 4096);
const _: () = assert!(size_of::<Report>() == 4096);
const _: () = assert!(core::mem::offset_of!(Report, xapic) % 64 == 0);
