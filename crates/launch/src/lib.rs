//! The launch, without a processor in it: the check of a compiled manifest, the
//! order in which cores enter their monitors, and the player of launch records
//! that the first launch and every restart share
//! ([`bulkhead_resident::record`]; docs/decisions/0006-launch-record.md).
#![no_std]

pub mod lines;
mod sequence;
mod verify;

pub use bulkhead_resident::record::{Op, RecordMemory, play};
pub use sequence::{start_cores, start_of};
pub use verify::{Error, Image, verify, words};
