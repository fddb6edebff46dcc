//! Messages as bytes, whatever a channel carries, for programs that don't know it beforehand. An end waits as the
//! channel's `notify` says: a receiver that is woken sleeps on a file descriptor ([`Receiver::fd`]), all others look.

use crate::bell::{Bed, Register, SLEEP};
use crate::channel::{Channel, End, named};
use crate::section::Section;
use bulkhead_channel::layout::{DATA, Kind};
use bulkhead_channel::{Misfit, Stop};
use bulkhead_channel_memory::any::{In, Out};
use bulkhead_channel_memory::typed::Pair;
use bulkhead_channel_memory::waiting::{self, Patience};
use std::borrow::Cow;
use std::io;
use std::iter::once;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

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
    end: waiting::Sender<'static, Register<'static>>,
    /// It sends records, which have any length.
    records: bool,
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
        let ring = |_| Some(Register::of(kept.channel()));
        let end = waiting::Sender::open(&pair, ring).map_err(other_side)?;
        let records = pair.shape().kind() == Kind::Records;
        Ok(Self { end, records, section: Section::of(kept.channel(), 0), kept })
    }

    /// Bytes of the longest message.
    #[must_use]
    pub const fn longest(&self) -> usize {
        self.end.longest()
    }

    /// Returns a message as the end takes it, with zeros behind it.
    fn padded<'a>(&self, message: &'a [u8]) -> Result<Cow<'a, [u8]>, Stop> {
        match self.longest().checked_sub(message.len()).ok_or(Stop::Size)? {
            missing if missing > 0 && !self.records => {
                Ok([message, &vec![0; missing]].concat().into())
            }
            _ => Ok(message.into()),
        }
    }

    /// Sends a message, if there is room and a receiver, and wakes a receiver that sleeps.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn send(&mut self, message: &[u8]) -> Result<(), Stop> {
        self.end.send(&self.padded(message)?)
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
        let (section, mut read) = (self.section, Ok(()));
        let sent = self.end.with(|end| {
            let Out::Records(end) = end else { return Err(Stop::Size) };
            let room = end.reserve(most)?;
            let at = DATA + room.slot().at();
            // Without a message there is nothing to wake the receiver for.
            let len = section.read_from(file, once((at, most)));
            room.send(len.map_err(|why| read = Err(why)).map_err(|()| Stop::Wait)?);
            Ok(())
        });
        read.map(|()| sent)
    }

    /// Sends it as soon as there is room and a receiver, and reports the peer's fate meanwhile.
    ///
    /// # Errors
    /// It is too long, or the peer spoils the channel.
    pub fn send_all(&mut self, message: &[u8], mut news: impl FnMut(Stop)) -> Result<(), Stop> {
        loop {
            match self.send_for(message, None) {
                Err(stop @ (Stop::Lost | Stop::Left)) => news(stop),
                done => return done,
            }
        }
    }

    /// Sends, but waits no longer than so long: then [`Stop::Wait`] or [`Stop::Apart`], the last reason to wait.
    ///
    /// # Errors
    /// That, or news of the peer.
    pub fn send_within(&mut self, message: &[u8], most: Duration) -> Result<(), Stop> {
        self.send_for(message, Some(most))
    }

    fn send_for(&mut self, message: &[u8], most: Option<Duration>) -> Result<(), Stop> {
        let message = self.padded(message)?;
        self.end.send_within(&message, &mut Waits::most(most))
    }

    /// Leaves: the receiver reads the sent messages, then is told.
    pub fn close(self) {
        self.end.close();
    }
}

/// The end that receives.
#[derive(Debug)]
pub struct Receiver {
    end: waiting::Receiver<'static, Bed>,
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
        let mut sleeps = Ok(());
        let bed = |_| Bed::open(kept.channel()).map_err(|why| sleeps = Err(why)).ok();
        let end = waiting::Receiver::open(&kept.pair()?, SLEEP, bed).map_err(other_side)?;
        sleeps?;
        Ok(Self { end, section: Section::of(kept.channel(), 0), kept })
    }

    /// Bytes of the longest message.
    #[must_use]
    pub const fn longest(&self) -> usize {
        self.end.longest()
    }

    /// Receives a message into a buffer of at least [`Self::longest`] bytes; how many it has.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn receive(&mut self, to: &mut [u8]) -> Result<usize, Stop> {
        let to = to.get_mut(..self.longest()).ok_or(Stop::Size)?;
        self.end.once(|end| end.receive(to))
    }

    /// Receives one as soon as there is one, but waits no longer than so long, if there is a limit: then [`Stop::Wait`]
    /// or [`Stop::Apart`].
    ///
    /// # Errors
    /// That, or news of the peer.
    pub fn receive_within(&mut self, to: &mut [u8], most: Option<Duration>) -> Result<usize, Stop> {
        let to = to.get_mut(..self.longest()).ok_or(Stop::Size)?;
        self.end.within(&mut Waits::most(most), |end| end.receive(to))
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
        self.end.within(&mut Waits::most(None), |end| {
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
        })
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
        self.end.sleeper().map(|sleeper| sleeper.bed().as_fd())
    }

    /// Before a loop of the caller's own sleeps on [`Self::fd`]: asks to be woken, and looks once more. Tells if the
    /// loop may sleep; otherwise there is something to be received. The next call that receives asks no longer.
    pub fn arm(&mut self) -> bool {
        self.end.arm()
    }

    /// Says something to the sender, which sees it as [`Sender::peer`].
    pub fn say(&self, state: u32) {
        self.kept.channel().set_state(state);
    }

    /// How often it has asked to be woken, and how many interrupts came.
    #[must_use]
    pub fn woken(&self) -> Option<(u32, u32)> {
        self.end.sleeper().map(|sleeper| (sleeper.armings(), sleeper.bed().interrupts()))
    }

    /// After [`Stop::Corrupted`]: begins a new session.
    pub fn reset(&mut self) {
        self.end.reset();
    }

    /// Leaves, and the sender is told.
    pub fn close(self) {
        self.end.close();
    }
}

/// Patience of this process, and its rests.
#[derive(Debug)]
pub struct Waits {
    pause: Pause,
    /// The end of it.
    pub until: Option<Instant>,
}

impl Waits {
    /// So long from now on; `None`, and a time that no clock has: for ever.
    fn most(most: Option<Duration>) -> Self {
        let until = most.and_then(|most| Instant::now().checked_add(most));
        Self { pause: Pause::default(), until }
    }
}

impl Patience for Waits {
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    fn rest(&mut self) {
        self.pause.wait(self.until);
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
