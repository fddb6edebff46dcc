//! A ring of messages of one size.
//!
//! By copy: [`Sender::send`], [`Receiver::receive`]. In place, and many at once:
//! [`Sender::reserve`] and [`Receiver::peek`] give a [`Batch`] of slots, of which a
//! number is committed or released by one store.

use crate::end::{End, Role};
use crate::layout::{DATA, Shape};
use crate::memory::{BLOCK, Bytes, Lane, Memory};
use crate::{Misfit, Stop};
use core::marker::PhantomData;

/// The parts of either end.
#[derive(Debug)]
#[cfg_attr(feature = "host", derive(Clone))]
struct Ring<M: Memory> {
    end: End<M>,
    data: M::Bytes,
    size: usize,
    stride: usize,
}

impl<M: Memory> Ring<M> {
    fn open([mine, theirs]: [&M; 2], [slots, size]: [u32; 2], role: Role) -> Result<Self, Misfit> {
        let shape = Shape::Queue { slots, size };
        let (len, stride) = (shape.data_bytes().ok_or(Misfit)?, shape.stride().ok_or(Misfit)?);
        let tx = if role == Role::Sender { mine } else { theirs };
        let data = tx.bytes(DATA, len).ok_or(Misfit)?;
        let end = End::open(mine, theirs, shape, role, 1)?;
        Ok(Self { end, data, size: size as usize, stride })
    }

    fn batch(&mut self, want: u32) -> Result<Batch<'_, M>, Stop> {
        let owned = self.end.own(want.max(1))?;
        Ok(Batch { len: owned.min(want), ring: self })
    }
}

/// One slot in this end's hands.
#[derive(Debug)]
pub struct Held<'a, M: Memory> {
    ring: &'a mut Ring<M>,
    /// The index that gives it.
    after: u32,
}

impl<M: Memory> Held<'_, M> {
    /// Returns the lane at which it lies; [`Held::len`] bytes follow.
    #[inline(always)]
    #[must_use]
    pub const fn lane(&self) -> &M::Lane {
        self.ring.end.lane()
    }

    /// It, to be written or read where it lies.
    #[inline(always)]
    #[must_use]
    pub fn slot(&self) -> Slot<'_, M> {
        Slot::new(&self.ring.data, self.lane().at(), self.ring.size)
    }

    /// Returns the length of its message in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ring.size
    }

    /// Tells if it has no bytes, which happens in no queue.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ring.size == 0
    }

    /// Gives it to the peer: sends or releases it.
    #[inline(always)]
    pub fn give(self) {
        self.ring.end.give_one(self.after);
    }
}

/// Slots in this end's hands.
#[derive(Debug)]
pub struct Batch<'a, M: Memory> {
    ring: &'a mut Ring<M>,
    len: u32,
}

impl<M: Memory> Batch<'_, M> {
    /// Returns the number of its messages.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Tells if it has no messages.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a message's slot; `None` from [`Batch::len`] on.
    #[inline]
    #[must_use]
    pub fn slot(&self, n: u32) -> Option<Slot<'_, M>> {
        self.slots().nth(n as usize)
    }

    /// Returns all of them, the oldest first.
    #[inline]
    #[must_use]
    pub fn slots(&self) -> Slots<'_, M> {
        let Ring { end, data, size, stride } = &*self.ring;
        let (base, end) = (end.lane().at(), end.capacity() as usize * stride);
        let (data, life) = (data.clone(), PhantomData);
        Slots { data, base, end, stride: *stride, size: *size, left: self.len, life }
    }

    /// Gives the first `n` of them to the peer, by one store: sends or releases them.
    #[inline]
    pub fn give(self, n: u32) {
        self.ring.end.give(n.min(self.len));
    }
}

/// The slots of a batch, one after the other.
#[derive(Debug)]
pub struct Slots<'a, M: Memory> {
    // A copy, so that writes to the messages cannot change it.
    data: M::Bytes,
    base: usize,
    /// End of the ring, after which it goes on at the beginning.
    end: usize,
    stride: usize,
    size: usize,
    left: u32,
    life: PhantomData<&'a ()>,
}

impl<'a, M: Memory> Iterator for Slots<'a, M> {
    type Item = Slot<'a, M>;

    #[inline]
    fn next(&mut self) -> Option<Slot<'a, M>> {
        self.left = self.left.checked_sub(1)?;
        let slot = Slot::new(&self.data, self.base, self.size);
        self.base += self.stride;
        if self.base >= self.end {
            self.base = 0;
        }
        Some(slot)
    }

    #[inline]
    fn nth(&mut self, n: usize) -> Option<Slot<'a, M>> {
        if n >= self.left as usize {
            self.left = 0;
            return None;
        }
        // Both are below the capacity; an offset can count twice its bytes.
        self.base += n * self.stride;
        if self.base >= self.end {
            self.base -= self.end;
        }
        self.left -= n as u32;
        self.next()
    }
}

/// A message where it lies. A hostile peer can change its bytes at any time: read each value once.
#[derive(Debug)]
pub struct Slot<'a, M: Memory> {
    data: M::Bytes,
    base: usize,
    len: usize,
    life: PhantomData<&'a ()>,
}

impl<M: Memory> Slot<'_, M> {
    #[inline]
    pub(crate) fn new(data: &M::Bytes, base: usize, len: usize) -> Self {
        Self { data: data.clone(), base, len, life: PhantomData }
    }

    /// Returns the length of the message in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Tells if it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns its offset from the first of the ring's bytes, for readers and writers by other means.
    #[must_use]
    pub const fn at(&self) -> usize {
        self.base
    }

    fn inside(&self, at: usize, len: usize) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Copies a part out; false if it would leave the message.
    #[inline]
    #[must_use]
    pub fn read(&self, at: usize, to: &mut [u8]) -> bool {
        self.inside(at, to.len()) && self.data.read(self.base + at, to)
    }

    /// Copies a part in (the sender's); false if it would leave the message.
    #[inline]
    #[must_use]
    pub fn write(&self, at: usize, from: &[u8]) -> bool {
        self.inside(at, from.len()) && self.data.write(self.base + at, from)
    }

    /// Eight bytes at a multiple of eight; 0 outside of the message.
    #[inline]
    #[must_use]
    pub fn word(&self, at: usize) -> u64 {
        if self.inside(at, 8) { self.data.word(self.base + at) } else { 0 }
    }

    /// Writes eight bytes at a multiple of eight; nothing outside of the message.
    #[inline]
    pub fn set_word(&self, at: usize, value: u64) {
        if self.inside(at, 8) {
            self.data.set_word(self.base + at, value);
        }
    }

    /// Returns the message's whole blocks of [`BLOCK`] words, one after the other: the fastest way to read it where it
    /// lies. Behind them there may be up to 63 bytes for [`Slot::word`] and [`Slot::read`].
    #[inline]
    pub fn blocks(&self) -> impl Iterator<Item = [u64; BLOCK]> {
        self.data.blocks(self.base, self.len / (8 * BLOCK))
    }

    /// Writes the message's whole blocks: `block` makes each from its number, from 0 on.
    #[inline]
    pub fn fill(&self, block: impl FnMut(usize) -> [u64; BLOCK]) {
        self.data.fill(self.base, self.len / (8 * BLOCK), block);
    }
}

/// Functions of both ends for their session.
macro_rules! session {
    ($of:ident) => {
        impl<M: Memory> $of<M> {
            /// Goes on with the agreement and says if there is a session. Every other call does so, too.
            ///
            /// # Errors
            /// The reason why there is no session, or news of the peer.
            pub fn attend(&mut self) -> Result<(), Stop> {
                self.0.end.attend()
            }

            /// Leaves the session, if there is one, and offers another.
            pub fn reset(&mut self) {
                self.0.end.reset();
            }

            /// Leaves. The peer can still read the messages that were sent, then it is told.
            pub fn close(&mut self) {
                self.0.end.close();
            }

            /// Returns the number of this end's session.
            #[must_use]
            pub const fn epoch(&self) -> u32 {
                self.0.end.epoch()
            }
        }
    };
}
pub(crate) use session;

/// The end that sends.
#[derive(Debug)]
#[cfg_attr(feature = "host", derive(Clone))]
pub struct Sender<M: Memory>(Ring<M>);

impl<M: Memory> Sender<M> {
    /// Opens the end: `mine` is `tx`, `theirs` is `rx`.
    ///
    /// # Errors
    /// If the regions are too small, or there is no such queue.
    pub fn open(mine: &M, theirs: &M, slots: u32, size: u32) -> Result<Self, Misfit> {
        Ring::open([mine, theirs], [slots, size], Role::Sender).map(Self)
    }

    /// Sends a message; if it is shorter than the slot, the slot's old bytes follow it.
    ///
    /// # Errors
    /// [`Stop::Wait`] if the ring is full, and the others.
    #[inline]
    pub fn send(&mut self, message: &[u8]) -> Result<(), Stop> {
        let ring = &mut self.0;
        if message.len() > ring.size {
            return Err(Stop::Size);
        }
        ring.end.own(1)?;
        let after = ring.end.after();
        // Inside: a lane keeps to its ring.
        let _ = ring.data.write(ring.end.lane().at(), message);
        ring.end.give_one(after);
        Ok(())
    }

    /// Reserves the next free slot, for one message in place. [`Sender::reserve`] does so for many, with more to
    /// count. The slot may hold anything.
    ///
    /// # Errors
    /// As [`Sender::send`].
    #[inline(always)]
    pub fn hold(&mut self) -> Result<Held<'_, M>, Stop> {
        self.0.end.own(1)?;
        let after = self.0.end.after();
        Ok(Held { ring: &mut self.0, after })
    }

    /// Reserves up to `want` free slots, at least one. They may hold anything, also old messages of this sender.
    ///
    /// # Errors
    /// As [`Sender::send`].
    #[inline]
    pub fn reserve(&mut self, want: u32) -> Result<Batch<'_, M>, Stop> {
        self.0.batch(want)
    }
}

session!(Sender);

/// The end that receives.
#[derive(Debug)]
#[cfg_attr(feature = "host", derive(Clone))]
pub struct Receiver<M: Memory>(Ring<M>);

impl<M: Memory> Receiver<M> {
    /// Opens the end: `mine` is `rx`, `theirs` is `tx`.
    ///
    /// # Errors
    /// If the regions are too small, or there is no such queue.
    pub fn open(mine: &M, theirs: &M, slots: u32, size: u32) -> Result<Self, Misfit> {
        Ring::open([mine, theirs], [slots, size], Role::Receiver).map(Self)
    }

    /// Copies the oldest message out; its first bytes, if the buffer is shorter.
    ///
    /// # Errors
    /// [`Stop::Wait`] if there is no message, [`Stop::Size`] if the buffer is longer than a message, and the others.
    #[inline]
    pub fn receive(&mut self, to: &mut [u8]) -> Result<(), Stop> {
        let ring = &mut self.0;
        if to.len() > ring.size {
            return Err(Stop::Size);
        }
        let after = ring.end.one()?;
        let _ = ring.data.read(ring.end.lane().at(), to);
        ring.end.give_one(after);
        Ok(())
    }

    /// Returns the oldest message's slot, for one message in place. [`Receiver::peek`] does so for many, with more to
    /// count.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    #[inline(always)]
    pub fn hold(&mut self) -> Result<Held<'_, M>, Stop> {
        let after = self.0.end.one()?;
        Ok(Held { ring: &mut self.0, after })
    }

    /// Up to `want` messages, at least one, where they lie.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    #[inline]
    pub fn peek(&mut self, want: u32) -> Result<Batch<'_, M>, Stop> {
        self.0.batch(want)
    }
}

session!(Receiver);
