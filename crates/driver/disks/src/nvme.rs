//! An NVMe controller (NVM Express 1.4, base specification): one queue pair for reads and writes of its first
//! namespace.
//!
//! The identifier of a command is its slot's number. The driver waits for commands of the admin queue, one at a time,
//! while it sets the controller up. Their interrupts, of message 0, need no handler.

use crate::flights::{Answer, Flights, SLOTS};
use crate::useless;
use bulkhead_device::{Clock, Memory, Registers, Window, Wrong, clear, wait};
use bulkhead_store::disk::{Disk, Failed, Full, Info, Operation, Request};

/// Class, subclass and interface of such a function.
pub const CLASS: u32 = 0x01_08_02;
/// Bytes of memory for the queues and lists of pages.
pub const MEMORY: usize = LISTS + LIST * SLOTS;

/// Bytes of a page, with `CC.MPS` 0.
const PAGE: usize = 4096;
/// Most bytes of a request. They lie in at most 33 pages, so 32 are in a list.
const MOST: u32 = 128 << 10;
/// Bytes of a slot's list: it fits into a page with others, and reaches over no page's end.
const LIST: usize = 8 * (MOST as usize / PAGE);
/// Nanoseconds that a command of the admin queue may take.
const PATIENCE: u64 = 5_000_000_000;
/// Nanoseconds of a unit of `CAP.TO`.
const UNIT: u64 = 500_000_000;

/// Parts of the memory: two queues for each pair, an answer, and lists of pages.
const ANSWER: usize = 4 * PAGE;
const LISTS: usize = 5 * PAGE;
/// Entries of the admin queues, and of the others at most: their submission queue is a page.
const ADMIN_ENTRIES: u16 = 8;
const ENTRIES: u16 = 64;
const _: () = assert!(PAGE.is_multiple_of(LIST) && ENTRIES as usize * 64 <= PAGE);

/// Registers (3.1).
mod register {
    pub const CAP: u64 = 0x00;
    pub const CC: u64 = 0x14;
    pub const CSTS: u64 = 0x1C;
    pub const AQA: u64 = 0x24;
    pub const ASQ: u64 = 0x28;
    pub const ACQ: u64 = 0x30;
    pub const DOORBELLS: u64 = 0x1000;
}

/// `CC`: enabled; entries of 64 and of 16 bytes (3.1.5).
const ENABLE: u32 = 1;
const ENTRY_SIZES: u32 = 6 << 16 | 4 << 20;

/// Opcodes of the admin queue (5).
mod admin {
    pub const CREATE_SUBMISSION: u8 = 0x01;
    pub const CREATE_COMPLETION: u8 = 0x05;
    pub const IDENTIFY: u8 = 0x06;
    pub const SET_FEATURES: u8 = 0x09;
}

/// `ONCS` (5.15.2.2): a controller that discards, and one that writes zeros by itself.
const DATASET_MANAGEMENT: u64 = 1 << 2;
const WRITE_ZEROES: u64 = 1 << 3;
/// Blocks of a range that is discarded, and of one that becomes zeros, at most: a number of 16 bits counts these.
const DISCARD: u32 = 1 << 20;
const ZERO: u32 = 1 << 15;
/// The controller may discard a range of zeros, if it reads as zeros then (6.17).
const DEALLOCATE: u32 = 1 << 25;

/// A command, without its identifier (4.2).
#[derive(Clone, Copy, Default)]
struct Command {
    opcode: u8,
    namespace: u32,
    pages: [u64; 2],
    words: [u32; 3],
}

/// A submission queue and its completion queue.
#[derive(Debug)]
struct Queue {
    number: u16,
    entries: u16,
    tail: u16,
    head: u16,
    phase: bool,
    /// The controller was not told of all completions taken.
    owed: bool,
}

/// An entry of a completion queue (4.6).
struct Completion {
    command: u16,
    queue: u16,
    status: u16,
}

impl Queue {
    const fn new(number: u16, entries: u16) -> Self {
        Self { number, entries, tail: 0, head: 0, phase: true, owed: false }
    }

    /// Places of the submission and the completion queue.
    const fn places(&self) -> [usize; 2] {
        let first = 2 * self.number as usize * PAGE;
        [first, first + PAGE]
    }

    fn put(&mut self, memory: &impl Memory, command: &Command, identifier: u16) {
        let at = self.places()[0] + 64 * usize::from(self.tail);
        let [first, second, third] = command.words.map(u64::from);
        let head = u64::from(command.opcode) | u64::from(identifier) << 16;
        let head = head | u64::from(command.namespace) << 32;
        let [one, two] = command.pages;
        let words = [head, 0, 0, one, two, first | second << 32, third, 0];
        (0..).zip(words).for_each(|(n, word)| memory.set(at + 8 * n, word));
        self.tail = (self.tail + 1) % self.entries;
    }

    /// Takes the next completion, if there is one: its phase tells.
    fn take(&mut self, memory: &impl Memory) -> Option<Completion> {
        let word = memory.get(self.places()[1] + 16 * usize::from(self.head) + 8);
        if (word >> 48 & 1 != 0) != self.phase {
            return None;
        }
        self.head = (self.head + 1) % self.entries;
        self.phase ^= self.head == 0;
        self.owed = true;
        let [queue, command, status] = [16, 32, 49].map(|shift| (word >> shift) as u16);
        Some(Completion { command, queue, status })
    }
}

/// An NVMe controller.
#[derive(Debug)]
pub struct Nvme<R, M, C> {
    registers: Window<R>,
    memory: M,
    clock: C,
    vector: u16,
    /// Bytes from one doorbell to the next.
    stride: u64,
    admin: Queue,
    io: Queue,
    info: Info,
    flights: Flights,
    fault: Option<Wrong>,
}

impl<R: Registers, M: Memory, C: Clock> Nvme<R, M, C> {
    /// Switches the controller on. `registers` is its first BAR, and `memory` has at least [`MEMORY`] bytes. `vector`
    /// is the entry of its interrupt among its messages.
    ///
    /// # Errors
    /// It lacks something, lies, or is silent.
    pub fn new(registers: R, memory: M, clock: C, vector: u16) -> Result<Self, Wrong> {
        let bytes = registers.bytes();
        let registers = Window::new(registers, 0, register::DOORBELLS);
        let registers = registers.ok_or(Wrong::Lacks("registers"))?;
        let stride = 4 << (registers.read64(register::CAP) >> 32 & 0xF);
        if bytes < register::DOORBELLS + 3 * stride + 4 {
            return Err(Wrong::Lacks("registers for the doorbells of two queues"));
        }
        let info = Info::UNKNOWN;
        let (admin, io, flights) = (Queue::new(0, 2), Queue::new(1, 2), Flights::new(0));
        let mut disk = Self {
            registers,
            memory,
            clock,
            vector,
            stride,
            admin,
            io,
            info,
            flights,
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

    /// Looks if the controller says that it does not go on (`CSTS.CFS`, 3.1.6).
    pub fn check(&mut self) {
        const FATAL: u32 = 2;
        let said = self.registers.read32(register::CSTS);
        if self.fault.is_none() && said & FATAL != 0 {
            self.fault = Some(Wrong::Failed("go on", said as u16));
        }
    }

    /// Resets the controller, and sets it up. If that fails the controller is off, as far as it obeys.
    fn start(&mut self) -> Result<Info, Wrong> {
        self.set_up().inspect_err(|_| self.registers.write32(register::CC, 0))
    }

    /// Sets the controller up from its reset on (7.6.1).
    fn set_up(&mut self) -> Result<Info, Wrong> {
        const NVM: u64 = 1 << 37;
        let capabilities = self.registers.read64(register::CAP);
        self.enable(capabilities, 0)?;
        // All ones: there is no controller.
        if capabilities & NVM == 0 || capabilities == u64::MAX {
            return Err(Wrong::Lacks("NVM command set"));
        }
        if capabilities >> 48 & 0xF != 0 {
            return Err(Wrong::Lacks("pages of 4096 bytes"));
        }
        clear(&self.memory, MEMORY)?;
        let largest = (capabilities as u16).saturating_add(1);
        self.admin = Queue::new(0, ADMIN_ENTRIES);
        self.io = Queue::new(1, largest.clamp(2, ENTRIES));
        let last = u32::from(ADMIN_ENTRIES) - 1;
        self.registers.write32(register::AQA, last << 16 | last);
        for (at, place) in [register::ASQ, register::ACQ].into_iter().zip(self.admin.places()) {
            self.registers.write64(at, self.bus(place));
        }
        self.enable(capabilities, ENABLE | ENTRY_SIZES)?;
        let info = self.identify()?;
        self.set_up_queues()?;
        Ok(info)
    }

    /// Bus address of a place in the memory.
    fn bus(&self, at: usize) -> u64 {
        self.memory.address() + at as u64
    }

    /// Writes `CC`, and waits until the controller is ready or not, as long as it may take.
    fn enable(&self, capabilities: u64, control: u32) -> Result<(), Wrong> {
        self.registers.write32(register::CC, control);
        let limit = ((capabilities >> 24 & 0xFF) + 1) * UNIT;
        let ready = || (self.registers.read32(register::CSTS) & 1 == control & 1).then_some(());
        wait(&self.clock, limit, ready).ok_or(match control {
            0 => Wrong::Silent("end of its reset"),
            _ => Wrong::Silent("readiness"),
        })
    }

    /// Carries out a command of the admin queue.
    fn admin(&mut self, what: &'static str, command: &Command) -> Result<(), Wrong> {
        let identifier = self.admin.tail;
        self.admin.put(&self.memory, command, identifier);
        self.doorbell(0, self.admin.tail);
        let Self { admin, memory, clock, .. } = self;
        let done = wait(clock, PATIENCE, || admin.take(memory)).ok_or(Wrong::Silent(what))?;
        self.doorbell(1, self.admin.head);
        match done {
            Completion { command, queue: 0, .. } if command != identifier => {
                Err(Wrong::Lies("command in the admin queue"))
            }
            Completion { queue: 0, status: 0, .. } => Ok(()),
            Completion { queue: 0, status, .. } => Err(Wrong::Failed(what, status)),
            _ => Err(Wrong::Lies("queue in the admin queue")),
        }
    }

    /// Reads a field of the last answer, from a byte on.
    fn answer(&self, byte: usize) -> u64 {
        self.memory.get(ANSWER + byte / 8 * 8) >> (byte % 8 * 8)
    }

    /// Asks for the properties of the controller and its first namespace (5.15.2).
    fn identify(&mut self) -> Result<Info, Wrong> {
        let pages = [self.bus(ANSWER), 0];
        let identify = |namespace, structure| Command {
            opcode: admin::IDENTIFY,
            namespace,
            pages,
            words: [structure, 0, 0],
        };
        self.admin("identify the controller", &identify(0, 1))?;
        let (transfer, flush) = (self.answer(77) as u8, self.answer(525) & 1 != 0);
        // `ONCS`: commands that not each controller has.
        let optional = self.answer(520);
        if self.answer(516) as u32 == 0 {
            return Err(Wrong::Lacks("namespaces"));
        }
        self.admin("identify namespace 1", &identify(1, 0))?;
        let blocks = self.answer(0);
        let (format, read_only) = (self.answer(26) as usize & 0xF, self.answer(99) & 1 != 0);
        let format = self.answer(128 + 4 * format) as u32;
        let (metadata, bits) = (format as u16, format >> 16 & 0xFF);
        if blocks == 0 || metadata != 0 {
            return Err(Wrong::Lacks("namespace 1 of blocks without metadata"));
        }
        if !(9..=16).contains(&bits) {
            return Err(Wrong::Lies("size of a block"));
        }
        let sectors = blocks.checked_mul(1 << (bits - 9)).ok_or(Wrong::Lies("size"))?;
        // `MDTS`: 0 is no limit, and 5 already is more than the driver's.
        let most = if (1..=5).contains(&transfer) { (PAGE as u32) << transfer } else { MOST };
        let (block, depth) = (1 << bits, self.io.entries - 1);
        if most < block {
            return Err(Wrong::Lies("most bytes of a request"));
        }
        let blocks = |bit: u64, most: u32| {
            if optional & bit != 0 && !read_only { most.saturating_mul(block / 512) } else { 0 }
        };
        let (discard, zero) = (blocks(DATASET_MANAGEMENT, DISCARD), blocks(WRITE_ZEROES, ZERO));
        let most = most.min(MOST);
        Ok(Info { sectors, block, read_only, flush, most, depth, discard, zero })
    }

    /// Makes the queue pair for reads and writes: first its completion queue, which interrupts (5.3, 5.4).
    fn set_up_queues(&mut self) -> Result<(), Wrong> {
        const NUMBER_OF_QUEUES: u32 = 7;
        const CONTIGUOUS: u32 = 1;
        const INTERRUPTS: u32 = 2;
        let one = |opcode, page, words| Command { opcode, namespace: 0, pages: [page, 0], words };
        let [submission, completion] = self.io.places().map(|place| self.bus(place));
        let size = u32::from(self.io.entries - 1) << 16 | 1;
        let how = u32::from(self.vector) << 16 | INTERRUPTS | CONTIGUOUS;
        let number = one(admin::SET_FEATURES, 0, [NUMBER_OF_QUEUES, 0, 0]);
        self.admin("set the number of queues", &number)?;
        let completion = one(admin::CREATE_COMPLETION, completion, [size, how, 0]);
        self.admin("make a completion queue", &completion)?;
        let submission = one(admin::CREATE_SUBMISSION, submission, [size, 1 << 16 | CONTIGUOUS, 0]);
        self.admin("make a submission queue", &submission)
    }

    fn doorbell(&self, number: u64, value: u16) {
        self.registers.write32(register::DOORBELLS + number * self.stride, value.into());
    }

    /// Returns the two pointers to a request's pages: the second is one of a list if there are more (4.3).
    fn pages(&self, slot: usize, request: &Request) -> [u64; 2] {
        let (start, page) = (request.address, PAGE as u64);
        let second = start / page * page + page;
        // The caller has checked that the sum is one.
        let end = start + u64::from(request.len);
        if end <= second {
            return [start, 0];
        }
        if end - second <= page {
            return [start, second];
        }
        let list = LISTS + LIST * slot;
        let places = (list..).step_by(8).take(LIST / 8);
        for (at, address) in places.zip((second..end).step_by(PAGE)) {
            self.memory.set(at, address);
        }
        [start, self.bus(list)]
    }

    /// Takes the next answer.
    fn take(&mut self) -> Result<Option<Answer>, Wrong> {
        let done = self.io.take(&self.memory);
        // One write is enough for many answers: a controller without room for more waits for it.
        if done.is_none() && core::mem::take(&mut self.io.owed) {
            self.doorbell(3, self.io.head);
        }
        let Some(Completion { command, queue, status }) = done else { return Ok(None) };
        if queue != self.io.number {
            return Err(Wrong::Lies("queue in a completion"));
        }
        let tag =
            self.flights.land(command.into()).ok_or(Wrong::Lies("command in a completion"))?;
        Ok(Some((tag, if status == 0 { Ok(()) } else { Err(Failed) })))
    }
}

impl<R: Registers, M: Memory, C: Clock> Disk for Nvme<R, M, C> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn submit(&mut self, request: &Request) -> Result<(), Full> {
        let Some(slot) = self.flights.take(request, &self.info)? else { return Ok(()) };
        let first = request.sector / u64::from(self.info.block / 512);
        let blocks = request.len / self.info.block;
        // The number of blocks counts from 0.
        let range = [first as u32, (first >> 32) as u32, blocks.saturating_sub(1)];
        // Opcodes of the NVM command set (6).
        let (opcode, pages, words) = match request.operation {
            Operation::Flush => (0, [0; 2], [0; 3]),
            Operation::Write => (1, self.pages(slot, request), range),
            Operation::Read => (2, self.pages(slot, request), range),
            Operation::Zero { unmap } => {
                let [low, high, blocks] = range;
                (8, [0; 2], [low, high, blocks | if unmap { DEALLOCATE } else { 0 }])
            }
            Operation::Discard => {
                // A list of one range (6.7), in the place of a list of pages.
                let list = LISTS + LIST * slot;
                self.memory.set(list, u64::from(blocks) << 32);
                self.memory.set(list + 8, first);
                (9, [self.bus(list), 0], [0, 1 << 2, 0])
            }
        };
        let command = Command { opcode, namespace: 1, pages, words };
        self.io.put(&self.memory, &command, slot as u16);
        Ok(())
    }

    fn ring(&mut self) {
        if self.fault.is_none() && self.flights.tell() != 0 {
            self.doorbell(2, self.io.tail);
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

    fn reset(&mut self) -> Result<(), Failed> {
        let started = self.start();
        // The controller has the queues' memory, but no request.
        self.flights = Flights::new(self.info.depth);
        self.fault = useless(&self.info, started);
        if self.fault.is_some() {
            self.registers.write32(register::CC, 0);
            return Err(Failed);
        }
        Ok(())
    }
}
