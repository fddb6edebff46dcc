//! I/O ports. Monitors use none.

use core::arch::asm;

/// Reads an I/O port.
///
/// # Safety
/// At CPL 0, and reading the port has no effect that the caller's code does not expect.
#[inline(always)]
pub unsafe fn inb(port: u16) -> u8 {
    let value;
    // SAFETY: the caller vouches for the port.
    unsafe {
        asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags))
    };
    value
}

/// Reads a 32-bit I/O port.
///
/// # Safety
/// As [`inb`].
#[inline(always)]
pub unsafe fn inl(port: u16) -> u32 {
    let value;
    // SAFETY: the caller vouches for the port.
    unsafe {
        asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack, preserves_flags))
    };
    value
}

/// Writes a 32-bit I/O port.
///
/// # Safety
/// As [`outb`].
#[inline(always)]
pub unsafe fn outl(port: u16, value: u32) {
    // SAFETY: the caller vouches for port and value.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack, preserves_flags))
    };
}

/// Writes an I/O port.
///
/// # Safety
/// At CPL 0, and the device's reaction is what the caller wants.
#[inline(always)]
pub unsafe fn outb(port: u16, value: u8) {
    // SAFETY: the caller vouches for port and value.
    unsafe {
        asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags))
    };
}
