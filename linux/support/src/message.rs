//! Messages as bytes, whatever a channel carries, for programs that don't know it beforehand. An end waits as the
//! channel's `notify` says: a receiver that is woken sleeps on a file descriptor ([`Receiver::fd`]), all others look.

use crate::bell::{Bed, Register};
use crate::channel::{Channel, End, named};
use crate::section::Section;
use bulkhead_channel::adaptive::Spin;
use bulkhead_channel::bell::{Arm, Caller};
use bulkhead_channel::layout::DATA;
use bulkhead_channel::{Misfit, Stop};
use bulkhead_channel_memory::Mapping;
use bulkhead_channel_memory::any::{In, Out};
use bulkhead_channel_memory::typed::Pair;
use std::borrow::Cow;
use std::io;
use std::iter::once;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

type Memory = Mapping<'static>;

/// A channel that is mapped as long as this lives. Where it is a field it is the last one: its users go first.
#[derive(Debug)]
struct Kept(*mut Channel);

// SAFETY: a channel is registers and memory, which any thread may use.
unsafe impl Send for Kept {}

impl Kept {
    fn open(end: &End) -> io::Result<Self> {
        Ok(Self(Box::into_raw(Box::new(end.open()?))))
    }

    /// For the fields beside this one, which hand out nothing that could outlive it.
    fn channel(&self) -> &'static Channel {
        // SAFETY: it lives until this is dropped.
        unsafe { &*self.0 }
    }

    fn pair(&self) -> io::Result<Pair<'static>> {
        let channel = self.channel();
        let raw = || format!("{} carries raw pages, no messages", channel.end().name);
        channel.pair().ok_or_else(|| io::Error::other(raw()))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: from `open`; nothing uses it any more.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

fn other_side(_: Misfit) -> io::Error {
    io::Error::other("this sandbox has the channel's other end")
}

/// The end that sends. It sends messages of one size, with zeros behind shorter ones, or of any length up to half of
/// the ring, or the newest state.
#[derive(Debug)]
pub struct Sender {
    end: Out<'static>,
    bell: Option<Caller<Memory, Register<'static>>>,
    longest: usize,
    section: Section,
    kept: Kept,
}

impl Sender {
    /// Opens the end of the channel with this name; among several receivers the `nth`, from 0.
    ///
    /// # Errors
    /// This sandbox has no such end, or may not map it.
    pub fn open(name: &str, nth: usize) -> io::Result<Self> {
        let none = || io::Error::other(format!("{name} has no receiver {nth}"));
        let kept = Kept::open(named(name)?.get(nth).ok_or_else(none)?)?;
        let pair = kept.pair()?;
        let end = Out::open(&pair).map_err(other_side)?;
        let bell = pair.caller(|_| Some(Register::of(kept.channel())));
        let section = Section::of(kept.channel(), 0);
        Ok(Self { end, bell, longest: pair.longest(), section, kept })
    }

    /// Bytes of the longest message.
    #[must_use]
    pub const fn longest(&self) -> usize {
        self.longest
    }

    /// Sends a message, if there is room and a receiver, and wakes a receiver that sleeps.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn send(&mut self, message: &[u8]) -> Result<(), Stop> {
        let sent = match &mut self.end {
            Out::Records(end) => end.send(message),
            end => padded(message, self.longest).and_then(|all| end.send(&all)),
        };
        match &mut self.bell {
            Some(bell) => bell.after(sent),
            None => sent,
        }
    }

    /// The receiver's state.
    #[must_use]
    pub fn peer(&self) -> u32 {
        self.kept.channel().state_of(1)
    }

    /// Reads at most so many bytes from a file that gives a message at each read, straight into the ring, and sends
    /// them. For records only. The room comes first, so a message that was read is sent.
    ///
    /// # Errors
    /// The file's, or `Ok` with [`Stop`] and nothing was read.
    pub fn send_from(&mut self, file: &impl AsFd, most: usize) -> io::Result<Result<(), Stop>> {
        let Out::Records(end) = &mut self.end else { return Ok(Err(Stop::Size)) };
        let sent = match end.reserve(most) {
            Ok(room) => {
                let at = DATA + room.slot().at();
                room.send(self.section.read_from(file, once((at, most)))?);
                Ok(())
            }
            Err(stop) => Err(stop),
        };
        Ok(match &mut self.bell {
            Some(bell) => bell.after(sent),
            None => sent,
        })
    }

    /// Sends it as soon as there is room and a receiver, and reports the peer's fate meanwhile.
    ///
    /// # Errors
    /// It is too long, or the peer spoils the channel.
    pub fn send_all(&mut self, message: &[u8], mut news: impl FnMut(Stop)) -> Result<(), Stop> {
        let mut pause = Pause::default();
        loop {
            match self.send(message) {
                Ok(()) => return Ok(()),
                Err(Stop::Wait | Stop::Apart) => pause.wait(None),
                Err(stop @ (Stop::Lost | Stop::Left)) => news(stop),
                Err(stop) => return Err(stop),
            }
        }
    }

    /// Sends, but waits no longer than so long: then [`Stop::Wait`] or [`Stop::Apart`], the last reason to wait.
    ///
    /// # Errors
    /// That, or news of the peer.
    pub fn send_within(&mut self, message: &[u8], most: Duration) -> Result<(), Stop> {
        let (mut pause, until) = (Pause::default(), Instant::now() + most);
        loop {
            match self.send(message) {
                Err(Stop::Wait | Stop::Apart) if Instant::now() < until => pause.wait(Some(until)),
                done => return done,
            }
        }
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

/// A message with zeros behind it, up to a size.
fn padded(message: &[u8], size: usize) -> Result<Cow<'_, [u8]>, Stop> {
    match size.checked_sub(message.len()).ok_or(Stop::Size)? {
        0 => Ok(message.into()),
        missing => Ok([message, &vec![0; missing]].concat().into()),
    }
}

/// How a receiver sleeps.
#[derive(Debug)]
struct Sleep {
    arm: Arm<Memory>,
    spin: Spin,
    bed: Bed,
    /// It has armed, and another loop than ours sleeps.
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
    section: Section,
    kept: Kept,
}

impl Receiver {
    /// Opens the end of the channel with this name.
    ///
    /// # Errors
    /// This sandbox has no such end, or may not map it. Where it is woken, also the reason why it cannot be
    /// ([`Bed::open`]).
    pub fn open(name: &str) -> io::Result<Self> {
        let kept = Kept::open(&named(name)?[0])?;
        let pair = kept.pair()?;
        let end = In::open(&pair).map_err(other_side)?;
        let sleep = match pair.doorbell() {
            Some(doorbell) => Some(Sleep {
                arm: pair.arm().map_err(other_side)?,
                spin: Bed::spin(doorbell),
                bed: Bed::open(kept.channel())?,
                out: false,
            }),
            None => None,
        };
        let section = Section::of(kept.channel(), 0);
        Ok(Self { end, sleep, longest: pair.longest(), news: None, section, kept })
    }

    /// Bytes of the longest message.
    #[must_use]
    pub const fn longest(&self) -> usize {
        self.longest
    }

    /// Receives a message into a buffer of at least [`Self::longest`] bytes; how many it has.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn receive(&mut self, to: &mut [u8]) -> Result<usize, Stop> {
        self.disarm();
        let to = to.get_mut(..self.longest).ok_or(Stop::Size)?;
        match self.news.take() {
            Some(news) => Err(news),
            None => self.end.receive(to),
        }
    }

    /// Receives one as soon as there is one, but waits no longer than so long, if there is a limit: then [`Stop::Wait`]
    /// or [`Stop::Apart`].
    ///
    /// # Errors
    /// That, or news of the peer.
    pub fn receive_within(&mut self, to: &mut [u8], most: Option<Duration>) -> Result<usize, Stop> {
        let found = self.receive(to);
        let longest = self.longest;
        self.wait(found, most, |end| end.receive(&mut to[..longest]))
    }

    /// After a look looks again, until it finds something, as the channel's `notify` says.
    fn wait<T>(
        &mut self,
        mut found: Result<T, Stop>,
        most: Option<Duration>,
        mut look: impl FnMut(&mut In<'static>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let until = most.map(|most| Instant::now() + most);
        let late = || until.is_some_and(|until| Instant::now() >= until);
        let mut pause = Pause::default();
        while matches!(found, Err(Stop::Wait | Stop::Apart)) && !late() {
            let Self { end, sleep, .. } = self;
            match sleep {
                None => {
                    pause.wait(until);
                    found = look(end);
                }
                Some(Sleep { arm, spin, bed, .. }) => {
                    bed.limit(until);
                    spin.wait(arm, bed, || {
                        found = look(end);
                        !matches!(found, Err(Stop::Wait | Stop::Apart))
                    });
                }
            }
        }
        found
    }

    /// Receives a record as soon as there is one. If `whole` says so for its first byte it is written to a file
    /// straight from the ring, where the peer may change it meanwhile. Bytes that the file does not take are lost. Else
    /// `part` gets a copy.
    ///
    /// # Errors
    /// News of the peer; [`Stop::Size`] of another channel.
    pub fn receive_to(
        &mut self,
        file: &impl AsFd,
        whole: impl Fn(u8) -> bool,
        mut part: impl FnMut(&[u8]),
    ) -> Result<(), Stop> {
        let section = self.section;
        let mut look = |end: &mut In<'static>| {
            let In::Records(end) = end else { return Err(Stop::Size) };
            let message = end.peek()?;
            let (slot, mut first) = (message.slot(), [0]);
            if slot.read(0, &mut first) && whole(first[0]) {
                let _ = section.write_to(file, DATA + slot.at(), slot.len());
            } else {
                let mut copy = vec![0; slot.len()];
                let _ = slot.read(0, &mut copy);
                part(&copy);
            }
            message.release();
            Ok(())
        };
        self.disarm();
        let found = match self.news.take() {
            Some(news) => Err(news),
            None => look(&mut self.end),
        };
        self.wait(found, None, look)
    }

    /// Receives one as soon as there is one, and reports the peer's fate meanwhile. After a peer that left, or spoilt
    /// the channel, it begins a new session.
    pub fn receive_one(&mut self, to: &mut [u8], mut news: impl FnMut(Stop)) -> usize {
        loop {
            match self.receive_within(to, None) {
                Ok(len) => return len,
                Err(stop) => {
                    news(stop);
                    if stop == Stop::Corrupted {
                        self.reset();
                    }
                    // A peer that spoils it again and again does not get all of this core.
                    sleep(Pause::FIRST);
                }
            }
        }
    }

    /// The file that can be read once the receiver is to look again, after [`Self::arm`]; `None` where it is not woken.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.sleep.as_ref().map(|sleep| sleep.bed.as_fd())
    }

    /// Before a loop of the caller's own sleeps on [`Self::fd`]: asks to be woken, and looks once more. Tells if the
    /// loop may sleep; otherwise there is something to be received. The next call that receives asks no longer.
    pub fn arm(&mut self) -> bool {
        self.disarm();
        if self.news.is_none() {
            if let Some(sleep) = &mut self.sleep {
                sleep.arm.arm();
                sleep.out = true;
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
        if let Some(sleep) = self.sleep.as_mut().filter(|sleep| sleep.out) {
            sleep.arm.disarm();
            // The event that woke it is done with; a driver that is gone shows at the next wait.
            let _ = sleep.bed.take();
            sleep.out = false;
        }
    }

    /// Says something to the sender, which sees it as [`Sender::peer`].
    pub fn say(&self, state: u32) {
        self.kept.channel().set_state(state);
    }

    /// How often it has asked to be woken, and how many interrupts came.
    #[must_use]
    pub fn woken(&self) -> Option<(u32, u32)> {
        self.sleep.as_ref().map(|sleep| (sleep.arm.count(), sleep.bed.interrupts()))
    }

    /// After [`Stop::Corrupted`]: begins a new session.
    pub fn reset(&mut self) {
        self.end.reset();
    }

    /// Leaves, and the sender is told.
    pub fn close(mut self) {
        self.disarm();
        self.end.close();
        drop(self.kept);
    }
}

/// Looks often at first, for others may run on this core, too; then ever more seldom.
#[derive(Debug, Default)]
pub struct Pause(u32);

impl Pause {
    /// Looks with the core given away in between.
    const YIELDS: u32 = 64;
    /// Then it sleeps: the first time, and the longest.
    pub const FIRST: Duration = Duration::from_micros(20);
    const LONGEST: Duration = Duration::from_millis(1);

    /// The next wait, no longer than until then.
    pub fn wait(&mut self, until: Option<Instant>) {
        self.0 = self.0.saturating_add(1);
        let Some(n) = self.0.checked_sub(Self::YIELDS) else { return yield_now() };
        let most = until.map(|until| until.saturating_duration_since(Instant::now()));
        let time = (Self::FIRST * (1 << n.min(8))).min(Self::LONGEST);
        sleep(most.map_or(time, |most| most.min(time)));
    }
}
