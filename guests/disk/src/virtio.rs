//! The part of a virtio block device's driver that reads and writes (virtio 1.2, 4.1 and 5.2): one split queue with its
//! MSI-X vector.

use crate::arena::{Arena, PAGE, PATIENCE, Request, VECTORS, Wrong};
use bulkhead_sdk::{apic, interrupt, pci, time};
use core::sync::atomic::{AtomicU32, Ordering};

/// Vendor and device of a block device without legacy interface (4.1.2, 5.2.1).
pub const ID: (u16, u16) = (0x1AF4, 0x1042);
/// Descriptors; a request takes three, and sixteen may be on their way.
const DEPTH: u16 = 64;
const SLOTS: u16 = 16;
/// Bytes of a sector, whatever the disk's own are.
const SECTOR: u64 = 512;
/// Pages of the arena: the queue's three parts (2.7), then headers and, from
/// `STATUS` words on, status bytes.
const DESCRIPTORS: usize = 0;
const AVAILABLE: usize = 1;
const USED: usize = 2;
const HEADERS: usize = 3;
const STATUS: usize = 256;

/// Common configuration (4.1.4.3).
mod common {
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

static INTERRUPTS: AtomicU32 = AtomicU32::new(0);

/// How often its vector came.
pub fn interrupts() -> u32 {
    INTERRUPTS.load(Ordering::Relaxed)
}

fn on_interrupt(_: &mut interrupt::Frame, _: u64) {
    INTERRUPTS.fetch_add(1, Ordering::Relaxed);
}

/// Where a structure lies (4.1.4): the capability, and the address.
fn structure(function: pci::Function, kind: u8) -> Option<(u16, u64)> {
    const VENDOR: u8 = 9;
    let mut at = function.read(pci::register::CAPABILITIES) as u16 & 0xFC;
    // A list of 48 entries fills the space: more would be a loop.
    for _ in 0..48 {
        if at < 0x40 {
            break;
        }
        let head = function.read(at);
        if head as u8 == VENDOR && (head >> 24) as u8 == kind {
            let bar = function.bar(function.read(at + 4) as u16 & 0xFF)?;
            return Some((at, bar + u64::from(function.read(at + 8))));
        }
        at = (head >> 8) as u16 & 0xFC;
    }
    None
}

/// A register of 8 to 32 bits.
fn read<T>(address: u64) -> T {
    // SAFETY: its registers, mapped and aligned; reads have no effects.
    unsafe { (address as *const T).read_volatile() }
}

fn write<T>(address: u64, value: T) {
    // SAFETY: its registers; it is told of the arena only.
    unsafe { (address as *mut T).write_volatile(value) }
}

/// A 16-bit field of a page.
fn half(page: usize, index: usize) -> (usize, usize) {
    (page * Arena::PAGE_WORDS + index / 4, index % 4 * 16)
}

fn get_half(page: usize, index: usize) -> u16 {
    let (at, shift) = half(page, index);
    (Arena::get(at) >> shift) as u16
}

/// Writes a field of a part that the device only reads.
fn set_half(page: usize, index: usize, value: u16) {
    let (at, shift) = half(page, index);
    Arena::set(at, Arena::get(at) & !(0xFFFF << shift) | u64::from(value) << shift);
}

/// A device that is switched on.
pub struct Device {
    doorbell: u64,
    sent: u16,
    /// Its sectors.
    pub blocks: u64,
}

impl Device {
    /// Bytes of a block.
    pub const BLOCK: u64 = SECTOR;

    /// Switches it on with its queue and interrupt (3.1.1).
    pub fn new(function: pci::Function) -> Result<Self, Wrong> {
        const ACKNOWLEDGE: u8 = 1;
        const DRIVER: u8 = 2;
        const DRIVER_OK: u8 = 4;
        const FEATURES_OK: u8 = 8;
        /// VERSION_1 and ACCESS_PLATFORM, from bit 32 on.
        const FEATURES: u32 = 0b11;
        const NO_VECTOR: u16 = 0xFFFF;
        function.enable();
        let of = |kind| structure(function, kind).ok_or(Wrong::Absent("virtio structure"));
        let ((_, registers), (notify, doorbells), (_, config)) = (of(1)?, of(2)?, of(4)?);
        let status = |bits: u8| write(registers + common::STATUS, bits);
        status(0);
        let due = time::counter() + time::ticks(PATIENCE);
        while read::<u8>(registers + common::STATUS) != 0 {
            if time::counter() > due {
                return Err(Wrong::Absent("reset"));
            }
        }
        status(ACKNOWLEDGE | DRIVER);
        for (select, features) in [(0u32, 0u32), (1, FEATURES)] {
            write(registers + common::DRIVER_FEATURE_SELECT, select);
            write(registers + common::DRIVER_FEATURE, features);
        }
        status(ACKNOWLEDGE | DRIVER | FEATURES_OK);
        if read::<u8>(registers + common::STATUS) & FEATURES_OK == 0 {
            return Err(Wrong::Absent("features"));
        }
        if !function.msix(0, apic::id(), VECTORS[1], on_interrupt) {
            return Err(Wrong::Absent("MSI-X"));
        }
        write(registers + common::CONFIG_VECTOR, NO_VECTOR);
        write(registers + common::QUEUE_SELECT, 0u16);
        write(registers + common::QUEUE_SIZE, DEPTH);
        write(registers + common::QUEUE_VECTOR, 0u16);
        for (part, page) in (0..).zip([DESCRIPTORS, AVAILABLE, USED]) {
            let (at, address) = (registers + common::QUEUE_PARTS + 8 * part, Arena::address(page));
            write(at, address as u32);
            write(at + 4, (address >> 32) as u32);
        }
        write(registers + common::QUEUE_ENABLE, 1u16);
        status(ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK);
        let offset = u64::from(read::<u16>(registers + common::QUEUE_NOTIFY));
        let doorbell = doorbells + offset * u64::from(function.read(notify + 16));
        let blocks = u64::from(read::<u32>(config)) | u64::from(read::<u32>(config + 4)) << 32;
        Ok(Self { doorbell, sent: 0, blocks })
    }

    /// Carries out up to 16 reads and writes, all at once.
    pub fn io(&mut self, requests: &[Request]) -> Result<(), Wrong> {
        let first = self.sent;
        self.begin(requests);
        let due = time::counter() + time::ticks(PATIENCE);
        interrupt::disable();
        while get_half(USED, 1) != self.sent {
            if time::counter() > due {
                return Err(Wrong::Silent);
            }
            time::arm(due);
            interrupt::wait();
        }
        let status = |n: u16| Arena::get(Self::slot(first.wrapping_add(n)).1) as u8;
        match (0..requests.len() as u16).map(status).find(|&status| status != 0) {
            None => Ok(()),
            Some(status) => Err(Wrong::Status(status.into())),
        }
    }

    /// Words of the header and the status of a request by its number.
    fn slot(number: u16) -> (usize, usize) {
        let (page, slot) = (HEADERS * Arena::PAGE_WORDS, usize::from(number % SLOTS));
        (page + 2 * slot, page + STATUS + slot)
    }

    /// Puts reads and writes into the queue without waiting for the results.
    pub fn begin(&mut self, requests: &[Request]) {
        const NEXT: u64 = 1 << 32;
        const DEVICE_WRITES: u64 = 2 << 32;
        let at = |word: usize| Arena::address(0) + 8 * word as u64;
        for request in requests {
            let (header, status) = Self::slot(self.sent);
            Arena::set(header, u64::from(request.write));
            Arena::set(header + 1, request.place * (PAGE as u64 / SECTOR));
            Arena::set(status, 0xFF);
            let data = if request.write { 0 } else { DEVICE_WRITES };
            let first = 3 * (self.sent % SLOTS);
            let descriptors = [
                (at(header), 16 | NEXT),
                (Arena::data_address(request.page), PAGE as u64 | NEXT | data),
                (at(status), 1 | DEVICE_WRITES),
            ];
            for (n, (address, rest)) in (first..).zip(descriptors) {
                let at = DESCRIPTORS * Arena::PAGE_WORDS + 2 * usize::from(n);
                Arena::set(at, address);
                Arena::set(at + 1, rest | u64::from(n + 1) << 48);
            }
            set_half(AVAILABLE, 2 + usize::from(self.sent % DEPTH), first);
            self.sent = self.sent.wrapping_add(1);
        }
        set_half(AVAILABLE, 1, self.sent);
        write(self.doorbell, 0u16);
    }
}
