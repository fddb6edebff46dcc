//! Memory, time and requests for tests with fake devices.

use bulkhead_disks::{Clock, Memory};
use bulkhead_random::SplitMix64;
use bulkhead_store::disk::{Disk, Failed, Operation, Request};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Bus address of the queues' memory, above 4 GiB.
pub const QUEUES: u64 = 0x12_3456_7000;
/// Bus address of data.
pub const DATA: u64 = 0x7F_0000_0000;

/// Memory for queues, which a device reads and writes by bus addresses.
#[derive(Clone)]
pub struct Ram(Rc<RefCell<Vec<u64>>>);

impl Ram {
    /// Makes memory with old bytes in it.
    pub fn new(bytes: usize) -> Self {
        Self(Rc::new(RefCell::new(vec![!0; bytes / 8])))
    }

    /// Reads a little-endian value of so many bytes, as the device.
    pub fn load(&self, address: u64, bytes: usize) -> u64 {
        let at = (address - QUEUES) as usize;
        let word = self.0.borrow()[at / 8] >> (at % 8 * 8);
        assert!(at % 8 + bytes <= 8, "{address:#x}");
        if bytes == 8 { word } else { word & ((1 << (8 * bytes)) - 1) }
    }

    /// Writes a little-endian value of so many bytes, as the device.
    pub fn store(&self, address: u64, bytes: usize, value: u64) {
        let (at, shift) = ((address - QUEUES) as usize, (address - QUEUES) % 8 * 8);
        let mask = (u64::MAX >> (64 - 8 * bytes)) << shift;
        let word = &mut self.0.borrow_mut()[at / 8];
        *word = *word & !mask | value << shift & mask;
    }

    /// Writes anything at many places.
    pub fn scribble(&self, random: &mut SplitMix64) {
        let mut words = self.0.borrow_mut();
        for _ in 0..random.below(40) {
            let at = random.below(words.len() as u64) as usize;
            // Small numbers pass more checks.
            let bits = random.below(64);
            words[at] = random.any() >> bits << random.below(bits + 1);
        }
    }
}

impl Memory for Ram {
    fn bytes(&self) -> usize {
        8 * self.0.borrow().len()
    }
    fn address(&self) -> u64 {
        QUEUES
    }
    fn get(&self, at: usize) -> u64 {
        assert!(at.is_multiple_of(8), "{at:#x}");
        self.0.borrow()[at / 8]
    }
    fn set(&self, at: usize, value: u64) {
        assert!(at.is_multiple_of(8), "{at:#x}");
        self.0.borrow_mut()[at / 8] = value;
    }
    fn fence(&self) {}
}

/// Time that goes on with each look.
#[derive(Clone, Default)]
pub struct Time(pub Rc<Cell<u64>>);

/// Nanoseconds between two looks.
pub const TICK: u64 = 10_000_000;

impl Clock for Time {
    fn now(&self) -> u64 {
        self.0.set(self.0.get() + TICK);
        self.0.get()
    }
}

/// Makes a read.
pub fn read(tag: u16, sector: u64, len: u32) -> Request {
    let address = DATA + 512 * (sector % (1 << 20));
    Request { tag, operation: Operation::Read, sector, address, len }
}

/// Makes a write.
pub fn write(tag: u16, sector: u64, len: u32) -> Request {
    Request { operation: Operation::Write, ..read(tag, sector, len) }
}

/// Makes a flush.
pub fn flush(tag: u16) -> Request {
    Request { operation: Operation::Flush, ..read(tag, 0, 0) }
}

/// Takes all answers.
pub fn answers(disk: &mut impl Disk) -> Vec<(u16, Result<(), Failed>)> {
    std::iter::from_fn(|| disk.completed()).collect()
}

/// Makes any request, often one that a disk of so many sectors can carry out.
pub fn any(random: &mut SplitMix64, sectors: u64) -> Request {
    let operation = [Operation::Read, Operation::Write, Operation::Flush][random.below(3) as usize];
    let len = 512 * random.below(20) as u32;
    let address = DATA + 4 * random.below(5000);
    let mut request = Request {
        tag: random.any() as u16,
        operation,
        sector: random.below(sectors),
        address,
        len,
    };
    match random.below(20) {
        0 => request.sector = random.any(),
        1 => request.len = random.any() as u32,
        2 => request.address = random.any(),
        _ => {}
    }
    request
}
