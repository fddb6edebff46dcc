//! A device as its driver sees it: portable, without `unsafe`. A driver reaches its device by [`Registers`],
//! [`Configuration`], [`Memory`] and [`Clock`]. Each of its waits has a limit. [`virtio`] is common to all virtio
//! devices.
#![no_std]
#![forbid(unsafe_code)]

pub mod virtio;

use core::fmt;

/// Registers in memory: a BAR. A write of one comes after all earlier writes to [`Memory`].
pub trait Registers {
    /// Returns how many bytes there are.
    fn bytes(&self) -> u64;
    /// Reads 8 bits.
    fn read8(&self, at: u64) -> u8;
    /// Reads 16 bits.
    fn read16(&self, at: u64) -> u16;
    /// Reads 32 bits.
    fn read32(&self, at: u64) -> u32;
    /// Writes 8 bits.
    fn write8(&self, at: u64, value: u8);
    /// Writes 16 bits.
    fn write16(&self, at: u64, value: u16);
    /// Writes 32 bits.
    fn write32(&self, at: u64, value: u32);
}

impl Registers for bulkhead_guest::Registers {
    fn bytes(&self) -> u64 {
        Self::bytes(*self)
    }
    fn read8(&self, at: u64) -> u8 {
        Self::read8(*self, at)
    }
    fn read16(&self, at: u64) -> u16 {
        Self::read16(*self, at)
    }
    fn read32(&self, at: u64) -> u32 {
        Self::read32(*self, at)
    }
    fn write8(&self, at: u64, value: u8) {
        Self::write8(*self, at, value);
    }
    fn write16(&self, at: u64, value: u16) {
        Self::write16(*self, at, value);
    }
    fn write32(&self, at: u64, value: u32) {
        Self::write32(*self, at, value);
    }
}

impl Configuration for bulkhead_guest::Registers {
    fn read(&self, at: u16) -> u32 {
        self.read32(at.into())
    }
}

/// Configuration space, which is only read.
pub trait Configuration {
    /// Reads 32 bits at a multiple of 4 below 256.
    fn read(&self, at: u16) -> u32;
}

/// Memory for queues, which the device reads and writes at any time. It begins at a page of 4096 bytes.
pub trait Memory {
    /// Returns how many bytes there are.
    fn bytes(&self) -> usize;
    /// Returns the bus address of the first byte.
    fn address(&self) -> u64;
    /// Reads 64 bits at a multiple of 8, before every later access.
    fn get(&self, at: usize) -> u64;
    /// Writes 64 bits at a multiple of 8, after every earlier access.
    fn set(&self, at: usize, value: u64);
    /// Makes all earlier writes visible before any later read.
    fn fence(&self);
}

/// Time, for waits with a limit.
pub trait Clock {
    /// Returns the time in nanoseconds.
    fn now(&self) -> u64;
}

/// Reason why a device does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It lacks something that its driver needs.
    Lacks(&'static str),
    /// It did not do something in time.
    Silent(&'static str),
    /// It says something that cannot be.
    Lies(&'static str),
    /// It failed to do something, with this status.
    Failed(&'static str, u16),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lacks(what) => write!(f, "the device has no {what}"),
            Self::Silent(what) => write!(f, "the device is silent: no {what} in time"),
            Self::Lies(what) => write!(f, "the device names an impossible {what}"),
            Self::Failed(what, status) => {
                write!(f, "the device fails to {what} with status {status:#x}")
            }
        }
    }
}

/// Waits until something is there, at most for so many nanoseconds.
pub fn wait<T>(clock: &impl Clock, limit: u64, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let start = clock.now();
    loop {
        // The time is read before the look: a long interruption between them costs no answer.
        let late = clock.now().wrapping_sub(start) > limit;
        match look() {
            Some(found) => return Some(found),
            None if late => return None,
            None => core::hint::spin_loop(),
        }
    }
}

/// Clears memory for queues, if there is enough of it at a page's beginning.
///
/// # Errors
/// There is not.
pub fn clear(memory: &impl Memory, bytes: usize) -> Result<(), Wrong> {
    let fits = memory.bytes() >= bytes && memory.address().is_multiple_of(4096);
    if !fits || memory.address().checked_add(bytes as u64).is_none() {
        return Err(Wrong::Lacks("memory for its queues"));
    }
    (0..bytes / 8).for_each(|word| memory.set(8 * word, 0));
    Ok(())
}

/// Part of a device's registers that lies within them.
#[derive(Debug)]
pub struct Window<R> {
    registers: R,
    start: u64,
}

impl<R: Registers> Window<R> {
    /// Makes a window of so many bytes, at a multiple of four.
    pub fn new(registers: R, start: u64, bytes: u64) -> Option<Self> {
        let inside = start.checked_add(bytes)? <= registers.bytes() && start.is_multiple_of(4);
        inside.then_some(Self { registers, start })
    }

    /// Reads 8 bits.
    pub fn read8(&self, at: u64) -> u8 {
        self.registers.read8(self.start + at)
    }

    /// Reads 16 bits.
    pub fn read16(&self, at: u64) -> u16 {
        self.registers.read16(self.start + at)
    }

    /// Reads 32 bits.
    pub fn read32(&self, at: u64) -> u32 {
        self.registers.read32(self.start + at)
    }

    /// Reads 64 bits as two halves, the lower first.
    pub fn read64(&self, at: u64) -> u64 {
        let low = self.read32(at);
        u64::from(low) | u64::from(self.read32(at + 4)) << 32
    }

    /// Writes 8 bits.
    pub fn write8(&self, at: u64, value: u8) {
        self.registers.write8(self.start + at, value);
    }

    /// Writes 16 bits.
    pub fn write16(&self, at: u64, value: u16) {
        self.registers.write16(self.start + at, value);
    }

    /// Writes 32 bits.
    pub fn write32(&self, at: u64, value: u32) {
        self.registers.write32(self.start + at, value);
    }

    /// Writes 64 bits as two halves, the lower first.
    pub fn write64(&self, at: u64, value: u64) {
        self.write32(at, value as u32);
        self.write32(at + 4, (value >> 32) as u32);
    }
}
