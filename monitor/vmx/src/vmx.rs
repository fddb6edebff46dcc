//! The virtual processor by VT-x.

use crate::entry::monitor_exit;
use crate::instruction::{clear, invept, invvpid, load, on, read, write, write_baked};
use bulkhead_cpu_x86::{cpuid, rdmsr, wrmsr};
use bulkhead_decoder::State;
use bulkhead_monitor::{Layout, Vcpu};
use bulkhead_monitor_abi::map::{CORE_HOST, VECTORS_VA};
use bulkhead_monitor_abi::monitor::Core;
use bulkhead_monitor_abi::record::{Op, RecordMemory};
use bulkhead_monitor_abi_x86::msr;
use bulkhead_monitor_abi_x86::vmcs::{
    self, CR4_VMXE, INVEPT_ALL, INVEPT_SINGLE, INVVPID_ALL, INVVPID_SINGLE, activity, event, field,
};
use bulkhead_monitor_shell::{Memory, Shell, config, fresh_registers, needs};
use core::arch::asm;
use core::mem::MaybeUninit;
use core::ptr::from_ref;

/// VT-x. RAX in a [`Frame`] is the guest's. Its mark is not zero if the handler of NMIs is to leave out its mending.
pub struct Vmx;

/// Frame of a core.
pub type Frame = bulkhead_monitor_shell::Frame<Vmx>;

impl Shell for Vmx {
    const NEEDS: u32 = needs!();

    #[inline(always)]
    fn rax(frame: &Frame) -> u64 {
        frame.rax.get()
    }

    #[inline(always)]
    fn set_rax(frame: &Frame, value: u64) {
        frame.rax.set(value);
    }

    #[inline(always)]
    fn rsp(_: &Frame) -> u64 {
        read(field::GUEST_RSP)
    }

    #[inline(always)]
    fn set_rsp(_: &Frame, value: u64) {
        write(field::GUEST_RSP, value);
    }

    #[inline(always)]
    fn rip(_: &Frame) -> u64 {
        read(field::GUEST_RIP)
    }

    #[inline(always)]
    fn set_rip(_: &Frame, value: u64) {
        write(field::GUEST_RIP, value);
    }

    #[inline(always)]
    fn privilege(_: &Frame) -> u8 {
        // By SS, of which the DPL is the level in each mode; CS's need not be (SDM 25.4.1).
        (read(field::GUEST_SS_RIGHTS) >> 5 & 0b11) as u8
    }

    #[inline(always)]
    // The processor tells the length of what exited. One with SVM need not, so callers name it.
    fn skip(frame: &Frame, _: u8) {
        write(field::GUEST_RIP, read(field::GUEST_RIP).wrapping_add(read(field::EXIT_LENGTH)));
        Self::unshadow(frame);
    }

    #[inline(always)]
    fn unshadow(_: &Frame) {
        // The other bits are 0: SMM has its own monitor, and a guest gets no NMI.
        write(field::GUEST_INTERRUPTIBILITY, 0);
    }

    /// An event of the hardware ends HLT, which an entry would demand of it, too (SDM 27.3.1.5).
    fn inject(frame: &Frame, vector: u8) {
        let protected = read(field::GUEST_CR0) & 1 != 0;
        write(field::ENTRY_EVENT, event::of(vector, protected));
        // Vectors that are injected have an error code of 0, or none.
        write(field::ENTRY_ERROR_CODE, 0);
        write(field::GUEST_ACTIVITY, activity::ACTIVE);
        Self::unshadow(frame);
    }

    /// Translations by the guest's EPT pointer, with any VPID (SDM 29.4.3.1).
    fn flush(_: &Frame) {
        invept(INVEPT_SINGLE, read(field::EPT_POINTER));
    }

    fn reset(frame: &Frame, ops: &[Op]) {
        let region = own(frame).control_pa;
        // SAFETY: the region is this core's, set aside by the host. VMCLEAR gives its memory to software, which may
        // write the revision there (SDM 25.2). Fields that no record names are zero. Other registers are the guest's.
        unsafe {
            // Twice. The processor may still hold the old region, and would write it over the zeros. And VMLAUNCH wants
            // a region in the clear state (SDM 25.1).
            clear(region);
            Memory.zero(frame.control(), 4096);
            // Here, where the page is zeros: registers are loaded from them.
            fresh_registers(frame.control());
            (frame.control() as *mut u32).write_volatile(revision());
            clear(region);
            load(region);
        }
        ops.iter().for_each(play);
        // Behind the record, which knows nothing of this core.
        host_state(frame);
        fresh_msrs();
        frame.rax.set(0);
        // Entries of a former life must not be used.
        Self::flush(frame);
        invvpid(INVVPID_SINGLE, read(field::VPID));
    }

    fn startup(_: &Frame, vector: u8) {
        // As a SIPI starts a core: in the page with that number, at offset 0.
        write(field::GUEST_CS, u64::from(vector) << 8);
        write(field::GUEST_CS_BASE, u64::from(vector) << 12);
    }

    #[inline(always)]
    fn state(_: &Frame) -> State {
        let rights = read(field::GUEST_CS_RIGHTS);
        State {
            cr0: read(field::GUEST_CR0),
            cr3: read(field::GUEST_CR3),
            cr4: read(field::GUEST_CR4),
            efer: read(field::GUEST_EFER),
            // As a VMCB has it: bits 15:12 of the rights follow bits 7:0.
            cs: (rights & 0xFF | rights >> 4 & 0xF00) << 16,
            cs_base: read(field::GUEST_CS_BASE),
            rip: read(field::GUEST_RIP),
        }
    }

    // VT-x tells no bytes of the instruction, so the decoder fetches them from the guest's memory.
    fn fetched(_: &Frame) -> [u64; 2] {
        [0; 2]
    }

    fn set_efer(_: &Frame, value: u64) {
        write(field::GUEST_EFER, value);
    }

    // No control switches these exits off (SDM 26.1.2).
    fn stop_cpuid_exits(_: &Frame) -> bool {
        false
    }

    /// Nothing: an NMI that was pending has come, because NMIs are open but for [`crate::entry::unblock`].
    fn hear() {}

    fn field(_: &Frame, field: u16) -> u64 {
        read(field)
    }

    /// By the preemption timer, which counts the TSC's ticks shifted by [`vmcs::msr::MISC`]'s bits 4:0, while the guest
    /// runs (SDM 26.5.1). Exits save what is left of it.
    fn tick_at(frame: &Frame, due: u64) {
        // SAFETY: processors with VMX have it.
        let shift = unsafe { rdmsr(vmcs::msr::MISC) } & 0x1F;
        let left = due.saturating_sub(frame.now()) >> shift;
        write(field::TIMER, left.min(u64::from(u32::MAX)));
    }
}

/// Returns the core's places.
fn own(frame: &Frame) -> &'static Core {
    let config = config();
    &config.core[frame.number() as usize % config.core.len()]
}

/// Returns the revision of VMCS and VMXON regions.
fn revision() -> u32 {
    // SAFETY: processors with VMX have it.
    unsafe { rdmsr(vmcs::msr::BASIC) as u32 & 0x7FFF_FFFF }
}

/// Carries out a step of a record. Control words get the bits that this processor demands, by the register that the
/// host names for each ([`vmcs::capability`]).
fn play(op: &Op) {
    let value = match op.len as u32 {
        0 => op.src,
        // SAFETY: the boot code has found these registers (SDM, appendix A).
        register => u64::from(vmcs::control(op.src as u32, unsafe { rdmsr(register) })),
    };
    write_baked(op.dst as u16, value);
}

/// Sets the monitor's side of the VMCS: this core as it is now.
fn host_state(frame: &Frame) {
    let (cr0, cr3, cr4, cs, ss, gdt): (u64, u64, u64, u64, u64, u64);
    let mut gdtr = MaybeUninit::<[u64; 2]>::uninit();
    // SAFETY: reads registers; SGDT writes ten bytes, and the base is the last eight.
    let (efer, pat) = unsafe {
        asm!("mov {}, cr0", "mov {}, cr3", "mov {}, cr4", out(reg) cr0, out(reg) cr3, out(reg) cr4, options(nomem, nostack));
        asm!("mov {0:e}, cs", "mov {1:e}, ss", out(reg) cs, out(reg) ss, options(nomem, nostack));
        asm!("sgdt [{0}]", "mov {1}, [{0} + 2]", in(reg) gdtr.as_mut_ptr(), out(reg) gdt, options(nostack));
        // The upper half of EFER is reserved.
        (rdmsr(msr::EFER) as u32, rdmsr(msr::PAT))
    };
    // Before the others: no field of the host's keeps what the region held.
    ZERO.iter().for_each(|&field| write(field, 0));
    write(field::HOST_CR0, cr0);
    write(field::HOST_CR3, cr3);
    write(field::HOST_CR4, cr4);
    write(field::HOST_CS, cs);
    write(field::HOST_SS, ss);
    // It must not be 0 (SDM 27.2.3). No descriptor is read, and nothing uses the task state: there is one privilege
    // level and no interrupt stack table.
    write(field::HOST_TR, ss);
    write(field::HOST_GDTR_BASE, gdt);
    write(field::HOST_IDTR_BASE, VECTORS_VA);
    write(field::HOST_EFER, efer.into());
    write(field::HOST_PAT, pat);
    write(field::HOST_RSP, from_ref(frame) as u64);
    write(field::HOST_RIP, &raw const monitor_exit as u64);
}

/// Fields of the monitor's side that are zero. In 64-bit mode it needs no selectors of data but that of its stack.
static ZERO: [u16; 10] = [
    field::HOST_DS,
    field::HOST_ES,
    field::HOST_FS,
    field::HOST_GS,
    field::HOST_FS_BASE,
    field::HOST_GS_BASE,
    field::HOST_TR_BASE,
    field::HOST_SYSENTER_CS,
    field::HOST_SYSENTER_ESP,
    field::HOST_SYSENTER_EIP,
];

/// Sets the guest's registers that no VMCS holds as after a reset.
fn fresh_msrs() {
    /// CR0 is the monitor's; DR6 after a reset.
    const DR6: u64 = 0xFFFF_0FF0;
    static ALWAYS: [u32; 5] = [msr::STAR, msr::LSTAR, msr::CSTAR, msr::FMASK, msr::KERNEL_GS_BASE];
    // SAFETY: registers of the guest, which the monitor does not use, each where CPUID has it. No guest writes XSS: the
    // policy denies it, and without XSAVES nothing reads it.
    unsafe {
        ALWAYS.iter().for_each(|&register| wrmsr(register, 0));
        if cpuid(0x8000_0001, 0).edx & 1 << 27 != 0 {
            wrmsr(msr::TSC_AUX, 0);
        }
        if cpuid(7, 0).edx & 1 << 26 != 0 {
            wrmsr(msr::SPEC_CTRL, 0);
        }
        asm!("mov cr2, {0}", "mov dr6, {1}", in(reg) 0u64, in(reg) DR6, options(nomem, nostack));
    }
}

/// Brings VMX up on this core.
pub fn prepare(frame: &Frame) {
    use vmcs::msr::{FEATURE_CONTROL, LOCKED, VMX_OUTSIDE_SMX};
    const X2APIC: u64 = 0b11 << 10;
    let region = frame.block() + CORE_HOST;
    frame.mark.set(u64::from(!Frame::enforced("doorbell-window")));
    // SAFETY: the monitor's IDT and its tables are what the host made. The boot code has found VMX and x2APIC, and
    // that VMX may be used on the first core. The host set the region aside for this core. A core that differs
    // faults, with a record.
    unsafe {
        asm!("lidt [{}]", in(reg) &raw const config().idtr, options(nostack, preserves_flags));
        wrmsr(msr::APIC_BASE, rdmsr(msr::APIC_BASE) | X2APIC);
        let control = rdmsr(FEATURE_CONTROL);
        // A locked register faults on a write. The boot code has looked at the first core's only, and each core has its
        // own.
        if control & LOCKED == 0 {
            wrmsr(FEATURE_CONTROL, control | VMX_OUTSIDE_SMX | LOCKED);
        }
        asm!("mov {t}, cr4", "or {t}, {bit}", "mov cr4, {t}", t = out(reg) _, bit = in(reg) CR4_VMXE, options(nostack, nomem));
        // VMXON compares the region's revision with the processor's.
        (region as *mut u32).write_volatile(revision());
        on(own(frame).host_pa);
    }
    // Translations by former users of these tags go (SDM 29.4.3.4).
    invept(INVEPT_ALL, 0);
    invvpid(INVVPID_ALL, 0);
}
