//! A disk in another sandbox, for bare guests and programs of the kernel (virtio 1.2, 5.2). A client works in the
//! channel's sections themselves: what it writes it has put there, and what it reads it finds there. So no byte is
//! copied on its side.
//!
//! Requests outlive the disk's own side. When that begins anew, those without an answer are offered once more, in
//! their order, to a disk with the very description. A write's bytes stay as they are until the answer, so a client
//! sees a pause, and no error.
//!
//! Bytes from the disk are a claim. They can change while they are read, and a disk that lies about completion cannot
//! be found without checksums.

use crate::block::feature::*;
use crate::block::{CONFIG, Config, DEVICE, FAILED, HEADER, ID, OK, RANGE, SECTOR, UNKNOWN};
use crate::driver::{Driver, Peer, REQUESTS};
use crate::layout::POOL;
use crate::queue::Part;
use bulkhead_channel::{Bytes, Memory, Misfit};

/// Requests at a time, at most.
pub const DEPTH: usize = REQUESTS;

const PAGE: usize = 4096;
/// Features that a client uses, where the disk has them.
const KNOWN: u64 = SIZE_MAX | SEG_MAX | READ_ONLY | BLOCK_SIZE | FLUSH | DISCARD | WRITE_ZEROES;

/// Kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// From the disk.
    Read,
    /// To the disk. It may stay in the disk's cache until a flush.
    Write,
    /// All writes with an answer outlive a loss of power.
    Flush,
    /// The content of a range is not needed any more.
    Discard,
    /// A range becomes zeros.
    Zero {
        /// The disk may discard it, if it reads as zeros then.
        unmap: bool,
    },
}

impl Operation {
    /// Tells if it is about a range without data of the client's.
    const fn ranges(self) -> bool {
        matches!(self, Self::Discard | Self::Zero { .. })
    }
}

/// A request without an answer from the disk, or with a bad one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The disk reports an error of its own.
    Disk,
    /// The disk does not know this kind of request.
    Unsupported,
    /// The request leaves the disk, is no multiple of 512 bytes, too large, or writes to a disk that cannot be written.
    /// Or the disk has no request of its kind. It was not sent.
    Bad,
}

/// Description of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its size in units of 512 bytes.
    pub sectors: u64,
    /// It cannot be written.
    pub read_only: bool,
    /// It has a cache.
    pub cache: bool,
    /// Bytes of a block: requests are whole blocks.
    pub block: u32,
    /// Bytes of a request, at most.
    pub most: u32,
    /// Sectors of a range that is discarded, at most; 0: the disk has no such request.
    pub discard: u32,
    /// Sectors of a range that becomes zeros, at most; 0: the disk has no such request.
    pub zero: u32,
    /// Its name, or zeros. A disk of another name is another disk.
    pub name: [u8; ID],
}

impl Info {
    /// Makes sense of a configuration, with the features of both; `None`: no disk has such a one.
    fn of(features: u64, config: &[u8; CONFIG]) -> Option<Self> {
        let has = |feature: u64| features & feature != 0;
        let config = Config::of(config);
        let info = Self {
            sectors: config.sectors,
            read_only: has(READ_ONLY),
            cache: has(FLUSH),
            block: if has(BLOCK_SIZE) { config.block } else { SECTOR as u32 },
            most: if has(SIZE_MAX) && has(SEG_MAX) { config.most } else { u32::MAX },
            discard: if has(DISCARD) { config.discard } else { 0 },
            zero: if has(WRITE_ZEROES) { config.zero } else { 0 },
            name: config.name,
        };
        let whole = info.block.is_power_of_two() && u64::from(info.block) >= SECTOR;
        (whole && info.most >= info.block).then_some(info)
    }

    /// Tells if a range can be asked for.
    fn has(&self, operation: Operation, sector: u64, len: usize) -> bool {
        let (writes, most) = match operation {
            Operation::Flush => return len == 0 && sector == 0,
            Operation::Read => (false, u64::from(self.most)),
            Operation::Write => (true, u64::from(self.most)),
            Operation::Discard => (true, u64::from(self.discard) * SECTOR),
            Operation::Zero { .. } => (true, u64::from(self.zero) * SECTOR),
        };
        let len = len as u64;
        let end = sector.checked_add(len / SECTOR);
        let inside = len > 0 && len <= most && end.is_some_and(|end| end <= self.sectors);
        inside && len.is_multiple_of(SECTOR) && !(writes && self.read_only)
    }
}

/// News of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It is there: for the first time, or again with all requests.
    Up(Info),
    /// It is away. Requests wait.
    Lost,
    /// It is another disk than before. It is left alone until it begins anew; requests wait.
    Refused,
}

/// Number of a request's place in the sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u16);

impl Slot {
    /// Returns its number, below [`DEPTH`].
    #[must_use]
    pub const fn number(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Free,
    /// The client has it, and nothing is on its way.
    Held,
    /// It has no answer yet.
    Sent,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    stage: Stage,
    operation: Operation,
    len: usize,
    /// Place in the order of requests.
    order: u64,
}

/// A client's end.
#[derive(Debug)]
pub struct Disk<M: Memory> {
    driver: Driver<M>,
    mine: M,
    theirs: M,
    /// Bytes of a request, at most.
    most: usize,
    depth: usize,
    requests: [Request; DEPTH],
    orders: u64,
    /// The disk that was found first.
    known: Option<Info>,
}

impl<M: Memory> Disk<M> {
    /// Begins. `mine` is the driver's section, `theirs` the disk's, each of `section` bytes. It has as many requests of
    /// `most` bytes at a time as fit, [`DEPTH`] at most.
    ///
    /// # Errors
    /// Not one request fits, or `most` is no multiple of 512.
    pub fn open(mine: M, theirs: M, section: usize, most: usize) -> Result<Self, Misfit> {
        let driver = Driver::open(mine.clone(), theirs.clone(), section, DEVICE, KNOWN)?;
        let room = section.saturating_sub(POOL);
        let depth = (room / stride(most).ok_or(Misfit)?).min(DEPTH);
        if depth == 0 || most == 0 || most as u64 % SECTOR != 0 {
            return Err(Misfit);
        }
        let free = Request { stage: Stage::Free, operation: Operation::Flush, len: 0, order: 0 };
        let requests = [free; DEPTH];
        Ok(Self { driver, mine, theirs, most, depth, requests, orders: 0, known: None })
    }

    /// Looks for news of the disk. Called before each round of work; afterwards the other side is rung, if it sleeps.
    pub fn attend(&mut self) -> Option<News> {
        let features = match self.driver.attend()? {
            Peer::Lost => return Some(News::Lost),
            Peer::Begun(features) => features,
        };
        let mut config = [0; CONFIG];
        let read = self.driver.config(0, &mut config);
        let info = if read { Info::of(features, &config) } else { None };
        let same = |info: &Info| self.known.is_none_or(|known| known == *info);
        // So each place has a number in the queue.
        let depth = self.depth.min(self.driver.requests());
        let less = self.known.is_some() && depth < self.depth;
        let Some(info) = info.filter(|info| same(info) && !less) else {
            self.driver.refuse();
            return Some(News::Refused);
        };
        (self.known, self.depth) = (Some(info), depth);
        self.again();
        Some(News::Up(info))
    }

    /// Returns how many bytes a request has at most, and how many requests there can be at a time.
    #[must_use]
    pub const fn bounds(&self) -> [usize; 2] {
        [self.most, self.depth]
    }

    /// Returns the disk's description, once there was one.
    #[must_use]
    pub const fn info(&self) -> Option<Info> {
        self.known
    }

    /// Takes a free place; `None`: all are in use, or there was no disk yet.
    pub fn slot(&mut self) -> Option<Slot> {
        let _ = self.known.as_ref()?;
        let free = self.requests[..self.depth].iter().position(|r| r.stage == Stage::Free)?;
        self.requests[free].stage = Stage::Held;
        Some(Slot(free as u16))
    }

    /// Returns where a request's bytes are written before it is sent; `None` while it has no answer.
    #[must_use]
    pub fn outgoing(&self, slot: Slot) -> Option<M::Bytes> {
        let _ = self.request(slot).filter(|r| r.stage == Stage::Held)?;
        self.mine.bytes(area(slot, self.most) + PAGE, self.most)
    }

    /// Returns where the bytes are that a request has read; `None` while it has no answer.
    #[must_use]
    pub fn incoming(&self, slot: Slot) -> Option<M::Bytes> {
        let is =
            |r: &&Request| r.stage == Stage::Held && r.operation == Operation::Read && r.len > 0;
        let read = self.request(slot).filter(is)?;
        self.theirs.bytes(area(slot, self.most), read.len)
    }

    /// Returns where a place's bytes begin: those to be written in the client's section, those that were read in the
    /// disk's.
    #[must_use]
    pub fn place(&self, slot: Slot) -> [usize; 2] {
        let at = area(slot, self.most);
        [at + PAGE, at]
    }

    /// Sends a request of `len` bytes from a sector on, or puts it off until there is a disk. The disk sees it after
    /// [`Disk::tell`].
    ///
    /// # Errors
    /// [`Failed::Bad`]: nothing was sent, and the place is still the caller's.
    pub fn send(
        &mut self,
        slot: Slot,
        operation: Operation,
        sector: u64,
        len: usize,
    ) -> Result<(), Failed> {
        let held = self.request(slot).is_some_and(|r| r.stage == Stage::Held);
        let kind: u32 = match operation {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Flush => 4,
            Operation::Discard => 11,
            Operation::Zero { .. } => 13,
        };
        let room = operation.ranges() || len <= self.most;
        if !held || !room || !self.known.is_some_and(|info| info.has(operation, sector, len)) {
            return Err(Failed::Bad);
        }
        let header = self.mine.bytes(self.reads(slot, Operation::Read, 0).at, HEADER + RANGE);
        let header = header.ok_or(Failed::Bad)?;
        header.set_word(0, kind.into());
        header.set_word(8, if operation.ranges() { 0 } else { sector });
        if operation.ranges() {
            let unmap = u64::from(operation == Operation::Zero { unmap: true });
            header.set_word(HEADER, sector);
            let sectors = len as u64 / SECTOR;
            header.set_word(HEADER + 8, sectors | unmap << 32);
        }
        let order = self.orders;
        self.orders += 1;
        self.requests[usize::from(slot.0)] = Request { stage: Stage::Sent, operation, len, order };
        self.offer(slot);
        Ok(())
    }

    /// Tells the disk of all that was sent: one store. Then the other side is rung, if it sleeps.
    pub fn tell(&mut self) {
        self.driver.tell();
    }

    /// Returns the next request with an answer. Its place is the caller's until [`Disk::free`].
    pub fn completed(&mut self) -> Option<(Slot, Result<(), Failed>)> {
        // After an answer that cannot be the session is over, and its requests wait for the next one.
        let (tag, written) = self.driver.used().ok()??;
        let slot = Slot(tag);
        let request = *self.request(slot).filter(|r| r.stage == Stage::Sent)?;
        let writes = self.writes(slot, request.operation, request.len);
        let mut status = [0xFF];
        let last = writes.len - 1;
        if let Some(bytes) = self.theirs.bytes(writes.at, writes.len) {
            bytes.read(last, &mut status);
        }
        // A read with fewer bytes than were asked for would leave an older request's in their place.
        let whole = request.operation != Operation::Read || written == writes.len;
        let done = match status[0] {
            OK if whole => Ok(()),
            UNKNOWN => Err(Failed::Unsupported),
            FAILED => Err(Failed::Disk),
            // No disk answers so. Its next life gets the request again.
            _ => {
                self.driver.give_up();
                return None;
            }
        };
        self.requests[usize::from(tag)].stage = Stage::Held;
        Some((slot, done))
    }

    /// Gives a place back; without effect while it has no answer.
    pub fn free(&mut self, slot: Slot) {
        let held = self.requests.get_mut(usize::from(slot.0)).filter(|r| r.stage == Stage::Held);
        if let Some(request) = held {
            request.stage = Stage::Free;
        }
    }

    /// Returns how many requests have no answer.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.requests.iter().filter(|r| r.stage == Stage::Sent).count()
    }

    fn request(&self, slot: Slot) -> Option<&Request> {
        self.requests[..self.depth].get(usize::from(slot.0))
    }

    /// Offers all requests without an answer once more, in their order.
    fn again(&mut self) {
        let mut next = 0;
        while let Some((slot, order)) = self.sent_from(next) {
            self.offer(slot);
            next = order + 1;
        }
        self.tell();
    }

    /// The first request without an answer, from a place in the order on.
    fn sent_from(&self, from: u64) -> Option<(Slot, u64)> {
        let sent = self.requests.iter().enumerate().filter(|(_, r)| r.stage == Stage::Sent);
        let sent = sent.filter(|(_, r)| r.order >= from).min_by_key(|(_, r)| r.order);
        sent.map(|(n, r)| (Slot(n as u16), r.order))
    }

    fn offer(&mut self, slot: Slot) {
        let Some(request) = self.request(slot) else { return };
        let (operation, len) = (request.operation, request.len);
        let (reads, writes) = (self.reads(slot, operation, len), self.writes(slot, operation, len));
        // Without a session they are offered at its beginning.
        let _ = self.driver.put(slot.0, reads, writes);
    }

    /// The part that the disk reads: header, and what is written.
    fn reads(&self, slot: Slot, operation: Operation, len: usize) -> Part {
        let data = match operation {
            Operation::Write => len,
            Operation::Discard | Operation::Zero { .. } => RANGE,
            Operation::Read | Operation::Flush => 0,
        };
        Part { at: area(slot, self.most) + PAGE - HEADER, len: HEADER + data }
    }

    /// The part that the disk writes: what is read, and the status.
    fn writes(&self, slot: Slot, operation: Operation, len: usize) -> Part {
        let data = if operation == Operation::Read { len } else { 0 };
        Part { at: area(slot, self.most), len: data + 1 }
    }
}

/// Bytes of a place. In the client's section it is a page that ends with the header, then the bytes. In the disk's
/// section it is the bytes, then the status. So the bytes begin at a page's beginning in both.
fn stride(most: usize) -> Option<usize> {
    most.checked_next_multiple_of(PAGE)?.checked_add(PAGE)
}

fn area(slot: Slot, most: usize) -> usize {
    POOL + usize::from(slot.0) * stride(most).unwrap_or(0)
}
