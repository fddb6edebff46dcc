//! The privileged instructions that boot code and monitors both use, one function
//! each. Whoever calls one runs at CPL 0; what it does to the machine is argued
//! at the call.
#![no_std]

use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, CpuidResult};

/// Reads a model-specific register.
///
/// # Safety
/// At CPL 0, and the register exists on this processor.
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
/// At CPL 0, the register exists, and the value keeps what the caller's code relies on.
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
    // SAFETY: reads a counter; CR4.TSD does not apply at CPL 0.
    unsafe { core::arch::x86_64::_rdtsc() }
}
