//! The processor at entry, and its visible features.

use crate::{Wrong, ensure};
use bulkhead_sdk::fault::{self, catch, try_rdmsr, try_read, try_wrmsr};
use bulkhead_sdk::{Context, apic, cpu};
use core::arch::asm;

/// 64-bit mode, interrupts off, x2APIC on, on the sandbox's first core.
pub fn entry(context: Context) -> Result<(), Wrong> {
    const IF: u64 = 1 << 9;
    const PE_WP_PG: u64 = 1 | 1 << 16 | 1 << 31;
    const X2APIC: u64 = 0b11 << 10;
    let (flags, cr0) = (cpu::flags(), cpu::cr0());
    ensure(flags & IF == 0, "interrupts are on", flags)?;
    ensure(cr0 & PE_WP_PG == PE_WP_PG, "CR0", cr0)?;
    let base = try_rdmsr(0x1B).unwrap_or(0);
    ensure(base & X2APIC == X2APIC, "x2APIC is off", base)?;
    let id = apic::id();
    ensure(id == context.info().core_ids[0], "not the first core", id.into())
}

/// Exceptions arrive in the guest and can be caught.
pub fn exceptions(_: Context) -> Result<(), Wrong> {
    const UNMAPPED: u64 = 1 << 46;
    const NOT_CANONICAL: u64 = 1 << 63;
    // SAFETY: the exceptions are wanted, and nothing is held.
    let (ud, gp, pf) = unsafe {
        (
            catch(|| asm!("ud2")).err().unwrap_or_default(),
            try_read(NOT_CANONICAL).err().unwrap_or_default(),
            try_read(UNMAPPED).err().unwrap_or_default(),
        )
    };
    ensure(ud.vector == fault::UD, "no #UD", ud.vector.into())?;
    ensure(gp.vector == fault::GP, "no #GP", gp.vector.into())?;
    ensure(pf.vector == fault::PF, "no #PF", pf.vector.into())?;
    ensure(pf.address == UNMAPPED, "CR2", pf.address)
}

/// CPUID shows x2APIC, and neither SVM nor MONITOR.
pub fn identification(_: Context) -> Result<(), Wrong> {
    let basic = cpu::cpuid(1, 0)[2];
    ensure(basic & 1 << 21 != 0, "no x2APIC", basic.into())?;
    ensure(basic & 1 << 3 == 0, "MONITOR", basic.into())?;
    let extended = cpu::cpuid(0x8000_0001, 0)[2];
    ensure(extended & 1 << 2 == 0, "SVM", extended.into())?;
    let svm = cpu::cpuid(0x8000_000A, 0)[3];
    ensure(svm == 0, "SVM features", svm.into())
}

/// Checks that registers that a guest owns can be written. The timer's current count reads as 0, since its hardware
/// register ends some emulators.
pub fn registers(_: Context) -> Result<(), Wrong> {
    const KERNEL_GS: u32 = 0xC000_0102;
    const PATTERN: u64 = 0x1234_5678_9ABC;
    // SAFETY: this program does not use the register.
    let written = unsafe { try_wrmsr(KERNEL_GS, PATTERN) };
    ensure(written.is_ok(), "kernel GS base", 0)?;
    let found = try_rdmsr(KERNEL_GS).unwrap_or(0);
    ensure(found == PATTERN, "kernel GS base", found)?;
    let count = try_rdmsr(apic::TMCCT).unwrap_or(u64::MAX);
    ensure(count == 0, "current count", count)
}
