//! A ring of messages of any length.
//!
//! A message is one *record*: eight bytes of header, the message, zero to seven bytes up to the next multiple of
//! eight. A record never wraps around the ring's end, so that it can be written and read in place. Where it would, a
//! *skip* fills the rest, and the message stands at the beginning. So the longest message is half of the ring, less
//! its header; it always finds room once the ring is empty.

use crate::end::{End, Role};
use crate::layout::{DATA, Shape};
use crate::memory::{Bytes, Lane, Memory};
use crate::queue::{Slot, session};
use crate::{Misfit, Stop};

/// Bytes of a header: length (32 bits), then one of the next two.
const HEADER: u32 = 8;
/// A message.
const MESSAGE: u32 = 0x4843_454D;
/// Nothing, up to the ring's end.
const SKIP: u32 = 0x5049_4B53;

const fn header(kind: u32, len: u32) -> u64 {
    (kind as u64) << 32 | len as u64
}

/// Returns the length of the longest message in a ring of `bytes`.
#[must_use]
pub const fn longest(bytes: u32) -> u32 {
    ((bytes / 2) & !7).saturating_sub(HEADER)
}

/// Returns the size of a record. Its message is at most [`longest`].
const fn record(len: u32) -> u32 {
    HEADER + ((len + 7) & !7)
}

#[derive(Debug)]
#[cfg_attr(feature = "host", derive(Clone))]
struct Ring<M: Memory> {
    end: End<M>,
    data: M::Bytes,
    longest: u32,
}

impl<M: Memory> Ring<M> {
    fn open(mine: &M, theirs: &M, bytes: u32, role: Role) -> Result<Self, Misfit> {
        let shape = Shape::Records { bytes };
        let len = shape.data_bytes().ok_or(Misfit)?;
        let tx = if role == Role::Sender { mine } else { theirs };
        let data = tx.bytes(DATA, len).ok_or(Misfit)?;
        let end = End::open(mine, theirs, shape, role, HEADER)?;
        Ok(Self { end, data, longest: longest(bytes) })
    }

    /// Returns the offset of its units, in bytes: below the capacity.
    fn at(&self) -> usize {
        self.end.lane().at()
    }

    /// Returns the distance to the ring's end in bytes.
    fn tail(&self) -> u32 {
        self.end.capacity() - self.at() as u32
    }

    fn slot(&self, len: u32) -> Slot<'_, M> {
        let base = self.at() + HEADER as usize;
        Slot::new(&self.data, base, len as usize)
    }
}

/// The end that sends.
#[derive(Debug)]
#[cfg_attr(feature = "host", derive(Clone))]
pub struct Sender<M: Memory>(Ring<M>);

/// Room for a message.
#[derive(Debug)]
pub struct Room<'a, M: Memory> {
    ring: &'a mut Ring<M>,
    len: u32,
}

impl<M: Memory> Room<'_, M> {
    /// Returns the slot to write to.
    #[must_use]
    pub fn slot(&self) -> Slot<'_, M> {
        self.ring.slot(self.len)
    }

    /// Sends the first `len` bytes of it, at most all.
    pub fn send(self, len: usize) {
        let len = len.min(self.len as usize) as u32;
        self.ring.data.set_word(self.ring.at(), header(MESSAGE, len));
        self.ring.end.give(record(len));
    }
}

impl<M: Memory> Sender<M> {
    /// Opens the end: `mine` is `tx`, `theirs` is `rx`.
    ///
    /// # Errors
    /// If the regions are too small, or there is no such ring.
    pub fn open(mine: &M, theirs: &M, bytes: u32) -> Result<Self, Misfit> {
        Ring::open(mine, theirs, bytes, Role::Sender).map(Self)
    }

    /// Room for a message of up to `len` bytes.
    ///
    /// # Errors
    /// [`Stop::Size`] if it is longer than [`longest`], [`Stop::Wait`] if the ring has
    /// no room for it, and the others.
    pub fn reserve(&mut self, len: usize) -> Result<Room<'_, M>, Stop> {
        let ring = &mut self.0;
        let len = u32::try_from(len).ok().filter(|len| *len <= ring.longest).ok_or(Stop::Size)?;
        let (need, tail) = (record(len), ring.tail());
        let skip = if need <= tail { 0 } else { tail };
        if ring.end.own(skip + need)? < skip + need {
            return Err(Stop::Wait);
        }
        if skip > 0 {
            ring.data.set_word(ring.at(), header(SKIP, 0));
            ring.end.give(skip);
        }
        Ok(Room { ring, len })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// As [`Sender::reserve`].
    pub fn send(&mut self, message: &[u8]) -> Result<(), Stop> {
        let room = self.reserve(message.len())?;
        let _ = room.slot().write(0, message);
        room.send(message.len());
        Ok(())
    }
}

session!(Sender);

/// The end that receives.
#[derive(Debug)]
#[cfg_attr(feature = "host", derive(Clone))]
pub struct Receiver<M: Memory>(Ring<M>);

/// A message where it lies.
#[derive(Debug)]
pub struct Message<'a, M: Memory> {
    ring: &'a mut Ring<M>,
    len: u32,
}

impl<M: Memory> Message<'_, M> {
    /// Returns the slot to read from.
    #[must_use]
    pub fn slot(&self) -> Slot<'_, M> {
        self.ring.slot(self.len)
    }

    /// Gives its room back.
    pub fn release(self) {
        self.ring.end.give(record(self.len));
    }
}

impl<M: Memory> Receiver<M> {
    /// Opens the end: `mine` is `rx`, `theirs` is `tx`.
    ///
    /// # Errors
    /// If the regions are too small, or there is no such ring.
    pub fn open(mine: &M, theirs: &M, bytes: u32) -> Result<Self, Misfit> {
        Ring::open(mine, theirs, bytes, Role::Receiver).map(Self)
    }

    /// Returns the oldest message, where it lies.
    ///
    /// # Errors
    /// [`Stop::Wait`] if there is no message; [`Stop::Corrupted`] also if a header is impossible.
    pub fn peek(&mut self) -> Result<Message<'_, M>, Stop> {
        let ring = &mut self.0;
        let mut owned = ring.end.own(1)?;
        let mut word = ring.data.word(ring.at());
        if word == header(SKIP, 0) && ring.at() > 0 && ring.tail() <= owned {
            ring.end.give(ring.tail());
            // A sender that has skipped may not have sent yet.
            owned = ring.end.own(1)?;
            word = ring.data.word(ring.at());
        }
        // The header was read once: the message's length is this, whatever stands there later.
        let len = word as u32;
        let fits = (word >> 32) as u32 == MESSAGE && len <= ring.longest;
        if !fits || record(len) > owned || record(len) > ring.tail() {
            return Err(ring.end.corrupted());
        }
        Ok(Message { ring, len })
    }

    /// Copies the oldest message out; its length in bytes.
    ///
    /// # Errors
    /// [`Stop::Size`] if it is longer than the buffer: it stays. And as [`Receiver::peek`].
    pub fn receive(&mut self, to: &mut [u8]) -> Result<usize, Stop> {
        let message = self.peek()?;
        let len = message.len as usize;
        let to = to.get_mut(..len).ok_or(Stop::Size)?;
        let _ = message.slot().read(0, to);
        message.release();
        Ok(len)
    }
}

session!(Receiver);
