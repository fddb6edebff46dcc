//! A client: its device, and its part of the disk.

use crate::disk::{Info, Operation, Request};
use bulkhead_channel::bell::{Arm, Caller, Ring};
use bulkhead_channel::{Memory, Misfit};
use bulkhead_virtio::block::{
    Asked, CONFIG, Config, DEVICE, FAILED, HEADER, ID, Kind, OK, RANGE, RANGE_SECTORS, Range,
    SECTOR, SEGMENT, UNKNOWN, feature, fits, name, read, write,
};
use bulkhead_virtio::layout::NUM;
use bulkhead_virtio::{Chain, Device, News, Offer, Part, Queue};

/// A device's data begins at a multiple of this: what AHCI and NVMe need.
const ALIGNED: u64 = 4;

/// A client's part of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// First sector of 512 bytes.
    pub first: u64,
    /// Sectors.
    pub sectors: u64,
    /// The client may not write.
    pub read_only: bool,
}

impl Share {
    /// Tells if it is a part of the disk, in whole blocks.
    #[must_use]
    pub fn fits(&self, info: &Info) -> bool {
        let blocks = u64::from(info.block) / SECTOR;
        let whole =
            blocks > 0 && self.first.is_multiple_of(blocks) && self.sectors.is_multiple_of(blocks);
        let end = self.first.checked_add(self.sectors);
        whole && self.sectors > 0 && end.is_some_and(|end| end <= info.sectors)
    }
}

/// Memory of a client's channel.
#[derive(Clone, Debug)]
pub struct Sections<M> {
    /// The device's section.
    pub mine: M,
    /// The client's section.
    pub theirs: M,
    /// Bytes of each.
    pub len: usize,
    /// Bus address of the client's section, behind which the device's lies.
    pub bus: u64,
}

/// Decision on a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is answered at once, with so many bytes of the data written.
    Answered { status: u8, written: usize },
    /// The disk has to do it.
    Asked(Request),
}

/// A client.
#[derive(Debug)]
pub struct Client<M: Memory, R> {
    device: Device<M>,
    /// Description of the device: features, configuration, queues.
    offer: (u64, [u8; CONFIG], usize),
    sections: Sections<M>,
    share: Share,
    info: Info,
    name: [u8; ID],
    caller: Option<Caller<M, R>>,
    arm: Option<Arm<M>>,
    /// Requests at the disk.
    pub(crate) under_way: u16,
    /// The session is over, and the disk may still reach its buffers.
    draining: bool,
    /// The device is to be opened anew, when that is over.
    renew: bool,
    /// The client is to be told of something.
    news: bool,
}

impl<M: Memory, R: Ring> Client<M, R> {
    /// Opens the device's end. `caller` rings the client, if it wants to be woken.
    ///
    /// # Errors
    /// The sections are too small, or the share is no part of the disk.
    pub fn open(
        sections: Sections<M>,
        info: &Info,
        share: Share,
        label: &str,
        queues: usize,
        caller: Option<Caller<M, R>>,
    ) -> Result<Self, Misfit> {
        if !share.fits(info) || info.most < SEGMENT {
            return Err(Misfit);
        }
        let share = Share { read_only: share.read_only || info.read_only, ..share };
        let mut features = feature::SIZE_MAX | feature::SEG_MAX | feature::BLOCK_SIZE;
        let mut add = |when: bool, one: u64| features |= if when { one } else { 0 };
        add(share.read_only, feature::READ_ONLY);
        add(info.flush, feature::FLUSH);
        add(queues > 1, feature::QUEUES);
        // A client may ask for as much as that at once, and asks for whole blocks.
        let blocks = info.block / SECTOR as u32;
        let most = |sectors: u32| sectors.min(RANGE_SECTORS) / blocks * blocks;
        let [discard, zero] = [info.discard, info.zero].map(most);
        add(discard > 0 && !share.read_only, feature::DISCARD);
        add(zero > 0 && !share.read_only, feature::WRITE_ZEROES);
        let name = name(label);
        let config = Config {
            sectors: share.sectors,
            most: info.most,
            block: info.block,
            queues: queues as u16,
            // A range is a request of the disk's, so a request has one.
            ranges: u32::from(discard > 0 || zero > 0),
            discard,
            zero,
            name,
        };
        let offer = (features, config.bytes(), queues);
        let device = open(&sections, &offer)?;
        // After the end itself: the armed word has its epoch.
        let arm = caller.is_some().then(|| Arm::open(&sections.mine)).transpose()?;
        Ok(Self {
            device,
            offer,
            sections,
            share,
            info: *info,
            name,
            caller,
            arm,
            under_way: 0,
            draining: false,
            renew: false,
            news: true,
        })
    }

    /// Tells if the client has given up on its device, and that was not mended yet.
    pub(crate) fn complains(&mut self) -> bool {
        !self.is_up() && !self.renew && self.device.is_given_up()
    }

    /// Opens the device anew, as soon as the disk reaches no buffer of the last session any more.
    pub(crate) const fn renew(&mut self) {
        self.renew = true;
    }

    /// Asks to be woken, or asks no longer.
    pub fn arm(&mut self, wanted: bool) {
        if let Some(arm) = &mut self.arm {
            if wanted { arm.arm() } else { arm.disarm() }
        }
    }

    /// Goes on with the session. A client that begins anew is answered only when the disk reaches no buffer of the
    /// last session any more.
    pub(crate) fn attend(&mut self) -> Option<News> {
        if self.draining && self.under_way > 0 {
            return None;
        }
        self.draining = false;
        // Both fitted before.
        if core::mem::take(&mut self.renew)
            && let Ok(device) = open(&self.sections, &self.offer)
        {
            self.device = device;
            self.arm = self.arm.take().and_then(|_| Arm::open(&self.sections.mine).ok());
            self.news = true;
        }
        let news = self.device.attend();
        self.hear(news)
    }

    /// Keeps in mind what a piece of news entails.
    fn hear(&mut self, news: Option<News>) -> Option<News> {
        self.draining |= matches!(news, Some(News::Lost | News::Corrupted));
        self.news |= news.is_some();
        news
    }

    /// True if there is a session.
    pub(crate) fn is_up(&mut self) -> bool {
        self.device.queue(0).is_some()
    }

    /// Takes a chain of a queue, and decides on it. An impossible chain ends the session.
    pub(crate) fn take(&mut self, number: usize) -> Result<Option<(Chain, Asked, Fate)>, News> {
        let Some(queue) = self.device.queue(number) else { return Ok(None) };
        let chain = match queue.take() {
            Ok(None) => return Ok(None),
            Ok(Some(chain)) => chain,
            Err(_) => return Err(self.spoilt()),
        };
        let mut header = [0; HEADER];
        let reads = chain.reads;
        let there = reads.len >= HEADER && read(&self.sections.theirs, reads.at, &mut header);
        match Asked::of(&chain, header).filter(|_| there) {
            Some(asked) => Ok(Some((chain, asked, self.decide(&asked)))),
            None => Err(self.spoilt()),
        }
    }

    /// Gives back a chain that was taken last: the disk has no room for it.
    pub(crate) fn untake(&mut self, number: usize) {
        if let Some(queue) = self.device.queue(number) {
            queue.untake(1);
        }
    }

    fn spoilt(&mut self) -> News {
        let news = self.device.spoilt();
        self.hear(Some(news));
        news
    }

    /// Decides on a request, by the client's words and its share.
    fn decide(&self, asked: &Asked) -> Fate {
        let fails = |status| Fate::Answered { status, written: 0 };
        match asked.kind {
            Kind::Read => self.request(Operation::Read, asked, asked.room, self.sections.len),
            Kind::Write if self.share.read_only => fails(FAILED),
            Kind::Write => self.request(Operation::Write, asked, asked.out, 0),
            Kind::Flush if self.info.flush => {
                let sector = self.share.first;
                let operation = Operation::Flush;
                Fate::Asked(Request { tag: 0, operation, sector, address: 0, len: 0 })
            }
            Kind::Flush => fails(OK),
            Kind::Id => {
                let len = asked.room.len.min(ID);
                let name = self.name.get(..len).unwrap_or_default();
                let written = write(&self.sections.mine, asked.room.at, name);
                Fate::Answered { status: OK, written: if written { len } else { 0 } }
            }
            Kind::Discard if self.info.discard > 0 => self.range(asked, self.info.discard),
            Kind::Zero if self.info.zero > 0 => self.range(asked, self.info.zero),
            Kind::Discard | Kind::Zero | Kind::Other => fails(UNKNOWN),
        }
    }

    /// Makes a request about a range: whole blocks within the share, no more than the disk takes at once. Its
    /// description is read once.
    fn range(&self, asked: &Asked, most: u32) -> Fate {
        let fails = |status| Fate::Answered { status, written: 0 };
        let mut description = [0; RANGE];
        let one = asked.out.len == RANGE && !self.share.read_only;
        if !one || !read(&self.sections.theirs, asked.out.at, &mut description) {
            return fails(FAILED);
        }
        // Flags of another kind (5.2.6.2).
        let Some(range) = Range::of(asked.kind, description) else { return fails(UNKNOWN) };
        let most = u64::from(most.min(RANGE_SECTORS)) * SECTOR;
        let right =
            range.len <= most && fits(range.sector, range.len, self.share.sectors, self.info.block);
        if !right {
            return fails(FAILED);
        }
        let operation = match asked.kind {
            Kind::Zero => Operation::Zero { unmap: range.unmap },
            _ => Operation::Discard,
        };
        let sector = self.share.first + range.sector;
        Fate::Asked(Request { tag: 0, operation, sector, address: 0, len: range.len as u32 })
    }

    /// Makes a request for the disk: data in whole blocks, within the share, no more than the disk takes at once.
    fn request(&self, operation: Operation, asked: &Asked, data: Part, section: usize) -> Fate {
        let len = data.len as u64;
        let address = self.sections.bus + (section + data.at) as u64;
        let right = fits(asked.sector, len, self.share.sectors, self.info.block)
            && len <= u64::from(self.info.most)
            && address.is_multiple_of(ALIGNED);
        match right {
            true => {
                let sector = self.share.first + asked.sector;
                Fate::Asked(Request { tag: 0, operation, sector, address, len: len as u32 })
            }
            false => Fate::Answered { status: FAILED, written: 0 },
        }
    }

    /// Answers a request: the status is the only byte that is written for it here. A session that is over gets no
    /// answer: the byte can be another session's.
    pub(crate) fn answer(&mut self, number: usize, chain: &Chain, at: usize, end: (u8, usize)) {
        let Some(queue) = self.device.queue(number) else { return };
        let (status, written) = end;
        write(&self.sections.mine, at, &[status]);
        queue.used(chain, written + 1);
        self.news = true;
    }

    /// Tells the client of all answers, and wakes it if it sleeps.
    pub(crate) fn tell(&mut self, queues: usize) {
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

/// Opens a device.
fn open<M: Memory>(
    sections: &Sections<M>,
    (features, config, queues): &(u64, [u8; CONFIG], usize),
) -> Result<Device<M>, Misfit> {
    let sizes = [NUM as u16; bulkhead_virtio::layout::QUEUES];
    let queues = sizes.get(..*queues).ok_or(Misfit)?;
    let offer = Offer { device: DEVICE, features: *features, config, queues };
    Device::open(sections.mine.clone(), sections.theirs.clone(), sections.len, &offer)
}
