//! A monitor's configuration (read-only for it), and the pages that monitors share.

use crate::bell::MAX_BELLS;
use crate::hypercall::{REQUESTS, Rights};
use crate::link::SLOTS;
use crate::report::KINDS;
use crate::{MAX_CORES, MAX_SANDBOXES};
use core::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A range of MSRs or ports that is answered without a record, because an
/// unmodified kernel probes it: it is absent for the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Quiet {
    /// First port or MSR.
    pub first: u32,
    /// Last one, inclusive.
    pub last: u32,
    /// Value that a read gives.
    pub value: u64,
}

impl Quiet {
    /// Finds the value that a read of this port or MSR gives, if it is in one of the ranges.
    #[must_use]
    pub fn find(ranges: &[Self], number: u32) -> Option<u64> {
        let range = ranges.iter().find(|q| (q.first..=q.last).contains(&number));
        range.map(|q| q.value)
    }
}

/// Answer to a guest for a range of CPUID leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Leaf {
    /// First leaf.
    pub first: u32,
    /// Last one, inclusive.
    pub last: u32,
    /// The only subleaf, or [`Leaf::ANY`].
    pub sub: u32,
    /// Bits of EAX, EBX, ECX, EDX that are the processor's.
    pub keep: [u32; 4],
    /// Bits that are always set.
    pub set: [u32; 4],
}

impl Leaf {
    /// All subleaves.
    pub const ANY: u32 = u32::MAX;

    /// Part of the processor's answer that a guest sees: all of it where no leaf applies. The leaves are in order.
    #[must_use]
    #[inline(always)]
    pub fn filter(leaves: &[Self], leaf: u32, sub: u32, raw: [u32; 4]) -> [u32; 4] {
        let mut before = leaves.iter().take_while(|l| l.first <= leaf);
        let applies = |l: &&Self| leaf <= l.last && (l.sub == sub || l.sub == Self::ANY);
        match before.find(applies) {
            Some(Self { keep, set, .. }) => {
                let of = |i: usize| raw[i] & keep[i] | set[i];
                [of(0), of(1), of(2), of(3)]
            }
            None => raw,
        }
    }
}

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
    /// TSC ticks a second.
    pub tsc_hz: u64,
    /// Local APIC timer ticks a second, divide by 1.
    pub lapic_hz: u64,
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
    /// Physical address of its control block: the VMCB, or the VMCS region.
    pub control_pa: u64,
    /// Physical address of the processor's own page: the host state save area, or the VMXON region.
    pub host_pa: u64,
}

/// Configuration of a monitor, at [`crate::map::CONFIG_VA`].
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Config {
    /// x2APIC IDs of its cores as a set, for the IDs below 256.
    pub own: [u64; 4],
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
    /// [`crate::report::State`] to end in after a denied access of each
    /// [`crate::report::Kind`]; 0: it is made harmless and the guest goes on.
    pub ends: [u8; KINDS],
    /// The interrupt descriptor table, as LIDT reads it: limit, address; padding.
    pub idtr: [u16; 8],
    /// x2APIC IDs of its cores.
    pub apic_ids: [u32; MAX_CORES],
    /// x2APIC ID of every sandbox's first core.
    pub first_core: [u32; MAX_SANDBOXES],
    /// Control block and the processor's own page of each core.
    pub core: [Core; MAX_CORES],
    /// Monitor-virtual address of the [`Clock`] that the guest sees, too.
    pub clock_va: u64,
    /// Guest RSI at the first core's launch (Linux: zero page; bare: info page). RDI = incarnation.
    pub argument: u64,
    /// Record ([`crate::record::Op`]) of guest memory, played by the first core at launch.
    pub launch: Slice,
    /// Record ([`crate::record::Op`]) of a first core's control block. SVM: relative to its start; VT-x: `STORE`s,
    /// `dst` is the encoding of the field.
    pub first_state: Slice,
    /// The control block after a SIPI with vector 0, likewise.
    pub sipi_state: Slice,
    /// Absent ports ([`Quiet`]).
    pub ports: Slice,
    /// Absent MSRs ([`Quiet`]).
    pub msrs: Slice,
    /// CPUID leaves ([`Leaf`]).
    pub cpuid: Slice,
    /// PCI functions that the sandbox sees ([`crate::pci::Function`]), by address.
    pub functions: Slice,
    /// Guest RAM; an unused piece has length 0.
    pub ram: [Ram; 2],
    /// 1 if PCI can be configured by ports 0xCF8 and 0xCFC, too.
    pub config_ports: u64,
    /// 1 if it owns the real-time clock ([`crate::cmos`]).
    pub clock: u64,
    /// Interrupt lines: one `bulkhead_ioapic::Lines`, or none if the sandbox has no line.
    pub lines: Slice,
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
    /// Slots that it is a party of ([`crate::link::Link`]).
    pub links: Slice,
    /// Microseconds between two requests of a kind to each sandbox, at least.
    pub every: [[u32; REQUESTS]; MAX_SANDBOXES],
}

/// A monitor's outgoing mail: it writes this page, the others read it. Requests
/// are numbered, and a request is pending until the receiver has acknowledged
/// its number.
#[repr(C, align(4096))]
pub struct Mailbox {
    /// To each sandbox: `number << 8 | request` ([`crate::hypercall::CONTROL`]'s).
    pub request: [AtomicU64; MAX_SANDBOXES],
    /// From each sandbox: number of the last request that was carried out or refused.
    pub done: [AtomicU64; MAX_SANDBOXES],
    /// [`crate::report::State`] `| restarts << 8` of this sandbox.
    pub status: AtomicU64,
    /// Armed word for which each of its doorbells let the last interrupt through ([`crate::bell::admit`]).
    pub rung: [AtomicU64; MAX_BELLS],
    /// Where its guest wants the interrupts of each channel that wakes it, as an ICR takes it; 0: nowhere.
    pub aims: [AtomicU64; MAX_BELLS],
    /// Word on each slot: what its guest has of it ([`crate::link`]).
    pub links: [AtomicU64; SLOTS],
    /// How many NMIs it has sent to each sandbox's monitor; to its own, to itself.
    pub rings: [AtomicU64; MAX_SANDBOXES],
    /// TSC from which on the next request of a kind to each sandbox may be posted ([`crate::mail`]).
    pub due: [[AtomicU64; REQUESTS]; MAX_SANDBOXES],
    /// Padding.
    pub reserved: [AtomicU32; 446],
}

const _: () = assert!(size_of::<Mailbox>() == 4096);
// The auditor reads it there (docs/connecting.md).
const _: () = assert!(core::mem::offset_of!(Mailbox, links) == 0x408);
const _: () = assert!(size_of::<Quiet>() == 16);
const _: () = assert!(size_of::<Leaf>() == 44);
const _: () = assert!(size_of::<Config>() == 1112);
