//! The configuration of a monitor on x86-64.

use bulkhead_monitor_abi::monitor::{self, Slice};
use core::ops::{Deref, DerefMut};
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A range of MSRs or ports that is answered without a record, because an
/// unmodified kernel probes it: it is absent for the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Quiet {
    /// First port, MSR or address.
    pub first: u32,
    /// Last one, inclusive.
    pub last: u32,
    /// Value of a read.
    pub value: u64,
}

impl Quiet {
    /// Finds the value of a read of this one, if it is in one of the ranges.
    #[must_use]
    pub fn find(ranges: &[Self], number: u32) -> Option<u64> {
        let range = ranges.iter().find(|q| (q.first..=q.last).contains(&number));
        range.map(|q| q.value)
    }
}

/// Changes to a range of CPUID leaves, as a guest sees them.
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

/// Configuration of a monitor, at [`bulkhead_monitor_abi::map::CONFIG_VA`]: the portable part, and what only x86-64
/// has.
///
/// A core's state ([`monitor::Config::first_state`]) is relative to the start of a VMCB under SVM. Under VT-x it has
/// `STORE`s, with the encoding of a field as destination.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Config {
    /// Part that all architectures have.
    pub portable: monitor::Config,
    /// x2APIC IDs of its cores as a set, for the IDs below 256.
    pub own: [u64; 4],
    /// The interrupt descriptor table, as LIDT reads it: limit, address; padding.
    pub idtr: [u16; 8],
    /// Absent ports: [`Quiet`].
    pub ports: Slice,
    /// Absent MSRs: [`Quiet`].
    pub msrs: Slice,
    /// Leaves of CPUID: [`Leaf`].
    pub cpuid: Slice,
    /// Interrupt lines: one `bulkhead_ioapic::Lines`, or none if the sandbox has no line.
    pub lines: Slice,
    /// 1: PCI can be configured by ports 0xCF8 and 0xCFC, too.
    pub config_ports: u64,
    /// 1: it owns the real-time clock ([`crate::cmos`]).
    pub clock: u64,
    /// Memory of a Linux that runs already, as the monitor maps it: [`monitor::Ram`]. Only with
    /// [`bulkhead_monitor_abi::need::RUNNING`].
    pub memory: Slice,
    /// The block that this Linux has given away, which is not mapped.
    pub block: monitor::Ram,
    /// Where this Linux sees the PCI configuration space; 0: it has the machine's, and no function is mediated.
    pub ecam: u64,
    /// Bytes of it.
    pub ecam_len: u64,
    /// Physical address of the HPET, of which this Linux reads the page; 0: it has the page to itself.
    pub hpet: u64,
    /// Registers of devices that are nobody's, which this Linux only reads: [`Quiet`].
    pub withheld: Slice,
    /// Its registers among shared ones: [`bulkhead_monitor_abi::mmio::Range`].
    pub ranges: Slice,
}

impl Config {
    /// Tells if the monitor has mapped the word at an address that a running Linux claims. One of the pieces of
    /// [`Config::memory`] has such a word, and the block has not.
    #[must_use]
    pub fn reads(&self, memory: &[monitor::Ram], at: u64) -> bool {
        let inside = |ram: &monitor::Ram| at.wrapping_sub(ram.gpa) < ram.len;
        memory.iter().any(inside) && !inside(&self.block)
    }
}

impl Deref for Config {
    type Target = monitor::Config;

    #[inline(always)]
    fn deref(&self) -> &monitor::Config {
        &self.portable
    }
}

impl DerefMut for Config {
    fn deref_mut(&mut self) -> &mut monitor::Config {
        &mut self.portable
    }
}

const _: () = assert!(size_of::<Quiet>() == 16);
const _: () = assert!(size_of::<Leaf>() == 44);
const _: () = assert!(size_of::<Config>() == size_of::<monitor::Config>() + 160);
