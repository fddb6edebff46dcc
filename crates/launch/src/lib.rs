//! The launch, without a processor in it: the check of a compiled manifest, the
//! order in which cores enter their monitors, and the player of launch records
//! that the first launch and every restart share
//! (docs/decisions/0006-launch-record.md).
#![no_std]

mod sequence;
mod verify;

pub use sequence::{start_cores, start_of};
pub use verify::{Error, Image, verify, words};

use bulkhead_arch::RecordMemory;
use bulkhead_layout::record::Op;

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
