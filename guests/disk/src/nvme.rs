//! As much of an NVMe controller as it takes to read and write (NVM Express 1.4). Each queue has its MSI-X vector, and
//! a waiting core sleeps until one came.

use crate::arena::{Arena, PAGE, PATIENCE, Request, VECTORS, Wrong};
use bulkhead_sdk::{apic, interrupt, mmio, pci, time};
use core::sync::atomic::{AtomicU32, Ordering};

/// Entries of each queue.
const DEPTH: u16 = 16;
/// Page for answers; those before it hold the two pairs of queues.
const ANSWER: usize = 4;

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

static INTERRUPTS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

/// How often each queue's vector came.
pub fn interrupts() -> [u32; 2] {
    [0, 1].map(|n: usize| INTERRUPTS[n].load(Ordering::Relaxed))
}

fn on_admin(_: &mut interrupt::Frame, _: u64) {
    INTERRUPTS[0].fetch_add(1, Ordering::Relaxed);
}

fn on_io(_: &mut interrupt::Frame, _: u64) {
    INTERRUPTS[1].fetch_add(1, Ordering::Relaxed);
}

/// A command, without its identifier (4.2).
#[derive(Clone, Copy, Default)]
struct Command {
    opcode: u8,
    namespace: u32,
    pointer: u64,
    words: [u32; 3],
}

impl Command {
    /// Reads or writes a page of data (NVM command set, 3.2).
    fn io(request: &Request, block: u64) -> Self {
        let per_page = PAGE as u64 / block;
        let first = request.place * per_page;
        Self {
            opcode: if request.write { 1 } else { 2 },
            namespace: 1,
            pointer: Arena::data_address(request.page),
            words: [first as u32, (first >> 32) as u32, per_page as u32 - 1],
        }
    }

    fn admin(opcode: u8, namespace: u32, page: usize, first: u32, second: u32) -> Self {
        let pointer = Arena::address(page);
        Self { opcode, namespace, pointer, words: [first, second, 0] }
    }
}

/// A submission queue and its completion queue, both with one number.
struct Queue {
    number: usize,
    tail: u16,
    head: u16,
    phase: u64,
}

impl Queue {
    const fn new(number: usize) -> Self {
        Self { number, tail: 0, head: 0, phase: 1 }
    }

    /// Pages of the submission and of the completion queue.
    const fn pages(&self) -> [usize; 2] {
        [2 * self.number, 2 * self.number + 1]
    }
}

/// A controller that is switched on.
pub struct Controller {
    registers: u64,
    stride: u64,
    queues: [Queue; 2],
    /// Bytes of a block.
    pub block: u64,
    /// Blocks of the first namespace.
    pub blocks: u64,
}

impl Controller {
    /// Switches it on with its queues and interrupts, and asks for its properties.
    pub fn new(function: pci::Function) -> Result<Self, Wrong> {
        function.enable();
        let registers = function.bar(0).ok_or(Wrong::Absent("registers"))?;
        let mut own =
            Self { registers, stride: 0, queues: [0, 1].map(Queue::new), block: 0, blocks: 0 };
        own.stride = 4 << (own.read64(register::CAP) >> 32 & 0xF);
        own.enable(0)?;
        let handlers: [interrupt::Handler; 2] = [on_admin, on_io];
        for ((entry, vector), handler) in (0..).zip(VECTORS).zip(handlers) {
            if !function.msix(entry, apic::id(), vector, handler) {
                return Err(Wrong::Absent("MSI-X"));
            }
        }
        let depth = u32::from(DEPTH) - 1;
        own.write32(register::AQA, depth << 16 | depth);
        own.write64(register::ASQ, Arena::address(0));
        own.write64(register::ACQ, Arena::address(1));
        // Entries of 64 and 16 bytes.
        own.enable(1 | 6 << 16 | 4 << 20)?;
        own.identify()?;
        // A completion queue in one piece, with vector 1, then its submission queue.
        let [submission, completion] = own.queues[1].pages();
        own.admin(Command::admin(5, 0, completion, depth << 16 | 1, 1 << 16 | 0b11))?;
        own.admin(Command::admin(1, 0, submission, depth << 16 | 1, 1 << 16 | 1))?;
        Ok(own)
    }

    fn enable(&self, control: u32) -> Result<(), Wrong> {
        self.write32(register::CC, control);
        let due = time::counter() + time::ticks(PATIENCE);
        while self.read32(register::CSTS) & 1 != control & 1 {
            if time::counter() > due {
                return Err(Wrong::Absent("readiness"));
            }
        }
        Ok(())
    }

    fn identify(&mut self) -> Result<(), Wrong> {
        const CONTROLLER: u32 = 1;
        const NAMESPACE: u32 = 0;
        let word = |byte: usize| Arena::get(ANSWER * Arena::PAGE_WORDS + byte / 8);
        self.admin(Command::admin(6, 0, ANSWER, CONTROLLER, 0))?;
        // Number of namespaces.
        if word(516) >> 32 == 0 {
            return Err(Wrong::Absent("namespaces"));
        }
        self.admin(Command::admin(6, 1, ANSWER, NAMESPACE, 0))?;
        let format = word(26) >> 16 & 0xF;
        let formats = word(128 + 4 * format as usize) >> (32 * (format & 1));
        self.block = 1 << (formats >> 16 & 0xFF);
        self.blocks = word(0);
        Ok(())
    }

    fn admin(&mut self, command: Command) -> Result<(), Wrong> {
        self.submit(0, command);
        self.ring(0, self.queues[0].tail);
        self.complete(0)
    }

    /// Carries out up to 15 reads and writes, all at once.
    pub fn io(&mut self, requests: &[Request]) -> Result<(), Wrong> {
        self.begin(requests);
        requests.iter().try_for_each(|_| self.complete(1))
    }

    /// Gives reads and writes to the I/O queue without waiting for the results.
    pub fn begin(&mut self, requests: &[Request]) {
        let block = self.block;
        requests.iter().for_each(|request| self.submit(1, Command::io(request, block)));
        self.ring(2, self.queues[1].tail);
    }

    fn submit(&mut self, queue: usize, command: Command) {
        let tail = self.queues[queue].tail;
        let [page, _] = self.queues[queue].pages();
        let at = page * Arena::PAGE_WORDS + 8 * usize::from(tail);
        let [first, second, third] = command.words.map(u64::from);
        let head = u64::from(command.opcode) | u64::from(tail) << 16;
        let words = [
            head | u64::from(command.namespace) << 32,
            0,
            0,
            command.pointer,
            0,
            first | second << 32,
            third,
            0,
        ];
        (0..).zip(words).for_each(|(n, word)| Arena::set(at + n, word));
        self.queues[queue].tail = (tail + 1) % DEPTH;
    }

    /// Takes the next completion, asleep until it is there.
    fn complete(&mut self, queue: usize) -> Result<(), Wrong> {
        let [_, page] = self.queues[queue].pages();
        let (head, phase) = (self.queues[queue].head, self.queues[queue].phase);
        let at = page * Arena::PAGE_WORDS + 2 * usize::from(head) + 1;
        let due = time::counter() + time::ticks(PATIENCE);
        interrupt::disable();
        let status = loop {
            let word = Arena::get(at);
            if word >> 48 & 1 == phase {
                break (word >> 49) as u16;
            }
            if time::counter() > due {
                return Err(Wrong::Silent);
            }
            time::arm(due);
            interrupt::wait();
        };
        let queue = &mut self.queues[queue];
        queue.head = (head + 1) % DEPTH;
        queue.phase ^= u64::from(queue.head == 0);
        let (number, head) = (queue.number as u64, queue.head);
        self.ring(2 * number + 1, head);
        if status == 0 { Ok(()) } else { Err(Wrong::Status(status)) }
    }

    fn ring(&self, doorbell: u64, value: u16) {
        self.write32(register::DOORBELLS + doorbell * self.stride, u32::from(value));
    }

    fn read32(&self, register: u64) -> u32 {
        // SAFETY: its registers, mapped; reads have no effects.
        unsafe { mmio::read32(self.registers + register) }
    }

    fn read64(&self, register: u64) -> u64 {
        // SAFETY: its registers, mapped; reads have no effects.
        unsafe { mmio::read64(self.registers + register) }
    }

    fn write32(&self, register: u64, value: u32) {
        // SAFETY: its registers; it is told of the arena only.
        unsafe { mmio::write32(self.registers + register, value) }
    }

    fn write64(&self, register: u64, value: u64) {
        // SAFETY: its registers; they point to the arena only.
        unsafe { mmio::write64(self.registers + register, value) }
    }
}
