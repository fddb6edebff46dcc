//! The common part of a ring's two ends: a session with the peer, and two indices.
//!
//! An end owns some *units* of the ring: the sender the free ones, the receiver the filled ones. It gives units to
//! the peer by moving its own index ([`End::give`]). The peer's index tells how many it owns ([`End::own`]). The two
//! ends differ only in the number that they own at first: all, or 0.

use crate::layout::{DATA, FIRST, Shape};
use crate::memory::{Lane, Memory, Word};
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

/// One end of a ring. The fields that each message needs come first.
#[derive(Debug)]
#[cfg_attr(feature = "host", derive(Clone))]
pub(crate) struct End<M: Memory> {
    /// Its index: units ever given in this session, from [`FIRST`] on.
    next: u32,
    /// Value of its index once it has given all units that it owns, as far as it has looked. It is at most the
    /// capacity on from `next`.
    limit: u32,
    /// Lane at which its units begin.
    lane: M::Lane,
    /// The epoch, as its words carry it.
    tag: u64,
    /// The epoch of the peer that it has joined, as the peer's words carry it.
    peers: u64,
    /// The peer's hello while nothing changes, 0 without a session.
    greeting: u64,
    page: Own<M>,
    peer: Peer<M>,
    /// Units of the ring.
    capacity: u32,
    state: State,
    /// Units that it has while both indices are equal: all for a sender, 0 for a receiver.
    bias: u32,
    /// Units are given in multiples of this, a power of two.
    grain: u32,
    shape: Shape,
}

impl<M: Memory> End<M> {
    /// Opens it; its ring begins at [`DATA`] of `tx`. `grain` is a power of two.
    pub fn open(
        mine: &M,
        theirs: &M,
        shape: Shape,
        role: Role,
        grain: u32,
    ) -> Result<Self, Misfit> {
        let capacity = shape.units();
        let (bias, tx) = match role {
            Role::Sender => (capacity, mine),
            Role::Receiver => (0, theirs),
        };
        let stride = shape.stride().ok_or(Misfit)?;
        let lane = tx.lane(DATA, stride, capacity).ok_or(Misfit)?;
        let peer = Peer::new(theirs)?;
        let page = Own::open(mine, &peer, shape, |_| FIRST)?;
        let (tag, state) = (tag(page.epoch()), State::Offering);
        let (next, limit, peers, greeting) = (FIRST, FIRST, 0, 0);
        Ok(Self {
            next,
            limit,
            lane,
            tag,
            peers,
            greeting,
            page,
            peer,
            capacity,
            state,
            bias,
            grain,
            shape,
        })
    }

    /// Returns the lane at which its units begin.
    #[inline(always)]
    pub const fn lane(&self) -> &M::Lane {
        &self.lane
    }

    /// Units of the ring.
    #[inline]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns how many units it owns, at least 1. Looks at the peer only if it knows of fewer
    /// than `want`.
    #[inline]
    pub fn own(&mut self, want: u32) -> Result<u32, Stop> {
        let owned = self.limit.wrapping_sub(self.next);
        if owned >= want { Ok(owned) } else { self.look() }
    }

    /// Returns its index when it will have given one more unit.
    #[inline(always)]
    pub const fn after(&self) -> u32 {
        self.next.wrapping_add(1)
    }

    /// Tells if it owns a unit, and returns [`End::after`]. It is [`End::own`] for a receiver of single messages,
    /// which looks for each one, and in vain while it spins. It compares the peer's whole index with the most likely
    /// values: a unit more, or no unit. [`End::look`] handles any other value.
    #[inline(always)]
    pub fn one(&mut self) -> Result<u32, Stop> {
        let next = self.next;
        let after = next.wrapping_add(1);
        if next != self.limit {
            return Ok(after);
        }
        // Acquire: as in `count`.
        let index = self.peer.index();
        if self.greeting != 0 {
            // No carry: an epoch has nothing where positions are.
            if index == self.peers.wrapping_add(after.into()) {
                self.limit = after;
                return Ok(after);
            }
            if index == self.peers.wrapping_add(next.into())
                && self.peer.greeting() == self.greeting
            {
                return Err(Stop::Wait);
            }
        }
        self.look()?;
        Ok(self.after())
    }

    /// Gives `units` of its own to the peer; at most those that it owns.
    #[inline]
    pub fn give(&mut self, units: u32) {
        let units = units.min(self.limit.wrapping_sub(self.next));
        self.lane.go(units);
        self.announce(self.next.wrapping_add(units));
    }

    /// Gives one, which it owns, with [`End::after`].
    #[inline(always)]
    pub fn give_one(&mut self, after: u32) {
        debug_assert!(after == self.after() && self.next != self.limit);
        self.lane.step();
        self.announce(after);
    }

    #[inline(always)]
    fn announce(&mut self, next: u32) {
        self.next = next;
        // Release: the sender's message is there before the index says so, and the
        // receiver has read before the index lets the sender write over it.
        self.page.index.release(self.tag | u64::from(next));
    }

    /// Returns how many units the peer has left to it, by its index.
    #[cold]
    #[inline(never)]
    fn look(&mut self) -> Result<u32, Stop> {
        let peer = match self.state {
            State::Joined(peer) => peer,
            State::Offering => self.join()?,
            State::Closed => return Err(Stop::Closed),
        };
        let owned = self.count(peer)?;
        if owned > 0 {
            return Ok(owned);
        }
        let hello = self.peer.hello();
        if hello == (Hello { phase: Phase::Open, epoch: peer, seen: self.page.epoch() }) {
            return Err(Stop::Wait);
        }
        // The peer's writes before it left came before the hello.
        match self.count(peer)? {
            0 => Err(self.lose(hello)),
            owned => Ok(owned),
        }
    }

    /// Reads the peer's index: units that it owns.
    fn count(&mut self, peer: u32) -> Result<u32, Stop> {
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
        self.limit = self.next.wrapping_add(owned);
        Ok(owned)
    }

    /// Answers the peer, and tells if it has answered this epoch.
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
        self.peers = tag(hello.epoch);
        self.greeting = Hello { phase: Phase::Open, ..hello }.word();
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
        (self.next, self.limit) = (FIRST, FIRST);
        self.part();
        self.lane.restart();
        self.page.renew(FIRST);
        self.tag = tag(self.page.epoch());
        self.state = State::Offering;
    }

    /// Leaves. Units that were given stay readable for the peer.
    pub fn close(&mut self) {
        self.limit = self.next;
        self.part();
        self.page.close();
        self.state = State::Closed;
    }

    /// Believes nothing of the peer's without a closer look.
    fn part(&mut self) {
        (self.peers, self.greeting) = (0, 0);
    }

    /// Goes on with the agreement, and tells if there is a session.
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
