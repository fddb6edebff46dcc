//! Facts from a PC's firmware and boot loader: memory map and ACPI tables. Safe parsers over byte slices, for the boot
//! code; every length in the input is a claim.
#![no_std]

pub mod acpi;
pub mod multiboot;

/// Little-endian integers out of a slice; `None` beyond its end.
pub(crate) fn u8_at(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Physical memory as the parsers see it.
pub trait Memory {
    /// `len` bytes at a physical address; `None` where the boot code cannot read.
    fn bytes(&self, pa: u64, len: usize) -> Option<&[u8]>;
}
