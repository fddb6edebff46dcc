//! A monitor's configuration (read-only for it), and the pages that monitors share.

use crate::bell::MAX_BELLS;
use crate::hypercall::{REQUESTS, Rights};
use crate::link::MAX_LINKS;
use crate::role::ROLES;
use crate::watch::Watch;
use crate::{MAX_CORES, MAX_SANDBOXES};
use core::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A part of the configuration: `len` elements at byte `offset` after [`Config`]'s start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Slice {
    /// Bytes from the start of [`Config`].
    pub offset: u32,
    /// Elements.
    pub len: u32,
}

/// Frequencies that the boot code measured, in the sandbox's info page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Clock {
    /// Ticks of the clock in a second.
    pub hz: u64,
    /// Ticks of a core's timer in a second.
    pub timer_hz: u64,
}

/// A piece of guest RAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Ram {
    /// First guest-physical address.
    pub gpa: u64,
    /// Bytes.
    pub len: u64,
}

/// One core of the sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Core {
    /// Physical address of its control block.
    pub control_pa: u64,
    /// Physical address of a page of the processor's own.
    pub host_pa: u64,
}

/// How a guest begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Start {
    /// Second argument of the first core's first instruction, such as the info page. The first one is the incarnation.
    pub argument: u64,
    /// Record ([`crate::record::Op`]) of guest memory, played by the first core at launch.
    pub launch: Slice,
    /// State of a first core, as [`crate::record::Op`]s of which the architecture knows the meaning.
    pub first_state: Slice,
    /// State of a core that another core starts, likewise.
    pub other_state: Slice,
    /// Pages that the watchdog looks at ([`crate::watch::FixedPage`]), and a core's control block as it stays: stores
    /// ([`crate::record::Op`]) of which `len` has the bits that count.
    pub fixed: [Slice; 2],
    /// Parts of pages in a tick.
    pub parts: u64,
}

/// Configuration of a monitor, at [`crate::map::CONFIG_VA`]. The architecture's part lies behind it.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Config {
    /// Index of this sandbox.
    pub sandbox: u32,
    /// Cores of this sandbox.
    pub cores: u32,
    /// Calls that this sandbox may make.
    pub rights: Rights,
    /// Sandboxes that may stop, start and restart this one, as sets, by request.
    pub controlled_by: [u32; REQUESTS],
    /// Sandboxes in the machine.
    pub sandboxes: u32,
    /// [`crate::report::State`] to begin in: launching, or stopped until a start is requested.
    pub begin: u32,
    /// Answer to a finding of each [`crate::report::Kind`]: a [`crate::report::State`] to end in, or a ladder from
    /// [`LADDER`] on. 0: an access is made harmless and the guest goes on.
    pub ends: [u8; ENDS],
    /// Hardware IDs of its cores.
    pub core_ids: [u32; MAX_CORES],
    /// Hardware ID of every sandbox's first core.
    pub first_core: [u32; MAX_SANDBOXES],
    /// Control block and the processor's own page of each core.
    pub core: [Core; MAX_CORES],
    /// Monitor-virtual address of the [`Clock`] that the guest sees, too.
    pub clock_va: u64,
    /// How its guest begins.
    pub start: Start,
    /// PCI functions that the sandbox sees ([`crate::pci::Function`]), by address.
    pub functions: Slice,
    /// Guest RAM; an unused piece has length 0.
    pub ram: [Ram; 2],
    /// Doorbells ([`crate::bell::Bell`]), by number.
    pub bells: Slice,
    /// Own ends of channels ([`crate::bell::End`]).
    pub channel_ends: Slice,
    /// Record ([`crate::record::Op`]) of guest memory without its program.
    pub empty: Slice,
    /// Monitor-virtual address of the program that another sandbox may leave for this one ([`crate::load`]); 0: none
    /// may.
    pub loads: u64,
    /// Bytes there.
    pub room: u64,
    /// Links that it is a party of ([`crate::link::Link`]).
    pub links: Slice,
    /// Microseconds between two requests of a kind to each sandbox, at least.
    pub every: [[u32; REQUESTS]; MAX_SANDBOXES],
    /// Its watchdog.
    pub watch: Watch,
    /// Ladders ([`crate::ladder::Ladder`]), by number.
    pub ladders: Slice,
    /// How guests begin that can take its guest's place ([`Start`]).
    pub alternatives: Slice,
    /// Its peers ([`crate::peer::Peer`]).
    pub peers: Slice,
    /// Pages of a snapshot ([`crate::snapshot`]), at most [`crate::snapshot::PAGES`]; 0: the guest takes none.
    pub snapshot: u64,
    /// Roles that it can hold ([`crate::role::Role`]).
    pub roles: Slice,
    /// 1: the guest may lock its sandbox ([`crate::hypercall::LOCK`]).
    pub lockable: u64,
    /// 1: a debugger has a page for its requests at [`crate::map::DEBUG_VA`].
    pub debug: u64,
}

/// First number of a ladder in [`Config::ends`].
pub const LADDER: u8 = 8;

/// Room for the ends of all kinds of findings.
pub const ENDS: usize = 16;

/// A monitor's outgoing mail: it writes this page, the others read it. Requests
/// are numbered, and a request is pending until the receiver has acknowledged
/// its number.
#[repr(C, align(4096))]
pub struct Mailbox {
    /// To each sandbox: `number << 8 | request` ([`crate::hypercall::CONTROL`]'s).
    pub request: [AtomicU64; MAX_SANDBOXES],
    /// From each sandbox: number of the last request that was carried out or refused.
    pub done: [AtomicU64; MAX_SANDBOXES],
    /// Answer to [`crate::hypercall::STATUS`] of this sandbox.
    pub status: AtomicU64,
    /// Armed word for which each of its doorbells let the last interrupt through ([`crate::bell::admit`]).
    pub rung: [AtomicU64; MAX_BELLS],
    /// Where its guest wants the interrupts of each channel that wakes it: a message, or 0 for nowhere.
    pub aims: [AtomicU64; MAX_BELLS],
    /// Word on each link: what its guest has of it ([`crate::link`]).
    pub links: [AtomicU64; MAX_LINKS],
    /// How often it has rung each sandbox's monitor; its own, too.
    pub rings: [AtomicU64; MAX_SANDBOXES],
    /// Ticks of the clock from which on the next request of a kind to each sandbox may be posted ([`crate::mail`]).
    pub due: [[AtomicU64; REQUESTS]; MAX_SANDBOXES],
    /// Heartbeat of each of its cores ([`crate::peer`]); 0 before the first one, and while a guest is launched.
    pub beats: [AtomicU64; MAX_CORES],
    /// How often its first core has entered its monitor: more than once if a peer has taken it.
    pub entries: AtomicU32,
    /// Padding.
    pub gap: AtomicU32,
    /// Word on each role: what its guest has of it ([`crate::role`]).
    pub roles: [AtomicU64; ROLES],
    /// Padding.
    pub reserved: [AtomicU32; 396],
}

const _: () = assert!(size_of::<Mailbox>() == 4096);
// The auditor reads them there (docs/links.md, docs/standby.md).
const _: () = assert!(core::mem::offset_of!(Mailbox, links) == 0x408);
const _: () = assert!(core::mem::offset_of!(Mailbox, roles) == 0x990);
const _: () = assert!(size_of::<Config>() == 1120);
const _: () = assert!(crate::report::KINDS <= ENDS);
