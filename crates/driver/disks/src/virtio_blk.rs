//! A virtio block device behind PCI (virtio 1.2, 4.1 and 5.2): one split queue with an interrupt of its own.
//!
//! A slot is three descriptors: a header, the data, a status. So the head of a chain is three times its slot's number.
//! The driver reads two of the device's values: the used ring's index and the head in an element. It tells the device
//! of each batch, also when the device asks for no such news. To heed that would need a fence for each batch.

use crate::device::{Clock, Configuration, Memory, Registers, Window, Wrong, clear, useless, wait};
use crate::flights::{Answer, Flights, SLOTS};
use bulkhead_store::disk::{Disk, Failed, Full, Info, Operation, Request};

/// Vendor and device of a block device without legacy interface (4.1.2, 5.2.1), as configuration space has them.
pub const ID: u32 = 0x1042_1AF4;
/// Bytes of memory for the queue.
pub const MEMORY: usize = 3 * 4096;

/// Descriptors, at most.
const NUM: u16 = 256;
/// Most bytes of a request.
const MOST: u32 = 1 << 20;
/// Nanoseconds that a reset may take; the specification has no limit.
const RESET: u64 = 5_000_000_000;
/// Times that the configuration may change while it is read.
const CHANGES: usize = 16;

/// Parts of the queue's memory (2.7), with headers and status bytes behind the available ring.
const DESCRIPTORS: usize = 0;
const AVAILABLE: usize = 4096;
const HEADERS: usize = AVAILABLE + 1024;
const STATUS: usize = HEADERS + 16 * SLOTS;
/// Descriptions of ranges.
const RANGES: usize = STATUS + 8 * SLOTS;
const USED: usize = 8192;
const _: () = assert!(6 + 2 * NUM as usize <= HEADERS - AVAILABLE && RANGES + 16 * SLOTS <= USED);
const _: () = assert!(6 + 8 * NUM as usize <= MEMORY - USED && 3 * SLOTS <= NUM as usize);

/// Common configuration (4.1.4.3).
mod common {
    pub const OFFERED_SELECT: u64 = 0x00;
    pub const OFFERED: u64 = 0x04;
    pub const ACCEPTED_SELECT: u64 = 0x08;
    pub const ACCEPTED: u64 = 0x0C;
    pub const CONFIG_VECTOR: u64 = 0x10;
    pub const STATUS: u64 = 0x14;
    pub const GENERATION: u64 = 0x15;
    pub const QUEUE_SELECT: u64 = 0x16;
    pub const QUEUE_SIZE: u64 = 0x18;
    pub const QUEUE_VECTOR: u64 = 0x1A;
    pub const QUEUE_ENABLE: u64 = 0x1C;
    pub const QUEUE_NOTIFY: u64 = 0x1E;
    pub const QUEUE_PARTS: [u64; 3] = [0x20, 0x28, 0x30];
    pub const BYTES: u64 = 0x38;
}

/// The device's configuration (5.2.4), as far as it is used.
mod config {
    pub const CAPACITY: u64 = 0;
    pub const SIZE_MAX: u64 = 8;
    pub const BLK_SIZE: u64 = 20;
    pub const BYTES: u64 = 24;
    /// Sectors of a range, for a device with such requests.
    pub const DISCARD: u64 = 36;
    pub const ZERO: u64 = 48;
    pub const BYTES_OF_RANGES: u64 = 60;
}

/// Features (5.2.3, 6). A request has one segment of data, so a limit of segments needs no acceptance.
mod feature {
    pub const SIZE_MAX: u64 = 1 << 1;
    pub const READ_ONLY: u64 = 1 << 5;
    pub const BLK_SIZE: u64 = 1 << 6;
    pub const FLUSH: u64 = 1 << 9;
    pub const DISCARD: u64 = 1 << 13;
    pub const WRITE_ZEROES: u64 = 1 << 14;
    pub const VERSION_1: u64 = 1 << 32;
    pub const ACCESS_PLATFORM: u64 = 1 << 33;
    /// Features of requests about ranges.
    pub const RANGES: u64 = DISCARD | WRITE_ZEROES;
    /// Features that are accepted.
    pub const KNOWN: u64 =
        SIZE_MAX | READ_ONLY | BLK_SIZE | FLUSH | RANGES | VERSION_1 | ACCESS_PLATFORM;
}

/// Device status (2.1).
mod status {
    pub const ACKNOWLEDGE: u8 = 1;
    pub const DRIVER: u8 = 2;
    pub const DRIVER_OK: u8 = 4;
    pub const FEATURES_OK: u8 = 8;
    pub const NEEDS_RESET: u8 = 64;
}

/// Vector of something that does not interrupt (4.1.5.1.2).
const NO_VECTOR: u16 = 0xFFFF;

/// Place of a structure (4.1.4).
#[derive(Clone, Copy, Debug)]
struct Place {
    capability: u16,
    bar: u8,
    start: u64,
    bytes: u64,
}

impl Place {
    /// Finds the first structure of a kind.
    fn find(configuration: &impl Configuration, kind: u8) -> Option<Self> {
        const VENDOR: u8 = 9;
        let mut at = configuration.read(0x34) as u16 & 0xFC;
        // A list of 48 entries fills the space: more would be a loop.
        for _ in 0..48 {
            // Behind the first 64 bytes, and with room for 20.
            if !(0x40..=0xEC).contains(&at) {
                break;
            }
            let head = configuration.read(at);
            let bar = configuration.read(at + 4) as u8;
            if head as u8 == VENDOR && (head >> 24) as u8 == kind && bar < 6 {
                let [start, bytes] = [8, 12].map(|more| configuration.read(at + more).into());
                return Some(Self { capability: at, bar, start, bytes });
            }
            at = (head >> 8) as u16 & 0xFC;
        }
        None
    }

    fn open<R: Registers>(&self, bars: impl Fn(u8) -> Option<R>, need: u64) -> Option<Window<R>> {
        Window::new(bars(self.bar)?, self.start, self.bytes).filter(|_| self.bytes >= need)
    }
}

/// A virtio block device.
#[derive(Debug)]
pub struct VirtioBlk<R, M, C> {
    common: Window<R>,
    notify: Window<R>,
    config: Window<R>,
    /// The configuration is long enough to describe requests about ranges.
    ranges: bool,
    /// Bytes of `notify`, and of it for each unit of a queue's offset.
    notifies: (u64, u64),
    memory: M,
    clock: C,
    vector: u16,
    info: Info,
    /// Descriptors.
    size: u16,
    /// Place of the queue in `notify`.
    bell: u64,
    /// Requests put into the available ring.
    sent: u16,
    /// Elements taken from the used ring.
    taken: u16,
    /// It shall not interrupt.
    quiet: bool,
    flights: Flights,
    fault: Option<Wrong>,
}

impl<R: Registers, M: Memory, C: Clock> VirtioBlk<R, M, C> {
    /// Switches the device on. `bars` has its registers by the number of a BAR, and `memory` at least [`MEMORY`] bytes.
    /// `vector` is the entry of its interrupt among its messages.
    ///
    /// # Errors
    /// It lacks something, lies, or its reset does not end.
    pub fn new(
        configuration: &impl Configuration,
        bars: impl Fn(u8) -> Option<R>,
        memory: M,
        clock: C,
        vector: u16,
    ) -> Result<Self, Wrong> {
        let find = |kind, need| {
            let place = Place::find(configuration, kind)?;
            Some((place, place.open(&bars, need)?))
        };
        let (_, common) = find(1, common::BYTES).ok_or(Wrong::Lacks("common configuration"))?;
        let (place, notify) = find(2, 2).ok_or(Wrong::Lacks("place for notifications"))?;
        let (described, config) = find(4, config::BYTES).ok_or(Wrong::Lacks("configuration"))?;
        let ranges = described.bytes >= config::BYTES_OF_RANGES;
        let notifies = (place.bytes, configuration.read(place.capability + 16).into());
        let info = Info::UNKNOWN;
        let mut disk = Self {
            common,
            notify,
            config,
            ranges,
            notifies,
            memory,
            clock,
            vector,
            info,
            size: 0,
            bell: 0,
            sent: 0,
            taken: 0,
            quiet: false,
            flights: Flights::new(0),
            fault: None,
        };
        disk.info = disk.start()?;
        disk.flights = Flights::new(disk.info.depth);
        Ok(disk)
    }

    /// Returns why the disk is silent, if it is.
    pub const fn fault(&self) -> Option<Wrong> {
        self.fault
    }

    /// Looks if the device says that it does not go on (2.1.2). It interrupts for that, where it was told so; a driver
    /// that looks now and then needs no vector for it.
    pub fn check(&mut self) {
        let said = self.common.read8(common::STATUS);
        if self.fault.is_none() && said & status::NEEDS_RESET != 0 {
            self.fault = Some(Wrong::Failed("go on", said.into()));
        }
    }

    /// Resets the device, and sets it up. If that fails the device is off, as far as it obeys.
    fn start(&mut self) -> Result<Info, Wrong> {
        self.set_up().inspect_err(|_| self.common.write8(common::STATUS, 0))
    }

    /// Sets the device up from its reset on (3.1.1).
    fn set_up(&mut self) -> Result<Info, Wrong> {
        self.common.write8(common::STATUS, 0);
        let quiet = || (self.common.read8(common::STATUS) == 0).then_some(());
        wait(&self.clock, RESET, quiet).ok_or(Wrong::Silent("end of its reset"))?;
        clear(&self.memory, MEMORY)?;
        let mut status = status::ACKNOWLEDGE | status::DRIVER;
        self.common.write8(common::STATUS, status);
        let features = self.negotiate()?;
        status |= status::FEATURES_OK;
        self.common.write8(common::STATUS, status);
        if self.common.read8(common::STATUS) & status::FEATURES_OK == 0 {
            return Err(Wrong::Lacks("use for its own features"));
        }
        let info = self.describe(features)?;
        self.set_up_queue()?;
        self.common.write8(common::STATUS, status | status::DRIVER_OK);
        Ok(Info { depth: (self.size / 3).min(SLOTS as u16), ..info })
    }

    /// Accepts what is known of the features that are offered.
    fn negotiate(&self) -> Result<u64, Wrong> {
        let half = |select: u32| {
            self.common.write32(common::OFFERED_SELECT, select);
            u64::from(self.common.read32(common::OFFERED))
        };
        let known = if self.ranges { feature::KNOWN } else { feature::KNOWN & !feature::RANGES };
        let accepted = (half(0) | half(1) << 32) & known;
        if accepted & feature::VERSION_1 == 0 {
            return Err(Wrong::Lacks("VERSION_1"));
        }
        // Without it a device goes round the IOMMU, and all memory is its own.
        if accepted & feature::ACCESS_PLATFORM == 0 {
            return Err(Wrong::Lacks("ACCESS_PLATFORM, so the IOMMU does not confine it"));
        }
        for (select, half) in [(0, accepted as u32), (1, (accepted >> 32) as u32)] {
            self.common.write32(common::ACCEPTED_SELECT, select);
            self.common.write32(common::ACCEPTED, half);
        }
        Ok(accepted)
    }

    /// Reads the configuration, all of one generation (4.1.4.3.1).
    fn describe(&self, features: u64) -> Result<Info, Wrong> {
        let has = |feature| features & feature != 0;
        for _ in 0..CHANGES {
            let generation = self.common.read8(common::GENERATION);
            let sectors = self.config.read64(config::CAPACITY);
            let [largest, block] =
                [config::SIZE_MAX, config::BLK_SIZE].map(|at| self.config.read32(at));
            let range = |feature, at| if has(feature) { self.config.read32(at) } else { 0 };
            let discard = range(feature::DISCARD, config::DISCARD);
            let zero = range(feature::WRITE_ZEROES, config::ZERO);
            if self.common.read8(common::GENERATION) != generation {
                continue;
            }
            let block = if has(feature::BLK_SIZE) { block } else { 512 };
            if !block.is_power_of_two() || !(512..=MOST).contains(&block) {
                return Err(Wrong::Lies("size of a block"));
            }
            let largest = if has(feature::SIZE_MAX) { largest.min(MOST) } else { MOST };
            if largest < block {
                return Err(Wrong::Lies("most bytes of a segment"));
            }
            return Ok(Info {
                sectors,
                block,
                read_only: has(feature::READ_ONLY),
                flush: has(feature::FLUSH),
                most: largest - largest % block,
                depth: 0,
                discard,
                zero,
            });
        }
        Err(Wrong::Silent("configuration that stays"))
    }

    /// Sets up the queue and its interrupt.
    fn set_up_queue(&mut self) -> Result<(), Wrong> {
        let common = &self.common;
        common.write16(common::CONFIG_VECTOR, NO_VECTOR);
        common.write16(common::QUEUE_SELECT, 0);
        let offered = common.read16(common::QUEUE_SIZE).min(NUM);
        if offered < 4 {
            return Err(Wrong::Lacks("queue for a request"));
        }
        // A power of two (2.7).
        self.size = 1 << offered.ilog2();
        common.write16(common::QUEUE_SIZE, self.size);
        common.write16(common::QUEUE_VECTOR, self.vector);
        if common.read16(common::QUEUE_VECTOR) != self.vector {
            return Err(Wrong::Lacks("vector for its queue"));
        }
        for (at, part) in common::QUEUE_PARTS.into_iter().zip([DESCRIPTORS, AVAILABLE, USED]) {
            common.write64(at, self.memory.address() + part as u64);
        }
        let (bytes, unit) = self.notifies;
        let bell = u64::from(common.read16(common::QUEUE_NOTIFY)) * unit;
        if !bell.is_multiple_of(2) || bell + 2 > bytes {
            return Err(Wrong::Lies("place of its queue's notification"));
        }
        self.bell = bell;
        common.write16(common::QUEUE_ENABLE, 1);
        (self.sent, self.taken) = (0, 0);
        self.set_available(0, self.quiet.into());
        Ok(())
    }

    /// Writes a descriptor that goes on with the next, unless it is the last one.
    fn describe_part(&self, number: usize, at: u64, len: u32, writes: bool, last: bool) {
        let flags = u64::from(!last) | u64::from(writes) << 1;
        let descriptor = DESCRIPTORS + 16 * number;
        self.memory.set(descriptor, at);
        let rest = u64::from(len) | flags << 32 | (number as u64 + 1) << 48;
        self.memory.set(descriptor + 8, rest);
    }

    /// Writes 16 bits of the available ring. The device could change the bits around them: that harms only itself.
    fn set_available(&self, index: usize, value: u16) {
        let (at, shift) = (AVAILABLE + index / 4 * 8, index % 4 * 16);
        let rest = self.memory.get(at) & !(0xFFFF << shift);
        self.memory.set(at, rest | u64::from(value) << shift);
    }

    /// Returns the head in the next element of the used ring; `None` if there is none.
    fn used(&self) -> Result<Option<u32>, Wrong> {
        let index = (self.memory.get(USED) >> 16) as u16;
        match index.wrapping_sub(self.taken) {
            0 => Ok(None),
            // It cannot have done more than it was told of.
            news if news > self.flights.told() => Err(Wrong::Lies("index of the used ring")),
            _ => {
                // An element is 8 bytes from offset 4 on, so its first half is the upper one of a word.
                let element = USED + 8 * usize::from(self.taken % self.size);
                Ok(Some((self.memory.get(element) >> 32) as u32))
            }
        }
    }

    /// Takes the next answer.
    fn take(&mut self) -> Result<Option<Answer>, Wrong> {
        let Some(head) = self.used()? else { return Ok(None) };
        let slot = head as usize / 3;
        let tag = if head % 3 == 0 { self.flights.land(slot) } else { None };
        let tag = tag.ok_or(Wrong::Lies("head in the used ring"))?;
        self.taken = self.taken.wrapping_add(1);
        let good = self.memory.get(STATUS + 8 * slot) as u8 == 0;
        Ok(Some((tag, if good { Ok(()) } else { Err(Failed) })))
    }
}

impl<R: Registers, M: Memory, C: Clock> Disk for VirtioBlk<R, M, C> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn submit(&mut self, request: &Request) -> Result<(), Full> {
        let Some(slot) = self.flights.take(request, &self.info)? else { return Ok(()) };
        let (header, status) = (HEADERS + 16 * slot, STATUS + 8 * slot);
        // Types of requests (5.2.6).
        let (kind, sector, data) = match request.operation {
            Operation::Read => (0, request.sector, true),
            Operation::Write => (1, request.sector, true),
            Operation::Flush => (4, 0, false),
            Operation::Discard => (11, 0, true),
            Operation::Zero { .. } => (13, 0, true),
        };
        self.memory.set(header, kind);
        self.memory.set(header + 8, sector);
        // A status that no device gives.
        self.memory.set(status, 0xFF);
        let (own, first) = (|at: usize| self.memory.address() + at as u64, 3 * slot);
        self.describe_part(first, own(header), 16, false, false);
        if request.operation.ranges() {
            let unmap = u64::from(request.operation == Operation::Zero { unmap: true });
            let range = RANGES + 16 * slot;
            self.memory.set(range, request.sector);
            self.memory.set(range + 8, u64::from(request.len / 512) | unmap << 32);
            self.describe_part(first + 1, own(range), 16, false, false);
        } else if data {
            let writes = request.operation == Operation::Read;
            self.describe_part(first + 1, request.address, request.len, writes, false);
        }
        self.describe_part(first + 1 + usize::from(data), own(status), 1, true, true);
        self.set_available(2 + usize::from(self.sent % self.size), first as u16);
        self.sent = self.sent.wrapping_add(1);
        Ok(())
    }

    fn ring(&mut self) {
        if self.fault.is_none() && self.flights.tell() != 0 {
            self.set_available(1, self.sent);
            self.notify.write16(self.bell, 0);
        }
    }

    fn completed(&mut self) -> Option<Answer> {
        if let Some(settled) = self.flights.settled() {
            return Some(settled);
        }
        if self.fault.is_some() {
            return None;
        }
        self.take().unwrap_or_else(|wrong| {
            self.fault = Some(wrong);
            None
        })
    }

    fn interrupts(&mut self, wanted: bool) {
        self.quiet = !wanted;
        self.set_available(0, self.quiet.into());
        self.memory.fence();
    }

    fn reset(&mut self) -> Result<(), Failed> {
        let started = self.start();
        // The device has the queue's memory, but no request.
        self.flights = Flights::new(self.info.depth);
        self.fault = useless(&self.info, started);
        if self.fault.is_some() {
            self.common.write8(common::STATUS, 0);
            return Err(Failed);
        }
        Ok(())
    }
}
