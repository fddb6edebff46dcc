//! The checks of the boot core's processor: features that kernels and monitors cannot do without. Each that is missing
//! is named with its bit, in the words of the vendor's manual.

use bulkhead_cpu_x86::{cpuid, rdmsr, wrmsr};
use bulkhead_handover::x86::{MONITORS_SVM, MONITORS_VMX};
use bulkhead_monitor_abi_x86::msr;
use bulkhead_monitor_abi_x86::vmcs::{
    CR0_NE, CR4_VMXE, entry_control, ept_vpid, exit_control, lacks, msr as vmx, pin, primary,
    secondary,
};

/// Checks the processor for kernels and for a kind of monitor ([`bulkhead_handover::image::Header::monitors`]).
pub fn check(monitors: u64) -> Result<(), &'static str> {
    // In the order of need: a kernel without a monitor wants the first two and nothing else.
    // Monitors and kernels use the APIC by MSRs alone. Its page would be one more mapping for each of them to confine.
    if cpuid(1, 0).ecx >> 21 & 1 == 0 {
        return Err("x2APIC (CPUID 1 ECX bit 21)");
    }
    // Without it every page that a monitor or a kernel writes could be executed.
    if extended(0x8000_0001).1 >> 20 & 1 == 0 {
        return Err("no-execute pages (CPUID 8000_0001 EDX bit 20)");
    }
    match monitors {
        MONITORS_SVM => svm(),
        MONITORS_VMX => vtx(),
        _ => Ok(()),
    }
}

/// Returns ECX and EDX of an extended leaf.
fn extended(leaf: u32) -> (u32, u32) {
    let answer = cpuid(leaf, 0);
    (answer.ecx, answer.edx)
}

fn svm() -> Result<(), &'static str> {
    const VM_CR_SVMDIS: u64 = 1 << 4;
    // A leaf beyond the last one answers with data of another leaf, so the last one is looked at first.
    let last = cpuid(0x8000_0000, 0).eax;
    // Bochs' generic processor has SVM and forgets the bit (docs/decisions/0003-bochs.md).
    let says = extended(0x8000_0001).0 >> 2 & 1 != 0;
    if last < 0x8000_000A || !says && cpuid(0x8000_000A, 0).eax == 0 {
        return Err("SVM (AMD virtualization; CPUID 8000_0001 ECX bit 2)");
    }
    if extended(0x8000_000A).1 & 1 == 0 {
        // Shadow tables would take its place, which no monitor here has.
        return Err("nested paging (CPUID 8000_000A EDX bit 0)");
    }
    // The host baked nested tables with the largest pages that fit, before it knew the processor.
    if extended(0x8000_0001).1 >> 26 & 1 == 0 {
        return Err("1 GiB pages (CPUID 8000_0001 EDX bit 26)");
    }
    // SAFETY: processors with SVM have VM_CR.
    if unsafe { rdmsr(msr::VM_CR) } & VM_CR_SVMDIS != 0 {
        return Err("SVM: the firmware has switched it off (VM_CR.SVMDIS)");
    }
    Ok(())
}

/// Checks for VT-x, and locks IA32_FEATURE_CONTROL with VMX on where the firmware has left it open. Each core's monitor
/// does that for its own core.
fn vtx() -> Result<(), &'static str> {
    if cpuid(1, 0).ecx >> 5 & 1 == 0 {
        // The registers below fault on a processor without VT-x, so nothing is read before this.
        return Err("VT-x (Intel virtualization; CPUID 1 ECX bit 5)");
    }
    if extended(0x8000_0001).1 >> 26 & 1 == 0 {
        return Err("1 GiB pages (CPUID 8000_0001 EDX bit 26)");
    }
    // SAFETY: processors with VMX have these registers (SDM, appendix A). Secondary controls and EPT have theirs where
    // another register says so, which is read first.
    let read = |register: u32| unsafe { rdmsr(register) };
    // VMXON faults unless the register is locked with the bit on (SDM volume 3, 24.7). A firmware may leave that to the
    // system.
    let control = read(vmx::FEATURE_CONTROL);
    if control & vmx::LOCKED == 0 {
        // SAFETY: the register is there. The bits turn VMX on until the next reset, and nothing else.
        unsafe {
            wrmsr(vmx::FEATURE_CONTROL, control | vmx::VMX_OUTSIDE_SMX | vmx::LOCKED);
        }
    } else if control & vmx::VMX_OUTSIDE_SMX == 0 {
        return Err("VT-x: the firmware has locked it off (IA32_FEATURE_CONTROL bit 2)");
    }
    // Without these registers some controls are always on (SDM volume 3, A.2). Exits of CR3 are among them, one for
    // each switch of a guest's page tables.
    if read(vmx::BASIC) & vmx::HAS_TRUE == 0 {
        return Err("controls that may be off (IA32_VMX_BASIC bit 55)");
    }
    if lacks(primary::SECONDARY, read(vmx::TRUE_PRIMARY)) != 0 {
        return Err("secondary controls (IA32_VMX_TRUE_PROCBASED_CTLS bit 63)");
    }
    controls(read)?;
    // Bits that VMX operation fixes to 1 (SDM volume 3, A.7 and A.8). PE and PG are free in an unrestricted guest, and
    // the monitor sets NE and VMXE behind the guest's back. Any other bit would be one that a guest cannot clear.
    let fixed = read(vmx::CR0_FIXED0) & !(CR0_NE | 1 << 31 | 1);
    if fixed | read(vmx::CR4_FIXED0) & !CR4_VMXE != 0 {
        return Err(
            "control registers that are the guest's (IA32_VMX_CR0_FIXED0, IA32_VMX_CR4_FIXED0)",
        );
    }
    capabilities(read(vmx::EPT_VPID))
}

/// Checks the control words: each wanted bit may be 1, each unwanted one 0.
fn controls(read: impl Fn(u32) -> u64) -> Result<(), &'static str> {
    let pins = pin::WANTED | pin::TIMER;
    let (primaries, secondaries) = (read(vmx::TRUE_PRIMARY), read(vmx::SECONDARY));
    let bits = [
        (
            // By itself before all pins, so that each message names the one bit that is missing.
            lacks(pins & pin::NMI, read(vmx::TRUE_PIN)),
            "NMI exiting (IA32_VMX_TRUE_PINBASED_CTLS bit 35)",
        ),
        (
            lacks(pins, read(vmx::TRUE_PIN)),
            "the preemption timer (IA32_VMX_TRUE_PINBASED_CTLS bit 38)",
        ),
        (
            lacks(primary::WANTED, primaries),
            "bitmaps and exits of MWAIT (IA32_VMX_TRUE_PROCBASED_CTLS bits 42, 57, 60, 61)",
        ),
        (
            primaries as u32 & primary::UNWANTED,
            "guests without needless exits (IA32_VMX_TRUE_PROCBASED_CTLS bits 7 to 30)",
        ),
        (lacks(secondary::EPT, secondaries), "EPT (IA32_VMX_PROCBASED_CTLS2 bit 33)"),
        (lacks(secondary::VPID, secondaries), "VPID (IA32_VMX_PROCBASED_CTLS2 bit 37)"),
        (
            lacks(secondary::UNRESTRICTED, secondaries),
            "unrestricted guests (IA32_VMX_PROCBASED_CTLS2 bit 39)",
        ),
        (
            lacks(secondary::WANTED, secondaries),
            "exits of WBINVD (IA32_VMX_PROCBASED_CTLS2 bit 38)",
        ),
        (
            lacks(exit_control::WANTED, read(vmx::TRUE_EXIT)),
            "saving of EFER and PAT (IA32_VMX_TRUE_EXIT_CTLS bits 34, 41, 50 to 53)",
        ),
        (
            lacks(entry_control::WANTED | entry_control::IA32E, read(vmx::TRUE_ENTRY)),
            "loading of EFER and PAT (IA32_VMX_TRUE_ENTRY_CTLS bits 34, 41, 46, 47)",
        ),
    ];
    bits.into_iter().find(|&(lacking, _)| lacking != 0).map_or(Ok(()), |(_, name)| Err(name))
}

/// Checks what EPT and VPID can do.
fn capabilities(has: u64) -> Result<(), &'static str> {
    let bits = [
        (ept_vpid::FOUR_LEVELS, "EPT walks of 4 levels (IA32_VMX_EPT_VPID_CAP bit 6)"),
        // Each walk reads four tables: out of uncached memory a guest would crawl.
        (ept_vpid::WRITE_BACK, "write-back EPT tables (IA32_VMX_EPT_VPID_CAP bit 14)"),
        // The tables are baked: a page size that is missing here cannot be made up for.
        (ept_vpid::PAGES_2M, "2 MiB EPT pages (IA32_VMX_EPT_VPID_CAP bit 16)"),
        (ept_vpid::PAGES_1G, "1 GiB EPT pages (IA32_VMX_EPT_VPID_CAP bit 17)"),
        // Links come and go at run time, and lives begin anew. Old translations must not outlast either.
        (ept_vpid::INVEPT, "INVEPT (IA32_VMX_EPT_VPID_CAP bits 20, 25, 26)"),
        (ept_vpid::INVVPID, "INVVPID (IA32_VMX_EPT_VPID_CAP bits 32, 41, 42)"),
    ];
    let lacking = bits.into_iter().find(|&(wanted, _)| has & wanted != wanted);
    lacking.map_or(Ok(()), |(_, name)| Err(name))
}
