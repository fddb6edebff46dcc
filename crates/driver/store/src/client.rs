//! A client: its device, and its part of the disk.

use crate::disk::{Info, Operation, Request};
use bulkhead_channel::bell::{Caller, Ring};
use bulkhead_channel::{Memory, Misfit};
use bulkhead_virtio::block::{
    Asked, CONFIG, Config, DEVICE, FAILED, HEADER, ID, Kind, OK, RANGE, RANGE_SECTORS, Range,
    SECTOR, SEGMENT, UNKNOWN, feature, fits, name, read, write,
};
use bulkhead_virtio::layout::{NUM, QUEUES};
use bulkhead_virtio::{Chain, News, Offer, Part, Sections, Served};

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
    served: Served<M, R>,
    described: Described,
    share: Share,
    info: Info,
    name: [u8; ID],
    /// Requests at the disk.
    pub(crate) under_way: u16,
}

/// Sizes of queues.
static SIZES: [u16; QUEUES] = [NUM as u16; QUEUES];

/// Description of a device.
#[derive(Debug)]
struct Described {
    features: u64,
    config: [u8; CONFIG],
    queues: &'static [u16],
}

impl Described {
    const fn offer(&self) -> Offer<'_> {
        Offer { device: DEVICE, features: self.features, config: &self.config, queues: self.queues }
    }
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
        let queues = SIZES.get(..queues).ok_or(Misfit)?;
        let described = Described { features, config: config.bytes(), queues };
        let served = Served::open(sections, caller, &described.offer())?;
        Ok(Self { served, described, share, info: *info, name, under_way: 0 })
    }

    /// Tells if the client has given up on its device, and that was not mended yet.
    pub(crate) fn complains(&mut self) -> bool {
        self.served.complains()
    }

    /// Opens the device anew, as soon as the disk reaches no buffer of the last session any more.
    pub(crate) const fn renew(&mut self) {
        self.served.renew();
    }

    /// Asks to be woken, or asks no longer.
    pub fn arm(&mut self, wanted: bool) {
        self.served.arm(wanted);
    }

    /// Goes on with the session. A client that begins anew is answered only when the disk reaches no buffer of the
    /// last session any more.
    pub(crate) fn attend(&mut self) -> Option<News> {
        self.served.attend(self.under_way > 0, &self.described.offer())
    }

    /// True if there is a session.
    pub(crate) fn is_up(&mut self) -> bool {
        self.served.is_up()
    }

    /// Takes a chain of a queue, and decides on it. An impossible chain ends the session.
    pub(crate) fn take(&mut self, number: usize) -> Result<Option<(Chain, Asked, Fate)>, News> {
        let Some(chain) = self.served.take(number)? else { return Ok(None) };
        let mut header = [0; HEADER];
        let (reads, theirs) = (chain.reads, &self.served.sections().theirs);
        let there = reads.len >= HEADER && read(theirs, reads.at, &mut header);
        match Asked::of(&chain, header).filter(|_| there) {
            Some(asked) => Ok(Some((chain, asked, self.decide(&asked)))),
            None => Err(self.served.spoilt()),
        }
    }

    /// Gives back a chain that was taken last: the disk has no room for it.
    pub(crate) fn untake(&mut self, number: usize) {
        self.served.untake(number);
    }

    /// Decides on a request, by the client's words and its share.
    fn decide(&self, asked: &Asked) -> Fate {
        let fails = |status| Fate::Answered { status, written: 0 };
        match asked.kind {
            Kind::Read => {
                let behind = self.served.sections().len;
                self.request(Operation::Read, asked, asked.room, behind)
            }
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
                let written = write(&self.served.sections().mine, asked.room.at, name);
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
        if !one || !read(&self.served.sections().theirs, asked.out.at, &mut description) {
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
        let address = self.served.sections().bus + (section + data.at) as u64;
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
        let (status, written) = end;
        if self.served.has(number) {
            write(&self.served.sections().mine, at, &[status]);
            self.served.used(number, chain, written + 1);
        }
    }

    /// Tells the client of all answers, and wakes it if it sleeps.
    pub(crate) fn tell(&mut self, queues: usize) {
        self.served.tell(queues);
    }
}
