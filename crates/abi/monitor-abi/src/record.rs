//! Launch records: what has to be done to memory before a guest runs. The first launch and every restart play one
//! record.

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

/// Memory as a launch record sees it. Ranges were checked when the record was
/// made and when the machine booted; an implementation need not check again.
pub trait RecordMemory {
    /// Fills `len` bytes with zeros.
    fn zero(&mut self, dst: u64, len: u64);
    /// Copies `len` bytes; the ranges do not overlap.
    fn copy(&mut self, dst: u64, src: u64, len: u64);
    /// Stores one value.
    fn store(&mut self, dst: u64, value: u64);
}

/// Plays a launch record, `base` added to every destination.
#[inline]
pub fn play(memory: &mut impl RecordMemory, ops: &[Op], base: u64) {
    for op in ops {
        let dst = base.wrapping_add(op.dst);
        match op.kind {
            Op::ZERO => memory.zero(dst, op.len),
            Op::COPY => memory.copy(dst, op.src, op.len),
            _ => memory.store(dst, op.src),
        }
    }
}
