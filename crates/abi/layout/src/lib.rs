//! The layouts that host, boot code, monitors and guests share: one definition for each.
//!
//! The host bakes an *image*: boot code, one monitor with its tables for each
//! sandbox, the pristine guests, and the [`image::Header`] that describes them.
//! Every table lies in the image at its final physical address, so nothing is
//! built on the target. Integers are little-endian, offsets are from the start
//! of the image, `pa` is a host-physical, `gpa` a guest-physical, `va` a
//! monitor-virtual address.
#![no_std]

pub mod ivshmem;
pub mod marker;
pub mod monitor;
pub mod party;
pub mod report;
pub mod sign;
pub mod spin;
pub mod telemetry;
pub mod x86;

pub use bulkhead_handover::{image, info, map};
pub use bulkhead_monitor_abi::{
    MAX_CORES, MAX_SANDBOXES, PAGE, bell, debug, hypercall, ladder, link, load, lock, mmio, mutant,
    need, pci, peer, record, role, snapshot, watch,
};
