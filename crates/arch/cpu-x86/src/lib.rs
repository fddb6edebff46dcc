//! Instructions of x86-64 that boot code, monitors, the kernel and guests share, one function each. Its effect on
//! the machine is argued at the call.
#![no_std]

use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, CpuidResult};

/// Reads a model-specific register.
///
/// # Safety
/// At CPL 0, and the register exists on this processor, or the exception is caught.
#[inline(always)]
pub unsafe fn rdmsr(msr: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller vouches for the register; reading one changes no memory.
    unsafe {
        asm!("rdmsr", in("ecx") msr, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags))
    };
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register.
///
/// # Safety
/// As for [`rdmsr`], and the value keeps what the caller's code relies on.
#[inline(always)]
pub unsafe fn wrmsr(msr: u32, value: u64) {
    // SAFETY: the caller vouches for register and value.
    unsafe {
        asm!("wrmsr", in("ecx") msr, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nostack, preserves_flags))
    };
}

/// CPUID.
#[inline(always)]
#[must_use]
pub fn cpuid(leaf: u32, sub: u32) -> CpuidResult {
    __cpuid_count(leaf, sub)
}

/// Returns the time stamp counter.
#[inline(always)]
#[must_use]
pub fn rdtsc() -> u64 {
    // SAFETY: reads a counter. CR4.TSD, which would make it an exception, is clear wherever this is called at CPL 3.
    unsafe { core::arch::x86_64::_rdtsc() }
}

macro_rules! port {
    ($read:ident, $write:ident, $type:ty, $register:tt) => {
        #[doc = concat!("Reads an I/O port by ", $register, ".")]
        ///
        /// # Safety
        /// The caller may use the port, or the exception is caught. The device does nothing to memory that the caller's
        /// code does not expect.
        #[inline(always)]
        #[must_use]
        pub unsafe fn $read(port: u16) -> $type {
            let value;
            // SAFETY: the caller vouches for the port.
            unsafe {
                asm!(concat!("in ", $register, ", dx"), in("dx") port, out($register) value,
                    options(nostack, preserves_flags));
            }
            value
        }

        #[doc = concat!("Writes an I/O port by ", $register, ".")]
        ///
        /// # Safety
        /// As for reading.
        #[inline(always)]
        pub unsafe fn $write(port: u16, value: $type) {
            // SAFETY: the caller vouches for port and value. Not `nomem`: the device may look at memory then.
            unsafe {
                asm!(concat!("out dx, ", $register), in("dx") port, in($register) value,
                    options(nostack, preserves_flags));
            }
        }
    };
}

port!(inb, outb, u8, "al");
port!(inw, outw, u16, "ax");
port!(inl, outl, u32, "eax");
