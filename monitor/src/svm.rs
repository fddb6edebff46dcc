//! The virtual processor by SVM, and this core's interrupts.

use crate::layout::{Memory, Vmcb, config};
use crate::vmrun::{Frame, drain_window, nmi_sleep, nmi_window};
use bulkhead_cpu_x86::{cpuid, rdmsr, rdtsc, wrmsr};
use bulkhead_monitor::{Interrupts, Layout, Vcpu};
use bulkhead_resident::record::{Op, RecordMemory, play};
use bulkhead_resident_x86::{icr, msr, vmcb};
use core::arch::asm;
use core::mem::offset_of;
use core::ptr::from_ref;

impl Vcpu for Frame {
    /// Of a processor with 4 GHz.
    const MICROSECOND: u64 = 4_000;
    const NMI: u8 = vmcb::NMI;

    #[inline(always)]
    fn index(&self) -> u32 {
        self.number()
    }

    #[inline(always)]
    fn now(&self) -> u64 {
        rdtsc()
    }

    #[inline(always)]
    fn instruction(&self) -> u64 {
        self.vmcb().get(vmcb::RIP)
    }

    #[inline(always)]
    fn privilege(&self) -> u8 {
        self.vmcb().cpl()
    }

    #[inline(always)]
    fn call(&self) -> u64 {
        self.vmcb().get(vmcb::RAX)
    }

    #[inline(always)]
    fn argument(&self, n: usize) -> u64 {
        match n {
            0 => self.rdi.get(),
            1 => self.rsi.get(),
            2 => self.rdx.get(),
            _ => self.r8.get(),
        }
    }

    #[inline(always)]
    fn answer(&self, result: u64) {
        self.vmcb().set(vmcb::RAX, result);
    }

    #[inline(always)]
    fn skip(&self, length: u8) {
        let vmcb = self.vmcb();
        // A processor that does not save the next RIP leaves the word as it is: zero.
        let next = match vmcb.get(vmcb::NEXT_RIP) {
            0 => vmcb.get(vmcb::RIP).wrapping_add(u64::from(length)),
            saved => saved,
        };
        vmcb.set(vmcb::RIP, next);
        // It ends with the instruction after STI or MOV SS, which this was.
        vmcb.set(vmcb::INTERRUPT_SHADOW, 0);
    }

    fn inject(&self, vector: u8) {
        self.vmcb().set(vmcb::EVENT_INJ, vmcb::event(vector));
    }

    /// All translations where a processor cannot flush by ASID (APM 15.16.1).
    #[inline(never)]
    fn flush(&self) {
        const FLUSH_BY_ASID: u32 = 1 << 6;
        let vmcb = self.vmcb();
        let how = match cpuid(0x8000_000A, 0).edx & FLUSH_BY_ASID {
            0 => vmcb::TLB_FLUSH_ALL,
            _ => vmcb::TLB_FLUSH_GUEST,
        };
        vmcb.set(vmcb::ASID, vmcb.get(vmcb::ASID) as u32 as u64 | how);
    }

    fn reset(&self, ops: &[Op]) {
        let base = from_ref::<Vmcb>(self.vmcb()) as u64;
        let mut memory = Memory;
        memory.zero(base, 4096);
        // SAFETY: registers of the guest that the monitor does not use.
        unsafe { fresh_extended_state(base) };
        play(&mut memory, ops, base);
        // Entries of a former life must not be used.
        self.flush();
        memory.zero(from_ref(self) as u64, offset_of!(Frame, vmcb_pa) as u64);
        // SAFETY: registers of the guest that the monitor does not use.
        unsafe {
            // Breakpoints.
            asm!("mov dr0, {0}", "mov dr1, {0}", "mov dr2, {0}", "mov dr3, {0}", in(reg) 0u64, options(nostack, nomem));
            // FS to TR by VMLOAD from this VMCB.
            asm!("vmload rax", in("rax") self.vmcb_pa.get(), options(nostack));
        }
    }

    fn begin(&self, [first, second]: [u64; 2], entry: Option<u64>) {
        self.rdi.set(first);
        self.rsi.set(second);
        if let Some(entry) = entry {
            self.vmcb().set(vmcb::RIP, entry);
        }
    }

    fn startup(&self, vector: u8) {
        let (vmcb, vector) = (self.vmcb(), u64::from(vector));
        vmcb.set(vmcb::CS, vmcb.get(vmcb::CS) & !0xFFFF | vector << 8);
        vmcb.set(vmcb::CS + 8, vector << 12);
    }
}

/// Sets x87, SSE and all that XCR0 can name as after a reset; speculation control off.
///
/// # Safety
/// `zeros` are 4096 bytes of zeros; the extended state is the guest's.
unsafe fn fresh_extended_state(zeros: u64) {
    const OSFXSR: u64 = 1 << 9;
    const OSXSAVE: u64 = 1 << 18;
    static MXCSR_AT_RESET: u32 = 0x1F80;
    let xsave = cpuid(1, 0).ecx & 1 << 26 != 0;
    let bits = if xsave { OSFXSR | OSXSAVE } else { OSFXSR };
    // SAFETY: by the caller; each instruction where CPUID has it (APM 11.5.9: an
    // XSTATE_BV of 0 gives every component its initial value).
    unsafe {
        asm!("mov {t}, cr4", "or {t}, {bits}", "mov cr4, {t}", t = out(reg) _, bits = in(reg) bits, options(nostack, nomem));
        if xsave {
            let all = cpuid(0xD, 0);
            asm!("xsetbv", "xrstor [rdi]", in("rdi") zeros, in("ecx") 0, in("eax") all.eax, in("edx") all.edx, options(nostack));
            asm!("xsetbv", in("ecx") 0, in("eax") 1, in("edx") 0, options(nostack, nomem));
        } else {
            asm!("fxrstor [{}]", in(reg) zeros, options(nostack));
        }
        asm!("fninit", "ldmxcsr [{}]", in(reg) &raw const MXCSR_AT_RESET, options(nostack));
        const SPEC_CTRL: u32 = 1 << 14 | 1 << 15 | 1 << 24;
        if cpuid(0x8000_0008, 0).ebx & SPEC_CTRL != 0 {
            wrmsr(msr::SPEC_CTRL, 0);
        }
    }
}

impl Interrupts for Frame {
    fn ring(&self, id: u32) {
        const NMI_MODE: u64 = 4 << 8 | 1 << 14;
        self.send(u64::from(id) << 32 | NMI_MODE);
    }

    fn send(&self, message: u64) {
        // SAFETY: a monitor intercepts NMIs and looks into its mail, nothing else; a guest gets an
        // interrupt of a channel to it. A write of an x2APIC register may overtake stores (SDM volume 3,
        // 11.12.3), here those that the other is to see.
        unsafe {
            asm!("mfence", "lfence", options(nostack, preserves_flags));
            wrmsr(msr::X2APIC_ICR, message)
        };
    }

    fn is_aim(cores: &[u64; 4], message: u64) -> bool {
        icr::is_aim(cores, message)
    }

    fn hear(&self) {
        nmi_window();
    }

    fn sleep(&self) {
        nmi_sleep(&self.local().doorbell);
    }

    fn silence(&self) {
        // SAFETY: registers of this core's own APIC; the monitor's handler drops interrupts that are
        // accepted in the window. CR8 = 0 opens the task priority.
        unsafe {
            for register in msr::X2APIC_LVT..=msr::X2APIC_LVT_LAST {
                wrmsr(register, icr::MASKED);
            }
            wrmsr(msr::X2APIC_TMICT, 0);
            wrmsr(msr::X2APIC_DCR, 0);
            wrmsr(msr::X2APIC_ESR, 0);
            wrmsr(msr::X2APIC_SVR, 0x1FF);
            asm!("mov cr8, {}", in(reg) 0u64, options(nostack, nomem));
            for _ in 0..256 {
                let busy = (0..8).any(|i| rdmsr(msr::X2APIC_ISR + i) != 0);
                if !busy {
                    break;
                }
                wrmsr(msr::X2APIC_EOI, 0);
            }
        }
        drain_window();
        // SAFETY: as above: software-disabled, as after a reset.
        unsafe { wrmsr(msr::X2APIC_SVR, 0xFF) };
    }
}

/// Brings SVM up on this core.
pub fn prepare(frame: &Frame) {
    const X2APIC: u64 = 0b11 << 10;
    const NXE: u64 = 1 << 11;
    let config = config();
    let own = &config.core[frame.number() as usize % config.core.len()];
    frame.vmcb_pa.set(own.control_pa);
    // SAFETY: the monitor's IDT and its tables are what the host made; SVM,
    // no-execute and x2APIC were found by the boot code; the host set the save
    // area aside for this core, and maps it for no program.
    unsafe {
        asm!("lidt [{}]", in(reg) &raw const config.idtr, options(nostack, preserves_flags));
        wrmsr(msr::APIC_BASE, rdmsr(msr::APIC_BASE) | X2APIC);
        wrmsr(msr::EFER, rdmsr(msr::EFER) | vmcb::EFER_SVME | NXE);
        wrmsr(msr::VM_HSAVE_PA, own.host_pa);
        asm!("clgi", options(nostack, nomem));
    }
}
