//! Drivers of network cards behind [`Card`]: portable, without `unsafe`.
//!
//! * A driver reaches its card by [`Registers`], [`Memory`] and [`Clock`]. The caller finds the function, lets it
//!   access memory, and sets up its interrupt.
//! * The card receives into the driver's memory. It sends from there, or most of a frame from a bus address that the
//!   caller names. The headers of a frame that is sent lie in the driver's memory in any case.
//! * The card's words are claims: read once, checked, then used. An impossible one makes the card silent until
//!   [`Card::reset`]; [`Card::fault`] says why.
//! * Only setting up and a reset wait, with a limit.
#![no_std]
#![forbid(unsafe_code)]

mod buffers;
pub mod e1000e;
pub mod strict;
pub mod virtio_net;

pub use buffers::{HEADER, LONGEST, MEMORY, PLACES};
pub use bulkhead_device::{Clock, Configuration, Memory, Registers, Wrong};
pub use e1000e::E1000e;
pub use strict::StrictNet;
pub use virtio_net::VirtioNet;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// A frame that has come, in one of the card's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Number of the buffer.
    pub buffer: u16,
    /// Bytes of the frame.
    pub len: usize,
}

/// A card.
pub trait Card {
    /// Returns the card's own address.
    fn mac(&self) -> Mac;
    /// Tells if there is a network at its other end, as far as it knows.
    fn link(&self) -> bool;
    /// Takes a frame to send, and returns its place; `None`: there is none free, or it is too long. The frame is
    /// `head`, then so many bytes from a bus address. The card sees it after [`Card::ring`].
    fn send(&mut self, head: &[u8], rest: Option<(u64, u32)>) -> Option<u16>;
    /// Returns the place of a frame that was sent.
    fn sent(&mut self) -> Option<u16>;
    /// Returns the oldest frame that has come. Its buffer is the caller's until [`Card::give_back`].
    fn receive(&mut self) -> Option<Received>;
    /// Returns eight bytes of a buffer at a multiple of eight. A frame begins at [`HEADER`].
    fn read(&self, buffer: u16, at: usize) -> u64;
    /// Lets the card receive into a buffer again. It sees that after [`Card::ring`].
    fn give_back(&mut self, buffer: u16);
    /// Tells the card of all frames taken and buffers given back.
    fn ring(&mut self);
    /// Asks the card to interrupt, or not to; it may do so anyway. A look for news follows before the caller sleeps.
    fn interrupts(&mut self, wanted: bool);
    /// Resets the card, in bounded time. Afterwards it has no frame, accesses no memory for those taken before, and is
    /// ready.
    ///
    /// # Errors
    /// It does not answer, or is another one.
    fn reset(&mut self) -> Result<(), Wrong>;
    /// Looks if the card says that it has failed.
    fn check(&mut self);
    /// Returns why the card is silent, if it is.
    fn fault(&self) -> Option<Wrong>;
}
