//! The disk's function as the drivers see it, and time.

use bulkhead_disks::{Clock, Configuration, Registers};
use bulkhead_sdk::pci::{Function, register};
use bulkhead_sdk::{Moved, time};

/// Configuration space.
pub struct Space(pub Function);

impl Configuration for Space {
    fn read(&self, at: u16) -> u32 {
        self.0.read(at)
    }
}

/// Time of the core.
pub struct Time;

impl Clock for Time {
    fn now(&self) -> u64 {
        time::nanos(time::counter())
    }
}

/// Registers in memory.
pub struct Bar {
    start: u64,
    bytes: u64,
}

impl Bar {
    /// Finds a BAR of memory, and asks for its size (PCI 3.0, 6.2.5.1).
    pub fn open(function: Function, number: u8) -> Option<Self> {
        let start = function.bar(number.into())?;
        let at = register::BAR + 4 * u16::from(number);
        let old = function.read(at);
        function.write(at, u32::MAX);
        let bytes = u64::from(!(function.read(at) & !0xF)) + 1;
        function.write(at, old);
        Some(Self { start, bytes })
    }
}

impl Registers for Bar {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read8(&self, at: u64) -> u8 {
        // SAFETY: its registers, mapped; the drivers stay within them, and their reads have no effects.
        unsafe { u8::load(self.start + at) }
    }

    fn read16(&self, at: u64) -> u16 {
        // SAFETY: as for 8 bits; the drivers access multiples of the size.
        unsafe { u16::load(self.start + at) }
    }

    fn read32(&self, at: u64) -> u32 {
        // SAFETY: as for 16 bits.
        unsafe { u32::load(self.start + at) }
    }

    fn write8(&self, at: u64, value: u8) {
        // SAFETY: its registers, mapped; the drivers tell it of the arena only.
        unsafe { value.store(self.start + at) }
    }

    fn write16(&self, at: u64, value: u16) {
        // SAFETY: as for 8 bits; the drivers access multiples of the size.
        unsafe { value.store(self.start + at) }
    }

    fn write32(&self, at: u64, value: u32) {
        // SAFETY: as for 16 bits.
        unsafe { value.store(self.start + at) }
    }
}
