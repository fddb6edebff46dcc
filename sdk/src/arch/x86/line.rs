//! Interrupt lines: the sandbox's own IOAPIC (Intel 82093AA). Its registers are the
//! monitor's, so setting a line up costs exits; an interrupt and its end cost none.

use crate::interrupt::{self, Handler};
use bulkhead_layout::info::Info;
use core::sync::atomic::{AtomicBool, Ordering};

const REGISTERS: u64 = 0xFEC0_0000;
const SELECT: u64 = 0;
const WINDOW: u64 = 0x10;
/// Low register of line 0.
const TABLE: u32 = 0x10;
const MASKED: u32 = 1 << 16;

/// The line at which an ISA interrupt arrives: the PIT's is line 2.
#[must_use]
pub const fn of_isa(irq: u32) -> u32 {
    if irq == 0 { 2 } else { irq }
}

/// The vector that a level-triggered line of the sandbox has to have. `None` for one
/// that is edge-triggered, which may have any, or another's.
#[must_use]
pub fn vector(info: &Info, line: u32) -> Option<u8> {
    let level = info.level_lines;
    if line >= 32 || level >> line & 1 == 0 {
        return None;
    }
    // The first line has the highest vector.
    let before = (level & ((1 << line) - 1)).count_ones() as usize;
    let granted = |v: &u8| info.level_vectors[usize::from(*v) / 64] >> (v % 64) & 1 != 0;
    (0..=u8::MAX).rev().filter(granted).nth(before)
}

/// Lets a line raise a vector on the core with this x2APIC ID, and sets its handler.
/// A line or a core of another sandbox is denied.
pub fn attach(line: u32, apic_id: u32, vector: u8, handler: Handler) {
    interrupt::set(vector, handler);
    entry(line, u32::from(vector), apic_id << 24);
}

/// Masks a line.
pub fn mask(line: u32) {
    entry(line, MASKED, 0);
}

/// Writes an entry, masked first: neither half is in force with the other's old one.
fn entry(line: u32, low: u32, high: u32) {
    let at = TABLE + 2 * line;
    write(at, MASKED);
    if low & MASKED == 0 {
        write(at + 1, high);
        write(at, low);
    }
}

/// Reads a register by its index.
#[must_use]
pub fn read(index: u32) -> u32 {
    alone(|| {
        // SAFETY: see `raw_write`.
        unsafe {
            raw_write(SELECT, index);
            ((REGISTERS + WINDOW) as *const u32).read_volatile()
        }
    })
}

/// Writes a register by its index.
pub fn write(index: u32, value: u32) {
    alone(|| {
        // SAFETY: see `raw_write`. All vectors have an entry in the table.
        unsafe {
            raw_write(SELECT, index);
            raw_write(WINDOW, value);
        }
    });
}

/// # Safety
/// The page is mapped, which the first page tables and those of [`super::paging`] do.
/// Without a line of its own the sandbox has no IOAPIC, and is denied memory.
unsafe fn raw_write(offset: u64, value: u32) {
    // SAFETY: by the caller.
    unsafe { ((REGISTERS + offset) as *mut u32).write_volatile(value) }
}

/// The index is one for all cores.
fn alone<R>(work: impl FnOnce() -> R) -> R {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    interrupt::without(|| {
        while TAKEN.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        let result = work();
        TAKEN.store(false, Ordering::Release);
        result
    })
}
