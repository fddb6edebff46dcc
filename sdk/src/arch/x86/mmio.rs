//! Registers of devices in memory: each access is one MOV.

use core::arch::asm;

/// Reads 32 bits.
///
/// # Safety
/// `address` is mapped, and the effect of a read of the device leaves this program's world intact.
pub(crate) unsafe fn read32(address: u64) -> u32 {
    let value;
    // SAFETY: the caller's.
    unsafe {
        asm!("mov {:e}, [{}]", out(reg) value, in(reg) address, options(nostack, preserves_flags));
    }
    value
}

/// Writes 32 bits.
///
/// # Safety
/// As for [`read32`]; data for the device is in memory, which it is on this processor once a store has retired.
pub(crate) unsafe fn write32(address: u64, value: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!("mov [{}], {:e}", in(reg) address, in(reg) value, options(nostack, preserves_flags));
    }
}

/// Reads 64 bits.
///
/// # Safety
/// As for [`read32`].
pub(crate) unsafe fn read64(address: u64) -> u64 {
    let value;
    // SAFETY: the caller's.
    unsafe {
        asm!("mov {}, [{}]", out(reg) value, in(reg) address, options(nostack, preserves_flags));
    }
    value
}

/// Writes 64 bits.
///
/// # Safety
/// As for [`write32`].
pub(crate) unsafe fn write64(address: u64, value: u64) {
    // SAFETY: the caller's.
    unsafe {
        asm!("mov [{}], {}", in(reg) address, in(reg) value, options(nostack, preserves_flags));
    }
}
