//! Serves virtio block devices to clients in other sandboxes, from parts of one disk: portable, without `unsafe`.
//!
//! No data is copied. The disk reads and writes the buffers of a client's channel, by their bus addresses. The store
//! itself reads a header of 16 bytes for each request, once, and writes its status, a byte.
//!
//! * A client's words are claims. A request beyond its share fails; a chain that cannot be ends that client's session.
//! * Each client has `share` requests a round, in turn, and never all places of the disk.
//! * A client that begins anew is answered when the disk has finished all requests of its last session. So no late
//!   write comes to a buffer of the new session.
//! * A disk that is silent for too long is reset, and gets the requests under way again, in their order.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod client;
pub mod disk;
mod store;

pub use bulkhead_virtio::block::{DEVICE, feature};
pub use bulkhead_virtio::{News, Sections};
pub use client::{Client, Share};
pub use store::{Store, Terms};
