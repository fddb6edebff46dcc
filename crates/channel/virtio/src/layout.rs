//! Layout of the two sections of a channel of kind `virtio`. A test compares it with the C header of the driver's
//! side (`linux/module/layout.h`).
//!
//! | driver's section | device's section | |
//! |---|---|---|
//! | [`HELLO`], [`ARMED`] | [`HELLO`], [`ARMED`] | as in every channel ([`bulkhead_channel::layout`]) |
//! | [`STATUS`], [`ACCEPTED`], [`SIZES`] | [`DEVICE`], [`OFFERED`], [`CONFIG_WORD`], [`SIZES`], [`CONFIG`] | registers of an ordinary device |
//! | [`desc`], [`avail`] of each queue | [`used`] of each queue | a split virtqueue (virtio 1.2, 2.7), each part with its writer |
//! | from [`POOL`] on buffers that the device reads | from [`POOL`] on buffers that the device writes | the driver allocates both |
//!
//! An address in a descriptor counts from the driver's section on, behind which the device's lies. A chain has at
//! most two descriptors: one that is read, then one that is written.

pub use bulkhead_channel::layout::{ARMED, HELLO};

/// Device's section: kind of device (virtio 1.2, 5), and in the upper half how many queues it has.
pub const DEVICE: usize = 512;
/// Driver's section: the device status (virtio 1.2, 2.1); 0 until the driver has set itself up.
pub const STATUS: usize = 512;
/// Device's section: features that it offers.
pub const OFFERED: usize = 520;
/// Driver's section: features that it has accepted.
pub const ACCEPTED: usize = 520;
/// Device's section: bytes of its configuration, and in the upper half a number that changes with it.
pub const CONFIG_WORD: usize = 528;
/// Sizes of the queues, 16 bits each. The device's section has the offered, the driver's section the used ones; 0: no
/// queue.
pub const SIZES: usize = 536;
/// Device's section: configuration.
pub const CONFIG: usize = 768;
/// Bytes of it, at most.
pub const CONFIG_LEN: usize = 256;

/// Queues of a device, at most.
pub const QUEUES: usize = 4;
/// Descriptors of a queue, at most.
pub const NUM: usize = 256;
/// First offset at which the driver allocates buffers.
pub const POOL: usize = PAGE * (1 + 2 * QUEUES);

const PAGE: usize = 4096;

/// Returns the offset of a queue's descriptors, in the driver's section.
#[must_use]
pub const fn desc(queue: usize) -> usize {
    PAGE * (1 + 2 * queue)
}

/// Returns the offset of a queue's available ring, in the driver's section.
#[must_use]
pub const fn avail(queue: usize) -> usize {
    PAGE * (2 + 2 * queue)
}

/// Returns the offset of a queue's used ring, in the device's section.
#[must_use]
pub const fn used(queue: usize) -> usize {
    PAGE * (1 + queue)
}

/// A feature: virtio 1.0 or later.
pub const VERSION_1: u64 = 1 << 32;
/// In the status: the driver is ready.
pub const DRIVER_OK: u64 = 4;
/// In the status: the driver has given up on the device, because of an answer that cannot be.
pub const FAILED: u64 = 128;
/// A descriptor's flag: the next one goes on.
pub const NEXT: u16 = 1;
/// A descriptor's flag: the device writes.
pub const WRITE: u16 = 2;
