//! The image that a machine boots: header, sandboxes, and the boot code's
//! report. The boot code checks all of it again before it uses any of it.

use crate::MAX_CORES;
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `"BHIMAGE1"`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BHIMAGE1");
/// [`Header::monitors`]: kernels are on the cores themselves. Each architecture names its kinds of monitors.
pub const NO_MONITORS: u64 = 0;
/// Version of this layout.
pub const VERSION: u32 = 9;

/// Offset in the image of a word with the address of its [`Header`].
pub const HEADER_WORD: u64 = 256;

/// A range of physical memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
}

/// Start of the compiled manifest, at [`Header`]'s page in the image: the part that all architectures have. The
/// architecture's own part follows. The console of the boot code and the IOMMU are in it.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// Over the bytes from `version` to the end of the sealed part ([`checksum`]).
    pub checksum: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Sandboxes that follow.
    pub sandboxes: u32,
    /// The whole image in memory, pristine guests included.
    pub image: Range,
    /// The checked part, from this header on: header, sandboxes, monitors, tables.
    pub sealed: u64,
    /// Boot text, data and stack: unused after the launch.
    pub boot: Range,
    /// [`ConfigOp`]s after the sandboxes.
    pub config_ops: u32,
    /// Bytes of the architecture's own part, between this one and the sandboxes.
    pub own: u32,
    /// [`Op`](bulkhead_monitor_abi::record::Op)s with physical addresses, in the sealed part. The boot code carries
    /// them out: it clears channels, and fills the memory of kernels without monitors. Monitors have records of their
    /// own.
    pub launch: Range,
    /// Kind of its monitors: the architecture's number of it, or [`NO_MONITORS`].
    pub monitors: u64,
    /// Control blocks of the cores of a Linux that runs already, in the order of its sandbox's cores. That sandbox is
    /// the last one. Empty: the image starts the machine.
    pub running: Range,
    /// Memory that is taken from that Linux: it holds the image and all other sandboxes' memory. Empty likewise.
    pub block: Range,
}

impl Header {
    /// Returns the place of the first sandbox behind the header's first byte.
    #[must_use]
    pub const fn sandboxes_at(&self) -> usize {
        size_of::<Self>() + self.own as usize
    }
}

/// A step of bringing PCI to the state that the machine description has, in order. The boot code takes a way to the
/// configuration space that works on any firmware. Steps of an IOMMU come after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct ConfigOp {
    /// Requester ID of the function.
    pub bdf: u16,
    /// Offset of the register, a multiple of 4 below 256; of extended capabilities, below 4096.
    pub offset: u16,
    /// One of the constants below.
    pub kind: u32,
    /// Value written or expected.
    pub value: u32,
}

impl ConfigOp {
    /// Write.
    pub const WRITE: u32 = 1;
    /// The register has to read so, or it is another machine.
    pub const EXPECT: u32 = 2;
    /// Likewise in the memory-mapped configuration space at `value`.
    pub const EXPECT_AT: u32 = 3;
    /// The access control services at `offset` of the memory-mapped configuration page at `value` are switched on, and
    /// have source validation.
    pub const VALIDATE: u32 = 4;
    /// The steps below are about the registers at `value`, a page.
    pub const AT: u32 = 5;
    /// A 32-bit register is written.
    pub const SET: u32 = 6;
    /// The register has all bits of `value`, or the unit lacks what the image needs.
    pub const NEED: u32 = 7;
    /// The register shows all bits of `value` in time.
    pub const AWAIT: u32 = 8;
    /// The register shows none of them in time.
    pub const CLEAR: u32 = 9;
    /// As [`Self::SET`], behind the start of all cores but the booting one.
    pub const LAST: u32 = 10;
    /// The processor's caches are written to memory.
    pub const FLUSH: u32 = 11;
    /// As [`Self::WRITE`], to a function that a running Linux gives away. Its module reads here which ones these are.
    pub const TAKE: u32 = 12;
    /// Likewise a serial port: the first of its ports is in bits 15:0 of the value, the last one in bits 31:16.
    pub const TAKE_PORTS: u32 = 13;
}

/// A sandbox as the boot code needs it. Where there are no monitors, what is said of a monitor is of what its
/// kernel starts on: tables, information page.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Sandbox {
    /// Its RAM, up to two pieces; an unused one has length 0.
    pub memory: [Range; 2],
    /// Everything of its monitor: text, tables, data; in the image.
    pub monitor: Range,
    /// Root of the monitor's page tables; below 4 GiB.
    pub monitor_root: u64,
    /// Where a core enters its monitor, with the top of its stack as stack pointer.
    pub entry_va: u64,
    /// Likewise for a core that a peer takes: root and entry of the spare monitor. Root 0: no peer takes its cores.
    pub spare_root: u64,
    /// See `spare_root`.
    pub spare_entry_va: u64,
    /// Its [`crate::info::Info`] page.
    pub info_pa: u64,
    /// Cores in use.
    pub cores: u32,
    /// Hardware IDs of its cores.
    pub core_ids: [u32; MAX_CORES],
    /// Padding.
    pub reserved: u32,
}

/// At [`crate::map::BOOT_REPORT_PA`]: what the boot code leaves for whoever reads the machine's RAM.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct BootReport {
    /// [`BOOT_MAGIC`] once the boot code runs.
    pub magic: u64,
    /// 0 while it goes well, else the number of the error that it printed.
    pub error: u64,
    /// Clock at the image's entry.
    pub entry_ticks: u64,
    /// Ticks of the clock spent waiting: for cores, and to measure the clock.
    pub waited: u64,
    /// Clock when the boot code was left by its last core.
    pub left_ticks: u64,
    /// Measured frequencies.
    pub hz: u64,
    /// Ticks of a core's timer in a second.
    pub timer_hz: u64,
    /// Ticks of the clock spent filling the memory of kernels without monitors.
    pub played: u64,
    /// Finding of the boot code about messages of interrupt lines: one of the constants below.
    pub lines: u64,
}

impl BootReport {
    /// Nothing was to be found out.
    pub const UNTESTED: u64 = 0;
    /// The IOMMU does not see them.
    pub const UNSEEN: u64 = 1;
    /// It sees them.
    pub const SEEN: u64 = 2;
}

/// `"BHBOOTED"`.
pub const BOOT_MAGIC: u64 = u64::from_le_bytes(*b"BHBOOTED");

/// Returns the checksum of the sealed part: a sum and a sum of sums over 64-bit words (Fletcher's). So a swapped or a
/// changed word shows. It guards against accidents, not against forgery.
#[must_use]
pub fn checksum(words: impl Iterator<Item = u64>) -> u64 {
    let (mut sum, mut sums) = (0u64, 0u64);
    for word in words {
        sum = sum.wrapping_add(word);
        sums = sums.wrapping_add(sum).rotate_left(1);
    }
    sum ^ sums
}

const _: () = assert!(size_of::<Header>() == 128);
const _: () = assert!(size_of::<ConfigOp>() == 12);
const _: () = assert!(size_of::<Sandbox>() == 160);
