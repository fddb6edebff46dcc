//! Bridges a network card and its clients in other sandboxes: portable, without `unsafe`. A client has a virtio network
//! card over a channel, or a wire of two channels of records.
//!
//! **Copies.** The card reads a virtio client's frame out of the channel itself, but for the Ethernet header. That is
//! copied and checked, and the card gets the copy. A frame that comes is copied once into a virtio client's section. A
//! wire's frame is copied twice each way, because the card cannot reach channels of records. A frame between two
//! clients, or to several, is copied once, and once more for each of them.
//!
//! **Fairness.** A client's words are claims.
//!
//! * Its address is pinned to its port ([`Pinned`](bulkhead_net::Pinned)), and its frames to all have a limit.
//! * It has a share of the card's places, and of each round. The others' places are always free for them.
//! * A client without room for a frame loses that, and no other client waits. The card's buffers go back to the card at
//!   once, so nobody can keep them.
//! * A client that begins anew is answered when the card has sent all frames of its last session. So the card reads no
//!   buffer of the new one for them. A card that does not send is reset after a time.
#![no_std]
#![forbid(unsafe_code)]

mod client;
mod gate;

pub use bulkhead_virtio::{News, Sections};
pub use client::{Client, Counts};
pub use gate::{Gate, Terms};

/// Bytes of the longest frame that passes: an Ethernet header, a tag, and the 1,500 bytes of a packet.
pub const FRAME: usize = 1518;
