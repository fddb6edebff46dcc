//! The launch, without a processor in it. It checks a compiled manifest, orders the cores' entries into their monitors,
//! and plays launch records ([`bulkhead_monitor_abi::record`]; docs/decisions/0006-launch-record.md). The first launch
//! and every restart share the player.
#![no_std]

mod sequence;
mod verify;
pub mod x86;

pub use bulkhead_monitor_abi::record::{Op, RecordMemory, play};
pub use sequence::{start_cores, start_of};
pub use verify::{Error, Image, Own, verify, verify_moved, words};
