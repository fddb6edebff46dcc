//! The device side of a virtio device with its driver in another sandbox: portable, without `unsafe`, over a
//! channel's memory. On a Linux the driver's side is its stock driver and our module (`linux/module`). Other
//! guests have [`driver`], and a disk over it, [`disk`].
//!
//! Every word of the driver is a claim: it is read once, checked, and used. The driver's words bound no loop. A
//! driver that writes something impossible has its session ended and is reported once ([`News::Corrupted`]). It
//! begins another session when it resets its device.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod block;
pub mod disk;
pub mod driver;
pub mod layout;
pub mod net;
mod queue;
mod served;

pub use queue::{Chain, Corrupted, Part, Queue};
pub use served::{Sections, Served};

use bulkhead_channel::page::{Hello, Phase, following};
use bulkhead_channel::{Bytes, Memory, Misfit, Word};
use layout::*;

/// Description of a device.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// Its kind (virtio 1.2, 5): 1 a network card, 3 a console.
    pub device: u32,
    /// Its features; [`VERSION_1`] comes by itself.
    pub features: u64,
    /// Its configuration space.
    pub config: &'a [u8],
    /// Sizes of its queues, powers of two up to [`NUM`].
    pub queues: &'a [u16],
}

/// News of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It is ready, with these features.
    Begun(u64),
    /// It has left, or begins anew: the buffers given to it are gone.
    Lost,
    /// It wrote something impossible.
    Corrupted,
}

/// A device.
#[derive(Debug)]
pub struct Device<M: Memory> {
    mine: M,
    theirs: M,
    section: usize,
    hello: M::Word,
    words: Words<M>,
    features: u64,
    sizes: u64,
    epoch: u32,
    /// The driver's epoch that it answers; 0: it answers no epoch.
    driver: u32,
    stage: Stage,
    /// Sessions that have begun: their chains carry the number.
    sessions: u64,
    queues: [Option<Queue<M>>; QUEUES],
}

/// How far the session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Apart,
    Up,
    Spoilt,
}

/// The driver's words.
#[derive(Debug)]
struct Words<M: Memory> {
    hello: M::Word,
    status: M::Word,
    accepted: M::Word,
    sizes: M::Word,
}

impl<M: Memory> Device<M> {
    /// Writes the device's description, and begins to wait for a driver. `mine` is the device's section, `theirs` the
    /// driver's, each of `section` bytes.
    ///
    /// # Errors
    /// The sections are too small, or there is no such device.
    pub fn open(mine: M, theirs: M, section: usize, offer: &Offer<'_>) -> Result<Self, Misfit> {
        let own = |at| mine.word(at).ok_or(Misfit);
        let their = |at| theirs.word(at).ok_or(Misfit);
        let words = Words::<M> {
            hello: their(HELLO)?,
            status: their(STATUS)?,
            accepted: their(ACCEPTED)?,
            sizes: their(SIZES)?,
        };
        let whole = |region: &M| region.bytes(0, section).is_some() && section > POOL;
        if !whole(&mine) || !whole(&theirs) {
            return Err(Misfit);
        }
        let sizes = sizes(offer.queues).ok_or(Misfit)?;
        let features = offer.features | VERSION_1;
        let hello = own(HELLO)?;
        // A section that was cleared has forgotten its epoch; the driver may remember it.
        let last = match Hello::of(hello.relaxed()).epoch {
            0 => Hello::of(words.hello.relaxed()).seen,
            epoch => epoch,
        };
        let config = mine.bytes(CONFIG, CONFIG_LEN).ok_or(Misfit)?;
        if offer.config.len() > CONFIG_LEN || !config.write(0, offer.config) {
            return Err(Misfit);
        }
        own(DEVICE)?.set(u64::from(offer.device) | (offer.queues.len() as u64) << 32);
        own(OFFERED)?.set(features);
        own(SIZES)?.set(sizes);
        own(CONFIG_WORD)?.set(offer.config.len() as u64);
        let (epoch, queues) = (following(last), [const { None }; QUEUES]);
        let stage = Stage::Apart;
        let driver = 0;
        let device = Self {
            mine,
            theirs,
            section,
            hello,
            words,
            features,
            sizes,
            epoch,
            driver,
            stage,
            sessions: 0,
            queues,
        };
        device.say(Phase::Open);
        Ok(device)
    }

    /// Tells if the driver came, went or begins anew. Called before each round of work: a queue of an older session
    /// gives garbage.
    pub fn attend(&mut self) -> Option<News> {
        let here = self.here();
        if self.driver != 0 && here != Some(self.driver) {
            let was = self.stage;
            self.part();
            if was == Stage::Up {
                return Some(News::Lost);
            }
        }
        if let Some(epoch) = here.filter(|_| self.driver == 0) {
            self.answer(epoch);
        }
        let ready = self.driver != 0 && self.stage == Stage::Apart;
        if ready && self.words.status.acquire() & DRIVER_OK != 0 {
            return Some(self.begin());
        }
        None
    }

    /// Returns the epoch of a driver that speaks to this device.
    fn here(&self) -> Option<u32> {
        let hello = Hello::of(self.words.hello.acquire());
        let here = hello.phase == Phase::Open && hello.seen == self.epoch && hello.epoch != 0;
        here.then_some(hello.epoch)
    }

    /// Tells if the driver has given up on this device: an answer in the session that was over last cannot be. It waits
    /// for a device that is opened anew.
    pub fn is_given_up(&self) -> bool {
        let hello = Hello::of(self.words.hello.acquire());
        let left = hello.phase == Phase::Absent && hello.seen == self.epoch;
        left && self.words.status.acquire() & FAILED != 0
    }

    /// One of its queues, while there is a driver that uses it.
    pub fn queue(&mut self, number: usize) -> Option<&mut Queue<M>> {
        self.queues.get_mut(number)?.as_mut().filter(|_| self.stage == Stage::Up)
    }

    /// Ends the session: a queue has said [`Corrupted`]. [`News::Lost`] if the driver begins anew meanwhile: it says
    /// so before it clears its rings.
    pub fn spoilt(&mut self) -> News {
        if self.driver != 0 && self.here() != Some(self.driver) {
            self.part();
            return News::Lost;
        }
        self.stage = Stage::Spoilt;
        News::Corrupted
    }

    /// Leaves.
    pub fn close(mut self) {
        self.part();
        self.say(Phase::Closed);
    }

    /// A new session: nothing was used in it.
    fn answer(&mut self, driver: u32) {
        for queue in 0..QUEUES {
            if let Some(word) = self.mine.word(used(queue)) {
                word.set(0);
            }
        }
        self.driver = driver;
        self.say(Phase::Open);
    }

    fn part(&mut self) {
        (self.driver, self.stage) = (0, Stage::Apart);
        self.queues = [const { None }; QUEUES];
    }

    /// The driver says that it is ready.
    fn begin(&mut self) -> News {
        self.sessions += 1;
        let (features, sizes) = (self.words.accepted.acquire(), self.words.sizes.acquire());
        if features & !self.features != 0 || features & VERSION_1 == 0 {
            return self.spoilt();
        }
        for number in 0..QUEUES {
            let (size, offered) =
                ((sizes >> (16 * number)) as u16, (self.sizes >> (16 * number)) as u16);
            if size == 0 {
                continue;
            }
            let fits = size <= offered && size.is_power_of_two();
            self.queues[number] =
                Queue::open(&self.mine, &self.theirs, self.section, number, size, self.sessions)
                    .filter(|_| fits);
            if self.queues[number].is_none() {
                return self.spoilt();
            }
        }
        self.stage = Stage::Up;
        News::Begun(features)
    }

    fn say(&self, phase: Phase) {
        self.hello.fenced(Hello { phase, epoch: self.epoch, seen: self.driver }.word());
    }
}

/// Sizes of queues in one word.
fn sizes(queues: &[u16]) -> Option<u64> {
    let fits = |size: &u16| size.is_power_of_two() && (2..=NUM).contains(&usize::from(*size));
    let all = queues.len() <= QUEUES && !queues.is_empty() && queues.iter().all(fits);
    all.then(|| queues.iter().rev().fold(0, |word, size| word << 16 | u64::from(*size)))
}
