//! The first instructions: descriptor tables, call entry, timer, clock; then the first thread.
//!
//! A sandbox starts here in 64-bit mode, with interrupts off and the address of the information page in RSI; there is
//! no stack yet. Its tables are the start's, which [`own_tables`] leaves. Without a monitor RSI means nothing, and the
//! page lies in the kernel's memory.
//!
//! The order matters. The descriptor tables come first, so that an exception is told and is no triple fault. The timer
//! and the routes of devices' interrupts come last, when each vector has an entry.

use crate::entry::{self, STACK, STACK_OF_CORE};
use crate::machine::X86Machine;
use crate::{BAKED, machine, report};
use bulkhead_cpu_x86::{cpuid, rdmsr, wrmsr};
use bulkhead_guest::{Here, Instructions};
use bulkhead_kernel::abi::Clock;
use bulkhead_kernel::{Kernel, Machine, Ref, Time};
use bulkhead_kernel_x86::{INFO, SPURIOUS, TIMER, VECTORS, WINDOW, selector};
use bulkhead_layout::info::Info;
use bulkhead_layout::marker::{EVENT, encode, id};
use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;
use core::mem::offset_of;

global_asm!(
    ".section .start, \"ax\"",
    ".global kernel_entry",
    "kernel_entry:",
    // A marker for measurements of launches.
    ".quad {entered}",
    "cld",
    "lea rsp, [rip + {stack} + {size}]",
    "xor ebp, ebp",
    "mov rdi, rsi",
    "call {start}",
    // The first thread begins as every other one goes on: there is no second way out of the kernel.
    "jmp kernel_exit",
    ".previous",
    entered = const u64::from_le_bytes(encode(EVENT | id::ENTRY)),
    stack = sym STACK_OF_CORE,
    size = const STACK,
    start = sym start,
);

/// MSRs (APM volume 2, appendix A).
mod msr {
    pub const APIC_BASE: u32 = 0x1B;
    pub const EFER: u32 = 0xC000_0080;
    pub const STAR: u32 = 0xC000_0081;
    pub const LSTAR: u32 = 0xC000_0082;
    pub const SFMASK: u32 = 0xC000_0084;
    pub const FS_BASE: u32 = 0xC000_0100;
    pub const GS_BASE: u32 = 0xC000_0101;
    pub const KERNEL_GS_BASE: u32 = 0xC000_0102;
    pub const TPR: u32 = 0x808;
    pub const SVR: u32 = 0x80F;
    pub const LVT_TIMER: u32 = 0x832;
    pub const DCR: u32 = 0x83E;
}

/// A table that the processor reads while the kernel runs, and that is set once.
#[repr(C, align(16))]
pub struct Table<T>(UnsafeCell<T>);

// SAFETY: written at the start only, but for the task state's stack, which the exit writes.
unsafe impl<T> Sync for Table<T> {}

/// Task state segment (APM volume 2, section 12.2.5): its first stack, and one for each of [`entry::APART`].
pub static TASK: Table<[u32; 26]> = Table(UnsafeCell::new([0; 26]));
/// Segments in the order of [`selector`]; the task state's descriptor, of two words, is filled at the start.
static GDT: Table<[u64; 7]> = Table(UnsafeCell::new([
    0,
    // Kernel's code and data, then user's data and code. All have the accessed bit, so the processor writes no segment.
    0x00AF_9B00_0000_FFFF,
    0x00CF_9300_0000_FFFF,
    0x00CF_F300_0000_FFFF,
    0x00AF_FB00_0000_FFFF,
    0,
    0,
]));
/// A gate for each vector that can come; all others are beyond the limit, and so a general-protection exception.
static IDT: Table<[[u64; 2]; VECTORS]> = Table(UnsafeCell::new([[0; 2]; VECTORS]));

unsafe extern "C" {
    static kernel_call: u8;
}

/// Operand of LGDT and LIDT (APM volume 2, section 4.6.2).
#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

impl<T> Table<T> {
    fn pointer(&self) -> Pointer {
        Pointer { limit: (size_of::<T>() - 1) as u16, base: self.0.get() as u64 }
    }
}

/// Makes the core ready, and lets its first threads run.
///
/// # Safety
/// `info` is the entry's RSI, where a monitor put the information page's address.
#[unsafe(link_section = ".start")]
unsafe extern "C" fn start(info: *const Info) {
    // SAFETY: this asks first, and is over before the first entry asks.
    let (machine, baked) = unsafe { (X86Machine::get(), BAKED.get()) };
    let alone = baked.alone != 0;
    let info = if alone { (WINDOW + u64::from(INFO)) as *const Info } else { info };
    // SAFETY: either page is there. A sandbox has it from its monitor, mapped by the tables of the start. Without a
    // monitor the boot code has put a copy into the kernel's memory.
    let (clock, monitors) = unsafe { ((*info).clock, (*info).monitors) };
    // No monitor is there, so the kernel itself does its part.
    if alone {
        report::begin();
        x2apic();
    }
    Here::set_calls(monitors);
    machine::set_console(baked.console as u16);
    descriptors();
    calls();
    // A second in ns with 32 fraction bits, as both factors have them. 64 bits hold it, and no local APIC counts 2^32
    // times a second.
    const NANO: u64 = 1_000_000_000 << 32;
    let tsc_hz = clock.hz.max(1);
    let facts = machine.facts_mut();
    // Rounded down and up, so that neither the clock nor the timer runs ahead of the TSC.
    facts.nanos = NANO / tsc_hz;
    facts.ticks = (clock.timer_hz.min(u64::from(u32::MAX)) << 32).div_ceil(NANO >> 32);
    (facts.base, facts.window) = (baked.base, baked.window);
    let nanos = facts.nanos;
    // The kernel's own root has no program's half: a wild pointer faults until a thread runs.
    own_tables(baked.core.own_space);
    machine.facts_mut().xcr0 = vector_registers();
    // The page of the clock: a frame of the host's, which every program sees, so that none has to call for the time.
    *machine.get_mut(Ref::<u64>::new(baked.clock + offset_of!(Clock, nanos) as u32)) = nanos;
    *machine.get_mut(Ref::<u64>::new(baked.clock + offset_of!(Clock, hz) as u32)) = tsc_hz;
    #[cfg(feature = "trace")]
    machine.facts_mut().trace.begin(baked.trace, baked.trace_records, tsc_hz);
    timer();
    // Devices' interrupts are routed only now that each vector has an entry.
    machine.play(baked.script as u32);
    // The host has woken the first threads by a clock of its own, so its times mean nothing here.
    (baked.core.timer, baked.core.now) = (Time::MAX, 0);
    let mut kernel = Kernel { machine, core: &mut baked.core };
    kernel.start();
}

/// Loads the kernel's descriptor tables in place of those of the firmware, the boot code or the monitor.
#[inline(always)]
fn descriptors() {
    const PRESENT_TASK: u64 = 0x89 << 40;
    const INTERRUPT_GATE: u64 = 0x8E << 40;
    // First word of the task state's interrupt stack table.
    const FIRST_APART: usize = 9;
    let task = TASK.0.get() as u64;
    // SAFETY: the processor reads the tables only from LGDT, LIDT and LTR on; their form is that of APM volume 2,
    // chapter 4.
    unsafe {
        let gdt = &mut *GDT.0.get();
        let limit = size_of::<[u32; 26]>() as u64 - 1;
        let base = (task & 0xFF_FFFF) << 16 | (task >> 24 & 0xFF) << 56;
        // A system descriptor has 16 bytes in 64-bit mode (APM volume 2, section 4.8.3).
        gdt[5] = PRESENT_TASK | limit | base;
        gdt[6] = task >> 32;
        // No I/O permission map: its offset is beyond the limit, so that every port of a program's is an exception. Its
        // right to a port is a capability.
        (*TASK.0.get())[25] = (size_of::<[u32; 26]>() as u32) << 16;
        // A stack grows downwards, so the task state has its end.
        for (n, stack) in entry::STACKS_APART.iter().enumerate() {
            let end = &raw const *stack as u64 + size_of_val(stack) as u64;
            let place = FIRST_APART + 2 * n;
            ((*TASK.0.get())[place], (*TASK.0.get())[place + 1]) = (end as u32, (end >> 32) as u32);
        }
        for (n, gate) in (*IDT.0.get()).iter_mut().enumerate() {
            let at = entry::gate(n as u8);
            let apart = entry::APART.iter().position(|vector| usize::from(*vector) == n);
            // Interrupt gates, not trap gates: no entry may nest. DPL is 0, so a program's INT n is an exception.
            let stack = apart.map_or(0, |apart| apart as u64 + 1) << 32;
            let code = u64::from(selector::KERNEL_CODE) << 16;
            gate[0] = at & 0xFFFF | code | stack | INTERRUPT_GATE | (at >> 16 & 0xFFFF) << 48;
            gate[1] = at >> 32;
        }
        asm!("lgdt [{}]", in(reg) &GDT.pointer(), options(nostack));
        asm!("lidt [{}]", in(reg) &IDT.pointer(), options(nostack));
        asm!(
            "mov ss, {data:e}", "mov ds, {null:e}", "mov es, {null:e}", "mov fs, {null:e}", "mov gs, {null:e}",
            // No local table: a program shall find no descriptors but these.
            "lldt {null:x}",
            // Only a far return loads CS in 64-bit mode from a stack; the frame says where it goes on.
            "push {code}", "lea {next}, [rip + 2f]", "push {next}", "retfq", "2:",
            "ltr {task:x}",
            data = in(reg) u32::from(selector::KERNEL_DATA), null = in(reg) 0,
            code = in(reg) u64::from(selector::KERNEL_CODE), next = out(reg) _,
            task = in(reg) selector::TASK,
        );
        // GS's bases stay 0 for ever: no descriptor has another one, and CR4.FSGSBASE is off.
        for base in [msr::FS_BASE, msr::GS_BASE, msr::KERNEL_GS_BASE] {
            wrmsr(base, 0);
        }
    }
}

/// Sets up SYSCALL as the way in.
#[inline(always)]
fn calls() {
    const SYSCALL_ENABLE: u64 = 1 << 0;
    const NO_EXECUTE_ENABLE: u64 = 1 << 11;
    // Flags that SYSCALL clears. Interrupts: no entry nests. Direction: compiled code takes it for clear. Trap: no
    // single-stepping of the kernel. Alignment check: it would switch SMAP off. Nested task: IRET would fault.
    const MASK: u64 = 1 << 9 | 1 << 10 | 1 << 8 | 1 << 18 | 1 << 14;
    let kernel = u64::from(selector::KERNEL_CODE) << 32;
    let user = u64::from(selector::KERNEL_DATA) << 48;
    // EFER keeps its other bits: long mode is among them. No-execute comes on before the own tables, in which its bit
    // would else be a reserved one.
    // SAFETY: registers that every x86-64 has; the entry is the kernel's. SYSRET loads SS from the
    // selector after `user`, CS from the one after that (APM volume 3, SYSRET).
    unsafe {
        wrmsr(msr::EFER, rdmsr(msr::EFER) | SYSCALL_ENABLE | NO_EXECUTE_ENABLE);
        wrmsr(msr::STAR, kernel | user);
        // CSTAR, the entry from compatibility mode, is not set: no descriptor leads there.
        wrmsr(msr::LSTAR, &raw const kernel_call as u64);
        wrmsr(msr::SFMASK, MASK);
    }
}

/// Switches vector registers on for threads that ask for them, and returns the components that there are.
#[inline(always)]
fn vector_registers() -> u32 {
    const XSAVE: u32 = 1 << 26;
    const OSFXSR_OSXMMEXCPT_OSXSAVE: u64 = 1 << 9 | 1 << 10 | 1 << 18;
    const X87_SSE_AVX: u32 = 0b111;
    if cpuid(1, 0).ecx & XSAVE == 0 {
        return 0;
    }
    let components = cpuid(0xD, 0).eax & X87_SSE_AVX;
    // XCR0 names only components that a thread has room for, so a switch saves all that a program can use.
    // SAFETY: CPUID says that XSAVE is there, and these components. CR0 has TS and MP on and EM off, so that their use
    // is an exception until the kernel lends them.
    unsafe {
        // CR4 first: without OSXSAVE the instruction XSETBV does not exist.
        asm!("mov {r}, cr4", "or {r}, {bits}", "mov cr4, {r}", r = out(reg) _, bits = in(reg) OSFXSR_OSXMMEXCPT_OSXSAVE);
        asm!("xsetbv", in("ecx") 0, in("eax") components, in("edx") 0);
        asm!("mov {r}, cr0", "and {r}, {off}", "or {r}, {on}", "mov cr0, {r}",
            r = out(reg) _, off = in(reg) !4u64, on = in(reg) 0b1010u64);
    }
    components
}

/// Goes from the tables of the start to the kernel's own, which say for each page if it may be executed. The kernel has
/// no business in programs' memory: SMEP and SMAP enforce that where the processor has them. UMIP hides the addresses
/// of the descriptor tables from programs.
///
/// CR4 is written as a whole, whatever was on before. So programs can't write the bases of FS and GS (FSGSBASE) nor
/// read performance counters (PCE). A machine check is an exception (MCE) instead of a shutdown.
#[inline(always)]
fn own_tables(root: u64) {
    const PHYSICAL_ADDRESS_EXTENSION: u64 = 1 << 5;
    const MACHINE_CHECKS: u64 = 1 << 6;
    const GLOBAL_PAGES: u64 = 1 << 7;
    // CPUID Fn0000_0007, EBX bit 7, EBX bit 20, ECX bit 2 and their bits in CR4.
    const UMIP: u64 = 1 << 11;
    const SMEP: u64 = 1 << 20;
    const SMAP: u64 = 1 << 21;
    let features = cpuid(7, 0);
    // A bit of CR4 that the processor lacks is an exception.
    let on = |has: bool, bit: u64| if has { bit } else { 0 };
    let bits = PHYSICAL_ADDRESS_EXTENSION
        | MACHINE_CHECKS
        | GLOBAL_PAGES
        | on(features.ebx & 1 << 7 != 0, SMEP)
        | on(features.ebx & 1 << 20 != 0, SMAP)
        | on(features.ecx & 1 << 2 != 0, UMIP);
    // CR3 first: global pages (PGE) come on with the tables that they are of.
    // SAFETY: the tables map the kernel where it is; execute protection is on ([`calls`]).
    unsafe {
        asm!("mov cr3, {root}", "mov cr4, {bits}", root = in(reg) root, bits = in(reg) bits, options(nostack));
    }
}

/// Switches x2APIC mode on, as a monitor would have done.
#[inline(always)]
fn x2apic() {
    const ENABLE: u64 = 0b11 << 10;
    // SAFETY: the boot code has seen that there is such a mode; it is on already, or the core comes from a reset.
    unsafe { wrmsr(msr::APIC_BASE, rdmsr(msr::APIC_BASE) | ENABLE) }
}

/// Makes the local APIC and its timer ready: one-shot, so that a core without work is not interrupted.
#[inline(always)]
fn timer() {
    const ON: u64 = 1 << 8;
    // The information page's rate of the local APIC is for this divisor.
    const DIVIDE_BY_1: u64 = 0b1011;
    const X2APIC: u64 = 0b11 << 10;
    // SAFETY: in a sandbox x2APIC mode is on at the entry; every vector has an entry.
    unsafe {
        if rdmsr(msr::APIC_BASE) & X2APIC != X2APIC {
            wrmsr(msr::APIC_BASE, rdmsr(msr::APIC_BASE) | X2APIC);
        }
        // The local APIC is off after a reset, until its bit in this register is set.
        wrmsr(msr::SVR, ON | u64::from(SPURIOUS));
        // No task priority holds interrupts off: the class of a vector in service alone does.
        wrmsr(msr::TPR, 0);
        wrmsr(msr::DCR, DIVIDE_BY_1);
        wrmsr(msr::LVT_TIMER, u64::from(TIMER));
    }
}
