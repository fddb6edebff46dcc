//! The page that tells a guest about itself, read-only at
//! [`crate::map::INFO_GPA`]. The host bakes it; the boot code adds the
//! frequencies that it measured.

use crate::{MAX_CORES, MAX_SANDBOXES};
use bulkhead_monitor_abi::monitor::Clock;
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `"BULKHEAD"`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BULKHEAD");
/// Version of this layout.
pub const VERSION: u32 = 2;
/// Most ends of channels, and observed reports, that one sandbox sees.
pub const MAX_CHANNELS: usize = 32;
/// Bytes of a name, padded with zeros.
pub const NAME: usize = 32;

/// [`Info::bells`]: the receiver looks while that pays, before it sleeps.
pub const ADAPTIVE: u32 = 1 << 16;

/// [`Window::messages`]: a program that the receiver's monitor runs from its next start on.
pub const PROGRAM: u32 = 5;

/// Index of a set in [`Info::rights`].
pub const RELEASED: usize = 3;

/// [`Window::kind`]: memory for a channel that is made at run time. `message` is its number, `messages` the index of
/// the sandbox that offers it; `writable` is 1 if that is this one. A page of the other's lies behind the `size` bytes.
pub const LINK: u32 = 2;

/// [`Window::kind`]: a role that the sandbox can have. `gpa` is the address of the word that shows its epoch while the
/// sandbox has it, and 0 else; `message` is its number.
pub const ROLE: u32 = 3;

/// One end of a channel, or an observed sandbox's report. A sender of messages has one for each
/// receiver, in the manifest's order.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Window {
    /// Name of the channel, or of the observed sandbox.
    pub name: [u8; NAME],
    /// Where it lies.
    pub gpa: u64,
    /// Its size in bytes.
    pub size: u64,
    /// 1 if this sandbox may write it.
    pub writable: u32,
    /// 0 = channel, 1 = report, 2 = [`LINK`], 3 = [`ROLE`].
    pub kind: u32,
    /// Content of a channel: 0 = raw pages, 1 = queue, 2 = records, 3 = mailbox, 4 = virtio. All but raw pages have the
    /// receiver's page behind the `size` bytes, with the rights the other way round; virtio has as many bytes again.
    /// [`PROGRAM`] is raw pages, too.
    pub messages: u32,
    /// Bytes of a queue's or mailbox's message; index of the sandbox that runs a program.
    pub message: u32,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C, align(4096))]
pub struct Info {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Index of this sandbox.
    pub sandbox: u32,
    /// Its name.
    pub name: [u8; NAME],
    /// How fast its clocks are.
    pub clock: Clock,
    /// Bytes of RAM.
    pub memory: u64,
    /// Cores of this sandbox.
    pub cores: u32,
    /// Windows in use.
    pub windows: u32,
    /// Hardware IDs of its cores; the first one boots.
    pub core_ids: [u32; MAX_CORES],
    /// Channels and observed reports.
    pub window: [Window; MAX_CHANNELS],
    /// Program arguments from the manifest, padded with zeros.
    pub args: [u8; 256],
    /// Own interrupt lines, as a set.
    pub lines: u32,
    /// Level-triggered ones of them, as a set.
    pub level_lines: u32,
    /// Interrupts that those may raise, as a set: for a bare guest one for each.
    pub level_vectors: [u64; 4],
    /// How the receiver of each window's channel is woken; 0: not at all. Bits 15:0 have the interrupt, for the
    /// receiver, or the doorbell, for the sender. Bit 16 is [`ADAPTIVE`].
    pub bells: [u32; MAX_CHANNELS],
    /// Sandboxes in the machine.
    pub sandboxes: u32,
    /// Those that this one may stop, start or restart, as a set: it may ask for their state.
    pub control: u32,
    /// Bytes of the image: with it and the manifest everything else's place in memory follows.
    pub image: u64,
    /// All sandboxes' names, by index.
    pub names: [[u8; NAME]; MAX_SANDBOXES],
    /// Those that this one may stop, start and restart, as sets. The fourth, [`RELEASED`], is for a Linux that ran
    /// before: those that are ended when it takes the machine back.
    pub rights: [u32; 4],
    /// Kind of its monitor, as [`crate::image::Header::monitors`] names it. It tells the instruction of hypercalls.
    pub monitors: u64,
    /// Microseconds within which each core is to move its progress word
    /// ([`bulkhead_monitor_abi::watch::Progress`]); 0: nobody looks, and there are no words.
    pub alive: u64,
    /// Most bytes of a snapshot ([`bulkhead_monitor_abi::snapshot`]); 0: the guest takes none.
    pub snapshot: u64,
    /// Padding.
    pub reserved: [u64; 50],
}

const _: () = assert!(size_of::<Window>() == 64);
const _: () = assert!(size_of::<Info>() == 4096);
