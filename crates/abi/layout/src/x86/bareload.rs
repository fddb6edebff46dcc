//! The flat file that harness/bare/src/bin/bareload.rs loads. So a guest made for a sandbox also starts on the bare
//! machine, from its usual bytes and addresses. [`Header`], then [`Piece`]s, then their bytes.

use crate::image::Range;
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `"BHBARE01"`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BHBARE01");
/// The loader and its input lie from here on: no guest memory may.
pub const LOADER_PA: u64 = 0x6000_0000;

/// How to start.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// Pieces that follow.
    pub pieces: u64,
    /// Memory that is zeroed first, below [`LOADER_PA`]; length 0: none.
    pub zero: [Range; 2],
    /// Page tables, loaded to CR3: 64-bit mode, as a sandbox's first core has it.
    pub cr3: u64,
    /// Descriptor table: 0x10 is the code, 0x18 the data segment.
    pub gdt: u64,
    /// Limit of the descriptor table.
    pub gdt_limit: u64,
    /// First instruction.
    pub rip: u64,
    /// Stack.
    pub rsp: u64,
    /// RDI and RSI.
    pub rdi: u64,
    /// See `rdi`.
    pub rsi: u64,
}

/// Bytes for an address.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Piece {
    /// Where they go.
    pub gpa: u64,
    /// How many.
    pub len: u64,
    /// Where they are, from the header's start.
    pub offset: u64,
}

const _: () = assert!(size_of::<Header>() == 104);
const _: () = assert!(size_of::<Piece>() == 24);
