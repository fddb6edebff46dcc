//! Networks over channels. Two channels of records, one each way, are a [`Wire`] that carries frames; a [`Station`] is
//! one to which `smoltcp` speaks as to a network device, a [`Switch`] says to which of several wires a frame goes, and
//! a [`Pinger`] knows its answers.
//!
//! A frame is a message: an Ethernet frame without its check sequence, or an IP packet, as the two ends agree. A
//! Linux's `bhchannel net` carries IP packets.
//!
//! Nothing here waits, and nothing trusts a peer: a frame is copied once, then looked at; one that is
//! too long, and one that finds no room, is dropped and counted, as on any wire.
#![cfg_attr(not(test), no_std)]

mod ping;
mod station;
mod switch;
mod wire;

pub use ping::Pinger;
pub use station::Station;
pub use switch::{Mac, Refused, Switch};
pub use wire::{Counts, FRAME, Silent, Wire};
