//! The words by which two ends find out that the other began, ended or began anew.
//!
//! Each end has an *epoch*, a number that it changes whenever it begins anew and that
//! stands in every word that it writes. A word of another epoch is never taken for one
//! of this session.

use crate::Misfit;
use crate::layout::{GEOMETRY, HELLO, IDENTITY, INDEX, Shape};
use crate::memory::{Memory, Word};

/// Number of epochs, of 30 bits; 0 is no epoch.
const EPOCHS: u32 = (1 << 30) - 1;

/// State of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It never opened, or its memory was cleared.
    Absent,
    /// It wants a session: its half of the consent.
    Open,
    /// It has closed, and touches neither region until it opens again. Written for an end that has died, by the finder
    /// of its death ([`bury`]).
    Closed,
}

/// State of an end in one word, written by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hello {
    /// Its state.
    pub phase: Phase,
    /// Its own epoch.
    pub epoch: u32,
    /// The peer's epoch that it answers; 0: it answers no epoch.
    pub seen: u32,
}

impl Hello {
    /// As it stands in memory.
    #[must_use]
    pub const fn word(self) -> u64 {
        let phase = match self.phase {
            Phase::Absent => 0u64,
            Phase::Open => 1,
            Phase::Closed => 2,
        };
        phase << 62 | ((self.epoch & EPOCHS) as u64) << 32 | (self.seen & EPOCHS) as u64
    }

    /// Any word is one.
    #[must_use]
    pub const fn of(word: u64) -> Self {
        let phase = match word >> 62 {
            1 => Phase::Open,
            2 => Phase::Closed,
            _ => Phase::Absent,
        };
        Self { phase, epoch: (word >> 32) as u32 & EPOCHS, seen: word as u32 & EPOCHS }
    }
}

/// Returns the epoch after another.
#[must_use]
pub const fn following(epoch: u32) -> u32 {
    match epoch.wrapping_add(1) & EPOCHS {
        0 => 1,
        next => next,
    }
}

/// Returns an epoch where words carry it.
pub(crate) const fn tag(epoch: u32) -> u64 {
    (epoch as u64) << 32
}

/// Returns the epoch of a word; an impossible one equals no epoch.
pub(crate) const fn tag_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Closes an end that has died, so that its peer learns it. The owner of the tables calls it, after the dead end can
/// no longer write. False if there is no header.
pub fn bury<M: Memory>(region: &M) -> bool {
    let Some(hello) = region.word(HELLO) else { return false };
    let last = Hello::of(hello.relaxed());
    hello.release(Hello { phase: Phase::Closed, ..last }.word());
    true
}

/// An end's own header.
#[derive(Debug)]
#[cfg_attr(feature = "host", derive(Clone))]
pub(crate) struct Own<M: Memory> {
    hello: M::Word,
    /// Positions.
    pub index: M::Word,
    epoch: u32,
    /// The peer's epoch answered last. Later epochs and lives carry it, too: a peer with a cleared region learns its
    /// past epochs from it.
    seen: u32,
}

impl<M: Memory> Own<M> {
    /// Takes the next epoch, and writes the channel's shape. `first` makes the new index from the old one.
    pub fn open(
        mine: &M,
        peer: &Peer<M>,
        shape: Shape,
        first: impl Fn(u64) -> u32,
    ) -> Result<Self, Misfit> {
        let word = |at| mine.word(at).ok_or(Misfit);
        let (hello, index) = (word(HELLO)?, word(INDEX)?);
        let Hello { epoch: last, seen: answered, .. } = Hello::of(hello.relaxed());
        // A cleared region has forgotten its epoch; the best known value is the one that the peer saw.
        let seen = peer.hello().seen;
        let epoch = if last == 0 { seen } else { last };
        let mut own = Self { hello, index, epoch, seen: answered };
        // No peer joins before the hello, which is released after these.
        own.say(Phase::Absent);
        word(IDENTITY)?.set(shape.identity());
        word(GEOMETRY)?.set(shape.geometry());
        let first = first(own.index.relaxed());
        own.epoch = following(own.epoch);
        if own.epoch == seen {
            own.epoch = following(own.epoch);
        }
        own.announce(first);
        Ok(own)
    }

    /// Returns its number.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Begins a new epoch with this index.
    pub fn renew(&mut self, first: u32) {
        self.epoch = following(self.epoch);
        self.announce(first);
    }

    fn announce(&self, first: u32) {
        // Before the hello: a peer that sees the epoch there sees no older index.
        self.index.release(tag(self.epoch) | u64::from(first));
        self.say(Phase::Open);
    }

    /// Answers an epoch of the peer's, if it has not yet.
    pub fn answer(&mut self, seen: u32) {
        if self.seen != seen {
            self.seen = seen;
            self.say(Phase::Open);
        }
    }

    /// Takes part no longer.
    pub fn close(&self) {
        self.say(Phase::Closed);
    }

    fn say(&self, phase: Phase) {
        let Self { epoch, seen, .. } = *self;
        self.hello.release(Hello { phase, epoch, seen }.word());
    }
}

/// The peer's header. Nothing of it can be stored to.
#[derive(Debug)]
#[cfg_attr(feature = "host", derive(Clone))]
pub(crate) struct Peer<M: Memory> {
    identity: M::Word,
    geometry: M::Word,
    hello: M::Word,
    index: M::Word,
}

impl<M: Memory> Peer<M> {
    /// Finds its words.
    pub fn new(theirs: &M) -> Result<Self, Misfit> {
        let word = |at| theirs.word(at).ok_or(Misfit);
        let (identity, geometry) = (word(IDENTITY)?, word(GEOMETRY)?);
        Ok(Self { identity, geometry, hello: word(HELLO)?, index: word(INDEX)? })
    }

    /// Returns its hello; its earlier writes can be read after that.
    pub fn hello(&self) -> Hello {
        Hello::of(self.greeting())
    }

    /// Returns its hello as the raw word.
    #[inline]
    pub fn greeting(&self) -> u64 {
        self.hello.acquire()
    }

    /// Returns its index; its writes before that index are done.
    #[inline]
    pub fn index(&self) -> u64 {
        self.index.acquire()
    }

    /// Tells if its shape is this one. Called after [`Peer::hello`].
    pub fn fits(&self, shape: Shape) -> bool {
        self.identity.relaxed() == shape.identity() && self.geometry.relaxed() == shape.geometry()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_one_word() {
        for phase in [Phase::Absent, Phase::Open, Phase::Closed] {
            let hello = Hello { phase, epoch: EPOCHS, seen: 5 };
            assert_eq!(Hello::of(hello.word()), hello);
        }
        assert_eq!(Hello::of(u64::MAX).phase, Phase::Absent);
    }

    #[test]
    fn epochs_wrap_without_nobodys() {
        assert_eq!(following(EPOCHS), 1);
        assert_eq!(following(1), 2);
    }
}
