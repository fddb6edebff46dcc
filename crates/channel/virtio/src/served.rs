//! A device's end with a device of the machine behind it, which reaches the driver's buffers itself. A session that is
//! over drains: the next one is answered when nothing reaches its buffers any more.

use crate::{Chain, Device, News, Offer, Queue};
use bulkhead_channel::bell::{Arm, Caller, Ring};
use bulkhead_channel::{Memory, Misfit};

/// Memory of a driver's channel.
#[derive(Clone, Debug)]
pub struct Sections<M> {
    /// The device's section.
    pub mine: M,
    /// The driver's section.
    pub theirs: M,
    /// Bytes of each.
    pub len: usize,
    /// Bus address of the driver's section, behind which the device's lies.
    pub bus: u64,
}

impl<M: Memory> Sections<M> {
    fn open(&self, offer: &Offer<'_>) -> Result<Device<M>, Misfit> {
        Device::open(self.mine.clone(), self.theirs.clone(), self.len, offer)
    }
}

/// An end.
#[derive(Debug)]
pub struct Served<M: Memory, R> {
    device: Device<M>,
    sections: Sections<M>,
    caller: Option<Caller<M, R>>,
    arm: Option<Arm<M>>,
    /// The session is over, and its buffers may still be reached.
    draining: bool,
    /// The device is to be opened anew, when that is over.
    renew: bool,
    /// The driver is to be told of something.
    news: bool,
}

impl<M: Memory, R: Ring> Served<M, R> {
    /// Opens an end. `caller` rings the driver, if it wants to be woken.
    ///
    /// # Errors
    /// The sections are too small, or the description cannot be.
    pub fn open(
        sections: Sections<M>,
        caller: Option<Caller<M, R>>,
        offer: &Offer<'_>,
    ) -> Result<Self, Misfit> {
        let device = sections.open(offer)?;
        // After the end itself: the armed word has its epoch.
        let arm = caller.is_some().then(|| Arm::open(&sections.mine)).transpose()?;
        let (draining, renew, news) = (false, false, true);
        Ok(Self { device, sections, caller, arm, draining, renew, news })
    }

    /// Returns the channel's memory.
    pub const fn sections(&self) -> &Sections<M> {
        &self.sections
    }

    /// Asks to be woken, or asks no longer. Returns false if nobody wakes it.
    pub fn arm(&mut self, wanted: bool) -> bool {
        let Some(arm) = &mut self.arm else { return false };
        if wanted {
            arm.arm()
        } else {
            arm.disarm()
        }
        true
    }

    /// Tells if the driver has given up on its device, and that was not mended yet.
    pub fn complains(&mut self) -> bool {
        !self.is_up() && !self.renew && self.device.is_given_up()
    }

    /// Opens the device anew, as soon as nothing reaches a buffer of the last session any more.
    pub const fn renew(&mut self) {
        self.renew = true;
    }

    /// Goes on with the session. `reached`: something may still reach the buffers of the last one. The description is
    /// that of [`Self::open`].
    pub fn attend(&mut self, reached: bool, offer: &Offer<'_>) -> Option<News> {
        if self.draining && reached {
            return None;
        }
        self.draining = false;
        // Both fitted before.
        if core::mem::take(&mut self.renew)
            && let Ok(device) = self.sections.open(offer)
        {
            self.device = device;
            self.arm = self.arm.take().and_then(|_| Arm::open(&self.sections.mine).ok());
            self.news = true;
        }
        let news = self.device.attend();
        news.map(|news| self.hear(news))
    }

    /// Keeps in mind what a piece of news entails.
    fn hear(&mut self, news: News) -> News {
        self.draining |= matches!(news, News::Lost | News::Corrupted);
        self.news = true;
        news
    }

    /// Ends the session of a driver that wrote something impossible.
    pub fn spoilt(&mut self) -> News {
        let news = self.device.spoilt();
        self.hear(news)
    }

    /// Tells if there is a session.
    pub fn is_up(&mut self) -> bool {
        self.has(0)
    }

    /// Tells if there is a session with this queue.
    pub fn has(&mut self, queue: usize) -> bool {
        self.device.queue(queue).is_some()
    }

    /// Takes the next chain of a queue; `None`: there is none, or no session.
    ///
    /// # Errors
    /// It cannot be, so the session is over.
    pub fn take(&mut self, queue: usize) -> Result<Option<Chain>, News> {
        let taken = self.device.queue(queue).map_or(Ok(None), Queue::take);
        taken.map_err(|_| self.spoilt())
    }

    /// Lets the chain of a queue that was taken last come again.
    pub fn untake(&mut self, queue: usize) {
        if let Some(queue) = self.device.queue(queue) {
            queue.untake(1);
        }
    }

    /// Gives a chain back, with so many bytes written. Without a session it is nobody's.
    pub fn used(&mut self, queue: usize, chain: &Chain, written: usize) {
        if let Some(queue) = self.device.queue(queue) {
            queue.used(chain, written);
            self.news = true;
        }
    }

    /// Tells the driver of all that was done in the first queues, and wakes it if it sleeps.
    pub fn tell(&mut self, queues: usize) {
        // Without a session the device's hello may have changed.
        if !self.news && self.is_up() {
            return;
        }
        self.news = false;
        (0..queues).filter_map(|n| self.device.queue(n).map(Queue::tell)).for_each(drop);
        if let Some(caller) = &mut self.caller {
            caller.tell();
        }
    }
}
