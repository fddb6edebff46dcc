//! Device registers in memory: each access is one instruction of its size, the only form
//! that the monitor carries out where it mediates (docs/monitor.md).

use crate::arch::{Architecture, This};

/// Reads 32 bits.
///
/// # Safety
/// `address` is mapped, and the effect of a read of the device leaves this program's world intact.
#[must_use]
pub unsafe fn read32(address: u64) -> u32 {
    // SAFETY: the caller's.
    unsafe { This::read32(address) }
}

/// Writes 32 bits.
///
/// # Safety
/// As for [`read32`]; data for the device is in memory, which it is once a store is done.
pub unsafe fn write32(address: u64, value: u32) {
    // SAFETY: the caller's.
    unsafe { This::write32(address, value) }
}

/// Reads 64 bits.
///
/// # Safety
/// As for [`read32`].
#[must_use]
pub unsafe fn read64(address: u64) -> u64 {
    // SAFETY: the caller's.
    unsafe { This::read64(address) }
}

/// Writes 64 bits.
///
/// # Safety
/// As for [`write32`].
pub unsafe fn write64(address: u64, value: u64) {
    // SAFETY: the caller's.
    unsafe { This::write64(address, value) }
}
