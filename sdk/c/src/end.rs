//! The two ends of a channel, whatever it carries: messages are bytes here, since C has them as nothing else.
#![forbid(unsafe_code)]

use crate::bell::{Bed, Call};
use crate::machine;
use bulkhead_channel::adaptive::Spin;
use bulkhead_channel::bell::{Arm, Caller};
use bulkhead_channel::{Misfit, Stop};
use bulkhead_channel_memory::Mapping;
use bulkhead_channel_memory::any::{In, Out};
use bulkhead_channel_memory::typed::Pair;

type Memory = Mapping<'static>;

/// Until when to wait.
#[derive(Clone, Copy, Debug)]
pub struct Limit(Option<u64>);

impl Limit {
    /// No limit: for ever.
    pub const NONE: Self = Self(None);

    /// Milliseconds from now, as C has them: 0 doesn't wait, below 0 is for ever.
    #[must_use]
    pub fn of(millis: i64) -> Self {
        let nanos = u64::try_from(millis).ok().map(|millis| millis.saturating_mul(1_000_000));
        Self(nanos.map(|nanos| match nanos {
            0 => 0,
            _ => machine::counter().saturating_add(machine::ticks(nanos)),
        }))
    }

    /// As a value of the counter, the last of all for none.
    pub(crate) fn at(self) -> u64 {
        self.0.unwrap_or(u64::MAX)
    }

    fn is_over(self) -> bool {
        self.0.is_some_and(|until| until == 0 || machine::counter() >= until)
    }
}

/// The end that sends.
#[derive(Debug)]
pub struct Sender {
    end: Out<'static>,
    bell: Option<Caller<Memory, Call>>,
    longest: usize,
}

impl Sender {
    /// Opens it.
    ///
    /// # Errors
    /// This sandbox has the other end, or the channel carries no messages.
    pub fn open(pair: &Pair<'static>) -> Result<Self, Misfit> {
        Ok(Self { end: Out::open(pair)?, bell: pair.caller(Call::of), longest: pair.longest() })
    }

    /// Bytes of the longest message; of a queue and a mailbox those of each.
    #[must_use]
    pub const fn longest(&self) -> usize {
        self.longest
    }

    /// Sends a message as soon as there is room and a receiver, within the limit, and wakes a receiver that sleeps.
    ///
    /// # Errors
    /// [`Stop::Size`], the last reason to wait, or news of the receiver.
    pub fn send(&mut self, message: &[u8], limit: Limit) -> Result<(), Stop> {
        loop {
            match self.try_send(message) {
                Err(Stop::Wait | Stop::Apart) if !limit.is_over() => core::hint::spin_loop(),
                done => return done,
            }
        }
    }

    fn try_send(&mut self, message: &[u8]) -> Result<(), Stop> {
        let whole = message.len() == self.longest;
        let sent = match &mut self.end {
            // A shorter message would be followed by the rest of an older one.
            Out::Queue(_) | Out::Mailbox(_) if !whole => Err(Stop::Size),
            end => end.send(message),
        };
        match &mut self.bell {
            Some(bell) => bell.after(sent),
            None => sent,
        }
    }

    /// Goes on with the agreement, and tells if there is a session. A mailbox needs none.
    ///
    /// # Errors
    /// The reason why there is no session, or news of the receiver.
    pub fn attend(&mut self) -> Result<(), Stop> {
        let attended = self.end.attend();
        match &mut self.bell {
            Some(bell) => bell.after(attended),
            None => attended,
        }
    }

    /// Leaves the session, if there is one, and offers another.
    pub fn reset(&mut self) {
        self.end.reset();
    }

    /// Leaves: the receiver reads the sent messages, then is told.
    pub fn close(self) {
        let Self { end, bell, .. } = self;
        end.close();
        if let Some(mut bell) = bell {
            bell.tell();
        }
    }
}

/// How a receiver sleeps.
#[derive(Debug)]
struct Sleep {
    arm: Arm<Memory>,
    spin: Spin,
    bed: Bed,
    /// It has armed, and a loop of the caller's sleeps.
    out: bool,
}

/// The end that receives.
#[derive(Debug)]
pub struct Receiver {
    end: In<'static>,
    sleep: Option<Sleep>,
    longest: usize,
    /// News that [`Receiver::arm`] was told: the next call that receives hands them on.
    news: Option<Stop>,
}

impl Receiver {
    /// Opens it.
    ///
    /// # Errors
    /// This sandbox has the other end, or the channel carries no messages.
    pub fn open(pair: &Pair<'static>) -> Result<Self, Misfit> {
        let end = In::open(pair)?;
        let sleep = match pair.doorbell().and_then(|bell| Some((bell, Bed::new(bell)?))) {
            Some((bell, bed)) => {
                Some(Sleep { arm: pair.arm()?, spin: Bed::spin(bell), bed, out: false })
            }
            None => None,
        };
        Ok(Self { end, sleep, longest: pair.longest(), news: None })
    }

    /// Bytes of the longest message; of a queue and a mailbox those of each.
    #[must_use]
    pub const fn longest(&self) -> usize {
        self.longest
    }

    /// Receives a message into a buffer of [`Self::longest`] bytes as soon as there is one, within the limit; how many
    /// it has. It sleeps meanwhile, where a doorbell can wake it. A peer that has spoilt the channel is offered a new
    /// session.
    ///
    /// # Errors
    /// [`Stop::Size`], the last reason to wait, or news of the sender.
    pub fn receive(&mut self, to: &mut [u8], limit: Limit) -> Result<usize, Stop> {
        self.disarm();
        let mut found = match self.news.take() {
            Some(news) => Err(news),
            None => self.end.receive(to),
        };
        while let (Err(Stop::Wait | Stop::Apart), false) = (found, limit.is_over()) {
            let Self { end, sleep, .. } = self;
            match sleep.as_mut().filter(|_| Bed::is_here()) {
                Some(Sleep { arm, spin, bed, .. }) => {
                    bed.until(limit);
                    spin.wait(arm, bed, || {
                        found = end.receive(to);
                        !matches!(found, Err(Stop::Wait | Stop::Apart))
                    });
                }
                None => {
                    core::hint::spin_loop();
                    found = end.receive(to);
                }
            }
        }
        if found == Err(Stop::Corrupted) {
            self.reset();
        }
        found
    }

    /// Asks to be woken, and looks once more. Tells if the caller may sleep; otherwise there is something to be
    /// received. The next call that receives asks no longer.
    ///
    /// # Errors
    /// [`Stop::Wait`]: it is not woken.
    pub fn arm(&mut self) -> Result<bool, Stop> {
        let Self { end, sleep, news, .. } = self;
        let sleep = sleep.as_mut().ok_or(Stop::Wait)?;
        if news.is_none() {
            sleep.arm.arm();
            sleep.out = true;
            match end.look() {
                Err(Stop::Wait | Stop::Apart) => return Ok(true),
                found => *news = found.err(),
            }
        }
        self.disarm();
        Ok(false)
    }

    fn disarm(&mut self) {
        if let Some(sleep) = self.sleep.as_mut().filter(|sleep| sleep.out) {
            sleep.arm.disarm();
            sleep.out = false;
        }
    }

    /// How many interrupts came for it.
    #[must_use]
    pub fn interrupts(&self) -> u64 {
        self.sleep.as_ref().map_or(0, |sleep| sleep.bed.interrupts())
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
