//! Instructions with no Rust spelling. `unsafe` where a wrong value can break
//! this program's own memory; another sandbox is the monitor's business.

use core::arch::asm;

/// Reads a model-specific register.
///
/// # Safety
/// The register must exist, or the #GP must be caught ([`crate::fault::catch`]).
#[must_use]
pub unsafe fn rdmsr(msr: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller's.
    unsafe {
        asm!("rdmsr", in("ecx") msr, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register.
///
/// # Safety
/// As for [`rdmsr`], and the value must leave this program's world intact.
pub unsafe fn wrmsr(msr: u32, value: u64) {
    // SAFETY: the caller's. Not `nomem`: a timer or an interrupt may follow.
    unsafe {
        asm!("wrmsr", in("ecx") msr, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags));
    }
}

/// Reads a byte from a port.
///
/// # Safety
/// The device behind it must not write this program's memory for it.
#[must_use]
pub unsafe fn inb(port: u16) -> u8 {
    let value;
    // SAFETY: the caller's.
    unsafe {
        asm!("in al, dx", out("al") value, in("dx") port,
            options(nomem, nostack, preserves_flags));
    }
    value
}

/// Writes a byte to a port.
///
/// # Safety
/// As for [`inb`].
pub unsafe fn outb(port: u16, value: u8) {
    // SAFETY: the caller's.
    unsafe {
        asm!("out dx, al", in("dx") port, in("al") value,
            options(nomem, nostack, preserves_flags));
    }
}

/// Reads four bytes from a port.
///
/// # Safety
/// As for [`inb`].
#[must_use]
pub unsafe fn inl(port: u16) -> u32 {
    let value;
    // SAFETY: the caller's.
    unsafe {
        asm!("in eax, dx", out("eax") value, in("dx") port,
            options(nomem, nostack, preserves_flags));
    }
    value
}

/// Writes four bytes to a port.
///
/// # Safety
/// As for [`inb`].
pub unsafe fn outl(port: u16, value: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value,
            options(nomem, nostack, preserves_flags));
    }
}

/// The time stamp counter, in order with earlier instructions.
#[must_use]
pub fn tsc() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a counter. LFENCE keeps it from being read early.
    unsafe {
        asm!("lfence", "rdtsc", out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// CPUID as `[eax, ebx, ecx, edx]`.
#[must_use]
pub fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    let r = core::arch::x86_64::__cpuid_count(leaf, subleaf);
    [r.eax, r.ebx, r.ecx, r.edx]
}

/// CR3, the root of the page tables.
#[must_use]
pub fn cr3() -> u64 {
    let value;
    // SAFETY: reads a register of this core.
    unsafe { asm!("mov {}, cr3", out(reg) value, options(nomem, nostack, preserves_flags)) }
    value
}

/// CR0.
#[must_use]
pub fn cr0() -> u64 {
    let value;
    // SAFETY: reads a register of this core.
    unsafe { asm!("mov {}, cr0", out(reg) value, options(nomem, nostack, preserves_flags)) }
    value
}

/// CR4.
#[must_use]
pub fn cr4() -> u64 {
    let value;
    // SAFETY: reads a register of this core.
    unsafe { asm!("mov {}, cr4", out(reg) value, options(nomem, nostack, preserves_flags)) }
    value
}

/// RFLAGS.
#[must_use]
pub fn flags() -> u64 {
    let value;
    // SAFETY: pushes and pops one word.
    unsafe { asm!("pushfq", "pop {}", out(reg) value, options(nomem, preserves_flags)) }
    value
}
