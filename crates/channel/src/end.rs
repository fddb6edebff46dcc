//! What both ends of a ring share: a session with the peer, and two indices.
//!
//! An end owns some *units* of the ring: the sender those that are free, the receiver
//! those that are filled. It gives units to the peer by moving its own index
//! ([`End::give`]), and learns from the peer's index how many it owns ([`End::own`]).
//! The two ends differ in nothing but how many they own at first: all, or none.

use crate::layout::{FIRST, Shape};
use crate::memory::{Memory, Word};
use crate::page::{Hello, Own, Peer, Phase, tag, tag_of};
use crate::{Misfit, Stop};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Its epoch waits for the peer's answer.
    Offering,
    /// Both have answered; with this epoch of the peer's.
    Joined(u32),
    /// It has left.
    Closed,
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Sender,
    Receiver,
}

/// One end of a ring.
#[derive(Debug)]
#[cfg_attr(feature = "host", derive(Clone))]
pub(crate) struct End<M: Memory> {
    /// Units in its hands, as far as it has looked. At most `capacity - at` of them lie
    /// before the ring's end.
    owned: u32,
    /// Where they begin, in units from the ring's beginning: below `capacity`.
    at: u32,
    /// Its index: units ever given in this session, from [`FIRST`] on.
    next: u32,
    /// Units of the ring.
    capacity: u32,
    /// The epoch, as its words carry it.
    tag: u64,
    page: Own<M>,
    peer: Peer<M>,
    state: State,
    /// Units that it has while both indices are equal: all of a sender, none of a receiver.
    bias: u32,
    /// Units are given in multiples of this, a power of two.
    grain: u32,
    shape: Shape,
}

impl<M: Memory> End<M> {
    /// Opens it. `grain` is a power of two.
    pub fn open(
        mine: &M,
        theirs: &M,
        shape: Shape,
        role: Role,
        grain: u32,
    ) -> Result<Self, Misfit> {
        let capacity = shape.units();
        let bias = if role == Role::Sender { capacity } else { 0 };
        let peer = Peer::new(theirs)?;
        let page = Own::open(mine, &peer, shape, |_| FIRST)?;
        let (tag, state) = (tag(page.epoch()), State::Offering);
        let (owned, at, next) = (0, 0, FIRST);
        Ok(Self { owned, at, next, capacity, tag, page, peer, state, bias, grain, shape })
    }

    /// Where its units begin.
    #[inline]
    pub const fn at(&self) -> u32 {
        self.at
    }

    /// Units of the ring.
    #[inline]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// How many units it owns, at least 1. Looks at the peer only if it knows of fewer
    /// than `want`.
    #[inline]
    pub fn own(&mut self, want: u32) -> Result<u32, Stop> {
        if self.owned >= want { Ok(self.owned) } else { self.look() }
    }

    /// Gives `units` of its own to the peer; at most those that it owns.
    #[inline]
    pub fn give(&mut self, units: u32) {
        let units = units.min(self.owned);
        self.owned -= units;
        self.next = self.next.wrapping_add(units);
        let at = self.at + units;
        self.at = if at >= self.capacity { at - self.capacity } else { at };
        // Release: the sender's message is there before the index says so, and the
        // receiver has read before the index lets the sender write over it.
        self.page.index.release(self.tag | u64::from(self.next));
    }

    /// How many units the peer has left to it, by its index.
    fn look(&mut self) -> Result<u32, Stop> {
        let peer = match self.state {
            State::Joined(peer) => peer,
            State::Offering => self.join()?,
            State::Closed => return Err(Stop::Closed),
        };
        if self.count(peer)? {
            return Ok(self.owned);
        }
        let hello = self.peer.hello();
        if hello == (Hello { phase: Phase::Open, epoch: peer, seen: self.page.epoch() }) {
            return Err(Stop::Wait);
        }
        // What it did before it left was done before the hello.
        if self.count(peer)? { Ok(self.owned) } else { Err(self.lose(hello)) }
    }

    /// Reads the peer's index; whether there is anything.
    fn count(&mut self, peer: u32) -> Result<bool, Stop> {
        // Acquire: whatever the peer did before it moved its index there is done.
        let index = self.peer.index();
        if tag_of(index) != peer {
            let hello = self.peer.hello();
            return Err(self.lose(hello));
        }
        let owned = (index as u32).wrapping_add(self.bias).wrapping_sub(self.next);
        if owned > self.capacity || owned & (self.grain - 1) != 0 {
            return Err(self.corrupted());
        }
        self.owned = owned;
        Ok(owned > 0)
    }

    /// Answers the peer; whether it has answered this epoch.
    fn join(&mut self) -> Result<u32, Stop> {
        let hello = self.peer.hello();
        let answered = hello.seen == self.page.epoch();
        // One that has answered and then left may have given something in between.
        let there = hello.phase == Phase::Open || hello.phase == Phase::Closed && answered;
        if !there || hello.epoch == 0 {
            return Err(Stop::Apart);
        }
        if !self.peer.fits(self.shape) {
            return Err(Stop::Foreign);
        }
        self.page.answer(hello.epoch);
        if !answered {
            return Err(Stop::Apart);
        }
        self.state = State::Joined(hello.epoch);
        Ok(hello.epoch)
    }

    /// The peer has gone: waits for it in a new epoch, so that nothing of the old session
    /// fits the new one.
    fn lose(&mut self, hello: Hello) -> Stop {
        self.reset();
        if hello.phase == Phase::Closed { Stop::Left } else { Stop::Lost }
    }

    /// The peer's index cannot be.
    pub fn corrupted(&mut self) -> Stop {
        self.close();
        Stop::Corrupted
    }

    /// Leaves the session, if there is one, and offers another.
    pub fn reset(&mut self) {
        (self.owned, self.at, self.next) = (0, 0, FIRST);
        self.page.renew(FIRST);
        self.tag = tag(self.page.epoch());
        self.state = State::Offering;
    }

    /// Leaves. What was given stays readable for the peer.
    pub fn close(&mut self) {
        self.owned = 0;
        self.page.close();
        self.state = State::Closed;
    }

    /// Goes on with the agreement; whether there is a session.
    pub fn attend(&mut self) -> Result<(), Stop> {
        match self.look() {
            Ok(_) | Err(Stop::Wait) => Ok(()),
            Err(stop) => Err(stop),
        }
    }

    /// This end's epoch.
    pub const fn epoch(&self) -> u32 {
        self.page.epoch()
    }
}
