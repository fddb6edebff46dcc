//! Drivers of disks behind [`bulkhead_store::disk::Disk`]: portable, without `unsafe`. A bare guest and a program of
//! the kernel drive the hardware with them.
//!
//! * A driver reaches its device by [`Registers`], [`Memory`] and [`Clock`]. The caller finds the function, lets it
//!   access memory, and sets up its interrupt.
//! * The device's words are claims: read once, checked, then used. An impossible one makes the disk silent until
//!   [`Disk::reset`](bulkhead_store::disk::Disk::reset). Its requests stay under way until then, as with a device that
//!   hangs; `fault` says why.
//! * A request that the disk cannot carry out fails without its help. Only setting up, a reset and the error of an AHCI
//!   port wait, with a limit.
//! * Each register that is accessed lies within [`Registers::bytes`], at a multiple of its size.
#![no_std]
#![forbid(unsafe_code)]

pub mod ahci;
mod flights;
pub mod nvme;
pub mod virtio_blk;

pub use ahci::Ahci;
pub use bulkhead_device::{Clock, Configuration, Memory, Registers, Wrong};
pub use nvme::Nvme;
pub use virtio_blk::VirtioBlk;

use bulkhead_store::disk::Info;

/// Returns why a disk that was reset is of no use, if it is not: it did not start, or is another one.
fn useless(old: &Info, started: Result<Info, Wrong>) -> Option<Wrong> {
    match started {
        Ok(info) if info == *old => None,
        Ok(_) => Some(Wrong::Lies("description that a reset changes")),
        Err(wrong) => Some(wrong),
    }
}
