//! Networks over channels. Two channels of records, one each way, are a [`Wire`] that carries frames. A [`Station`]
//! is a wire that `smoltcp` uses as a network device. A [`Switch`] chooses the wires for a frame, [`Pinned`] does so
//! where each address is known beforehand, and a [`Pinger`] knows its answers. A [`Relay`] carries frames between
//! programs of one kernel.
//!
//! A frame is a message: an Ethernet frame without its check sequence, or an IP packet, as the two ends agree. A
//! Linux's `bhchannel net` carries IP packets.
//!
//! Nothing here waits, and nothing trusts a peer: a frame is copied once, then looked at. A frame that is too long,
//! or finds no room, is dropped and counted, as on any wire.
#![cfg_attr(not(test), no_std)]

mod ping;
mod pinned;
mod relay;
mod station;
mod switch;
mod wire;

pub use ping::Pinger;
pub use pinned::{ETHERNET, Limit, OUTSIDE, Pinned};
pub use relay::{RECENT, REGION, Relay, Relayed, Relayer};
pub use station::Station;
pub use switch::{Mac, Refused, Switch};
pub use wire::{Counts, FRAME, Silent, Wire};
