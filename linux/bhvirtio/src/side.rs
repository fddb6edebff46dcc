//! What device sides have in common: the channel, what becomes of the driver, and how they wait.

use bulkhead_channel_memory::Mapping;
use bulkhead_linux::channel::named;
use bulkhead_linux::section::Section;
use bulkhead_virtio::{Device, News, Offer};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A device, and the sections that its driver and itself write.
pub struct Side {
    pub device: Device<Mapping<'static>>,
    pub driver: Section,
    pub own: Section,
    pub theirs: Mapping<'static>,
    pub mine: Mapping<'static>,
    name: String,
    idle: u32,
    /// How often each kind of news came.
    told: [u32; 3],
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
        let device = device.map_err(|_| other("its sections are too small"))?;
        let (theirs, mine) = (*pair.tx(), *pair.rx());
        Ok(Self { device, driver, own, theirs, mine, name: name.to_owned(), idle: 0, told: [0; 3] })
    }

    /// Says what became of the driver; its features when it begins.
    pub fn attend(&mut self) -> Option<News> {
        let news = self.device.attend()?;
        self.tell(news);
        Some(news)
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

    /// After a round: if there was nothing to do it waits, at first shortly, then ever longer, or until a file can
    /// be read.
    pub fn rest(&mut self, worked: bool, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        /// Rounds without a pause, and the first pause and the longest.
        const EAGER: u32 = 4;
        const FIRST: Duration = Duration::from_micros(30);
        const LONGEST: Duration = Duration::from_millis(1);
        self.idle = if worked { 0 } else { self.idle.saturating_add(1) };
        if let Some(n) = self.idle.checked_sub(EAGER) {
            let pause = (FIRST * (1 << n.min(8))).min(LONGEST);
            let file = file.map(|file| PollFd::new(file, PollFlags::POLLIN));
            let mut files: Vec<_> = file.into_iter().collect();
            match ppoll(&mut files, Some(TimeSpec::from(pause)), None) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(())
    }
}
