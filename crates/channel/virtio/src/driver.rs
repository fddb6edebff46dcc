//! The driver's side of a virtio device, for clients without a Linux: one queue, with buffers that the
//! caller chooses.
//!
//! Every word of the device's side is a claim: it is read once, checked, and used. A device's side that writes
//! something impossible is told of once ([`Corrupted`]); a new session follows only when it begins anew.

use crate::layout::*;
use crate::queue::{Corrupted, Part};
use bulkhead_channel::page::{Hello, Phase, following};
use bulkhead_channel::{Bytes, Memory, Misfit, Word};

/// Number of the queue.
const QUEUE: usize = 0;

/// News of the device's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// It answers: requests go there from now on. These are the features of both.
    Begun(u64),
    /// It has left, or begins anew: requests under way are lost.
    Lost,
}

/// Requests under way, at most: each has two descriptors.
pub const REQUESTS: usize = NUM / 2;

/// The driver's side.
#[derive(Debug)]
pub struct Driver<M: Memory> {
    mine: M,
    theirs: M,
    section: usize,
    /// Kind of device that it drives.
    kind: u32,
    /// Features that it knows.
    knows: u64,
    hello: M::Word,
    answer: M::Word,
    epoch: u32,
    /// Epoch of the device's side that it answers; 0: it answers no epoch.
    peer: u32,
    /// Epoch of a side that wrote something impossible.
    refused: u32,
    rings: Option<Rings<M>>,
    begun: bool,
}

/// The queue in a session.
#[derive(Debug)]
struct Rings<M: Memory> {
    features: u64,
    desc: M::Bytes,
    avail: M::Bytes,
    available: M::Word,
    used: M::Bytes,
    told: M::Word,
    num: u16,
    given: u16,
    done: u16,
    /// Requests under way, by number: how many bytes may be written.
    under_way: [Option<usize>; REQUESTS],
    /// The first entry of `avail` shares the word that tells how many there are.
    first: [u16; 2],
}

impl<M: Memory> Driver<M> {
    /// Begins to wait for a device of a kind. `mine` is the driver's section, `theirs` the device's, each of `section`
    /// bytes.
    ///
    /// # Errors
    /// The sections are too small.
    pub fn open(mine: M, theirs: M, section: usize, kind: u32, knows: u64) -> Result<Self, Misfit> {
        let whole = |region: &M| region.bytes(0, section).is_some() && section > POOL;
        if !whole(&mine) || !whole(&theirs) {
            return Err(Misfit);
        }
        let (hello, answer) = (mine.word(HELLO).ok_or(Misfit)?, theirs.word(HELLO).ok_or(Misfit)?);
        // A section that was cleared has forgotten its epoch; the device's side may remember it.
        let epoch = match Hello::of(hello.relaxed()).epoch {
            0 => Hello::of(answer.relaxed()).seen,
            epoch => epoch,
        };
        let knows = knows | VERSION_1;
        let (peer, refused, rings, begun) = (0, 0, None, false);
        let mut driver = Self {
            mine,
            theirs,
            section,
            kind,
            knows,
            hello,
            answer,
            epoch,
            peer,
            refused,
            rings,
            begun,
        };
        driver.anew();
        Ok(driver)
    }

    /// Goes on with the agreement, and tells if the device's side came or went. Called before each round of work.
    pub fn attend(&mut self) -> Option<Peer> {
        let hello = Hello::of(self.answer.acquire());
        let there = hello.phase == Phase::Open && hello.epoch != 0 && hello.epoch != self.refused;
        if self.peer != 0 && (!there || hello.epoch != self.peer) {
            let was = self.begun;
            self.peer = 0;
            self.anew();
            return was.then_some(Peer::Lost);
        }
        if there && self.peer == 0 {
            self.peer = hello.epoch;
            self.describe();
            self.say(Phase::Open);
        }
        if self.begun || self.peer == 0 || hello.seen != self.epoch {
            return None;
        }
        // Another kind of device has no rings, and no session begins.
        let features = self.rings.as_ref()?.features;
        self.begun = true;
        Some(Peer::Begun(features))
    }

    /// Returns how many requests can be under way in this session.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.rings.as_ref().map_or(0, |rings| usize::from(rings.num / 2))
    }

    /// Leaves the device alone until it begins anew: it is not the one that is wanted.
    pub fn refuse(&mut self) {
        self.refused = self.peer;
        self.reset();
    }

    /// Ends the session, and begins another: what is under way comes to nothing.
    pub fn reset(&mut self) {
        self.peer = 0;
        self.anew();
    }

    /// Reads the device's configuration; behind its end there are zeros. `false`: no configuration is that long.
    #[must_use]
    pub fn config(&self, at: usize, to: &mut [u8]) -> bool {
        let len = self.theirs.word(CONFIG_WORD).map_or(0, |word| word.acquire() as u32 as usize);
        let config = self.theirs.bytes(CONFIG, CONFIG_LEN);
        let read = config.is_some_and(|config| config.read(at, to));
        to.iter_mut().skip(len.saturating_sub(at)).for_each(|byte| *byte = 0);
        read
    }

    /// Makes a request of a number, below half of the queue's size, that is not under way. The device reads a part of
    /// the driver's section, and writes a part of its own. It sees the request after [`Driver::tell`]. `false`: there
    /// is no session, or such a request cannot be.
    #[must_use]
    pub fn put(&mut self, number: u16, reads: Part, writes: Part) -> bool {
        let section = self.section;
        let Some(rings) = self.rings.as_mut().filter(|_| self.begun) else { return false };
        let Some(slot) = rings.under_way.get_mut(usize::from(number)) else { return false };
        if slot.is_some() || number >= rings.num / 2 {
            return false;
        }
        *slot = Some(writes.len);
        let head = 2 * number;
        rings.describe(head, reads.at, reads.len, NEXT, head + 1);
        rings.describe(head + 1, section + writes.at, writes.len, WRITE, 0);
        let at = rings.given & (rings.num - 1);
        if let Some(first) = rings.first.get_mut(usize::from(at)) {
            *first = head;
        }
        rings.avail.write(4 + 2 * usize::from(at), &head.to_le_bytes());
        rings.given = rings.given.wrapping_add(1);
        true
    }

    /// Tells the device of all requests.
    pub fn tell(&mut self) {
        if let Some(rings) = &self.rings {
            let [first, second] = rings.first.map(u64::from);
            rings.available.release(u64::from(rings.given) << 16 | first << 32 | second << 48);
        }
    }

    /// Returns a request that the device has used, and how many bytes it says that it has written.
    ///
    /// # Errors
    /// The device's side wrote something impossible; the session is over.
    pub fn used(&mut self) -> Result<Option<(u16, usize)>, Corrupted> {
        let Some(rings) = self.rings.as_mut().filter(|_| self.begun) else { return Ok(None) };
        let found = rings.used();
        if found.is_err() {
            self.give_up();
        }
        found
    }

    /// Ends the session, because the device's side wrote something impossible, and says so. A new session follows when
    /// that side begins anew.
    pub fn give_up(&mut self) {
        let seen = self.peer;
        self.refuse();
        if let Some(status) = self.mine.word(STATUS) {
            status.release(FAILED);
        }
        self.hello.fenced(Hello { phase: Phase::Absent, epoch: self.epoch, seen }.word());
    }

    /// Begins a new epoch with empty rings. It says so before it clears them: the device's side then knows why.
    fn anew(&mut self) {
        (self.rings, self.begun) = (None, false);
        self.epoch = following(self.epoch);
        self.say(Phase::Absent);
        for at in [STATUS, ACCEPTED, SIZES].into_iter().chain((0..QUEUES).map(avail)) {
            if let Some(word) = self.mine.word(at) {
                word.set(0);
            }
        }
        self.say(Phase::Open);
    }

    /// Reads the device's description, and writes the driver's choice.
    fn describe(&mut self) {
        let word = |at| self.theirs.word(at).map_or(0, |word| word.acquire());
        let (kind, offered, sizes) = (word(DEVICE) as u32, word(OFFERED), word(SIZES));
        let size = sizes as u16;
        let fits = kind == self.kind && offered & VERSION_1 != 0;
        let fits = fits && size.is_power_of_two() && (4..=NUM as u16).contains(&size);
        let features = offered & self.knows;
        let rings = Rings::open(&self.mine, &self.theirs, size, features);
        self.rings = rings.filter(|_| fits);
        if self.rings.is_none() {
            return;
        }
        for (at, value) in [(ACCEPTED, features), (SIZES, size.into()), (STATUS, DRIVER_OK)] {
            if let Some(word) = self.mine.word(at) {
                word.release(value);
            }
        }
    }

    fn say(&self, phase: Phase) {
        self.hello.fenced(Hello { phase, epoch: self.epoch, seen: self.peer }.word());
    }
}

impl<M: Memory> Rings<M> {
    fn open(mine: &M, theirs: &M, num: u16, features: u64) -> Option<Self> {
        let size = usize::from(num);
        Some(Self {
            features,
            desc: mine.bytes(desc(QUEUE), 16 * size)?,
            avail: mine.bytes(avail(QUEUE), 4 + 2 * size)?,
            available: mine.word(avail(QUEUE))?,
            used: theirs.bytes(used(QUEUE), 4 + 8 * size)?,
            told: theirs.word(used(QUEUE))?,
            num,
            given: 0,
            done: 0,
            under_way: [None; REQUESTS],
            first: [0; 2],
        })
    }

    fn describe(&self, number: u16, at: usize, len: usize, flags: u16, next: u16) {
        let rest = len as u64 & 0xFFFF_FFFF | u64::from(flags) << 32 | u64::from(next) << 48;
        self.desc.write(16 * usize::from(number), &(at as u64).to_le_bytes());
        self.desc.write(16 * usize::from(number) + 8, &rest.to_le_bytes());
    }

    fn used(&mut self) -> Result<Option<(u16, usize)>, Corrupted> {
        let index = (self.told.acquire() >> 16) as u16;
        let waiting = index.wrapping_sub(self.done);
        if waiting == 0 {
            return Ok(None);
        }
        let mut entry = [0; 8];
        let slot = usize::from(self.done & (self.num - 1));
        // No more than it was given: `given` is never further on than the ring's size.
        if waiting > self.given.wrapping_sub(self.done) || !self.used.read(4 + 8 * slot, &mut entry)
        {
            return Err(Corrupted);
        }
        let entry = u64::from_le_bytes(entry);
        let (head, written) = (entry as u32, (entry >> 32) as usize);
        let number = (head / 2) as usize;
        let room = self.under_way.get_mut(number).filter(|_| head % 2 == 0).ok_or(Corrupted)?;
        if room.take().ok_or(Corrupted)? < written {
            return Err(Corrupted);
        }
        self.done = self.done.wrapping_add(1);
        Ok(Some((number as u16, written)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, News, Offer};
    use bulkhead_channel::host::Region;
    use std::vec::Vec;

    const SECTION: usize = POOL + 4096;
    const KIND: u32 = 2;
    const FLUSH: u64 = 1 << 9;
    const OFFER: Offer<'_> =
        Offer { device: KIND, features: FLUSH | 1 << 5, config: &[7, 8], queues: &[8] };

    fn regions() -> [Region; 2] {
        [Region::new(SECTION), Region::new(SECTION)]
    }

    fn driver([mine, theirs]: &[Region; 2]) -> Driver<Region> {
        Driver::open(mine.clone(), theirs.clone(), SECTION, KIND, FLUSH).expect("it fits")
    }

    fn device([theirs, mine]: &[Region; 2]) -> Device<Region> {
        Device::open(mine.clone(), theirs.clone(), SECTION, &OFFER).expect("it fits")
    }

    fn meet(driver: &mut Driver<Region>, device: &mut Device<Region>) {
        assert_eq!(driver.attend(), None);
        // The device answers the epoch, then sees that the driver is ready.
        assert_eq!(device.attend(), Some(News::Begun(FLUSH | VERSION_1)));
        assert_eq!(driver.attend(), Some(Peer::Begun(FLUSH | VERSION_1)));
        assert_eq!(driver.attend(), None);
    }

    const READS: Part = Part { at: POOL, len: 16 };
    const WRITES: Part = Part { at: POOL + 512, len: 513 };

    #[test]
    fn requests_go_there_and_come_back_in_any_order() {
        let regions = regions();
        let (mut driver, mut device) = (driver(&regions), device(&regions));
        assert!(!driver.put(0, READS, WRITES));
        meet(&mut driver, &mut device);
        let mut config = [0; 2];
        assert!(driver.config(0, &mut config) && config == [7, 8]);
        // Round the ring of eight more than once.
        for round in 0..5 {
            assert!((0..3).all(|number| driver.put(number, READS, WRITES)));
            assert!(!driver.put(1, READS, WRITES) && !driver.put(4, READS, WRITES));
            driver.tell();
            assert_eq!(device.attend(), None);
            let queue = device.queue(0).expect("a session");
            let chains: Vec<_> =
                core::iter::from_fn(|| queue.take().expect("an honest driver")).collect();
            assert_eq!(chains.len(), 3, "round {round}");
            assert!(chains.iter().all(|chain| (chain.reads, chain.writes) == (READS, WRITES)));
            for (n, chain) in chains.iter().enumerate().rev() {
                queue.used(chain, n);
            }
            queue.tell();
            let used: Vec<_> =
                core::iter::from_fn(|| driver.used().expect("an honest device")).collect();
            assert_eq!(used, [(2, 2), (1, 1), (0, 0)]);
        }
    }

    #[test]
    fn either_side_begins_anew() {
        let regions = regions();
        let (mut driver, mut first) = (driver(&regions), device(&regions));
        meet(&mut driver, &mut first);
        assert!(driver.put(0, READS, WRITES));
        let mut second = device(&regions);
        assert_eq!(driver.attend(), Some(Peer::Lost));
        meet(&mut driver, &mut second);
        assert!(driver.put(0, READS, WRITES));
        driver.reset();
        assert_eq!(second.attend(), Some(News::Lost));
        meet(&mut driver, &mut second);
    }

    #[test]
    fn what_cannot_be_ends_the_session() {
        // An index too far on, a head that was not given, an odd one, more bytes than there is room for.
        for (index, id, len) in [(9u64, 0u64, 0u64), (1, 2, 0), (1, 1, 0), (1, 0, 514)] {
            let regions = regions();
            let (mut driver, mut device) = (driver(&regions), device(&regions));
            meet(&mut driver, &mut device);
            assert!(driver.put(0, READS, WRITES));
            driver.tell();
            let rings = &regions[1];
            rings.poke(used(0) / 8, index << 16 | id << 32);
            rings.poke(used(0) / 8 + 1, len);
            assert_eq!(driver.used(), Err(Corrupted), "{index} {id} {len}");
            // That side is not answered again before it begins anew.
            assert_eq!(driver.attend(), None);
            assert_eq!((driver.used(), driver.peer), (Ok(None), 0));
            // It is told so, and the next one is not.
            assert_eq!(device.attend(), Some(News::Lost));
            assert!(device.is_given_up());
            let mut next = self::device(&regions);
            meet(&mut driver, &mut next);
            assert!(!next.is_given_up());
            // A driver that only begins anew has no complaint.
            driver.reset();
            assert_eq!(next.attend(), Some(News::Lost));
            assert!(!next.is_given_up());
        }
    }
}
