use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Words of a message that lie in the [`Buffer`].
pub const BUFFER_WORDS: usize = 60;

/// A thread's part of longer messages: a piece of one of its frames that the kernel knows,
/// aligned to its size.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(512))]
pub struct Buffer {
    /// The fifth word of a message, and those after it.
    pub words: [u64; BUFFER_WORDS],
    /// To be sent along: an [`crate::Address`].
    pub cap: u64,
    /// Where one that comes is to be put: the [`crate::Address`] of an empty slot; 0 takes none.
    pub receive: u64,
    /// For whoever writes the next version.
    pub reserved: [u64; 2],
}

const _: () = assert!(size_of::<Buffer>() == 512);
