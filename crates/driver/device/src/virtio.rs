//! The common part of virtio devices behind PCI (virtio 1.2). It has the places of their registers (4.1), the steps by
//! which one is switched on (3.1.1), and a split queue (2.7).
//!
//! A driver reads two of the device's values in a queue: the used ring's index, and an element. Both are claims. It
//! tells the device of each batch, also when the device asks for no such news. To heed that would need a fence for
//! each.

use crate::{Clock, Configuration, Memory, Registers, Window, Wrong, wait};

/// Descriptors of a queue, at most.
pub const NUM: u16 = 256;
/// A feature: virtio 1.0 or later (6).
pub const VERSION_1: u64 = 1 << 32;
/// A feature: its DMA passes the IOMMU (6).
pub const ACCESS_PLATFORM: u64 = 1 << 33;

/// Nanoseconds that a reset may take; the specification has no limit.
const RESET: u64 = 5_000_000_000;
/// Vector of something that does not interrupt (4.1.5.1.2).
const NO_VECTOR: u16 = 0xFFFF;
/// Times that the configuration may change while it is read.
const CHANGES: usize = 16;

/// Kinds of structures (4.1.4).
mod kind {
    pub const COMMON: u8 = 1;
    pub const NOTIFY: u8 = 2;
    pub const DEVICE: u8 = 4;
}

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

/// Device status (2.1).
mod status {
    pub const ACKNOWLEDGE: u8 = 1;
    pub const DRIVER: u8 = 2;
    pub const DRIVER_OK: u8 = 4;
    pub const FEATURES_OK: u8 = 8;
    pub const NEEDS_RESET: u8 = 64;
}

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

/// Registers of a device.
#[derive(Debug)]
pub struct Transport<R> {
    common: Window<R>,
    notify: Window<R>,
    /// The device's own configuration.
    pub config: Window<R>,
    /// Bytes of the device's own configuration.
    pub config_bytes: u64,
    /// Bytes of `notify`, and of it for each unit of a queue's offset.
    notifies: (u64, u64),
}

impl<R: Registers> Transport<R> {
    /// Finds the registers. `bars` has them by the number of a BAR; the device's own configuration has at least so many
    /// bytes.
    ///
    /// # Errors
    /// It lacks something.
    pub fn find(
        configuration: &impl Configuration,
        bars: impl Fn(u8) -> Option<R>,
        config_bytes: u64,
    ) -> Result<Self, Wrong> {
        let find = |kind, need| {
            let place = Place::find(configuration, kind)?;
            Some((place, place.open(&bars, need)?))
        };
        let (_, common) =
            find(kind::COMMON, common::BYTES).ok_or(Wrong::Lacks("common configuration"))?;
        let (place, notify) =
            find(kind::NOTIFY, 2).ok_or(Wrong::Lacks("place for notifications"))?;
        let (described, config) =
            find(kind::DEVICE, config_bytes).ok_or(Wrong::Lacks("configuration"))?;
        let notifies = (place.bytes, configuration.read(place.capability + 16).into());
        Ok(Self { common, notify, config, config_bytes: described.bytes, notifies })
    }

    /// Tells if the device says that it does not go on (2.1.2), by its status. It interrupts for that, where it was
    /// told so; a driver that looks now and then needs no vector for it.
    pub fn failed(&self) -> Option<Wrong> {
        let said = self.common.read8(common::STATUS);
        (said & status::NEEDS_RESET != 0).then_some(Wrong::Failed("go on", said.into()))
    }

    /// Switches the device off, as far as it obeys.
    pub fn off(&self) {
        self.common.write8(common::STATUS, 0);
    }

    /// Resets the device.
    ///
    /// # Errors
    /// The reset does not end.
    pub fn reset(&self, clock: &impl Clock) -> Result<(), Wrong> {
        self.off();
        let quiet = || (self.common.read8(common::STATUS) == 0).then_some(());
        wait(clock, RESET, quiet).ok_or(Wrong::Silent("end of its reset"))
    }

    /// Accepts what is known of the features that are offered, and returns these.
    ///
    /// # Errors
    /// It lacks one that it must have, or refuses.
    pub fn negotiate(&self, known: u64) -> Result<u64, Wrong> {
        const BEGUN: u8 = status::ACKNOWLEDGE | status::DRIVER;
        self.common.write8(common::STATUS, BEGUN);
        let half = |select: u32| {
            self.common.write32(common::OFFERED_SELECT, select);
            u64::from(self.common.read32(common::OFFERED))
        };
        let accepted = (half(0) | half(1) << 32) & (known | VERSION_1 | ACCESS_PLATFORM);
        if accepted & VERSION_1 == 0 {
            return Err(Wrong::Lacks("VERSION_1"));
        }
        // Without it a device goes round the IOMMU, and all memory is its own.
        if accepted & ACCESS_PLATFORM == 0 {
            return Err(Wrong::Lacks("ACCESS_PLATFORM, so the IOMMU does not confine it"));
        }
        for (select, half) in [(0, accepted as u32), (1, (accepted >> 32) as u32)] {
            self.common.write32(common::ACCEPTED_SELECT, select);
            self.common.write32(common::ACCEPTED, half);
        }
        self.common.write8(common::STATUS, BEGUN | status::FEATURES_OK);
        if self.common.read8(common::STATUS) & status::FEATURES_OK == 0 {
            return Err(Wrong::Lacks("use for its own features"));
        }
        Ok(accepted)
    }

    /// Reads from the configuration, all of one generation (4.1.4.3.1).
    ///
    /// # Errors
    /// It changes all the time.
    pub fn described<T>(&self, read: impl Fn(&Window<R>) -> T) -> Result<T, Wrong> {
        for _ in 0..CHANGES {
            let generation = self.common.read8(common::GENERATION);
            let found = read(&self.config);
            if self.common.read8(common::GENERATION) == generation {
                return Ok(found);
            }
        }
        Err(Wrong::Silent("configuration that stays"))
    }

    /// Sets up a queue with parts at these offsets of the memory. It has a power of two of descriptors, up to [`NUM`],
    /// and `least` or more. `vector` is the entry of its interrupt among the device's messages.
    ///
    /// # Errors
    /// The device lacks it, or lies.
    pub fn queue(
        &self,
        number: u16,
        least: u16,
        memory: &impl Memory,
        parts: Parts,
        vector: u16,
    ) -> Result<Queue, Wrong> {
        let common = &self.common;
        common.write16(common::CONFIG_VECTOR, NO_VECTOR);
        common.write16(common::QUEUE_SELECT, number);
        let offered = common.read16(common::QUEUE_SIZE).min(NUM);
        if offered < least.max(1) {
            return Err(Wrong::Lacks("queue for a request"));
        }
        // A power of two (2.7).
        let size = 1 << offered.ilog2();
        common.write16(common::QUEUE_SIZE, size);
        common.write16(common::QUEUE_VECTOR, vector);
        if common.read16(common::QUEUE_VECTOR) != vector {
            return Err(Wrong::Lacks("vector for its queue"));
        }
        let Parts { descriptors, available, used } = parts;
        for (at, part) in common::QUEUE_PARTS.into_iter().zip([descriptors, available, used]) {
            common.write64(at, memory.address() + part as u64);
        }
        let (bytes, unit) = self.notifies;
        let bell = u64::from(common.read16(common::QUEUE_NOTIFY)) * unit;
        if !bell.is_multiple_of(2) || bell + 2 > bytes {
            return Err(Wrong::Lies("place of its queue's notification"));
        }
        common.write16(common::QUEUE_ENABLE, 1);
        Ok(Queue { number, size, bell, parts, sent: 0, taken: 0 })
    }

    /// Lets the device begin.
    pub fn begin(&self) {
        let status = self.common.read8(common::STATUS);
        self.common.write8(common::STATUS, status | status::DRIVER_OK);
    }

    /// Tells the device that its queue has news.
    pub fn notify(&self, queue: &Queue) {
        self.notify.write16(queue.bell, queue.number);
    }
}

/// Parts of a queue (2.7), by their offsets in the device's memory.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Descriptors, 16 bytes each, from a multiple of 16 on.
    pub descriptors: usize,
    /// Available ring, from a multiple of 8 on.
    pub available: usize,
    /// Used ring, from a multiple of 8 on.
    pub used: usize,
}

/// A queue. The memory comes with each call: a driver has several queues in one.
#[derive(Debug)]
pub struct Queue {
    number: u16,
    size: u16,
    /// Place of the queue among the device's notifications.
    bell: u64,
    parts: Parts,
    /// Chains put into the available ring.
    sent: u16,
    /// Elements taken from the used ring.
    taken: u16,
}

impl Queue {
    /// A queue that is not set up.
    #[must_use]
    pub const fn none(parts: Parts) -> Self {
        Self { number: 0, size: 1, bell: 0, parts, sent: 0, taken: 0 }
    }

    /// Descriptors.
    #[must_use]
    pub const fn size(&self) -> u16 {
        self.size
    }

    /// Writes a descriptor that goes on with the next, unless it is the last one.
    pub fn describe(
        &self,
        memory: &impl Memory,
        number: usize,
        (at, len): (u64, u32),
        writes: bool,
        last: bool,
    ) {
        let flags = u64::from(!last) | u64::from(writes) << 1;
        let descriptor = self.parts.descriptors + 16 * number;
        memory.set(descriptor, at);
        memory.set(descriptor + 8, u64::from(len) | flags << 32 | (number as u64 + 1) << 48);
    }

    /// Puts the chain that begins with this descriptor into the available ring. The device sees it after
    /// [`Queue::publish`].
    pub fn put(&mut self, memory: &impl Memory, head: u16) {
        self.set_available(memory, 2 + usize::from(self.sent % self.size), head);
        self.sent = self.sent.wrapping_add(1);
    }

    /// Lets the device see what was put there.
    pub fn publish(&self, memory: &impl Memory) {
        self.set_available(memory, 1, self.sent);
    }

    /// Asks for no interrupts, or asks for them again.
    pub fn quiet(&self, memory: &impl Memory, quiet: bool) {
        self.set_available(memory, 0, quiet.into());
    }

    /// Writes 16 bits of the available ring. The device could change the bits around them: that harms only itself.
    fn set_available(&self, memory: &impl Memory, index: usize, value: u16) {
        let (at, shift) = (self.parts.available + index / 4 * 8, index % 4 * 16);
        let rest = memory.get(at) & !(0xFFFF << shift);
        memory.set(at, rest | u64::from(value) << shift);
    }

    /// Returns the next element of the used ring: a head and a length, if there is one. The device has `told` chains.
    ///
    /// # Errors
    /// It says that it has used more.
    pub fn used(&self, memory: &impl Memory, told: u16) -> Result<Option<(u32, u32)>, Wrong> {
        let used = self.parts.used;
        let index = (memory.get(used) >> 16) as u16;
        match index.wrapping_sub(self.taken) {
            0 => Ok(None),
            // It cannot have done more than it was told of.
            news if news > told => Err(Wrong::Lies("index of the used ring")),
            _ => {
                // An element is 8 bytes from offset 4 on, so its first half is the upper one of a word.
                let element = used + 8 * usize::from(self.taken % self.size);
                let head = (memory.get(element) >> 32) as u32;
                Ok(Some((head, memory.get(element + 8) as u32)))
            }
        }
    }

    /// Goes on to the next element: the last one was as it must be.
    pub fn took(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }
}
