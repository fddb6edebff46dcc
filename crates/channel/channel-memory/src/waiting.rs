//! Ends of channels with messages of bytes ([`crate::any`]) that wake the other end, wait and sleep, for C and for
//! processes. An environment says how it rings and sleeps, and how patient it is.
#![forbid(unsafe_code)]

use crate::Mapping;
use crate::any::{In, Out};
use crate::typed::{Doorbell, Pair};
use bulkhead_channel::adaptive::{Platform, Sleeper};
use bulkhead_channel::bell::{Caller, Ring};
use bulkhead_channel::{Misfit, Stop};

/// How long an end waits.
pub trait Patience {
    /// Tells if it has waited for long enough.
    fn is_over(&self) -> bool;
    /// Rests before the next look of an end that is not woken.
    fn rest(&mut self);
}

/// A place to sleep within a patience.
pub trait Bed: Platform {
    /// Patience of its sleepers.
    type Patience: Patience;
    /// Prepares sleeps that end with the patience. False if this end cannot sleep here.
    fn prepare(&mut self, patience: &Self::Patience) -> bool;
    /// Is done with the event that woke another loop.
    fn settle(&mut self) {}
}

/// Tells if there was nothing yet.
const fn waits<T>(found: &Result<T, Stop>) -> bool {
    matches!(found, Err(Stop::Wait | Stop::Apart))
}

/// The end that sends.
#[derive(Debug)]
pub struct Sender<'a, R> {
    end: Out<'a>,
    bell: Option<Caller<Mapping<'a>, R>>,
    longest: usize,
}

impl<'a, R: Ring> Sender<'a, R> {
    /// Opens it.
    ///
    /// # Errors
    /// This sandbox has the other end, or the channel carries no messages.
    pub fn open(pair: &Pair<'a>, ring: impl FnOnce(Doorbell) -> Option<R>) -> Result<Self, Misfit> {
        Ok(Self { end: Out::open(pair)?, bell: pair.caller(ring), longest: pair.longest() })
    }

    /// Returns the length of the longest message; of a queue and a mailbox those of each.
    #[must_use]
    pub const fn longest(&self) -> usize {
        self.longest
    }

    /// Does something with the end, and wakes the receiver if it sleeps and there may be news for it.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn with<T>(
        &mut self,
        work: impl FnOnce(&mut Out<'a>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let done = work(&mut self.end);
        match &mut self.bell {
            Some(bell) => bell.after(done),
            None => done,
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`Stop::Wait`] if there is no room, [`Stop::Size`], or news of the receiver.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Stop> {
        let whole = message.len() == self.longest;
        self.with(|end| match end {
            // A shorter message would be followed by the rest of an older one.
            Out::Queue(_) | Out::Mailbox(_) if !whole => Err(Stop::Size),
            end => end.send(message),
        })
    }

    /// Sends a message as soon as there is room and a receiver, within the patience.
    ///
    /// # Errors
    /// [`Stop::Size`], the last reason to wait, or news of the receiver.
    pub fn send_within(
        &mut self,
        message: &[u8],
        patience: &mut impl Patience,
    ) -> Result<(), Stop> {
        loop {
            let sent = self.send(message);
            if !waits(&sent) || patience.is_over() {
                return sent;
            }
            patience.rest();
        }
    }

    /// Goes on with the agreement, and tells if there is a session. A mailbox needs none.
    ///
    /// # Errors
    /// The reason why there is no session, or news of the receiver.
    pub fn attend(&mut self) -> Result<(), Stop> {
        self.with(Out::attend)
    }

    /// Leaves the session, if there is one, and offers another.
    pub fn reset(&mut self) {
        self.end.reset();
    }

    /// Leaves: the receiver reads the sent messages, then is told.
    pub fn close(self) {
        self.end.close();
        if let Some(mut bell) = self.bell {
            bell.tell();
        }
    }
}

/// The end that receives.
#[derive(Debug)]
pub struct Receiver<'a, P> {
    end: In<'a>,
    sleeper: Option<Sleeper<Mapping<'a>, P>>,
    /// It has armed, and a loop of the caller's sleeps.
    out: bool,
    longest: usize,
    /// News that [`Receiver::arm`] was told: the next call that receives hands them on.
    news: Option<Stop>,
}

impl<'a, P: Bed> Receiver<'a, P> {
    /// Opens it, with a place to sleep where it is woken, once the end is open.
    ///
    /// # Errors
    /// This sandbox has the other end, or the channel carries no messages.
    pub fn open(
        pair: &Pair<'a>,
        cost: u64,
        bed: impl FnOnce(Doorbell) -> Option<P>,
    ) -> Result<Self, Misfit> {
        let end = In::open(pair)?;
        let sleeper = pair.sleeper(cost, bed);
        Ok(Self { end, sleeper, out: false, longest: pair.longest(), news: None })
    }

    /// Returns the length of the longest message; of a queue and a mailbox those of each.
    #[must_use]
    pub const fn longest(&self) -> usize {
        self.longest
    }

    /// Returns its place to sleep, if it is woken.
    #[must_use]
    pub fn sleeper(&self) -> Option<&Sleeper<Mapping<'a>, P>> {
        self.sleeper.as_ref()
    }

    /// Looks once.
    ///
    /// # Errors
    /// The reason to wait, or news of the sender.
    pub fn once<T>(
        &mut self,
        look: impl FnOnce(&mut In<'a>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        self.disarm();
        match self.news.take() {
            Some(news) => Err(news),
            None => look(&mut self.end),
        }
    }

    /// Looks until there is something, within the patience. It sleeps meanwhile, where a doorbell can wake it.
    ///
    /// # Errors
    /// The last reason to wait, or news of the sender.
    pub fn within<T>(
        &mut self,
        patience: &mut P::Patience,
        mut look: impl FnMut(&mut In<'a>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let mut found = self.once(&mut look);
        while waits(&found) && !patience.is_over() {
            let Self { end, sleeper, .. } = self;
            let sleeper = sleeper.as_mut();
            found = match sleeper.and_then(|one| one.platform().prepare(patience).then_some(one)) {
                Some(sleeper) => sleeper.doze(|| look(end)),
                None => {
                    patience.rest();
                    look(end)
                }
            };
        }
        found
    }

    /// Asks to be woken, and looks once more. Tells if the caller may sleep; otherwise there is something to be
    /// received. The next call that receives asks no longer.
    pub fn arm(&mut self) -> bool {
        self.disarm();
        if self.news.is_none() {
            if let Some(sleeper) = &mut self.sleeper {
                sleeper.arm();
                self.out = true;
            }
            match self.end.look() {
                Err(Stop::Wait | Stop::Apart) => return true,
                found => self.news = found.err(),
            }
        }
        self.disarm();
        false
    }

    fn disarm(&mut self) {
        if let (Some(sleeper), true) = (&mut self.sleeper, self.out) {
            sleeper.disarm();
            sleeper.platform().settle();
            self.out = false;
        }
    }

    /// As [`Sender::attend`].
    ///
    /// # Errors
    /// As [`Sender::attend`].
    pub fn attend(&mut self) -> Result<(), Stop> {
        self.end.attend()
    }

    /// As [`Sender::reset`].
    pub fn reset(&mut self) {
        self.end.reset();
    }

    /// Leaves, and the sender is told.
    pub fn close(mut self) {
        self.disarm();
        self.end.close();
    }
}
