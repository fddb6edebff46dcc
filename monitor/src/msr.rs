//! MSR accesses that the permission map does not let through.

use crate::core::{Core, config, slice};
use crate::exit::TWO_BYTES;
use crate::outcome::Outcome;
use crate::{enforced, ipi, record};
use bulkhead_cpu_x86::{cpuid, rdmsr, wrmsr};
use bulkhead_resident::monitor::Quiet;
use bulkhead_resident::report::{Cause, Condition};
use bulkhead_resident_x86::{icr, msr, vmcb};

#[inline(always)]
pub fn handle(core: Core) -> Outcome {
    let vmcb = core.vmcb();
    let register = core.frame.rcx.get() as u32;
    let value = core.frame.rdx.get() << 32 | vmcb.get(vmcb::RAX) & 0xFFFF_FFFF;
    let write = vmcb.get(vmcb::EXIT_INFO1) & 1 != 0;
    if write && register == msr::X2APIC_ICR {
        // The ordinary interrupt: to one core of the sandbox.
        if icr::is_ordinary(&config().own, value) {
            // SAFETY: a fixed interrupt to a core of this sandbox.
            unsafe { wrmsr(msr::X2APIC_ICR, value) };
            return Outcome::skip(Cause::Ipi, TWO_BYTES);
        }
        return ipi::send(core, value);
    }
    other(core, register, write.then_some(value))
}

/// Everything but an ICR write: out of its way.
#[inline(never)]
fn other(core: Core, register: u32, written: Option<u64>) -> Outcome {
    let vmcb = core.vmcb();
    let found = match register {
        // SVME is the monitor's; a guest has no SVM.
        msr::EFER => Some(vmcb.get(vmcb::EFER) & !vmcb::EFER_SVME),
        msr::APIC_BASE => Some(apic_base(core)),
        _ => Quiet::find(slice(config().msrs), register),
    };
    match (written, found) {
        (Some(value), _) if (msr::X2APIC_LVT..=msr::X2APIC_LVT_LAST).contains(&register) => {
            return lvt(register, value);
        }
        (Some(value), _) if register == msr::EFER => return efer(core, value),
        // What is absent takes any value, what is there its own.
        (Some(value), Some(found)) if register != msr::APIC_BASE || value == found => {}
        (None, Some(found)) => {
            vmcb.set(vmcb::RAX, found & 0xFFFF_FFFF);
            core.frame.rdx.set(found >> 32);
        }
        _ => return refuse(core, register, written),
    }
    Outcome::skip(Cause::Msr, TWO_BYTES)
}

/// A write to a local vector table register.
fn lvt(register: u32, value: u64) -> Outcome {
    let value = if enforced("lvt-delivery-mode") {
        icr::lvt(register, value, cpuid(1, 0).ecx & 1 << 24 != 0)
    } else {
        value
    };
    // SAFETY: a fixed interrupt of this core's own, or masked.
    unsafe { wrmsr(register, value) };
    Outcome::skip(Cause::Lvt, TWO_BYTES)
}

/// The register with the sandbox's own idea of the processor that boots (bit 8).
fn apic_base(core: Core) -> u64 {
    const BSP: u64 = 1 << 8;
    // SAFETY: every processor with x2APIC has it.
    let value = unsafe { rdmsr(msr::APIC_BASE) };
    if core.is_first() { value | BSP } else { value & !BSP }
}

/// EFER is the guest's own but for SVME, which VMRUN needs and a guest must not
/// have. LMA is the processor's; LME may not change while paging is on (APM 14.6.1).
fn efer(core: Core, value: u64) -> Outcome {
    const PG: u64 = 1 << 31;
    let vmcb = core.vmcb();
    let old = vmcb.get(vmcb::EFER);
    let changed = (old ^ value) & !vmcb::EFER_LMA;
    let known = efer_known();
    if enforced("efer-svme") && value & vmcb::EFER_SVME != 0
        || value & !(known | vmcb::EFER_LMA | vmcb::EFER_SVME) != 0
    {
        return refuse(core, msr::EFER, Some(value));
    }
    if changed & vmcb::EFER_LME != 0 && vmcb.get(vmcb::CR0) & PG != 0 {
        return Outcome::inject(Cause::Msr, vmcb::GP);
    }
    vmcb.set(vmcb::EFER, value & known | old & vmcb::EFER_LMA | vmcb::EFER_SVME);
    // Control registers and EFER changed: their clean bit is bit 5.
    vmcb.set(vmcb::CLEAN, vmcb.get(vmcb::CLEAN) & !(1 << 5));
    Outcome::skip(Cause::Msr, TWO_BYTES)
}

/// Bits of EFER that a guest may set on this processor.
fn efer_known() -> u64 {
    const MORE: u32 = 0x8000_0021;
    let features = cpuid(0x8000_0001, 0);
    // Beyond the last leaf a processor answers what it likes.
    let more = if cpuid(0x8000_0000, 0).eax < MORE { 0 } else { cpuid(MORE, 0).eax };
    vmcb::efer_guest(features.edx, features.ecx, more)
}

/// Denied: a record, and #GP as from a register that does not exist.
fn refuse(core: Core, register: u32, written: Option<u64>) -> Outcome {
    let condition = if written.is_some() { Condition::MsrWrite } else { Condition::MsrRead };
    let absent = Outcome::inject(Cause::Denied, vmcb::GP);
    record::deny(core, condition, u64::from(register), written.unwrap_or(0), absent)
}
