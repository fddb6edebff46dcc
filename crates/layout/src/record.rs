//! Launch records: what has to be done to memory before a guest runs. The first
//! launch and every restart play the same record.

#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One step of a launch record. Addresses are monitor-virtual, multiples of 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Op {
    /// One of [`Op::ZERO`], [`Op::COPY`], [`Op::STORE`].
    pub kind: u64,
    /// First byte written.
    pub dst: u64,
    /// `COPY`: first byte read; `STORE`: the 64-bit value.
    pub src: u64,
    /// Bytes written, a multiple of 8; `STORE`: 8.
    pub len: u64,
}

impl Op {
    /// Fill with zero bytes.
    pub const ZERO: u64 = 1;
    /// Copy from the pristine guest.
    pub const COPY: u64 = 2;
    /// Store one 64-bit value.
    pub const STORE: u64 = 3;
}

const _: () = assert!(size_of::<Op>() == 32);
