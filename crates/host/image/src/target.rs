//! The contract of an architecture's image: everything that is baked for one kind of monitor, beside what its
//! [`Facts`](bulkhead_plan::Facts) say. The machine description chooses it; a test brings an odd one of its own.

use crate::Error;
use crate::config::Tail;
use crate::devices::Devices;
use crate::elf::{Program, Relocated};
use crate::guest::{Entry, Guest};
use crate::kernel::Kernels;
use crate::pages::Pages;
use bulkhead_arch::{Stage1, Stage2};
use bulkhead_layout::record::Op;
use bulkhead_layout::{image, monitor};
use bulkhead_plan::{Plan, Sandbox, Span};
use core::ops::DerefMut;
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// A kind of monitor, how it starts, and how it confines a guest.
pub trait Target {
    /// Tables of a monitor.
    type Own: Stage1;
    /// Tables that confine a guest.
    type Nested: Stage2;
    /// Header of an image: the portable part, and what only this architecture has.
    type Header: DerefMut<Target = image::Header> + FromZeros + IntoBytes + Immutable;
    /// Configuration of a monitor: the portable part, and what only this architecture has.
    type Config: DerefMut<Target = monitor::Config> + FromZeros + IntoBytes + Immutable;
    /// Kinds of interrupt controllers and of IOMMUs.
    type Devices: Devices;
    /// Part that is baked for kernels and their programs.
    type Kernels: Kernels;
    /// True if a monitor maps the processor's own page of each core.
    const MAPS_HOST: bool;
    /// Fields of a control block that confine its guest and stay as the launch record sets them, with the bits that do.
    const STEADY: &'static [(u64, u64)] = &[];

    /// Addresses that a Linux which runs already reaches beside RAM, and those among them that its monitor has in its
    /// place. Both are empty where there is no such guest.
    const MACHINE: [Span; 2] = [Span { start: 0, len: 0 }; 2];

    /// Tells what a kind of relocations of the boot code means, by its number in ELF files.
    fn relocated(_: u32) -> Relocated {
        Relocated::Unknown
    }
    /// Makes the headers by which a boot loader knows the image: its first bytes.
    fn headers(entry: u64) -> Vec<u8>;
    /// Fills in what this architecture alone has in a header: the boot code's console, its IOMMU.
    fn describe(_: &mut Self::Header, _: &Plan, _: <Self::Devices as Devices>::Header) {}
    /// Makes the page by which a monitor's cores find its handlers of interrupts and faults; `None`: its text has it.
    ///
    /// # Errors
    /// The monitor lacks a handler.
    fn vectors(program: &Program) -> Result<Option<Vec<u8>>, Error>;
    /// Makes a guest that is no kernel as it is at its first instruction, firmware tables included.
    ///
    /// # Errors
    /// Files that cannot be read or are not what they should be.
    fn guest(plan: &Plan, index: usize) -> Result<Guest, Error>;
    /// Bakes two tables of the registers that a guest, by its index, reaches beside memory, or makes two registers of
    /// traps.
    fn traps(pages: &mut Pages, plan: &Plan, index: usize) -> [u64; 2];
    /// Control block of a first core.
    fn first(confine: &Confine, entry: &Entry) -> Vec<Op>;
    /// Control block of a core that another one starts.
    fn further(confine: &Confine) -> Vec<Op>;
    /// Confinement of a core of a Linux that runs already, as stores into its control block; nothing where there is no
    /// such guest.
    fn running(_: &Confine) -> Vec<Op> {
        Vec::new()
    }
    /// Why the processor would refuse a start state, by the manual's checks.
    fn refused(_: &[Op]) -> Option<String> {
        None
    }
    /// Makes a set of cores, as monitors keep it.
    fn cores(ids: &[u32]) -> [u64; 4];
    /// Makes the word by which a monitor sends an interrupt to a core.
    fn signal(core: u32, interrupt: u32) -> u64;
    /// Makes the messages by which a monitor stops another core, and starts it in the cores' start-up code.
    fn take(core: u32) -> [u64; 2];
    /// Fills in what this architecture alone has: its vectors, its lines, its answers for registers that no sandbox
    /// has.
    fn configure(
        _: &mut Self::Config,
        _: &mut Tail,
        _: &Plan,
        _: &Sandbox,
        _: Option<<Self::Devices as Devices>::Lines>,
    ) {
    }
    /// Lists what its part of a configuration names: whether it does, the need, and the words for it.
    fn named(_: &Self::Config) -> Vec<(bool, u32, &'static str)> {
        Vec::new()
    }
}

/// Where the things lie that confine a guest.
pub struct Confine {
    /// Results of [`Target::traps`].
    pub traps: [u64; 2],
    /// Root of the nested tables.
    pub root: u64,
    /// Number of the guest, from 1 on.
    pub tag: u32,
    /// It has a watchdog.
    pub ticks: bool,
    /// A peer takes its cores, also from its guest.
    pub taken: bool,
    /// It is a Linux that runs already.
    pub running: bool,
    /// A debugger is let in.
    pub debug: bool,
}
