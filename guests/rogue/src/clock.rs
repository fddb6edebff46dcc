//! Attacks by the owner of the real-time clock. Date and time are its own to read; the other bytes behind these two
//! ports outlive the system.

use crate::Aim;
use crate::expect::Got;
use bulkhead_sdk::cpu;

const INDEX: u16 = 0x70;
const DATA: u16 = 0x71;
/// Status A, with its divider and rate as firmware sets them.
const STATUS_A: u8 = 0x0A;
/// Value of status A: a clock of 32,768 Hz, 1,024 interrupts a second.
pub const AS_USUAL: u64 = 0x26;

/// Writes a register; the result is this function's own.
pub fn write<const AT: u8, const VALUE: u8>(_: &Aim) -> Got {
    // SAFETY: an attack; nothing of this program is at stake.
    unsafe {
        cpu::outb(INDEX, AT);
        cpu::outb(DATA, VALUE);
    }
    Ok(0)
}

/// Reads a register.
pub fn read<const AT: u8>(_: &Aim) -> Got {
    // SAFETY: an attack; nothing of this program is at stake.
    unsafe {
        cpu::outb(INDEX, AT);
        Ok(u64::from(cpu::inb(DATA)))
    }
}

/// Writes status A's own value to it, as a driver does that checks the clock. Bit 7 of the index port is set, which
/// holds NMIs off. Then reads it.
pub fn same(_: &Aim) -> Got {
    // SAFETY: an attack; nothing of this program is at stake.
    unsafe {
        cpu::outb(INDEX, STATUS_A | 0x80);
        cpu::outb(DATA, AS_USUAL as u8);
        Ok(u64::from(cpu::inb(DATA)) & 0x7F)
    }
}
