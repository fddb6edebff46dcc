//! A virtio block device on PCI (virtio 1.2, 4.1 and 5.2): one split queue.

use bulkhead_program::{Memory, Program, Registers, now};
use bulkhead_store::disk::{Disk, Failed, Full, Info, Operation, Request};
use core::sync::atomic::{Ordering, fence};

/// Requests under way, at most; each has three descriptors.
const DEPTH: u16 = 64;
const QUEUE: u16 = 256;
/// Nanoseconds that a reset may take.
const RESET: u64 = 1_000_000_000;
/// Bytes of a request, at most.
const MOST: u32 = 1 << 20;

/// Offsets in the memory that the device reaches: descriptors, the two rings, headers, status bytes.
const DESCRIPTORS: usize = 0;
const AVAILABLE: usize = 4096;
const USED: usize = 8192;
const HEADERS: usize = 12288;
const STATUS: usize = HEADERS + 16 * DEPTH as usize;
/// Bytes of it.
const MEMORY: usize = 4 * 4096;

/// Common configuration (4.1.4.3).
mod common {
    pub const DEVICE_FEATURE_SELECT: u64 = 0x00;
    pub const DEVICE_FEATURE: u64 = 0x04;
    pub const DRIVER_FEATURE_SELECT: u64 = 0x08;
    pub const DRIVER_FEATURE: u64 = 0x0C;
    pub const CONFIG_VECTOR: u64 = 0x10;
    pub const STATUS: u64 = 0x14;
    pub const QUEUE_SELECT: u64 = 0x16;
    pub const QUEUE_SIZE: u64 = 0x18;
    pub const QUEUE_VECTOR: u64 = 0x1A;
    pub const QUEUE_ENABLE: u64 = 0x1C;
    pub const QUEUE_NOTIFY: u64 = 0x1E;
    pub const QUEUE_PARTS: u64 = 0x20;
}

const READ_ONLY: u32 = 1 << 5;
const FLUSH: u32 = 1 << 9;

/// A structure of its registers (4.1.4).
#[derive(Clone, Copy)]
struct Structure {
    registers: Registers,
    at: u64,
}

/// The device.
pub struct Virtio {
    common: Structure,
    doorbell: Structure,
    memory: Memory,
    bus: u64,
    given: u16,
    done: u16,
    under_way: [bool; DEPTH as usize],
    info: Info,
    features: u32,
}

impl Virtio {
    /// Switches it on.
    ///
    /// # Errors
    /// What it lacks.
    pub fn open(
        program: Program,
        function: &str,
        memory: (Memory, u64),
    ) -> Result<Self, &'static str> {
        let of = |kind| structure(program, function, kind).ok_or("no virtio structure");
        let (common, (notify, stride), (config, _)) = (of(1)?.0, of(2)?, of(4)?);
        if memory.0.len < MEMORY {
            return Err("too little memory for the device");
        }
        let common = common;
        common.write32(common::DEVICE_FEATURE_SELECT, 0);
        let features = common.read32(common::DEVICE_FEATURE) & (READ_ONLY | FLUSH);
        let sectors = u64::from(config.read32(0)) | u64::from(config.read32(4)) << 32;
        let info = Info {
            sectors,
            block: 512,
            read_only: features & READ_ONLY != 0,
            flush: features & FLUSH != 0,
            most: MOST,
            depth: DEPTH,
        };
        let mut device = Self {
            common,
            doorbell: notify,
            memory: memory.0,
            bus: memory.1,
            given: 0,
            done: 0,
            under_way: [false; DEPTH as usize],
            info,
            features,
        };
        device.reset().map_err(|Failed| "it cannot be reset")?;
        common.registers.write16(common.at + common::QUEUE_SELECT, 0);
        let number = common.registers.read16(common.at + common::QUEUE_NOTIFY);
        device.doorbell.at += u64::from(number) * u64::from(stride);
        Ok(device)
    }

    fn set32(&self, at: usize, value: u32) {
        let word = &self.memory.words()[at / 8];
        let shift = at % 8 * 8;
        let old = word.load(Ordering::Relaxed) & !(0xFFFF_FFFF << shift);
        word.store(old | u64::from(value) << shift, Ordering::Relaxed);
    }

    fn get(&self, at: usize) -> u64 {
        self.memory.words()[at / 8].load(Ordering::Relaxed)
    }

    fn set(&self, at: usize, value: u64) {
        self.memory.words()[at / 8].store(value, Ordering::Relaxed);
    }

    fn set16(&self, at: usize, value: u16) {
        let shift = at % 8 * 8;
        self.set(at, self.get(at) & !(0xFFFF << shift) | u64::from(value) << shift);
    }

    fn set8(&self, at: usize, value: u8) {
        let shift = at % 8 * 8;
        self.set(at, self.get(at) & !(0xFF << shift) | u64::from(value) << shift);
    }

    /// Lets it interrupt, or not.
    pub fn interrupts(&self, wanted: bool) {
        self.set16(AVAILABLE, u16::from(!wanted));
        fence(Ordering::SeqCst);
    }
}

impl Structure {
    fn read32(self, at: u64) -> u32 {
        self.registers.read32(self.at + at)
    }
    fn write32(self, at: u64, value: u32) {
        self.registers.write32(self.at + at, value);
    }
    fn write16(self, at: u64, value: u16) {
        self.registers.write16(self.at + at, value);
    }
    fn write8(self, at: u64, value: u8) {
        self.registers.write8(self.at + at, value);
    }
}

/// Finds a structure by its kind; with it the word behind its capability.
fn structure(program: Program, function: &str, kind: u8) -> Option<(Structure, u32)> {
    const VENDOR: u8 = 9;
    let config = program.registers(&function_name::<40>(function, "config"));
    let mut at = u64::from(config.read8(0x34) & 0xFC);
    // A list of 48 entries fills the space: more would be a loop.
    for _ in 0..48 {
        if at < 0x40 {
            break;
        }
        let head = config.read32(at);
        if head as u8 == VENDOR && (head >> 24) as u8 == kind {
            let bar = [b'0' + (config.read8(at + 4) & 7)];
            let bar = core::str::from_utf8(&bar).ok()?;
            let registers = program.registers(&function_name::<40>(function, bar));
            let more = if kind == 2 { config.read32(at + 16) } else { 0 };
            return Some((Structure { registers, at: config.read32(at + 8).into() }, more));
        }
        at = u64::from((head >> 8) as u8 & 0xFC);
    }
    None
}

/// A name of a part of a function.
struct Text<const N: usize>([u8; N], usize);

impl<const N: usize> core::ops::Deref for Text<N> {
    type Target = str;
    fn deref(&self) -> &str {
        core::str::from_utf8(&self.0[..self.1]).unwrap_or_default()
    }
}

fn function_name<const N: usize>(function: &str, part: &str) -> Text<N> {
    let mut text = [0; N];
    let mut len = 0;
    for byte in function.bytes().chain([b':']).chain(part.bytes()).take(N) {
        text[len] = byte;
        len += 1;
    }
    Text(text, len)
}

impl Disk for Virtio {
    fn info(&self) -> &Info {
        &self.info
    }

    fn submit(&mut self, request: &Request) -> Result<(), Full> {
        const NEXT: u64 = 1 << 32;
        const DEVICE_WRITES: u64 = 2 << 32;
        let (tag, slot) = (request.tag, usize::from(request.tag));
        match self.under_way.get_mut(slot) {
            Some(taken) if !*taken => *taken = true,
            _ => return Err(Full),
        }
        let (kind, data) = match request.operation {
            Operation::Read => (0, DEVICE_WRITES),
            Operation::Write => (1, 0),
            Operation::Flush => (4, 0),
        };
        let (header, status) = (HEADERS + 16 * slot, STATUS + slot);
        self.set(header, kind);
        self.set(header + 8, if request.len == 0 { 0 } else { request.sector });
        self.set8(status, 0xFF);
        let first = 3 * tag;
        let put = |n: u16, at: u64, rest: u64| {
            let place = DESCRIPTORS + 16 * usize::from(n);
            self.set(place, at);
            self.set(place + 8, rest);
        };
        let next = |n: u16| NEXT | u64::from(n) << 48;
        let status_at = first + 2;
        let after = if request.len == 0 { status_at } else { first + 1 };
        put(first, self.bus + header as u64, 16 | next(after));
        put(first + 1, request.address, u64::from(request.len) | data | next(status_at));
        put(status_at, self.bus + status as u64, 1 | DEVICE_WRITES);
        self.set16(AVAILABLE + 4 + 2 * usize::from(self.given % QUEUE), first);
        self.given = self.given.wrapping_add(1);
        Ok(())
    }

    fn ring(&mut self) {
        fence(Ordering::Release);
        self.set16(AVAILABLE + 2, self.given);
        fence(Ordering::SeqCst);
        self.doorbell.write16(0, 0);
    }

    fn completed(&mut self) -> Option<(u16, Result<(), Failed>)> {
        let index = (self.get(USED) >> 16) as u16;
        if index == self.done {
            return None;
        }
        fence(Ordering::Acquire);
        let at = USED + 4 + 8 * usize::from(self.done % QUEUE);
        let head = (self.get(at) >> (at % 8 * 8)) as u32;
        self.done = self.done.wrapping_add(1);
        let tag = (head / 3) as u16;
        let slot = usize::from(tag);
        let known = self.under_way.get_mut(slot)?;
        if !core::mem::take(known) {
            return None;
        }
        let status = (self.get(STATUS + slot) >> ((STATUS + slot) % 8 * 8)) as u8;
        Some((tag, if status == 0 { Ok(()) } else { Err(Failed) }))
    }

    fn reset(&mut self) -> Result<(), Failed> {
        const ACKNOWLEDGE: u8 = 1;
        const DRIVER: u8 = 2;
        const DRIVER_OK: u8 = 4;
        const FEATURES_OK: u8 = 8;
        /// VERSION_1 and ACCESS_PLATFORM, from bit 32 on.
        const FEATURES: u32 = 0b11;
        const NO_VECTOR: u16 = 0xFFFF;
        let common = self.common;
        let status = |bits| common.write8(common::STATUS, bits);
        status(0);
        let due = now() + RESET;
        while common.registers.read8(common.at + common::STATUS) != 0 {
            if now() > due {
                return Err(Failed);
            }
        }
        (0..MEMORY / 8).for_each(|word| self.set(8 * word, 0));
        (self.given, self.done, self.under_way) = (0, 0, [false; DEPTH as usize]);
        status(ACKNOWLEDGE | DRIVER);
        for (select, features) in [(0, self.features), (1, FEATURES)] {
            common.write32(common::DRIVER_FEATURE_SELECT, select);
            common.write32(common::DRIVER_FEATURE, features);
        }
        status(ACKNOWLEDGE | DRIVER | FEATURES_OK);
        if common.registers.read8(common.at + common::STATUS) & FEATURES_OK == 0 {
            return Err(Failed);
        }
        common.write16(common::CONFIG_VECTOR, NO_VECTOR);
        common.write16(common::QUEUE_SELECT, 0);
        common.write16(common::QUEUE_SIZE, QUEUE);
        common.write16(common::QUEUE_VECTOR, 0);
        for (part, offset) in (0..).zip([DESCRIPTORS, AVAILABLE, USED]) {
            let (at, address) = (common::QUEUE_PARTS + 8 * part, self.bus + offset as u64);
            common.write32(at, address as u32);
            common.write32(at + 4, (address >> 32) as u32);
        }
        common.write16(common::QUEUE_ENABLE, 1);
        status(ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK);
        self.interrupts(false);
        self.set32(AVAILABLE + 4, 0);
        Ok(())
    }
}
