//! Ends of channels with messages of a type, for guests and programs. They lead from an information page's entry of a
//! channel to [`Sender`] and [`Receiver`], [`Writer`] and [`Reader`].
//!
//! The types are plain data ([`zerocopy`]): any bytes are a value, because a hostile peer chooses them. The receiver
//! has to check their meaning.

pub use crate::Mapping;
use crate::copy;
use bulkhead_channel::adaptive::{Platform, Sleeper, Spin};
use bulkhead_channel::bell::{Arm, Bell, Caller, Ring};
use bulkhead_channel::layout::{Kind, Shape};
use bulkhead_channel::{Misfit, Stop, mailbox, queue, records};
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The two regions of a channel between one sender and one receiver.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    tx: Mapping<'a>,
    rx: Mapping<'a>,
    shape: Shape,
    sends: bool,
    doorbell: Option<Doorbell>,
    back: Option<Doorbell>,
}

/// How the receiver of a channel is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbell {
    /// Doorbell that one end rings, or interrupt of the end that is woken.
    pub at: u16,
    /// The end that is woken looks while that pays, before it sleeps.
    pub adaptive: bool,
    /// Slot in which a ringing program of the kernel has the right to the doorbell, otherwise 0.
    pub right: u32,
}

impl Doorbell {
    /// Decodes the information page's words; `None` if the receiver is not woken.
    #[must_use]
    pub const fn told(word: u32, right: u32) -> Option<Self> {
        const ADAPTIVE: u32 = 1 << 16;
        match word {
            0 => None,
            _ => Some(Self { at: word as u16, adaptive: word & ADAPTIVE != 0, right }),
        }
    }

    /// Returns the longest time that a receiver spins, by its cost of a sleep.
    #[must_use]
    pub const fn spin(self, cost: u64) -> Spin {
        if self.adaptive { Spin::new(cost) } else { Spin::NEVER }
    }
}

impl Pair<'_> {
    /// Makes the pair that an information page describes: the sender's `len` bytes at `base` and the receiver's page
    /// behind them. The messages have that [`Kind`]'s number and size, and `sends` says if this side sends. `None` if
    /// there is no such channel.
    ///
    /// # Safety
    /// The contract of [`Mapping::new`], for both regions. The sender's is writable if this side sends, otherwise the
    /// receiver's.
    #[must_use]
    pub unsafe fn new(
        base: NonNull<u8>,
        len: usize,
        (kind, message): (u8, u32),
        sends: bool,
    ) -> Option<Self> {
        let shape = Shape::within(Kind::of(kind)?, len, message)?;
        // SAFETY: the caller's; the receiver's page lies directly behind.
        let (tx, rx) =
            unsafe { (Mapping::new(base, len)?, Mapping::new(base.add(len), shape.rx_bytes())?) };
        Some(Self { tx, rx, shape, sends, doorbell: None, back: None })
    }
}

impl<'a> Pair<'a> {
    /// Adds the doorbell that wakes the receiver.
    #[must_use]
    pub const fn with(self, doorbell: Option<Doorbell>) -> Self {
        Self { doorbell, ..self }
    }

    /// Adds the doorbell that wakes the sender: the driver of a virtio device.
    #[must_use]
    pub const fn with_back(self, back: Option<Doorbell>) -> Self {
        Self { back, ..self }
    }

    /// Returns the doorbell that this end rings, and the one that wakes it, if there are any.
    #[must_use]
    pub const fn doorbells(&self) -> [Option<Doorbell>; 2] {
        if self.sends { [self.doorbell, self.back] } else { [self.back, self.doorbell] }
    }

    /// Returns how its receiver is woken, if it is.
    #[must_use]
    pub const fn doorbell(&self) -> Option<Doorbell> {
        self.doorbell
    }

    /// Returns the channel's shape.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Tells if this side sends.
    #[must_use]
    pub const fn sends(&self) -> bool {
        self.sends
    }

    /// Returns the region that the sender writes.
    #[must_use]
    pub const fn tx(&self) -> &Mapping<'a> {
        &self.tx
    }

    /// Returns the region that the receiver writes.
    #[must_use]
    pub const fn rx(&self) -> &Mapping<'a> {
        &self.rx
    }

    /// Returns the end that sends records.
    ///
    /// # Errors
    /// It carries no records, or this is the other end.
    pub fn send_records(&self) -> Result<records::Sender<Mapping<'a>>, Misfit> {
        let (Shape::Records { bytes }, true) = (self.shape, self.sends) else { return Err(Misfit) };
        records::Sender::open(&self.tx, &self.rx, bytes)
    }

    /// Returns the end that receives records.
    ///
    /// # Errors
    /// It carries no records, or this is the other end.
    pub fn receive_records(&self) -> Result<records::Receiver<Mapping<'a>>, Misfit> {
        let (Shape::Records { bytes }, false) = (self.shape, self.sends) else {
            return Err(Misfit);
        };
        records::Receiver::open(&self.rx, &self.tx, bytes)
    }

    /// Returns the region that this end writes, and the other.
    const fn regions(&self) -> [&Mapping<'a>; 2] {
        if self.sends { [&self.tx, &self.rx] } else { [&self.rx, &self.tx] }
    }

    /// Returns the ringing end's part of the doorbell.
    ///
    /// # Errors
    /// The regions are too small.
    pub fn bell(&self) -> Result<Bell<Mapping<'a>>, Misfit> {
        let [mine, theirs] = self.regions();
        Bell::open(*mine, theirs)
    }

    /// Returns the sleeping end's part of the doorbell; after the end has been opened.
    ///
    /// # Errors
    /// The regions are too small.
    pub fn arm(&self) -> Result<Arm<Mapping<'a>>, Misfit> {
        Arm::open(self.regions()[0])
    }

    /// Returns the way to wake the other end, if it sleeps: `ring` makes one for its doorbell.
    pub fn caller<R: Ring>(
        &self,
        ring: impl FnOnce(Doorbell) -> Option<R>,
    ) -> Option<Caller<Mapping<'a>, R>> {
        let ring = ring(self.doorbells()[0]?)?;
        Some(Caller::new(self.bell().ok()?, ring))
    }

    /// Returns the place where this end sleeps until the other rings, if that does: `bed` makes one for its doorbell. A
    /// sleep and its end take `cost` ticks there, more or less. After the end itself has been opened.
    pub fn sleeper<P: Platform>(
        &self,
        cost: u64,
        bed: impl FnOnce(Doorbell) -> Option<P>,
    ) -> Option<Sleeper<Mapping<'a>, P>> {
        let doorbell = self.doorbells()[1]?;
        Some(Sleeper::new(self.arm().ok()?, doorbell.spin(cost), bed(doorbell)?))
    }

    /// Slots and size of a queue of `T`.
    fn queue_of<T>(&self, sends: bool) -> Result<[u32; 2], Misfit> {
        let fits = self.sends == sends && self.shape.message() as usize == size_of::<T>();
        match self.shape {
            Shape::Queue { slots, size } if fits => Ok([slots, size]),
            _ => Err(Misfit),
        }
    }

    /// Returns the size of a mailbox of a `T`.
    fn mailbox_of<T>(&self, sends: bool) -> Result<u32, Misfit> {
        let fits = self.sends == sends && self.shape.message() as usize == size_of::<T>();
        match self.shape {
            Shape::Mailbox { size } if fits => Ok(size),
            _ => Err(Misfit),
        }
    }
}

/// Functions of a queue's ends for their session, as in [`queue::Sender`].
macro_rules! session {
    ($of:ident) => {
        impl<T> $of<'_, T> {
            /// Goes on with the agreement and says if there is a session.
            ///
            /// # Errors
            /// The reason why there is no session, or news of the peer.
            pub fn attend(&mut self) -> Result<(), Stop> {
                self.end.attend()
            }

            /// Leaves the session, if there is one, and offers another.
            pub fn reset(&mut self) {
                self.end.reset();
            }

            /// Leaves. The peer can still read the messages that were sent, then it is told.
            pub fn close(&mut self) {
                self.end.close();
            }

            /// Returns the number of this end's session.
            #[must_use]
            pub const fn epoch(&self) -> u32 {
                self.end.epoch()
            }
        }
    };
}
session!(Sender);
session!(Receiver);

/// Sends messages of a type through a queue.
#[derive(Debug)]
pub struct Sender<'a, T> {
    end: queue::Sender<Mapping<'a>>,
    of: PhantomData<fn(T)>,
}

impl<'a, T: IntoBytes + Immutable> Sender<'a, T> {
    /// Opens the end.
    ///
    /// # Errors
    /// The channel is no queue of messages of this size, or this is the other end.
    pub fn open(pair: &Pair<'a>) -> Result<Self, Misfit> {
        let [slots, size] = pair.queue_of::<T>(true)?;
        let end = queue::Sender::open(&pair.tx, &pair.rx, slots, size)?;
        Ok(Self { end, of: PhantomData })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`Stop::Wait`] if the queue is full, or news of the receiver.
    #[inline(always)]
    pub fn send(&mut self, message: &T) -> Result<(), Stop> {
        let held = self.end.hold()?;
        // SAFETY: `open` has compared the messages' size with the type's, and no other end can be put here. So that
        // many bytes of the slot are in the mapping, which is writable for an end that sends.
        unsafe { copy::into(message.as_bytes(), held.lane().address().as_ptr()) };
        held.give();
        Ok(())
    }

    /// Returns the next free slot, to be written where it lies: [`queue::Sender::hold`].
    ///
    /// # Errors
    /// As [`Sender::send`].
    #[inline(always)]
    pub fn hold(&mut self) -> Result<queue::Held<'_, Mapping<'a>>, Stop> {
        self.end.hold()
    }

    /// Up to `want` free slots: [`queue::Sender::reserve`].
    ///
    /// # Errors
    /// As [`Sender::send`].
    #[inline]
    pub fn reserve(&mut self, want: u32) -> Result<queue::Batch<'_, Mapping<'a>>, Stop> {
        self.end.reserve(want)
    }
}

/// Receives messages of a type from a queue.
#[derive(Debug)]
pub struct Receiver<'a, T> {
    end: queue::Receiver<Mapping<'a>>,
    of: PhantomData<fn() -> T>,
}

impl<'a, T: FromBytes + IntoBytes> Receiver<'a, T> {
    /// Opens the end.
    ///
    /// # Errors
    /// The channel is no queue of messages of this size, or this is the other end.
    pub fn open(pair: &Pair<'a>) -> Result<Self, Misfit> {
        let [slots, size] = pair.queue_of::<T>(false)?;
        let end = queue::Receiver::open(&pair.rx, &pair.tx, slots, size)?;
        Ok(Self { end, of: PhantomData })
    }

    /// Returns the oldest message.
    ///
    /// # Errors
    /// [`Stop::Wait`] if there is no message, or news of the sender.
    #[inline(always)]
    pub fn receive(&mut self) -> Result<T, Stop> {
        let mut message = MaybeUninit::<T>::uninit();
        // SAFETY: any bytes are a `T`, and all of these are written.
        self.take(&mut message).map(|()| unsafe { message.assume_init() })
    }

    /// Returns the oldest message, to where there is one already: without a copy more.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    #[inline(always)]
    pub fn receive_to(&mut self, message: &mut T) -> Result<(), Stop> {
        // SAFETY: both have one layout, and the value written there is a `T`.
        self.take(unsafe { &mut *core::ptr::from_mut(message).cast() })
    }

    /// Fills it if there is a message.
    #[inline(always)]
    fn take(&mut self, to: &mut MaybeUninit<T>) -> Result<(), Stop> {
        let held = self.end.hold()?;
        // SAFETY: as in `Sender::send`, the other way round. A slice of unwritten bytes is only handed to code that
        // writes all of it.
        unsafe {
            let to = core::slice::from_raw_parts_mut(to.as_mut_ptr().cast(), size_of::<T>());
            copy::out(held.lane().address().as_ptr(), to);
        }
        held.give();
        Ok(())
    }

    /// Returns the oldest message where it lies: [`queue::Receiver::hold`].
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    #[inline(always)]
    pub fn hold(&mut self) -> Result<queue::Held<'_, Mapping<'a>>, Stop> {
        self.end.hold()
    }

    /// Up to `want` messages where they lie: [`queue::Receiver::peek`].
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    #[inline]
    pub fn peek(&mut self, want: u32) -> Result<queue::Batch<'_, Mapping<'a>>, Stop> {
        self.end.peek(want)
    }

    /// Returns the oldest message, as soon as there is one.
    ///
    /// # Errors
    /// News of the sender.
    pub fn recv<P: Platform>(&mut self, sleeper: &mut Sleeper<Mapping<'a>, P>) -> Result<T, Stop> {
        let mut message = MaybeUninit::uninit();
        // SAFETY: as in `receive`.
        sleeper.wait(|| self.take(&mut message)).map(|()| unsafe { message.assume_init() })
    }
}

/// Writes states of a type to a mailbox.
#[derive(Debug)]
pub struct Writer<'a, T> {
    end: mailbox::Writer<Mapping<'a>>,
    of: PhantomData<fn(T)>,
}

impl<'a, T: IntoBytes + Immutable> Writer<'a, T> {
    /// Opens the end.
    ///
    /// # Errors
    /// The channel is no mailbox of a state of this size, or this is the other end.
    pub fn open(pair: &Pair<'a>) -> Result<Self, Misfit> {
        let end = mailbox::Writer::open(&pair.tx, &pair.rx, pair.mailbox_of::<T>(true)?)?;
        Ok(Self { end, of: PhantomData })
    }

    /// Writes a state in place of the one before.
    ///
    /// # Errors
    /// Never: the size is right, and a mailbox never refuses.
    #[inline]
    pub fn write(&mut self, state: &T) -> Result<(), Stop> {
        self.end.write(state.as_bytes())
    }

    /// Tells if a reader has answered in this life.
    #[must_use]
    pub fn heard(&self) -> bool {
        self.end.heard()
    }
}

/// Reads states of a type from a mailbox.
#[derive(Debug)]
pub struct Reader<'a, T> {
    end: mailbox::Reader<Mapping<'a>>,
    of: PhantomData<fn() -> T>,
}

impl<'a, T: FromBytes + IntoBytes> Reader<'a, T> {
    /// Opens the end.
    ///
    /// # Errors
    /// The channel is no mailbox of a state of this size, or this is the other end.
    pub fn open(pair: &Pair<'a>) -> Result<Self, Misfit> {
        let end = mailbox::Reader::open(&pair.rx, &pair.tx, pair.mailbox_of::<T>(false)?)?;
        Ok(Self { end, of: PhantomData })
    }

    /// Returns the newest state, if it was not read before.
    ///
    /// # Errors
    /// [`Stop::Wait`] if it was, or news of the writer.
    #[inline]
    pub fn read_newer(&mut self) -> Result<T, Stop> {
        let mut state = T::new_zeroed();
        self.end.read_newer(state.as_mut_bytes()).map(|()| state)
    }

    /// Returns the newest state, as soon as there is one that was not read before.
    ///
    /// # Errors
    /// News of the writer.
    pub fn read_next<P: Platform>(
        &mut self,
        sleeper: &mut Sleeper<Mapping<'a>, P>,
    ) -> Result<T, Stop> {
        sleeper.wait(|| self.read_newer())
    }
}
