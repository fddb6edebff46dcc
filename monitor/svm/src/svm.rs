//! The virtual processor by SVM.

use crate::vmrun::nmi_window;
use bulkhead_cpu_x86::{cpuid, rdmsr, wrmsr};
use bulkhead_decoder::State;
use bulkhead_monitor::running;
use bulkhead_monitor_abi::debug;
use bulkhead_monitor_abi::record::{Op, RecordMemory, play};
use bulkhead_monitor_abi_x86::{WAY_BACK, debug as x86, msr, vmcb};
use bulkhead_monitor_shell::{Memory, Shell, config, fresh_registers, needs};
use bulkhead_monitor_x86::xapic;
use core::arch::asm;
use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;

/// A VMCB as 64-bit words, read and written by offset.
/// Cells, because the processor writes it at each exit.
pub struct Vmcb([Cell<u64>; 512]);

impl Vmcb {
    /// Returns the word at a byte offset that is a multiple of 8.
    #[inline(always)]
    pub fn get(&self, offset: u16) -> u64 {
        self.0[offset as usize / 8 % 512].get()
    }

    /// Sets it.
    #[inline(always)]
    pub fn set(&self, offset: u16, value: u64) {
        self.0[offset as usize / 8 % 512].set(value);
    }
}

/// SVM. RAX in a [`Frame`] is the physical address of the core's VMCB, as VMRUN takes it.
pub struct Svm;

/// Frame of a core.
pub type Frame = bulkhead_monitor_shell::Frame<Svm>;

/// Returns the VMCB of a core.
#[inline(always)]
pub fn vmcb(frame: &Frame) -> &Vmcb {
    // SAFETY: the host maps this core's VMCB there, writable; only this core
    // (and the processor while the guest runs) accesses it.
    unsafe { &*(frame.control() as *const Vmcb) }
}

impl Shell for Svm {
    const NEEDS: u32 = needs!();

    // VMRUN switches RAX, RSP and RIP by the VMCB (APM 15.5.1), so the frame has no copy of them.
    #[inline(always)]
    fn rax(frame: &Frame) -> u64 {
        vmcb(frame).get(vmcb::RAX)
    }

    #[inline(always)]
    fn set_rax(frame: &Frame, value: u64) {
        vmcb(frame).set(vmcb::RAX, value);
    }

    #[inline(always)]
    fn rsp(frame: &Frame) -> u64 {
        vmcb(frame).get(vmcb::RSP)
    }

    #[inline(always)]
    fn set_rsp(frame: &Frame, value: u64) {
        vmcb(frame).set(vmcb::RSP, value);
    }

    #[inline(always)]
    fn rip(frame: &Frame) -> u64 {
        vmcb(frame).get(vmcb::RIP)
    }

    #[inline(always)]
    fn set_rip(frame: &Frame, value: u64) {
        vmcb(frame).set(vmcb::RIP, value);
    }

    // The VMCB's own field, not the selectors': in real and virtual-8086 mode these say nothing (APM 15.5.1).
    #[inline(always)]
    fn privilege(frame: &Frame) -> u8 {
        (vmcb(frame).get(vmcb::CPL_WORD) >> 24) as u8
    }

    #[inline(always)]
    fn skip(frame: &Frame, length: u8) {
        let vmcb = vmcb(frame);
        // A processor that does not save the next RIP leaves the word as it is: zero.
        let next = match vmcb.get(vmcb::NEXT_RIP) {
            0 => vmcb.get(vmcb::RIP).wrapping_add(u64::from(length)),
            saved => saved,
        };
        vmcb.set(vmcb::RIP, next);
        // The shadow ends with the instruction after STI or MOV SS, which this was.
        Self::unshadow(frame);
    }

    #[inline(always)]
    fn unshadow(frame: &Frame) {
        vmcb(frame).set(vmcb::INTERRUPT_SHADOW, 0);
    }

    fn inject(frame: &Frame, vector: u8) {
        // The processor delivers it at the next VMRUN, before any instruction of the guest's (APM 15.20).
        vmcb(frame).set(vmcb::EVENT_INJ, vmcb::event(vector));
    }

    /// Flushes by ASID, or all translations where a processor cannot do that (APM 15.16.1).
    fn flush(frame: &Frame) {
        const FLUSH_BY_ASID: u32 = 1 << 6;
        let vmcb = vmcb(frame);
        let how = match cpuid(0x8000_000A, 0).edx & FLUSH_BY_ASID {
            0 => vmcb::TLB_FLUSH_ALL,
            _ => vmcb::TLB_FLUSH_GUEST,
        };
        // The control stands beside the ASID in one word. The next exit clears it.
        vmcb.set(vmcb::ASID, vmcb.get(vmcb::ASID) as u32 as u64 | how);
    }

    fn reset(frame: &Frame, ops: &[Op]) {
        const SPEC_CTRL: u32 = 1 << 14 | 1 << 15 | 1 << 24;
        let (base, mut memory) = (frame.control(), Memory);
        // Reserved fields must be 0, and the record has only those that are not. The page is also the zeros of
        // `fresh_registers`.
        memory.zero(base, 4096);
        // SAFETY: registers of the guest that the monitor does not use; speculation control where it is.
        unsafe {
            fresh_registers(base);
            if cpuid(0x8000_0008, 0).ebx & SPEC_CTRL != 0 {
                wrmsr(msr::SPEC_CTRL, 0);
            }
        };
        // Its addresses count from the VMCB, so one record serves all cores of a sandbox.
        play(&mut memory, ops, base);
        // Entries of a former life must not be used.
        Self::flush(frame);
        // SAFETY: registers of the guest: FS to TR by VMLOAD from this VMCB.
        unsafe { asm!("vmload rax", in("rax") frame.rax.get(), options(nostack)) };
    }

    fn startup(frame: &Frame, vector: u8) {
        let (vmcb, vector) = (vmcb(frame), u64::from(vector));
        // A start-up interrupt's vector is a page: it gives the selector and the base of real mode.
        vmcb.set(vmcb::CS, vmcb.get(vmcb::CS) & !0xFFFF | vector << 8);
        vmcb.set(vmcb::CS + 8, vector << 12);
    }

    #[inline(always)]
    fn state(frame: &Frame) -> State {
        let vmcb = vmcb(frame);
        State {
            cr0: vmcb.get(vmcb::CR0),
            cr3: vmcb.get(vmcb::CR3),
            cr4: vmcb.get(vmcb::CR4),
            efer: vmcb.get(vmcb::EFER),
            cs: vmcb.get(vmcb::CS),
            cs_base: vmcb.get(vmcb::CS + 8),
            rip: vmcb.get(vmcb::RIP),
        }
    }

    fn fetched(frame: &Frame) -> [u64; 2] {
        // Without decode assists no processor writes these words (APM 15.33.3).
        [vmcb(frame).get(vmcb::FETCHED), vmcb(frame).get(vmcb::FETCHED + 8)]
    }

    fn set_efer(frame: &Frame, value: u64) {
        let vmcb = vmcb(frame);
        vmcb.set(vmcb::EFER, value | vmcb::EFER_SVME);
        // Control registers and EFER changed: their clean bit is bit 5.
        vmcb.set(vmcb::CLEAN, vmcb.get(vmcb::CLEAN) & !(1 << 5));
    }

    fn stop_cpuid_exits(frame: &Frame) -> bool {
        let vmcb = vmcb(frame);
        let low = vmcb.get(vmcb::INTERCEPT_LOW);
        vmcb.set(vmcb::INTERCEPT_LOW, low & !(vmcb::INTERCEPT_CPUID << 32));
        // Intercepts changed: their clean bit is bit 0.
        vmcb.set(vmcb::CLEAN, vmcb.get(vmcb::CLEAN) & !1);
        true
    }

    fn hear() {
        nmi_window();
    }

    fn field(frame: &Frame, field: u16) -> u64 {
        vmcb(frame).get(field)
    }

    fn flags(frame: &Frame) -> u64 {
        vmcb(frame).get(vmcb::RFLAGS)
    }

    fn set_flags(frame: &Frame, value: u64) {
        vmcb(frame).set(vmcb::RFLAGS, value);
    }

    fn hold_interrupts(frame: &Frame, held: bool) {
        // The monitor's own flag then masks them, which is clear, and not the guest's (APM 15.21.1).
        const V_INTR_MASKING: u64 = 1 << 24;
        let vmcb = vmcb(frame);
        let others = vmcb.get(vmcb::INT_CTL) & !V_INTR_MASKING;
        vmcb.set(vmcb::INT_CTL, if held { others | V_INTR_MASKING } else { others });
        // Its clean bit is bit 3.
        vmcb.set(vmcb::CLEAN, vmcb.get(vmcb::CLEAN) & !(1 << 3));
    }

    fn show(frame: &Frame, page: &debug::Page) {
        const ES: u16 = 0x400;
        const CR2: u16 = 0x640;
        let vmcb = vmcb(frame);
        let keep = |at: usize, value: u64| {
            if let Some(place) = page.registers.get(at) {
                place.store(value, Relaxed);
            }
        };
        // In the block ES, CS, SS, DS, FS, GS come 16 bytes apart.
        let places = [(0, 1), (1, 2), (2, 3), (3, 0)];
        for (n, place) in places {
            let selector = vmcb.get(ES + place * 16) & 0xFFFF;
            keep(x86::SELECTORS + n, selector);
        }
        let fields = [
            (x86::RIP, vmcb::RIP),
            (x86::RFLAGS, vmcb::RFLAGS),
            (x86::CR0, vmcb::CR0),
            (x86::CR2, CR2),
            (x86::CR3, vmcb::CR3),
            (x86::CR4, vmcb::CR4),
            (x86::EFER, vmcb::EFER),
        ];
        for (at, field) in fields {
            keep(at, vmcb.get(field));
        }
    }

    fn give_back(frame: &Frame) {
        if !cfg!(feature = "running") {
            return;
        }
        // SAFETY: under a Linux that runs, the start-up page has the code there, and all other sandboxes have ended.
        unsafe {
            asm!("jmp {}", in(reg) WAY_BACK, in("rdi") frame.rax.get(), in("rsi") vmcb(frame).get(vmcb::CR3),
                options(noreturn))
        }
    }

    /// Nothing: a timer beside the cores sends NMIs (`docs/watchdog.md`).
    fn tick_at(_: &Frame, _: u64) {}
}

/// Brings SVM up on this core.
pub fn prepare(frame: &Frame) {
    const X2APIC: u64 = 0b11 << 10;
    const XAPIC: u64 = 0b10 << 10;
    const NXE: u64 = 1 << 11;
    let config = config();
    let own = &config.core[frame.number() as usize % config.core.len()];
    frame.rax.set(own.control_pa);
    // SAFETY: the host made the monitor's IDT and its tables. The boot code found SVM, no-execute and x2APIC. The host
    // set the save area aside for this core, and maps it for no program.
    unsafe {
        // An exception from here on ends in a record, not in a triple fault.
        asm!("lidt [{}]", in(reg) &raw const config.idtr, options(nostack, preserves_flags));
        let base = rdmsr(msr::APIC_BASE);
        if running::runs(frame) && base & X2APIC == XAPIC {
            xapic::begin(frame);
        } else {
            wrmsr(msr::APIC_BASE, base | X2APIC);
        }
        // SVME first: without it CLGI and VMRUN are undefined instructions.
        wrmsr(msr::EFER, rdmsr(msr::EFER) | vmcb::EFER_SVME | NXE);
        wrmsr(msr::VM_HSAVE_PA, own.host_pa);
        // No interrupt, NMI or SMI reaches the monitor from here on, but in its windows and while it sleeps (APM
        // 15.17).
        asm!("clgi", options(nostack, nomem));
    }
}
