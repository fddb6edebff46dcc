//! A virtio block device behind PCI (virtio 1.2, 4.1 and 5.2): one split queue with an interrupt of its own.
//!
//! A slot is three descriptors: a header, the data, a status. So the head of a chain is three times its slot's number.
//! The registers and the queue are those of any virtio device ([`bulkhead_device::virtio`]).

use crate::flights::{Answer, Flights, SLOTS};
use crate::useless;
use bulkhead_device::virtio::{NUM, Parts, Queue, Transport};
use bulkhead_device::{Clock, Configuration, Memory, Registers, Wrong, clear};
use bulkhead_store::disk::{Disk, Failed, Full, Info, Operation, Request};

/// Vendor and device of a block device without legacy interface (4.1.2, 5.2.1), as configuration space has them.
pub const ID: u32 = 0x1042_1AF4;
/// Bytes of memory for the queue.
pub const MEMORY: usize = 3 * 4096;

/// Most bytes of a request.
const MOST: u32 = 1 << 20;

/// Parts of the queue's memory, with headers and status bytes behind the available ring.
const AVAILABLE: usize = 4096;
const USED: usize = 8192;
const PARTS: Parts = Parts { descriptors: 0, available: AVAILABLE, used: USED };
const HEADERS: usize = AVAILABLE + 1024;
const STATUS: usize = HEADERS + 16 * SLOTS;
/// Descriptions of ranges.
const RANGES: usize = STATUS + 8 * SLOTS;
const _: () = assert!(6 + 2 * NUM as usize <= HEADERS - AVAILABLE && RANGES + 16 * SLOTS <= USED);
const _: () = assert!(6 + 8 * NUM as usize <= MEMORY - USED && 3 * SLOTS <= NUM as usize);

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
    /// Features of requests about ranges.
    pub const RANGES: u64 = DISCARD | WRITE_ZEROES;
    /// Features that are accepted.
    pub const KNOWN: u64 = SIZE_MAX | READ_ONLY | BLK_SIZE | FLUSH | RANGES;
}

/// A virtio block device.
#[derive(Debug)]
pub struct VirtioBlk<R, M, C> {
    device: Transport<R>,
    queue: Queue,
    memory: M,
    clock: C,
    vector: u16,
    info: Info,
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
        let device = Transport::find(configuration, bars, config::BYTES)?;
        let (queue, flights) = (Queue::none(PARTS), Flights::new(0));
        let (info, quiet, fault) = (Info::UNKNOWN, false, None);
        let mut disk = Self { device, queue, memory, clock, vector, info, quiet, flights, fault };
        disk.info = disk.start()?;
        disk.flights = Flights::new(disk.info.depth);
        Ok(disk)
    }

    /// Returns why the disk is silent, if it is.
    pub const fn fault(&self) -> Option<Wrong> {
        self.fault
    }

    /// Looks if the device says that it does not go on.
    pub fn check(&mut self) {
        self.fault = self.fault.or(self.device.failed());
    }

    /// Resets the device, and sets it up. If that fails the device is off, as far as it obeys.
    fn start(&mut self) -> Result<Info, Wrong> {
        self.set_up().inspect_err(|_| self.device.off())
    }

    /// Sets the device up from its reset on (3.1.1).
    fn set_up(&mut self) -> Result<Info, Wrong> {
        self.device.reset(&self.clock)?;
        clear(&self.memory, MEMORY)?;
        let ranges = self.device.config_bytes >= config::BYTES_OF_RANGES;
        let known = if ranges { feature::KNOWN } else { feature::KNOWN & !feature::RANGES };
        let features = self.device.negotiate(known)?;
        let info = self.describe(features)?;
        self.queue = self.device.queue(0, 4, &self.memory, PARTS, self.vector)?;
        self.queue.quiet(&self.memory, self.quiet);
        self.device.begin();
        Ok(Info { depth: (self.queue.size() / 3).min(SLOTS as u16), ..info })
    }

    /// Reads the configuration.
    fn describe(&self, features: u64) -> Result<Info, Wrong> {
        let has = |feature| features & feature != 0;
        let (sectors, [largest, block, discard, zero]) = self.device.described(|config| {
            let some = |feature, at| if has(feature) { config.read32(at) } else { 0 };
            let rest = [
                config.read32(config::SIZE_MAX),
                config.read32(config::BLK_SIZE),
                some(feature::DISCARD, config::DISCARD),
                some(feature::WRITE_ZEROES, config::ZERO),
            ];
            (config.read64(config::CAPACITY), rest)
        })?;
        let block = if has(feature::BLK_SIZE) { block } else { 512 };
        if !block.is_power_of_two() || !(512..=MOST).contains(&block) {
            return Err(Wrong::Lies("size of a block"));
        }
        let largest = if has(feature::SIZE_MAX) { largest.min(MOST) } else { MOST };
        if largest < block {
            return Err(Wrong::Lies("most bytes of a segment"));
        }
        Ok(Info {
            sectors,
            block,
            read_only: has(feature::READ_ONLY),
            flush: has(feature::FLUSH),
            most: largest - largest % block,
            depth: 0,
            discard,
            zero,
        })
    }

    /// Takes the next answer.
    fn take(&mut self) -> Result<Option<Answer>, Wrong> {
        let told = self.flights.told();
        let Some((head, _)) = self.queue.used(&self.memory, told)? else { return Ok(None) };
        let slot = head as usize / 3;
        let tag = if head % 3 == 0 { self.flights.land(slot) } else { None };
        let tag = tag.ok_or(Wrong::Lies("head in the used ring"))?;
        self.queue.took();
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
        let part = |number, at, len, writes, last| {
            self.queue.describe(&self.memory, first + number, (at, len), writes, last);
        };
        part(0, own(header), 16, false, false);
        if request.operation.ranges() {
            let unmap = u64::from(request.operation == Operation::Zero { unmap: true });
            let range = RANGES + 16 * slot;
            self.memory.set(range, request.sector);
            self.memory.set(range + 8, u64::from(request.len / 512) | unmap << 32);
            part(1, own(range), 16, false, false);
        } else if data {
            let writes = request.operation == Operation::Read;
            part(1, request.address, request.len, writes, false);
        }
        part(1 + usize::from(data), own(status), 1, true, true);
        self.queue.put(&self.memory, first as u16);
        Ok(())
    }

    fn ring(&mut self) {
        if self.fault.is_none() && self.flights.tell() != 0 {
            self.queue.publish(&self.memory);
            self.device.notify(&self.queue);
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
        self.queue.quiet(&self.memory, self.quiet);
        self.memory.fence();
    }

    fn reset(&mut self) -> Result<(), Failed> {
        let started = self.start();
        // The device has the queue's memory, but no request.
        self.flights = Flights::new(self.info.depth);
        self.fault = useless(&self.info, started);
        if self.fault.is_some() {
            self.device.off();
            return Err(Failed);
        }
        Ok(())
    }
}
