//! Channels between sandboxes, portable: the words that two ends keep in their shared memory, and how they read them.
//!
//! A channel of one sender and one receiver has two regions. The sender writes `tx`, the receiver writes `rx`, and
//! each can only read the other's. The tables of the machine make sure of it, so an end never stores into its peer's
//! region. Where several receive, each has a pair of its own.
//!
//! * [`queue`]: messages of one size; [`records`]: messages of any length;
//! * [`mailbox`]: the newest state, wait-free for both;
//! * raw pages need nothing but [`Memory::bytes`];
//! * [`bell`]: waking a receiver that sleeps; [`adaptive`]: how long to spin before.
//!
//! These stay true, whatever the peer writes. Nothing panics, and no access leaves the region. Every call ends after
//! a number of steps that does not depend on the peer. An impossible index is told once ([`Stop::Corrupted`]). A word
//! of the peer is read once, and that copy is used. `docs/channels.md` has the protocol on one page, with the reason
//! for each memory order.
#![no_std]

#[cfg(any(test, feature = "host"))]
extern crate alloc;

pub mod adaptive;
pub mod bell;
mod end;
#[cfg(any(test, feature = "host"))]
pub mod host;
pub mod layout;
pub mod mailbox;
mod memory;
pub mod page;
pub mod queue;
pub mod records;

pub use memory::{BLOCK, Bytes, Lane, Memory, Offsets, Word, fits};

/// Why an operation was not done. Only [`Stop::Size`] and [`Stop::Wait`] belong to the
/// operation; the others are news of the peer, and the next call goes on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// The ring is full or empty, or nothing new was written: later.
    Wait,
    /// The message is longer than the channel's, or the buffer shorter than the message.
    Size,
    /// No peer has agreed to a session yet.
    Apart,
    /// The peer's region belongs to another kind, size or version of channel.
    Foreign,
    /// Told once: the peer began anew. Messages under way are lost.
    Lost,
    /// Told once: the peer has closed, and all its earlier messages were read.
    Left,
    /// Told once in a session: the peer's index is impossible. The end has left the session;
    /// `reset` begins another one.
    Corrupted,
    /// This end is closed, or has left after [`Stop::Corrupted`].
    Closed,
}

/// The memory does not hold a channel of this shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit;
