//! Common parts of device sides: the channel, the driver's fate, and the ways to wait.

use bulkhead_channel::Misfit;
use bulkhead_channel::adaptive::Spin;
use bulkhead_channel::bell::{Arm, Bell, Caller};
use bulkhead_channel_memory::Mapping;
use bulkhead_layout::marker::id;
use bulkhead_layout::spin::{LINUX_POLL, LINUX_SLEEP};
use bulkhead_linux::bell::{Bed, Register};
use bulkhead_linux::channel::{Channel, named};
use bulkhead_linux::section::Section;
use bulkhead_virtio::{Device, News, Offer};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// A device, and the sections that its driver and itself write.
pub struct Side {
    pub device: Device<Mapping<'static>>,
    pub driver: Section,
    pub own: Section,
    pub theirs: Mapping<'static>,
    pub mine: Mapping<'static>,
    name: String,
    /// By the manifest's `notify` each side rings the other one, which sleeps until then.
    caller: Option<Ringer>,
    rest: Rest,
    /// How often each kind of news came.
    told: [u32; 3],
}

/// Ways to wait for the driver.
#[derive(Default)]
pub struct Rest {
    bells: Option<Bells>,
    /// Where the channel is `adaptive`, or `poll` and the device a disk.
    look: Option<Look>,
    /// Rounds since there was something to do.
    idle: u32,
}

struct Bells {
    arm: Arm<Mapping<'static>>,
    bed: Bed,
    brake: Brake,
}

/// Time in which it looks for work before it sleeps: a fixed one, or by what such a look has lately found.
struct Look {
    spin: Spin,
    fixed: Option<u64>,
    /// When the wait for work began, if it waits.
    begun: Option<Instant>,
    /// It has slept in this wait.
    slept: bool,
    /// It looks: the measuring plugin counts its instructions apart.
    marked: bool,
}

impl Look {
    const fn adaptive() -> Self {
        let spin = Spin::new(LINUX_SLEEP);
        Self { spin, fixed: None, begun: None, slept: false, marked: false }
    }

    /// IDDR's: a fixed time since the last work.
    const fn fixed() -> Self {
        Self { fixed: Some(LINUX_POLL), ..Self::adaptive() }
    }

    /// There is no work: the wait begins, or goes on.
    fn waits(&mut self) -> Instant {
        let time = self.fixed.unwrap_or(self.spin.time());
        if self.begun.is_none() && time > 0 {
            bulkhead_linux::begin::<{ id::IO_SPIN }>();
            self.marked = true;
        }
        *self.begun.get_or_insert_with(Instant::now)
    }

    /// Tells if the wait has not been long enough for a sleep.
    fn goes_on(&mut self) -> bool {
        let begun = self.waits();
        let goes = !self.slept && nanos(begun) < self.fixed.unwrap_or(self.spin.time());
        if !goes {
            self.ends();
        }
        goes
    }

    /// It looks no longer.
    fn ends(&mut self) {
        if std::mem::take(&mut self.marked) {
            bulkhead_linux::end::<{ id::IO_SPIN }>();
        }
    }

    /// There is work: learns from the wait for it.
    fn found(&mut self) {
        self.ends();
        if let Some(begun) = self.begun.take() {
            match self.slept {
                true => self.spin.slept(nanos(begun)),
                false => self.spin.learn(nanos(begun)),
            }
        }
        self.slept = false;
    }
}

fn nanos(since: Instant) -> u64 {
    since.elapsed().as_nanos().min(u64::MAX.into()) as u64
}

/// Rounds without anything to do before it rests, and wakes for nothing before that costs whoever rings.
const EAGER: u32 = 4;

/// An end's way to ring the other one.
pub type Ringer = Caller<Mapping<'static>, Register<'static>>;

/// Returns an end's ways to ring the other one, if that wants to be rung, and to wait for it. The first region is its
/// own. It was opened before: the armed word has its epoch.
pub fn ways(
    channel: &'static Channel,
    [mine, theirs]: [Mapping<'static>; 2],
) -> io::Result<(Option<Ringer>, Rest)> {
    let small =
        |Misfit| io::Error::other(format!("{}: its sections are small", channel.end().name));
    let Some(doorbell) = channel.end().doorbell else { return Ok((None, Rest::default())) };
    let bell = Bell::open(mine, &theirs).map_err(small)?;
    let (arm, bed) = (Arm::open(&mine).map_err(small)?, Bed::open(channel)?);
    let look = doorbell.adaptive.then(Look::adaptive);
    let bells = Some(Bells { arm, bed, brake: Brake::default() });
    Ok((Some(Caller::new(bell, Register::of(channel))), Rest { bells, look, idle: 0 }))
}

impl Side {
    /// The first end of a channel of this name.
    pub fn open(name: &str, offer: &Offer<'_>) -> io::Result<Self> {
        let other = |why: &str| io::Error::other(format!("{name}: {why}"));
        let channel = named(name)?[0].open()?.stay();
        let (driver, own) = (Section::of(channel, 0), Section::of(channel, 1));
        let bytes = channel.end().section as usize;
        let pair = channel.pair().ok_or_else(|| other("it carries raw pages"))?;
        if pair.sends() || !matches!(pair.shape(), bulkhead_channel::layout::Shape::Virtio { .. }) {
            return Err(other("this is no device side"));
        }
        let device = Device::open(*pair.rx(), *pair.tx(), bytes, offer);
        let small = |Misfit| other("its sections are too small");
        let device = device.map_err(small)?;
        let (theirs, mine) = (*pair.tx(), *pair.rx());
        let (caller, rest) = ways(channel, [mine, theirs])?;
        let (name, told) = (name.to_owned(), [0; 3]);
        Ok(Self { device, driver, own, theirs, mine, name, caller, rest, told })
    }

    /// Gives its ways to wait away: another thread may answer while one waits.
    pub fn take_rest(&mut self) -> Rest {
        std::mem::take(&mut self.rest)
    }

    /// Says what became of the driver; its features when it begins.
    pub fn attend(&mut self) -> Option<News> {
        let news = self.device.attend();
        // It may have answered.
        self.ring();
        if let Some(news) = news {
            // There may be more: a driver that has left may be back.
            self.rest.again();
            self.tell(news);
        }
        news
    }

    /// Wakes the driver if it sleeps: after whatever was written for it.
    pub fn ring(&mut self) {
        if let Some(caller) = &mut self.caller {
            caller.tell();
        }
    }

    /// Leaves.
    pub fn close(mut self) {
        self.device.close();
        if let Some(caller) = &mut self.caller {
            caller.tell();
        }
    }

    /// The driver has spoilt a queue.
    pub fn spoilt(&mut self) {
        let news = self.device.spoilt();
        self.tell(news);
    }

    /// Says it the first time, the second, the fourth and so on: how often there is news is the driver's choice.
    fn tell(&mut self, news: News) {
        let kind = match news {
            News::Begun(_) => 0,
            News::Lost => 1,
            News::Corrupted => 2,
        };
        self.told[kind] = self.told[kind].saturating_add(1);
        match self.told[kind] {
            1 => eprintln!("bhvirtio: {}: {news:?}", self.name),
            n if n.is_power_of_two() => eprintln!("bhvirtio: {}: {news:?}, {n} times", self.name),
            _ => {}
        }
    }

    /// Wakes the driver after a round, and rests.
    pub fn rest(
        &mut self,
        worked: bool,
        file: Option<BorrowedFd<'_>>,
        most: Option<Duration>,
    ) -> io::Result<()> {
        self.ring();
        self.rest.after(worked, file, most)
    }
}

impl Rest {
    /// Where nobody rings it looks for a fixed time after its last work, and seldom from then on.
    pub fn polls(mut self) -> Self {
        if self.bells.is_none() {
            self.look = Some(Look::fixed());
        }
        self
    }

    /// There is work, before that is done.
    pub fn found(&mut self) {
        if let Some(look) = &mut self.look {
            look.found();
        }
    }

    /// Ends a round. If for some rounds there was nothing to do, it waits for work, or until a file can be read, but no
    /// longer than `most`. Where the driver does not ring it looks, ever more seldom.
    pub fn after(
        &mut self,
        worked: bool,
        file: Option<BorrowedFd<'_>>,
        most: Option<Duration>,
    ) -> io::Result<()> {
        if worked {
            self.worked();
            return Ok(());
        }
        if let Some(look) = &mut self.look {
            look.waits();
        }
        if self.idle == EAGER - 1 && self.looks() {
            std::hint::spin_loop();
            return Ok(());
        }
        self.idle = self.idle.saturating_add(1);
        let Some(n) = self.idle.checked_sub(EAGER) else { return Ok(()) };
        match &mut self.bells {
            // Once more, after that.
            Some(bells) if n == 0 => {
                if let Some(pause) = bells.brake.pause() {
                    wait([None, file], Some(pause))?;
                }
                bells.arm.arm();
            }
            Some(bells) => {
                wait([Some(bells.bed.as_fd()), file], most)?;
                bells.brake.woken(bells.bed.take()?);
                bells.arm.disarm();
                if let Some(look) = &mut self.look {
                    look.slept = true;
                }
                self.idle = 0;
            }
            None => wait([None, file], Some(pause(n)))?,
        }
        Ok(())
    }

    /// Tells if a look is still cheaper than a sleep.
    fn looks(&mut self) -> bool {
        self.look.as_mut().is_some_and(Look::goes_on)
    }

    /// There was something to do.
    pub fn worked(&mut self) {
        self.again();
        self.found();
        if let Some(bells) = &mut self.bells {
            bells.brake = Brake::default();
        }
    }

    /// Looks some rounds more before it waits.
    pub fn again(&mut self) {
        let armed = self.idle >= EAGER;
        self.idle = 0;
        // Else the driver would ring a side that is awake.
        if let Some(bells) = self.bells.as_mut().filter(|_| armed) {
            bells.arm.disarm();
        }
    }
}

/// Protection against a driver that rings whenever it may, and has nothing. This side asks ever later to be woken, and
/// meanwhile looks as seldom as for a driver that never rings.
#[derive(Debug, Default)]
struct Brake {
    /// Wakes since there was something to do.
    vain: u32,
}

impl Brake {
    /// A sleep has ended, by a ring or not.
    fn woken(&mut self, rung: bool) {
        self.vain = self.vain.saturating_add(rung.into());
    }

    /// How long to wait before it asks again.
    fn pause(&self) -> Option<Duration> {
        self.vain.checked_sub(EAGER).map(pause)
    }
}

/// Where the driver does not ring, or for nothing: the first pause and the longest.
const FIRST: Duration = Duration::from_micros(30);
const LONGEST: Duration = Duration::from_millis(1);

/// The `n`th pause, from 0.
fn pause(n: u32) -> Duration {
    (FIRST * (1 << n.min(8))).min(LONGEST)
}

/// Until one of the files can be read, or so long.
fn wait(files: [Option<BorrowedFd<'_>>; 2], most: Option<Duration>) -> io::Result<()> {
    let files = files.into_iter().flatten();
    let mut files: Vec<_> = files.map(|file| PollFd::new(file, PollFlags::POLLIN)).collect();
    match ppoll(&mut files, most.map(TimeSpec::from), None) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(why) => Err(why.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_as_long_as_waits_have_been() {
        let mut look = Look::adaptive();
        for _ in 0..100 {
            look.begun = Some(Instant::now() - Duration::from_micros(5));
            look.found();
        }
        assert!(look.spin.time() >= 5_000, "the next wait begins with a look");
        // It slept through these.
        for _ in 0..2_000 {
            look.begun = Some(Instant::now() - Duration::from_millis(1));
            assert!(!look.goes_on());
            look.slept = true;
            look.found();
        }
        assert_eq!(look.spin.time(), 0);
        assert!(!look.goes_on());
        // A wait of 30 us, slept through, would have been worth a look.
        for _ in 0..100 {
            look.begun = Some(Instant::now() - Duration::from_micros(30));
            look.slept = true;
            look.found();
        }
        assert!(look.spin.time() >= 20_000, "{}", look.spin.time());
    }

    #[test]
    fn a_fixed_look_is_always_as_long() {
        let mut look = Look::fixed();
        for past in [LINUX_POLL / 2, 10 * LINUX_POLL, LINUX_POLL / 2] {
            look.begun = Some(Instant::now() - Duration::from_nanos(past));
            assert_eq!(look.goes_on(), past < LINUX_POLL);
            look.found();
        }
        let rest = Rest::default().polls();
        assert!(rest.look.is_some_and(|look| look.fixed == Some(LINUX_POLL)));
    }

    #[test]
    fn who_rings_for_nothing_waits_ever_longer() {
        let mut brake = Brake::default();
        let pauses: Vec<_> = std::iter::repeat_with(|| {
            brake.woken(true);
            brake.pause().map_or(0, |pause| pause.as_micros())
        })
        .take(12)
        .collect();
        assert_eq!(pauses, [0, 0, 0, 30, 60, 120, 240, 480, 960, 1000, 1000, 1000]);
        // A file or a limit has ended the sleep: nobody rang.
        let mut brake = Brake::default();
        (0..100).for_each(|_| brake.woken(false));
        assert_eq!(brake.pause(), None);
        brake.vain = u32::MAX;
        brake.woken(true);
        assert_eq!(brake.pause(), Some(LONGEST));
    }
}
