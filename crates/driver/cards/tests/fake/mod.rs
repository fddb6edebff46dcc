//! Memory and time for tests with fake cards.

use bulkhead_cards::{Clock, MEMORY, Memory};
use bulkhead_random::SplitMix64;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Bus address of the card's memory, above 4 GiB.
pub const OWN: u64 = 0x12_3456_7000;
/// Bus address of a client's bytes: each is its address' lowest byte.
pub const CLIENT: u64 = 0x7F_0000_0000;

/// Memory that a card reads and writes by bus addresses.
#[derive(Clone)]
pub struct Ram(Rc<RefCell<Vec<u8>>>);

impl Ram {
    /// Makes memory with old bytes in it.
    pub fn new() -> Self {
        Self(Rc::new(RefCell::new(vec![0xFF; MEMORY])))
    }

    /// Reads, as the card.
    pub fn bytes_at(&self, address: u64, len: usize) -> Vec<u8> {
        if address >= CLIENT {
            return (address..address + len as u64).map(|at| at as u8).collect();
        }
        let at = (address - OWN) as usize;
        self.0.borrow()[at..at + len].to_vec()
    }

    /// Reads a little-endian value of so many bytes, as the card.
    pub fn load(&self, address: u64, bytes: usize) -> u64 {
        let value = self.bytes_at(address, bytes);
        value.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// Writes, as the card.
    pub fn put(&self, address: u64, bytes: &[u8]) {
        let at = (address - OWN) as usize;
        self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes a little-endian value of so many bytes, as the card.
    pub fn store(&self, address: u64, bytes: usize, value: u64) {
        self.put(address, &value.to_le_bytes()[..bytes]);
    }

    /// Writes anything at many places of the queues.
    pub fn scribble(&self, random: &mut SplitMix64) {
        for _ in 0..random.below(40) {
            let at = 8 * random.below(6 * 512) as usize;
            // Small numbers pass more checks.
            let bits = random.below(64);
            let value = random.any() >> bits << random.below(bits + 1);
            self.0.borrow_mut()[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
}

impl Memory for Ram {
    fn bytes(&self) -> usize {
        self.0.borrow().len()
    }
    fn address(&self) -> u64 {
        OWN
    }
    fn get(&self, at: usize) -> u64 {
        assert!(at.is_multiple_of(8), "{at:#x}");
        u64::from_le_bytes(self.0.borrow()[at..at + 8].try_into().unwrap())
    }
    fn set(&self, at: usize, value: u64) {
        assert!(at.is_multiple_of(8), "{at:#x}");
        self.0.borrow_mut()[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    fn fence(&self) {}
}

/// Time that goes on with each look.
#[derive(Clone, Default)]
pub struct Time(pub Rc<Cell<u64>>);

impl Clock for Time {
    fn now(&self) -> u64 {
        self.0.set(self.0.get() + 10_000_000);
        self.0.get()
    }
}

/// A frame of so many bytes.
pub fn frame(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n as u8).wrapping_mul(7) ^ seed).collect()
}
