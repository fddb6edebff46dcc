//! The virtual processor as far as SVM and VT-x agree, and this core's interrupts.

use crate::entry::{drain_window, nmi_sleep};
use crate::{Frame, Memory, Shell, apic};
use bulkhead_cpu_x86::{cpuid, rdtsc};
use bulkhead_monitor::{Interrupts, Layout, Monitor, Outcome, Vcpu, life};
use bulkhead_monitor_abi::record::{Op, RecordMemory};
use bulkhead_monitor_abi::report::{Cause, State};
use bulkhead_monitor_abi::{debug, need};
use bulkhead_monitor_abi_x86::{debug as x86, icr, msr, vmcb};
use bulkhead_monitor_x86::{X86, ioapic};
use core::arch::asm;
use core::mem::offset_of;
use core::panic::PanicInfo;
use core::ptr::from_ref;
use core::sync::atomic::Ordering::Relaxed;

impl<S: Shell> Vcpu for Frame<S> {
    /// Ticks of a processor with 4 GHz. On a slower one waits last longer, never shorter than asked.
    const MICROSECOND: u64 = 4_000;
    const UNMASKABLE: u8 = vmcb::NMI;

    #[inline(always)]
    fn index(&self) -> u32 {
        self.number()
    }

    #[inline(always)]
    fn now(&self) -> u64 {
        rdtsc()
    }

    // The instruction that exited: the processor has not gone past it.
    #[inline(always)]
    fn instruction(&self) -> u64 {
        S::rip(self)
    }

    #[inline(always)]
    fn privilege(&self) -> u8 {
        S::privilege(self)
    }

    #[inline(always)]
    fn call(&self) -> u64 {
        S::rax(self)
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
        S::set_rax(self, result);
    }

    #[inline(always)]
    fn skip(&self, length: u8) {
        S::skip(self, length);
    }

    fn inject(&self, vector: u8) {
        S::inject(self, vector);
    }

    // Out of line: the end of a link needs it, and no exit in steady state.
    #[inline(never)]
    fn flush(&self) {
        S::flush(self);
    }

    fn altered(&self, steady: &[Op]) -> Option<[u64; 2]> {
        let other = |op: &&Op| (S::field(self, op.dst as u16) ^ op.src) & op.len != 0;
        let op = steady.iter().find(other)?;
        Some([op.dst, S::field(self, op.dst as u16)])
    }

    fn reset(&self, ops: &[Op]) {
        S::reset(self, ops);
        // The registers before RAX. On SVM the field of RAX has the VMCB's address.
        Memory.zero(from_ref(self) as u64, offset_of!(Self, rax) as u64);
        // SAFETY: registers of the guest that the monitor does not use: breakpoints.
        unsafe {
            // No exit switches these four; the control block has DR7.
            asm!("mov dr0, {0}", "mov dr1, {0}", "mov dr2, {0}", "mov dr3, {0}", in(reg) 0u64, options(nostack, nomem));
        }
    }

    fn begin(&self, [first, second]: [u64; 2], entry: Option<u64>) {
        // The arguments of a C function. A Linux takes its boot parameters in RSI (boot.rst, "64-bit Boot Protocol").
        self.rdi.set(first);
        self.rsi.set(second);
        if let Some(entry) = entry {
            S::set_rip(self, entry);
        }
    }

    fn startup(&self, vector: u8) {
        S::startup(self, vector);
    }

    fn show(&self, page: &debug::Page) {
        for (n, place) in (0..16).zip(&page.registers) {
            place.store(self.register(n), Relaxed);
        }
        page.registers[x86::FS_BASE].store(self.rdmsr(msr::FS_BASE), Relaxed);
        page.registers[x86::GS_BASE].store(self.rdmsr(msr::GS_BASE), Relaxed);
        S::show(self, page);
        // SAFETY: 512 bytes of the page, aligned to 16; the registers are the guest's.
        unsafe { asm!("fxsave64 [{}]", in(reg) page.extended.as_ptr(), options(nostack)) };
    }

    fn adopt(&self, page: &debug::Page) {
        for (n, place) in (0..16).zip(&page.registers) {
            self.set_register(n, place.load(Relaxed));
        }
        S::set_rip(self, page.registers[x86::RIP].load(Relaxed));
        S::set_flags(self, page.registers[x86::RFLAGS].load(Relaxed) & x86::FLAGS | 1 << 1);
    }

    fn step(&self, on: bool) {
        const TF: u64 = 1 << 8;
        let flags = S::flags(self);
        S::set_flags(self, if on { flags | TF } else { flags & !TF });
        S::hold_interrupts(self, on);
    }

    fn reflect(&self, cause: Cause) -> Outcome {
        // INT1 is a trap: its handler returns behind it.
        S::set_rip(self, S::rip(self).wrapping_add(1));
        Outcome::inject(cause, vmcb::DB)
    }

    fn listen(&self) {
        apic::write(self, msr::X2APIC_LINT1, icr::NMI);
    }

    fn give_back(&self) {
        S::give_back(self);
    }
}

/// Sets x87, SSE and all that XCR0 can name as after a reset.
///
/// # Safety
/// `zeros` are 4096 bytes of zeros; the extended state is the guest's.
pub unsafe fn fresh_registers(zeros: u64) {
    const OSFXSR: u64 = 1 << 9;
    const OSXSAVE: u64 = 1 << 18;
    static MXCSR_AT_RESET: u32 = 0x1F80;
    let xsave = cpuid(1, 0).ecx & 1 << 26 != 0;
    // CR4 faults on a bit of a feature that is missing.
    let bits = if xsave { OSFXSR | OSXSAVE } else { OSFXSR };
    // SAFETY: by the caller; each instruction where CPUID has it (APM 11.5.9: an
    // XSTATE_BV of 0 gives every component its initial value).
    unsafe {
        // The monitor's own CR4: without OSXSAVE there is no XSETBV and no XRSTOR.
        asm!("mov {t}, cr4", "or {t}, {bits}", "mov cr4, {t}", t = out(reg) _, bits = in(reg) bits, options(nostack, nomem));
        if xsave {
            // XSETBV faults on a bit that this leaf does not name.
            let all = cpuid(0xD, 0);
            // XRSTOR loads only components that XCR0 names: first all, then x87 alone, as after a reset.
            asm!("xsetbv", "xrstor [rdi]", in("rdi") zeros, in("ecx") 0, in("eax") all.eax, in("edx") all.edx, options(nostack));
            asm!("xsetbv", in("ecx") 0, in("eax") 1, in("edx") 0, options(nostack, nomem));
        } else {
            asm!("fxrstor [{}]", in(reg) zeros, options(nostack));
        }
        // XRSTOR and FXRSTOR take MXCSR from the area: its zeros would unmask all exceptions.
        asm!("fninit", "ldmxcsr [{}]", in(reg) &raw const MXCSR_AT_RESET, options(nostack));
    }
}

impl<S: Shell> Interrupts for Frame<S> {
    fn ring(&self, id: u32) {
        // An NMI, since no flag of the guest's holds it off.
        const NMI_MODE: u64 = 4 << 8 | 1 << 14;
        self.send(u64::from(id) << 32 | NMI_MODE);
    }

    fn send(&self, message: u64) {
        // A monitor intercepts NMIs and looks into its mail, nothing else. A guest gets a channel's interrupt.
        // A write of an x2APIC register may overtake stores (SDM volume 3, 11.12.3), here those that the other is to
        // see.
        // SAFETY: fences change nothing.
        unsafe { asm!("mfence", "lfence", options(nostack, preserves_flags)) };
        apic::write(self, msr::X2APIC_ICR, message);
    }

    fn is_aim(cores: &[u64; 4], message: u64) -> bool {
        icr::is_aim(cores, message)
    }

    fn dismiss(&self, id: u32) {
        // The guest of such a core does not take it, and its monitor takes it in its next window.
        const INIT_MODE: u64 = 5 << 8 | 1 << 14;
        self.send(u64::from(id) << 32 | INIT_MODE);
    }

    fn hear(&self) {
        S::hear();
    }

    fn tick_at(&self, due: u64) {
        S::tick_at(self, due);
    }

    fn sleep(&self) {
        // On the flag that the handler sets: it also tells of a doorbell from before the sleep.
        nmi_sleep(&self.local().doorbell);
    }

    fn silence(&self) {
        // Registers of this core's own APIC; the monitor's handler drops interrupts that are accepted in the window.
        for register in msr::X2APIC_LVT..=msr::X2APIC_LVT_LAST {
            // No new interrupt comes from the core's own sources.
            apic::write(self, register, icr::MASKED);
        }
        // Masked, the timer would count on, and fire when the next life opens its entry.
        apic::write(self, msr::X2APIC_TMICT, 0);
        apic::write(self, msr::X2APIC_DCR, 0);
        // The errors of one life are not to be read in the next one; a write latches and clears them.
        apic::write(self, msr::X2APIC_ESR, 0);
        // Enabled, whatever the guest left: a disabled APIC would keep pending interrupts for the next life.
        apic::write(self, msr::X2APIC_SVR, 0x1FF);
        // SAFETY: CR8 = 0 opens the task priority; no interrupt comes outside of the window.
        unsafe { asm!("mov cr8, {}", in(reg) 0u64, options(nostack, nomem)) };
        // Each EOI ends one vector in service, which would hold off pending ones of its class and below.
        // No more vectors than these can be in service: the loop ends, whatever the registers say.
        for _ in 0..256 {
            // ISR has 32 vectors in each of its registers (SDM volume 3, 11.8.4).
            let busy = (0..8).any(|i| apic::read(self, msr::X2APIC_ISR + i) != 0);
            if !busy {
                break;
            }
            apic::write(self, msr::X2APIC_EOI, 0);
        }
        drain_window();
        // It is disabled, as after a reset.
        apic::write(self, msr::X2APIC_SVR, 0xFF);
    }
}

/// Ends the core by an exception, because a check of the monitor's own has failed: see [`failed`]. CR2 has the line.
pub fn check_failed(info: &PanicInfo) -> ! {
    let line = info.location().map_or(0, |at| u64::from(at.line()));
    // SAFETY: CR2 is the guest's, which does not go on behind this; #UD stays in the monitor.
    unsafe { asm!("mov cr2, {}", "ud2", in(reg) line, options(noreturn, nomem, nostack)) }
}

/// Records an exception in the monitor: `stack` is what the processor pushed. The core stays.
pub fn failed<S: Shell>(stack: &[u64; 6]) {
    let cr2: u64;
    // SAFETY: CR2 is readable at CPL 0.
    unsafe { asm!("mov {}, cr2", out(reg) cr2, options(nomem, nostack)) };
    // By the stack's address: the exception may have come where no register holds the frame.
    let frame = Frame::<S>::around(stack);
    let report = frame.report();
    // One by one: a loop over two arrays takes more text.
    // The record comes before the state, which tells a reader to look for it.
    report.fault[0].store(stack[0], Relaxed);
    report.fault[1].store(cr2, Relaxed);
    report.fault_detail[0].store(stack[1], Relaxed);
    report.fault_detail[1].store(stack[2], Relaxed);
    life::state(frame, State::Failed);
    // Others are not to wait for a core that will not come.
    if Frame::<S>::has(need::DEVICES) {
        ioapic::leave(frame);
    }
}
