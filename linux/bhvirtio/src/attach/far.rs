//! The disk over the channel, and the requests of this kernel's that are at it.

use super::Shown;
use crate::side::{Rest, Ringer, ways};
use bulkhead_channel::Misfit;
use bulkhead_channel_memory::Mapping;
use bulkhead_linux::channel::named;
use bulkhead_linux::section::Section;
use bulkhead_virtio::disk::{DEPTH, Disk, Failed, Info, News, Operation, Slot};
use bulkhead_virtio::layout::POOL;
use nix::libc;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Longest time for the device side to appear: its sandbox has to boot.
const FOUND: Duration = Duration::from_secs(120);
/// Longest time for the kernel's driver to end.
const ENDED: Duration = Duration::from_secs(10);
/// How often requests are looked at that have no answer.
const LOOK: Duration = Duration::from_millis(500);
/// Requests that are taken before the device side is told of them.
const ROUND: usize = 16;
/// Places for requests, where the sections have room for so many of a page.
const PLACES: usize = 16;
/// Bytes of a request, at most, and at least.
const MOST: usize = 128 << 10;
const PAGE: usize = 4096;

/// A request of the kernel's.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Number by which the kernel knows it.
    pub tag: u64,
    pub operation: Operation,
    pub sector: u64,
    /// Bytes.
    pub len: usize,
}

/// Next step of a front end.
#[derive(Clone, Copy, Debug)]
pub enum Next {
    /// There is nothing now.
    Nothing,
    /// A request was answered at once.
    Done,
    Asked(Asked),
    /// The kernel wants no more.
    End,
}

/// A section: for the kernel's copies, and for this program's own.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    pub section: Section,
    pub region: Mapping<'static>,
}

/// The kernel's driver that shows the disk.
pub trait Front {
    /// Takes a request.
    fn take(&mut self) -> io::Result<Next>;
    /// Moves the bytes of a write to a place of a section.
    fn fill(&mut self, asked: &Asked, to: &Area, at: usize) -> io::Result<()>;
    /// Answers, with an error's number or 0. The bytes of a read are at a place of a section.
    fn answer(&mut self, asked: &Asked, error: i32, from: &Area, at: usize) -> io::Result<()>;
    /// Answers a request with an error: it is not carried out.
    fn refuse(&mut self, asked: &Asked) -> io::Result<()>;
    /// Tells the kernel of all answers.
    fn tell(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// File that can be read when there is a request.
    fn file(&self) -> BorrowedFd<'_>;
}

/// The device side, as this end sees it.
pub struct Far {
    disk: Disk<Mapping<'static>>,
    /// Sections that this end and the device side write.
    own: Area,
    theirs: Area,
    caller: Option<Ringer>,
    rest: Rest,
    name: String,
    /// Requests at the disk, by their place, and when each came.
    asked: [Option<(Asked, Instant)>; DEPTH],
    limit: Duration,
    looked: Instant,
    /// Sessions that have begun.
    sessions: u64,
}

impl Far {
    /// Opens the driver's end of a channel of this name.
    pub fn open(name: &str, limit: Duration) -> io::Result<Self> {
        let other = |why: &str| io::Error::other(format!("{name}: {why}"));
        let channel = named(name)?.swap_remove(0).open()?.stay();
        let bytes = channel.end().section as usize;
        let pair = channel.pair().ok_or_else(|| other("it carries raw pages"))?;
        let right = matches!(pair.shape(), bulkhead_channel::layout::Shape::Virtio { .. });
        if !pair.sends() || !right {
            return Err(other("this is no driver's side"));
        }
        let (mine, theirs) = (*pair.tx(), *pair.rx());
        let small = |Misfit| other("its sections are too small");
        let disk = Disk::open(mine, theirs, bytes, most(bytes)).map_err(small)?;
        let (caller, rest) = ways(channel, [mine, theirs])?;
        Ok(Self {
            disk,
            own: Area { section: Section::of(channel, 0), region: mine },
            theirs: Area { section: Section::of(channel, 1), region: theirs },
            caller,
            rest,
            name: name.to_owned(),
            asked: [None; DEPTH],
            limit,
            looked: Instant::now(),
            sessions: 0,
        })
    }

    /// Says where the disk is.
    pub fn says_where(&self, path: &Path) {
        let sectors = self.disk.info().map_or(0, |info| info.sectors);
        println!("bhvirtio: {}: {}, {sectors} sectors", self.name, path.display());
    }

    /// Bytes of a request, at most, and how many there can be at a time. Requests are whole blocks.
    pub fn bounds(&self, info: &Info) -> [usize; 2] {
        let [most, depth] = self.disk.bounds();
        let most = most.min(info.most as usize);
        [most - most % (info.block as usize).max(1), depth]
    }

    /// Waits for the disk.
    pub fn meet(&mut self) -> io::Result<Info> {
        let begun = Instant::now();
        while begun.elapsed() < FOUND {
            let worked = self.attend()?;
            if let Some(info) = self.disk.info() {
                return Ok(info);
            }
            self.rest.after(worked, None, Some(LOOK))?;
        }
        Err(io::Error::other(format!("no device side within {} s", FOUND.as_secs())))
    }

    /// Serves until the kernel wants no more. If the disk is given up, requests are answered with errors from then on.
    pub fn serve_to_the_end(
        &mut self,
        front: &mut impl Front,
        disk: &Arc<impl Shown>,
    ) -> io::Result<()> {
        let served = self.serve(front);
        if let Err(why) = &served {
            println!("bhvirtio: {}: {why}", self.name);
            let disk = Arc::clone(disk);
            thread::Builder::new().spawn(move || disk.end())?;
            // The first error counts.
            let _ = self.refuse(front);
        }
        served
    }

    /// Answers all requests with errors, until the kernel wants no more.
    fn refuse(&mut self, front: &mut impl Front) -> io::Result<()> {
        for (asked, _) in self.asked.iter_mut().filter_map(Option::take) {
            front.answer(&asked, libc::EIO, &self.theirs, 0)?;
        }
        let begun = Instant::now();
        while begun.elapsed() < ENDED {
            front.tell()?;
            match front.take()? {
                Next::End => return Ok(()),
                Next::Asked(asked) => front.refuse(&asked)?,
                Next::Done => {}
                Next::Nothing => thread::sleep(Duration::from_millis(1)),
            }
        }
        Ok(())
    }

    /// Serves until the kernel wants no more, or a request has no answer for too long.
    fn serve(&mut self, front: &mut impl Front) -> io::Result<()> {
        let mut ends = false;
        loop {
            let mut worked = self.attend()?;
            worked |= self.finish(front)?;
            for _ in 0..ROUND {
                let Some(slot) = self.disk.slot().filter(|_| !ends) else { break };
                let next = front.take()?;
                match next {
                    Next::Asked(asked) => self.begin(slot, asked, front)?,
                    _ => self.disk.free(slot),
                }
                worked |= !matches!(next, Next::Nothing);
                ends |= matches!(next, Next::End);
                if matches!(next, Next::Nothing | Next::End) {
                    break;
                }
            }
            self.tell();
            front.tell()?;
            let waiting = self.disk.waiting();
            if ends && waiting == 0 {
                return Ok(());
            }
            self.overdue()?;
            let room = !ends && waiting < self.disk.bounds()[1];
            let most = (waiting > 0).then_some(LOOK);
            self.rest.after(worked, room.then(|| front.file()), most)?;
        }
    }

    /// Looks for news of the device side.
    fn attend(&mut self) -> io::Result<bool> {
        let news = self.disk.attend();
        self.ring();
        match news {
            None => return Ok(false),
            Some(News::Up(_)) => {
                self.sessions += 1;
                if self.sessions > 1 {
                    self.say("the device is back");
                }
            }
            Some(News::Lost) => self.say("the device is away"),
            Some(News::Refused) => {
                return Err(io::Error::other("its side has another disk, or one that cannot be"));
            }
        }
        self.rest.again();
        Ok(true)
    }

    /// Says it in the first sessions, and then in the fourth, the eighth and so on: how many there are is the device
    /// side's choice.
    fn say(&self, what: &str) {
        if self.sessions.is_power_of_two() {
            println!("bhvirtio: {}: {what}, session {}", self.name, self.sessions);
        }
    }

    /// Sends a request, with its bytes if it is a write.
    fn begin(&mut self, slot: Slot, asked: Asked, front: &mut impl Front) -> io::Result<()> {
        let [out, room] = self.disk.place(slot);
        if asked.operation == Operation::Write {
            front.fill(&asked, &self.own, out)?;
        }
        match self.disk.send(slot, asked.operation, asked.sector, asked.len) {
            Ok(()) => {
                self.asked[slot.number()] = Some((asked, Instant::now()));
                Ok(())
            }
            Err(why) => {
                self.disk.free(slot);
                front.answer(&asked, error(why), &self.theirs, room)
            }
        }
    }

    /// Answers requests that the disk has answered.
    fn finish(&mut self, front: &mut impl Front) -> io::Result<bool> {
        let mut worked = false;
        while let Some((slot, done)) = self.disk.completed() {
            worked = true;
            let [_, room] = self.disk.place(slot);
            if let Some((asked, _)) = self.asked[slot.number()].take() {
                front.answer(&asked, done.map_or_else(error, |()| 0), &self.theirs, room)?;
            }
            self.disk.free(slot);
        }
        Ok(worked)
    }

    fn tell(&mut self) {
        self.disk.tell();
        self.ring();
    }

    fn ring(&mut self) {
        if let Some(caller) = &mut self.caller {
            caller.tell();
        }
    }

    /// Ends when a request has had no answer for too long.
    fn overdue(&mut self) -> io::Result<()> {
        if self.looked.elapsed() < LOOK {
            return Ok(());
        }
        self.looked = Instant::now();
        let mut begun = self.asked.iter().flatten().map(|(_, begun)| begun);
        if begun.any(|begun| begun.elapsed() >= self.limit) {
            let why = format!("no answer for {} s: the disk is given up", self.limit.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        Ok(())
    }
}

/// Chooses the bytes of a request, so that there is room for some requests.
fn most(section: usize) -> usize {
    let room = section.saturating_sub(POOL) / PLACES / PAGE * PAGE;
    // Each place has a page more.
    room.saturating_sub(PAGE).clamp(PAGE, MOST)
}

/// Linux's number of an error.
const fn error(why: Failed) -> i32 {
    match why {
        Failed::Disk => libc::EIO,
        Failed::Unsupported => libc::EOPNOTSUPP,
        Failed::Bad => libc::EINVAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_all_sizes_have_room_for_some_requests() {
        for (kib, expected) in [(256, 8), (1024, 56), (4096, 128), (1 << 20, 128)] {
            let section = kib << 10;
            let most = most(section);
            assert_eq!(most >> 10, expected, "{kib}");
            assert!((section - POOL) / (most + PAGE) >= PLACES, "{kib}");
        }
    }
}
