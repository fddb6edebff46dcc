use crate::Name;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `"BHPROGRM"`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BHPROGRM");
/// Bytes of a name, padded with zeros.
pub const NAME: usize = 32;
/// Most names that a program has.
pub const MAX_NAMES: usize = 58;
/// Bytes of arguments.
pub const ARGS: usize = 256;

/// The clock of a core, read-only for all programs.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Clock {
    /// Nanoseconds of a tick, with 32 fraction bits. The kernel's time is the processor's counter times this.
    pub nanos: u64,
    /// Ticks of a second.
    pub hz: u64,
}

/// Load that the manifest has admitted on a core, for programs that may give out its time. All others know the overhead
/// only.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Load {
    /// The sum of C/T over servers, with what the kernel spends on them, and of (2-U)·U over PIBS
    /// contexts, in parts of 2^-40.
    pub share: u64,
    /// How many servers these are.
    pub servers: u32,
    /// Time that the kernel charges a context for an activation, ns.
    pub overhead: u32,
}

/// The read-only page that tells a program about itself. Its threads get its address as their first argument, and
/// their own number as the second one.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub struct Page {
    /// [`MAGIC`].
    pub magic: u64,
    /// Its name.
    pub name: [u8; NAME],
    /// Where its [`Clock`] is.
    pub clock: u64,
    /// Where the [`crate::Buffer`]s of its threads are, side by side in the order of the threads' numbers.
    pub buffers: u64,
    /// First byte of its heap, or 0.
    pub heap: u64,
    /// Bytes of its heap.
    pub heap_len: u64,
    /// Empty slots for its own use: the first one, and one past the last.
    pub free: [u32; 2],
    /// How many names there are.
    pub names: u64,
    /// Arguments, padded with zeros.
    pub args: [u8; ARGS],
    /// Names of the objects that it may use.
    pub name_of: [Name; MAX_NAMES],
    /// Load of its core's contexts, if it was given its core's time; else zero.
    pub load: Load,
    /// Index of its sandbox, and how many there are.
    pub sandbox: [u32; 2],
    /// Where the progress word of its core is, if it is the program that moves it; else 0.
    pub progress: u64,
    /// Time from a move of it to the next, at most, ns.
    pub alive: u64,
}

const _: () = assert!(size_of::<Page>() == 4096);

impl Page {
    /// Returns all names of the program.
    #[must_use]
    pub fn names(&self) -> &[Name] {
        &self.name_of[..(self.names as usize).min(MAX_NAMES)]
    }
}

/// Slots of a program's root node that all programs share. Names follow from
/// [`slot::FIRST`] on.
pub mod slot {
    /// Its root node.
    pub const NODE: u32 = 1;
    /// Its address space.
    pub const SPACE: u32 = 2;
    /// The sandbox.
    pub const SANDBOX: u32 = 3;
    /// Its core's time, if it was given that.
    pub const CONTROL: u32 = 4;
    /// Memory for objects, if it was given some.
    pub const MEMORY: u32 = 5;
    /// The first of those that have names.
    pub const FIRST: u32 = 8;
}

/// Where things lie in every program.
pub mod at {
    /// The program's page.
    pub const PAGE: u64 = 0x10_0000;
    /// The clock's page.
    pub const CLOCK: u64 = 0x10_1000;
    /// Progress words of its sandbox.
    pub const PROGRESS: u64 = 0x10_2000;
    /// Words of its sandbox' roles.
    pub const ROLES: u64 = 0x10_3000;
    /// Buffers of its threads.
    pub const BUFFERS: u64 = 0x11_0000;
    /// Stacks, each above a page that is missing.
    pub const STACKS: u64 = 0x12_0000;
    /// Where stacks have to end: the lowest address of programs.
    pub const PROGRAM: u64 = 0x40_0000;
    /// Heap.
    pub const HEAP: u64 = 0x1_0000_0000;
    /// Shared memory, one behind the other.
    pub const SHARED: u64 = 0x2_0000_0000;
    /// Channels, likewise.
    pub const CHANNELS: u64 = 0x3_0000_0000;
    /// Devices' registers, likewise.
    pub const DEVICES: u64 = 0x4_0000_0000;
    /// Links, by number: of programs that have one. Nothing else can be mapped there.
    pub const LINKS: u64 = 0x5_0000_0000;
    /// Bytes for each of them: what one table maps.
    pub const LINK: u64 = 0x20_0000;
    /// One past the last of them.
    pub const LINKS_END: u64 = LINKS + 32 * LINK;
    /// From here on nothing is mapped but by the program itself.
    pub const OWN: u64 = 0x100_0000_0000;
}
