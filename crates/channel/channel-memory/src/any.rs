//! Ends of channels with messages of bytes, for all kinds of channels. They are for programs that don't know the kind
//! beforehand, and for C. Waiting and waking are the caller's.
#![forbid(unsafe_code)]

use crate::Mapping;
use crate::typed::Pair;
use bulkhead_channel::layout::Shape;
use bulkhead_channel::{Misfit, Stop, mailbox, queue, records};

impl Pair<'_> {
    /// Returns the length of the longest message; for a queue and a mailbox those of each. 0 if it carries no
    /// messages.
    #[must_use]
    pub const fn longest(&self) -> usize {
        match self.shape() {
            Shape::Queue { size, .. } | Shape::Mailbox { size } => size as usize,
            Shape::Records { bytes } => records::longest(bytes) as usize,
            Shape::Virtio { .. } => 0,
        }
    }
}

/// The end that sends.
#[derive(Debug)]
pub enum Out<'a> {
    /// Messages of one size.
    Queue(queue::Sender<Mapping<'a>>),
    /// Messages of any length.
    Records(records::Sender<Mapping<'a>>),
    /// The newest state.
    Mailbox(mailbox::Writer<Mapping<'a>>),
}

impl<'a> Out<'a> {
    /// Opens it.
    ///
    /// # Errors
    /// This is the channel's other end, or it carries no messages.
    pub fn open(pair: &Pair<'a>) -> Result<Self, Misfit> {
        let (tx, rx) = (pair.tx(), pair.rx());
        Ok(match pair.shape() {
            _ if !pair.sends() => return Err(Misfit),
            Shape::Queue { slots, size } => Self::Queue(queue::Sender::open(tx, rx, slots, size)?),
            Shape::Records { bytes } => Self::Records(records::Sender::open(tx, rx, bytes)?),
            Shape::Mailbox { size } => Self::Mailbox(mailbox::Writer::open(tx, rx, size)?),
            Shape::Virtio { .. } => return Err(Misfit),
        })
    }

    /// Sends a message. In a queue and a mailbox it has [`Pair::longest`] bytes: a shorter one would be followed by
    /// old bytes.
    ///
    /// # Errors
    /// [`Stop::Wait`] if there is no room, and the others.
    #[inline]
    pub fn send(&mut self, message: &[u8]) -> Result<(), Stop> {
        match self {
            Self::Queue(end) => end.send(message),
            Self::Records(end) => end.send(message),
            Self::Mailbox(end) => end.write(message),
        }
    }

    /// Goes on with the agreement; true if there is a session. A mailbox needs none.
    ///
    /// # Errors
    /// The reason why there is no session, or news of the receiver.
    pub fn attend(&mut self) -> Result<(), Stop> {
        match self {
            Self::Queue(end) => end.attend(),
            Self::Records(end) => end.attend(),
            Self::Mailbox(_) => Ok(()),
        }
    }

    /// Leaves the session, if there is one, and offers another.
    pub fn reset(&mut self) {
        match self {
            Self::Queue(end) => end.reset(),
            Self::Records(end) => end.reset(),
            Self::Mailbox(_) => {}
        }
    }

    /// Leaves: the receiver reads the messages that were sent, then is told.
    pub fn close(self) {
        match self {
            Self::Queue(mut end) => end.close(),
            Self::Records(mut end) => end.close(),
            Self::Mailbox(end) => end.close(),
        }
    }
}

/// The end that receives.
#[derive(Debug)]
pub enum In<'a> {
    /// Messages of one size.
    Queue(queue::Receiver<Mapping<'a>>),
    /// Messages of any length.
    Records(records::Receiver<Mapping<'a>>),
    /// The newest state.
    Mailbox {
        /// Its end.
        end: mailbox::Reader<Mapping<'a>>,
        /// A look has found a state that was not received yet.
        found: bool,
    },
}

impl<'a> In<'a> {
    /// Opens it.
    ///
    /// # Errors
    /// This is the channel's other end, or it carries no messages.
    pub fn open(pair: &Pair<'a>) -> Result<Self, Misfit> {
        let (tx, rx) = (pair.tx(), pair.rx());
        Ok(match pair.shape() {
            _ if pair.sends() => return Err(Misfit),
            Shape::Queue { slots, size } => {
                Self::Queue(queue::Receiver::open(rx, tx, slots, size)?)
            }
            Shape::Records { bytes } => Self::Records(records::Receiver::open(rx, tx, bytes)?),
            Shape::Mailbox { size } => {
                Self::Mailbox { end: mailbox::Reader::open(rx, tx, size)?, found: false }
            }
            Shape::Virtio { .. } => return Err(Misfit),
        })
    }

    /// Receives a message into a buffer of [`Pair::longest`] bytes; how many it has.
    ///
    /// # Errors
    /// [`Stop::Wait`] if there is no message, and the others. [`Stop::Size`] if the buffer is longer, or a record
    /// longer than it.
    #[inline]
    pub fn receive(&mut self, to: &mut [u8]) -> Result<usize, Stop> {
        let len = to.len();
        match self {
            Self::Queue(end) => end.receive(to).map(|()| len),
            Self::Records(end) => end.receive(to),
            Self::Mailbox { end, found } => match core::mem::take(found) {
                true => end.read(to).map(|_| len),
                false => end.read_newer(to).map(|()| len),
            },
        }
    }

    /// Tells if there is a message to receive, which stays there. News are told here, and not again.
    ///
    /// # Errors
    /// [`Stop::Wait`] if there is nothing, and the others.
    #[inline]
    pub fn look(&mut self) -> Result<(), Stop> {
        match self {
            Self::Queue(end) => end.peek(1).map(|_| ()),
            Self::Records(end) => end.peek().map(|_| ()),
            Self::Mailbox { found: true, .. } => Ok(()),
            Self::Mailbox { end, found } => {
                end.read_newer(&mut [])?;
                *found = true;
                Ok(())
            }
        }
    }

    /// As [`Out::attend`].
    ///
    /// # Errors
    /// As [`Out::attend`].
    pub fn attend(&mut self) -> Result<(), Stop> {
        match self {
            Self::Queue(end) => end.attend(),
            Self::Records(end) => end.attend(),
            Self::Mailbox { .. } => Ok(()),
        }
    }

    /// As [`Out::reset`].
    pub fn reset(&mut self) {
        match self {
            Self::Queue(end) => end.reset(),
            Self::Records(end) => end.reset(),
            Self::Mailbox { .. } => {}
        }
    }

    /// Leaves, and the sender is told.
    pub fn close(self) {
        match self {
            Self::Queue(mut end) => end.close(),
            Self::Records(mut end) => end.close(),
            Self::Mailbox { end, .. } => end.close(),
        }
    }
}
