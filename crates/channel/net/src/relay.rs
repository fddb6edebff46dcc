//! Frames between two programs of one kernel, through memory that both see: a driver of a card, and what has its
//! addresses and connections.
//!
//! Each end has a region that it alone writes, with places for frames in a ring and a page of counts. So either end can
//! begin anew at any time. A *life* is a number that an end takes when it begins. An end that finds another life at its
//! peer joins it: it takes the frames that came last, once more if need be. So the next life of a driver sends what the
//! last one had taken and not sent. A frame that comes twice is no harm to any protocol.
//!
//! Channels of records are no choice here: messages under way are lost with a session. Where no acknowledgement is on
//! its way, smoltcp sends again after a second only.

use crate::wire::FRAME;
use core::sync::atomic::{AtomicU64, Ordering};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

/// Places of a ring.
pub const PLACES: u64 = 128;
/// Words of a place.
const PLACE: usize = 256;
/// Words in front of the places: a page.
const HEADER: usize = 512;
/// Bytes of a region.
pub const REGION: usize = 8 * (HEADER + PLACES as usize * PLACE);

/// Nanoseconds for which a frame goes again to a peer that begins. A driver's failure is found sooner, and its next
/// life has begun by then.
pub const RECENT: u64 = 60_000_000;
/// Most frames that go again: as many stay whole while a peer joins.
const AGAIN: u64 = PLACES / 2;

/// Words of the header: the life of the end that writes it, and frames that it has written. Then come the frames that
/// it has taken from its peer, and the life of that.
const LIFE: usize = 0;
const WRITTEN: usize = 1;
const TAKEN: usize = 2;
const OF: usize = 3;

/// Words of a place: bytes of the frame, time, the frame.
const LEN: usize = 0;
const TIME: usize = 1;
const BYTES: usize = 2;

/// Bytes of the shortest frame: an Ethernet header.
const SHORTEST: usize = 14;

/// Counts of an end. All of them wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relayed {
    /// Lives of the peer that this end has joined.
    pub joined: u32,
    /// Impossible counts and lengths of the peer.
    pub wrong: u32,
    /// Frames that were taken.
    pub taken: u32,
    /// Answers to the own questions for a neighbour's address (ARP, RFC 826) among them.
    pub answers: u32,
}

/// An end.
#[derive(Debug)]
pub struct Relay<'a> {
    mine: &'a [AtomicU64],
    theirs: &'a [AtomicU64],
    life: u64,
    written: u64,
    /// Life of the peer, and frames taken of that.
    peer: u64,
    taken: u64,
    counts: Relayed,
}

impl<'a> Relay<'a> {
    /// Makes an end of two regions, of [`REGION`] bytes each. `life` is a number that no life of this end had before.
    /// `None`: a region is too small, or the life is 0.
    #[must_use]
    pub fn new(mine: &'a [AtomicU64], theirs: &'a [AtomicU64], life: u64) -> Option<Self> {
        if mine.len().min(theirs.len()) < REGION / 8 || life == 0 {
            return None;
        }
        // No life, until the counts are right.
        mine[LIFE].store(0, Ordering::Release);
        for at in [WRITTEN, TAKEN, OF] {
            mine[at].store(0, Ordering::Release);
        }
        mine[LIFE].store(life, Ordering::Release);
        Some(Self { mine, theirs, life, written: 0, peer: 0, taken: 0, counts: Relayed::default() })
    }

    /// Returns the counts.
    #[must_use]
    pub const fn counts(&self) -> Relayed {
        self.counts
    }

    /// Returns how many frames this end has written.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Looks at the peer's life, and joins a new one at the frames that came last. Returns true if it is a new one.
    pub fn join(&mut self, now: u64) -> bool {
        let life = self.theirs[LIFE].load(Ordering::Acquire);
        if life == self.peer {
            return false;
        }
        self.peer = life;
        let written = self.theirs[WRITTEN].load(Ordering::Acquire);
        let recent = |number: &u64| {
            let time = self.theirs[place(*number) + TIME].load(Ordering::Relaxed);
            (now.saturating_sub(RECENT)..=now).contains(&time)
        };
        let first = written.saturating_sub(AGAIN);
        let again = (first..written).rev().take_while(recent).count() as u64;
        self.tell(written - again);
        self.mine[OF].store(life, Ordering::Release);
        self.counts.joined = self.counts.joined.wrapping_add(u32::from(life != 0));
        life != 0
    }

    fn tell(&mut self, taken: u64) {
        self.taken = taken;
        self.mine[TAKEN].store(taken, Ordering::Release);
    }

    /// Tells if there is room for a frame.
    pub fn has_room(&mut self) -> bool {
        // A peer that has not joined took nothing: what it had taken in another life counts no more.
        let joined = self.theirs[OF].load(Ordering::Acquire) == self.life;
        let taken = if joined { self.theirs[TAKEN].load(Ordering::Acquire) } else { 0 };
        let under_way = self.written.wrapping_sub(taken);
        if joined && under_way > PLACES {
            self.counts.wrong = self.counts.wrong.wrapping_add(1);
        }
        under_way < PLACES
    }

    /// Sends a frame, if it is one and there is room for it.
    pub fn send(&mut self, frame: &[u8], now: u64) -> bool {
        if !(SHORTEST..=FRAME).contains(&frame.len()) || !self.has_room() {
            return false;
        }
        let at = place(self.written);
        self.mine[at + LEN].store(frame.len() as u64, Ordering::Relaxed);
        self.mine[at + TIME].store(now, Ordering::Relaxed);
        for (to, some) in self.mine[at + BYTES..].iter().zip(frame.chunks(8)) {
            let mut word = [0; 8];
            word[..some.len()].copy_from_slice(some);
            to.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        self.written += 1;
        self.mine[WRITTEN].store(self.written, Ordering::Release);
        true
    }

    /// Tells if the peer has written a frame that was not taken. Its word is a claim.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.peer != 0 && self.theirs[WRITTEN].load(Ordering::Acquire) != self.taken
    }

    /// Copies the oldest frame out: its bytes in `buffer`. Frames of an impossible length are passed over, at most a
    /// ring of them.
    pub fn take<'b>(&mut self, buffer: &'b mut [u8; FRAME]) -> Option<&'b mut [u8]> {
        let behind = |end: &Self| {
            let written = end.theirs[WRITTEN].load(Ordering::Acquire);
            (written, written.wrapping_sub(end.taken))
        };
        for _ in 0..PLACES {
            let (written, left) = behind(self);
            if left == 0 || self.peer == 0 {
                return None;
            }
            if left > PLACES {
                self.counts.wrong = self.counts.wrong.wrapping_add(1);
                self.tell(written);
                return None;
            }
            let at = place(self.taken);
            let len = self.theirs[at + LEN].load(Ordering::Relaxed) as usize;
            if (SHORTEST..=FRAME).contains(&len) {
                for (to, word) in buffer[..len].chunks_mut(8).zip(&self.theirs[at + BYTES..]) {
                    let word = word.load(Ordering::Relaxed).to_le_bytes();
                    to.copy_from_slice(&word[..to.len()]);
                }
                self.tell(self.taken + 1);
                self.counts.taken = self.counts.taken.wrapping_add(1);
                let frame = &mut buffer[..len];
                self.counts.answers = self.counts.answers.wrapping_add(u32::from(answers(frame)));
                return Some(frame);
            }
            self.counts.wrong = self.counts.wrong.wrapping_add(1);
            self.tell(self.taken + 1);
        }
        None
    }
}

/// Tells if a frame answers a question for an address.
fn answers(frame: &[u8]) -> bool {
    const ARP: [u8; 2] = [0x08, 0x06];
    const REPLY: [u8; 2] = [0, 2];
    frame.get(12..14) == Some(&ARP) && frame.get(20..22) == Some(&REPLY)
}

/// First word of a frame's place.
const fn place(number: u64) -> usize {
    HEADER + (number % PLACES) as usize * PLACE
}

/// An end as `smoltcp` wants a network device for Ethernet.
#[derive(Debug)]
pub struct Relayer<'a> {
    relay: Relay<'a>,
    incoming: [u8; FRAME],
    outgoing: [u8; FRAME],
}

impl<'a> Relayer<'a> {
    /// Makes a device.
    #[must_use]
    pub const fn new(relay: Relay<'a>) -> Self {
        Self { relay, incoming: [0; FRAME], outgoing: [0; FRAME] }
    }

    /// Returns the end.
    pub const fn relay(&mut self) -> &mut Relay<'a> {
        &mut self.relay
    }
}

/// Bytes of the longest frame that `smoltcp` makes: an Ethernet header and a packet.
const UNIT: usize = SHORTEST + 1500;

impl<'a> Device for Relayer<'a> {
    type RxToken<'b>
        = Taken<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Room<'b, 'a>
    where
        Self: 'b;

    fn receive(&mut self, now: Instant) -> Option<(Taken<'_>, Room<'_, 'a>)> {
        // An answer needs room; the frame stays until there is some.
        if !self.relay.has_room() {
            return None;
        }
        let frame = self.relay.take(&mut self.incoming)?;
        Some((Taken(frame), Room { relay: &mut self.relay, buffer: &mut self.outgoing, now }))
    }

    fn transmit(&mut self, now: Instant) -> Option<Room<'_, 'a>> {
        let room = self.relay.has_room();
        room.then_some(Room { relay: &mut self.relay, buffer: &mut self.outgoing, now })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = UNIT;
        capabilities
    }
}

/// A frame that came, copied.
#[derive(Debug)]
pub struct Taken<'a>(&'a mut [u8]);

impl RxToken for Taken<'_> {
    fn consume<T, F: FnOnce(&[u8]) -> T>(self, look: F) -> T {
        look(self.0)
    }
}

/// Room for a frame, before it is copied.
#[derive(Debug)]
pub struct Room<'b, 'a> {
    relay: &'b mut Relay<'a>,
    buffer: &'b mut [u8; FRAME],
    now: Instant,
}

impl TxToken for Room<'_, '_> {
    fn consume<T, F: FnOnce(&mut [u8]) -> T>(self, len: usize, fill: F) -> T {
        // No more than the capabilities say: they are below FRAME.
        let frame = &mut self.buffer[..len];
        let done = fill(frame);
        let nanos = u64::try_from(self.now.total_micros()).unwrap_or(0).saturating_mul(1_000);
        self.relay.send(frame, nanos);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> Vec<AtomicU64> {
        (0..REGION / 8).map(|_| AtomicU64::new(0)).collect()
    }

    fn frame(n: u64) -> Vec<u8> {
        let len = SHORTEST + (n as usize * 37) % (FRAME - SHORTEST + 1);
        (0..len).map(|at| (n as usize * 7 + at) as u8).collect()
    }

    fn next(end: &mut Relay<'_>) -> Option<Vec<u8>> {
        end.take(&mut [0; FRAME]).map(|frame| frame.to_vec())
    }

    #[test]
    fn frames_arrive_whole_and_once() {
        let (a, b) = (region(), region());
        let mut one = Relay::new(&a, &b, 1).expect("it fits");
        let mut two = Relay::new(&b, &a, 2).expect("it fits");
        assert!(one.join(0) && two.join(0) && !two.join(0));
        for round in 0..300 {
            for n in 0..round % 5 {
                assert!(one.send(&frame(round + n), 5) && two.send(&frame(round * n), 5));
            }
            for n in 0..round % 5 {
                assert_eq!(next(&mut two), Some(frame(round + n)));
                assert_eq!(next(&mut one), Some(frame(round * n)));
            }
            assert!(next(&mut one).is_none() && next(&mut two).is_none());
        }
        assert_eq!((one.counts().wrong, two.counts().wrong), (0, 0));
    }

    #[test]
    fn a_full_ring_takes_no_more() {
        let (a, b) = (region(), region());
        let mut one = Relay::new(&a, &b, 1).expect("it fits");
        let mut two = Relay::new(&b, &a, 2).expect("it fits");
        let sent = (0..1000).take_while(|n| one.send(&frame(*n), 5)).count() as u64;
        assert_eq!(sent, PLACES);
        // They are old: its peer needs none of them.
        two.join(5 + 2 * RECENT);
        assert!(next(&mut two).is_none() && one.send(&frame(7), 5 + 2 * RECENT));
        assert_eq!(next(&mut two), Some(frame(7)));
    }

    #[test]
    fn a_driver_that_begins_anew_sends_what_came_last() {
        let (a, b) = (region(), region());
        let mut server = Relay::new(&a, &b, 1).expect("it fits");
        let mut driver = Relay::new(&b, &a, 2).expect("it fits");
        driver.join(0);
        for n in 0..PLACES {
            server.send(&frame(n), n);
            next(&mut driver).expect("a frame");
        }
        // The last ten of them are recent.
        for n in 0..10 {
            server.send(&frame(n), RECENT + 1000 + n);
        }
        next(&mut driver).expect("one was taken, and is lost");
        let mut driver = Relay::new(&b, &a, 3).expect("it fits");
        assert!(driver.join(2 * RECENT));
        let again: Vec<_> = std::iter::from_fn(|| next(&mut driver)).collect();
        assert_eq!(again, (0..10).map(frame).collect::<Vec<_>>());
        // And no more of them than stay whole.
        (0..PLACES).for_each(|n| assert!(server.send(&frame(n), 2 * RECENT)));
        let mut driver = Relay::new(&b, &a, 4).expect("it fits");
        driver.join(2 * RECENT);
        let again = std::iter::from_fn(|| next(&mut driver)).count() as u64;
        assert_eq!(again, AGAIN);
    }

    #[test]
    fn regions_and_lives_are_checked() {
        let (a, b) = (region(), region());
        assert!(Relay::new(&a[1..], &b, 1).is_none());
        assert!(Relay::new(&a, &b[1..], 1).is_none() && Relay::new(&a, &b, 0).is_none());
        let mut one = Relay::new(&a, &b, 1).expect("it fits");
        assert!(!one.send(&[0; SHORTEST - 1], 1) && !one.send(&[0; FRAME + 1], 1));
    }

    proptest::proptest! {
        /// By any words of a peer an end does a bounded number of steps, and frames go again behind its next life.
        #[test]
        fn garbage_is_found_and_outlived(
            words in proptest::collection::vec((0usize..HEADER + 3 * PLACE, proptest::num::u64::ANY), 1..40),
            now in proptest::num::u64::ANY,
        ) {
            let (a, b) = (region(), region());
            let mut server = Relay::new(&a, &b, 1).expect("it fits");
            for (at, word) in words {
                b[at].store(word, Ordering::Relaxed);
                server.join(now);
                let taken = std::iter::from_fn(|| next(&mut server)).take(1000).count() as u64;
                proptest::prop_assert!(taken <= PLACES);
                server.send(&frame(9), now);
            }
            let mut driver = Relay::new(&b, &a, 99).expect("it fits");
            driver.join(now);
            while next(&mut driver).is_some() {}
            server.join(now);
            while next(&mut server).is_some() {}
            proptest::prop_assert!(driver.send(&frame(3), now) && server.send(&frame(4), now));
            proptest::prop_assert_eq!(next(&mut server), Some(frame(3)));
            proptest::prop_assert_eq!(next(&mut driver), Some(frame(4)));
        }
    }
}
