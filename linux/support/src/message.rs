//! Messages as bytes, whatever a channel carries, for programs that don't know it beforehand.

use crate::channel::{End, named};
use bulkhead_channel::layout::Shape;
use bulkhead_channel::{Misfit, Stop, mailbox, queue, records};
use bulkhead_channel_memory::Mapping;
use bulkhead_channel_memory::typed::Pair;
use std::io;
use std::thread::{sleep, yield_now};
use std::time::Duration;

type Memory = Mapping<'static>;

/// The end that sends.
#[derive(Debug)]
pub enum Sender {
    /// Messages of one size, and that size: shorter ones get zeros behind them.
    Queue(queue::Sender<Memory>, usize),
    /// Messages of any length up to half of the ring.
    Records(records::Sender<Memory>),
    /// The newest state, and its size.
    Mailbox(mailbox::Writer<Memory>, usize),
}

/// The end that receives.
#[derive(Debug)]
pub enum Receiver {
    /// Messages of one size, and that size.
    Queue(queue::Receiver<Memory>, usize),
    /// Messages of any length, at most so many bytes.
    Records(records::Receiver<Memory>, usize),
    /// The newest state, and its size.
    Mailbox(mailbox::Reader<Memory>, usize),
}

fn pair(end: &End) -> io::Result<Pair<'static>> {
    let raw = || io::Error::other(format!("{} carries raw pages, no messages", end.name));
    end.open()?.pair().ok_or_else(raw)
}

fn other_side(_: Misfit) -> io::Error {
    io::Error::other("this sandbox has the channel's other end")
}

impl Sender {
    /// Of a channel with this name; of several receivers the `nth`, from 0.
    ///
    /// # Errors
    /// This sandbox has no such end, or may not map it.
    pub fn open(name: &str, nth: usize) -> io::Result<Self> {
        let none = || io::Error::other(format!("{name} has no receiver {nth}"));
        Self::of(&pair(named(name)?.get(nth).ok_or_else(none)?)?).map_err(other_side)
    }

    fn of(pair: &Pair<'static>) -> Result<Self, Misfit> {
        let (tx, rx) = (pair.tx(), pair.rx());
        Ok(match pair.shape() {
            _ if !pair.sends() => return Err(Misfit),
            Shape::Queue { slots, size } => {
                Self::Queue(queue::Sender::open(tx, rx, slots, size)?, size as usize)
            }
            Shape::Records { bytes } => Self::Records(records::Sender::open(tx, rx, bytes)?),
            Shape::Mailbox { size } => {
                Self::Mailbox(mailbox::Writer::open(tx, rx, size)?, size as usize)
            }
            Shape::Virtio { .. } => return Err(Misfit),
        })
    }

    /// Sends a message, if there is room and somebody there.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn send(&mut self, message: &[u8]) -> Result<(), Stop> {
        match self {
            Self::Records(end) => end.send(message),
            Self::Queue(end, size) => end.send(&padded(message, *size)?),
            Self::Mailbox(end, size) => end.write(&padded(message, *size)?),
        }
    }

    /// Sends it as soon as there is room and somebody there, and says what became of the peer meanwhile.
    ///
    /// # Errors
    /// It is too long, or the peer spoils the channel.
    pub fn send_all(&mut self, message: &[u8], mut news: impl FnMut(Stop)) -> Result<(), Stop> {
        let mut pause = Pause::default();
        loop {
            match self.send(message) {
                Ok(()) => return Ok(()),
                Err(Stop::Wait | Stop::Apart) => pause.wait(),
                Err(stop @ (Stop::Lost | Stop::Left)) => news(stop),
                Err(stop) => return Err(stop),
            }
        }
    }
}

fn padded(message: &[u8], size: usize) -> Result<Vec<u8>, Stop> {
    if message.len() > size {
        return Err(Stop::Size);
    }
    let mut all = message.to_vec();
    all.resize(size, 0);
    Ok(all)
}

impl Receiver {
    /// Of a channel with this name.
    ///
    /// # Errors
    /// This sandbox has no such end, or may not map it.
    pub fn open(name: &str) -> io::Result<Self> {
        Self::of(&pair(&named(name)?[0])?).map_err(other_side)
    }

    fn of(pair: &Pair<'static>) -> Result<Self, Misfit> {
        let (tx, rx) = (pair.tx(), pair.rx());
        Ok(match pair.shape() {
            _ if pair.sends() => return Err(Misfit),
            Shape::Queue { slots, size } => {
                Self::Queue(queue::Receiver::open(rx, tx, slots, size)?, size as usize)
            }
            Shape::Records { bytes } => {
                let longest = bulkhead_channel::records::longest(bytes) as usize;
                Self::Records(records::Receiver::open(rx, tx, bytes)?, longest)
            }
            Shape::Mailbox { size } => {
                Self::Mailbox(mailbox::Reader::open(rx, tx, size)?, size as usize)
            }
            Shape::Virtio { .. } => return Err(Misfit),
        })
    }

    /// Bytes of the longest message.
    #[must_use]
    pub const fn longest(&self) -> usize {
        match self {
            Self::Queue(_, size) | Self::Records(_, size) | Self::Mailbox(_, size) => *size,
        }
    }

    /// Receives a message into a buffer of at least [`Self::longest`] bytes; how many it has.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn receive(&mut self, to: &mut [u8]) -> Result<usize, Stop> {
        match self {
            Self::Records(end, _) => end.receive(to),
            Self::Queue(end, size) => {
                let size = *size;
                end.receive(to.get_mut(..size).ok_or(Stop::Size)?).map(|()| size)
            }
            Self::Mailbox(end, size) => {
                let size = *size;
                end.read_newer(to.get_mut(..size).ok_or(Stop::Size)?).map(|()| size)
            }
        }
    }

    /// Receives one as soon as there is one, and says what became of the peer meanwhile. After a peer that left, or
    /// spoilt the channel, it begins a new session.
    pub fn receive_one(&mut self, to: &mut [u8], mut news: impl FnMut(Stop)) -> usize {
        let mut pause = Pause::default();
        loop {
            match self.receive(to) {
                Ok(len) => return len,
                Err(Stop::Wait | Stop::Apart) => pause.wait(),
                Err(stop) => {
                    news(stop);
                    if stop == Stop::Corrupted {
                        self.reset();
                    }
                    pause.wait();
                }
            }
        }
    }

    fn reset(&mut self) {
        match self {
            Self::Queue(end, _) => end.reset(),
            Self::Records(end, _) => end.reset(),
            // Its reader needs no session.
            Self::Mailbox(..) => {}
        }
    }
}

/// Looks often at first, for others may run on this core, too; then ever more seldom.
#[derive(Debug, Default)]
struct Pause(u32);

impl Pause {
    /// Looks with the core given away in between.
    const YIELDS: u32 = 64;
    /// Then it sleeps: the first time, and the longest.
    const FIRST: Duration = Duration::from_micros(20);
    const LONGEST: Duration = Duration::from_millis(1);

    fn wait(&mut self) {
        self.0 = self.0.saturating_add(1);
        match self.0.checked_sub(Self::YIELDS) {
            None => yield_now(),
            Some(n) => sleep((Self::FIRST * (1 << n.min(8))).min(Self::LONGEST)),
        }
    }
}
