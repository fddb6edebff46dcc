//! Instructions with no Rust spelling. `unsafe` where a wrong value can break this program's own memory; another
//! sandbox is the monitor's business. An exception of one can be caught ([`crate::fault::catch`]).

pub use bulkhead_cpu_x86::{inb, inl, outb, outl, rdmsr, wrmsr};
use core::arch::asm;

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
