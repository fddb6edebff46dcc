//! Accesses to model-specific registers that the permission map does not let through.

use crate::contract::{RAX, RCX, RDX};
use crate::{TWO_BYTES, X86, ipi, xapic};
use bulkhead_monitor::record::deny;
use bulkhead_monitor::{Outcome, debug};
use bulkhead_monitor_abi::report::{Cause, Condition};
use bulkhead_monitor_abi_x86::config::Quiet;
use bulkhead_monitor_abi_x86::{icr, msr, vmcb};

/// Handles RDMSR, or WRMSR if `write`.
#[inline(always)]
pub fn handle<M: X86>(m: &M, write: bool) -> Outcome {
    let register = m.register(RCX) as u32;
    // The upper halves of RAX, RCX and RDX do not count (APM volume 3, WRMSR).
    let value = m.register(RDX) << 32 | m.register(RAX) & 0xFFFF_FFFF;
    // The processor has these registers in x2APIC mode only, and the monitor would take the exception.
    if xapic::on(m) && register & !0xFF == msr::X2APIC {
        return refuse(m, register, write.then_some(value));
    }
    // It comes first, and its usual way calls nothing: under load no other exit is as frequent.
    if write && register == msr::X2APIC_ICR {
        // The ordinary interrupt: a fixed one to one core of the sandbox.
        if icr::is_ordinary(&m.x86().own, value) {
            m.wrmsr(msr::X2APIC_ICR, value);
            return Outcome::skip(Cause::Ipi, TWO_BYTES);
        }
        return ipi::send(m, value);
    }
    other(m, register, write.then_some(value))
}

/// Handles everything but an ICR write, out of its way.
#[inline(never)]
fn other<M: X86>(m: &M, register: u32, written: Option<u64>) -> Outcome {
    let found = match register {
        // A guest has no SVM.
        msr::EFER => Some(m.state().efer & !vmcb::EFER_SVME),
        // Other values would move the APIC's page or leave x2APIC mode, by which monitors ring each other.
        msr::APIC_BASE => Some(apic_base(m)),
        _ => Quiet::find(m.quiets(m.x86().msrs), register),
    };
    match (written, found) {
        (Some(value), _) if (msr::X2APIC_LVT..=msr::X2APIC_LVT_LAST).contains(&register) => {
            return lvt(m, register, value);
        }
        (Some(value), _) if register == msr::EFER => return efer(m, value),
        // An absent register takes any value, one that is there its own.
        (Some(value), Some(found)) if register != msr::APIC_BASE || value == found => {}
        (None, Some(found)) => {
            m.set_register(RAX, found & 0xFFFF_FFFF);
            m.set_register(RDX, found >> 32);
        }
        _ => return refuse(m, register, written),
    }
    Outcome::skip(Cause::Msr, TWO_BYTES)
}

/// Handles a write to a local vector table register.
fn lvt<M: X86>(m: &M, register: u32, value: u64) -> Outcome {
    // An NMI of the guest's own would be taken for a doorbell, and an SMI would run the firmware.
    let value = if M::enforced("local-interrupts") {
        icr::lvt(register, value, m.cpuid(1, 0)[2] & 1 << 24 != 0)
    } else {
        value
    };
    // A debugger wakes the monitor by this one.
    let value = if register == msr::X2APIC_LINT1 && debug::lets(m) { icr::NMI } else { value };
    // A fixed interrupt of this core's own, or masked.
    m.wrmsr(register, value);
    Outcome::skip(Cause::Lvt, TWO_BYTES)
}

/// Returns the register with the sandbox's own idea of the processor that boots (bit 8).
fn apic_base<M: X86>(m: &M) -> u64 {
    const BSP: u64 = 1 << 8;
    // The machine booted one core. Each sandbox has a first core of its own, and a Linux counts on one.
    let value = m.rdmsr(msr::APIC_BASE);
    if m.is_first() { value | BSP } else { value & !BSP }
}

/// Handles a write of EFER: the guest's own but for SVME, which VMRUN needs and a guest must not
/// have. LMA is the processor's; LME may not change while paging is on (APM 14.6.1).
fn efer<M: X86>(m: &M, value: u64) -> Outcome {
    const PG: u64 = 1 << 31;
    let (old, cr0) = (m.state().efer, m.state().cr0);
    let changed = (old ^ value) & !vmcb::EFER_LMA;
    let known = efer_known(m);
    if M::enforced("virtualization-switch") && value & vmcb::EFER_SVME != 0
        || value & !(known | vmcb::EFER_LMA | vmcb::EFER_SVME) != 0
    {
        return refuse(m, msr::EFER, Some(value));
    }
    if changed & vmcb::EFER_LME != 0 && cr0 & PG != 0 {
        return Outcome::inject(Cause::Msr, vmcb::GP);
    }
    // LMA is no bit of the guest's to write: the processor set it when paging came on.
    m.set_efer(value & known | old & vmcb::EFER_LMA);
    Outcome::skip(Cause::Msr, TWO_BYTES)
}

/// Returns the bits of EFER that a guest may set on this processor.
fn efer_known<M: X86>(m: &M) -> u64 {
    const MORE: u32 = 0x8000_0021;
    let [_, _, ecx, edx] = m.cpuid(0x8000_0001, 0);
    // Beyond the last leaf a processor answers what it likes.
    let more = if m.cpuid(0x8000_0000, 0)[0] < MORE { 0 } else { m.cpuid(MORE, 0)[0] };
    vmcb::efer_guest(edx, ecx, more)
}

/// Denies an access: a record, and #GP as from a register that does not exist.
fn refuse<M: X86>(m: &M, register: u32, written: Option<u64>) -> Outcome {
    let condition = if written.is_some() { Condition::MsrWrite } else { Condition::MsrRead };
    let absent = Outcome::inject(Cause::Denied, vmcb::GP);
    deny(m, condition, u64::from(register), written.unwrap_or(0), absent)
}
