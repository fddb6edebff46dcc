//! The first instructions: descriptor tables, call entry, timer, clock; then the first thread.
//!
//! A sandbox starts here in 64-bit mode, on the kernel's own root table, with interrupts off and RSI =
//! the address of the information page; no stack yet. Without a monitor RSI is nothing, and the page lies in its
//! memory.

use crate::entry::{self, STACK, STACK_OF_CORE};
use crate::machine::X86Machine;
use crate::{BAKED, machine, report};
use bulkhead_cpu_x86::{cpuid, rdmsr, wrmsr};
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
    // For whoever measures launches.
    ".quad {entered}",
    "cld",
    "lea rsp, [rip + {stack} + {size}]",
    "xor ebp, ebp",
    "mov rdi, rsi",
    "call {start}",
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

/// Something that the processor reads while the kernel runs, and that is set once.
#[repr(C, align(16))]
pub struct Table<T>(UnsafeCell<T>);

// SAFETY: written at the start only, but for the task state's stack, which the exit writes.
unsafe impl<T> Sync for Table<T> {}

/// Task state segment (APM volume 2, section 12.2.5): its first stack, and one for each of [`entry::APART`].
pub static TASK: Table<[u32; 26]> = Table(UnsafeCell::new([0; 26]));
static GDT: Table<[u64; 7]> = Table(UnsafeCell::new([
    0,
    0x00AF_9B00_0000_FFFF,
    0x00CF_9300_0000_FFFF,
    0x00CF_F300_0000_FFFF,
    0x00AF_FB00_0000_FFFF,
    0,
    0,
]));
static IDT: Table<[[u64; 2]; VECTORS]> = Table(UnsafeCell::new([[0; 2]; VECTORS]));

unsafe extern "C" {
    static kernel_call: u8;
}

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

/// # Safety
/// `info` is what the entry found in RSI, where a monitor put it.
#[unsafe(link_section = ".start")]
unsafe extern "C" fn start(info: *const Info) {
    // SAFETY: the first that asks, and over before the first entry.
    let (machine, baked) = unsafe { (X86Machine::get(), BAKED.get()) };
    let alone = baked.alone != 0;
    let info = if alone { (WINDOW + u64::from(INFO)) as *const Info } else { info };
    // SAFETY: the page that a sandbox has from its monitor, mapped by the tables of the start; or the copy that the
    // boot code has put into the kernel's memory.
    let (clock, monitors) = unsafe { ((*info).clock, (*info).monitors) };
    if alone {
        report::begin();
        x2apic();
    }
    machine::set_calls(monitors);
    machine::set_console(baked.console as u16);
    descriptors();
    calls();
    // With 32 fraction bits, as both factors: in 64 bits, since no local APIC counts 2^32 times a second.
    const NANO: u64 = 1_000_000_000 << 32;
    let tsc_hz = clock.tsc_hz.max(1);
    let facts = machine.facts_mut();
    facts.nanos = NANO / tsc_hz;
    facts.ticks = (clock.lapic_hz.min(u64::from(u32::MAX)) << 32).div_ceil(NANO >> 32);
    (facts.base, facts.window) = (baked.base, baked.window);
    let nanos = facts.nanos;
    own_tables(baked.core.own_space);
    machine.facts_mut().xcr0 = vector_registers();
    // A frame of nobody's but the host's, which every program sees.
    *machine.get_mut(Ref::<u64>::new(baked.clock + offset_of!(Clock, nanos) as u32)) = nanos;
    *machine.get_mut(Ref::<u64>::new(baked.clock + offset_of!(Clock, tsc_hz) as u32)) = tsc_hz;
    #[cfg(feature = "trace")]
    machine.facts_mut().trace.begin(baked.trace, baked.trace_records, tsc_hz);
    timer();
    machine.play(baked.script as u32);
    // The host's clock was another one.
    (baked.core.timer, baked.core.now) = (Time::MAX, 0);
    let mut kernel = Kernel { machine, core: &mut baked.core };
    kernel.start();
}

#[inline(always)]
fn descriptors() {
    const PRESENT_TASK: u64 = 0x89 << 40;
    const INTERRUPT_GATE: u64 = 0x8E << 40;
    // Where the task state's interrupt stack table begins, in its words.
    const FIRST_APART: usize = 9;
    let task = TASK.0.get() as u64;
    // SAFETY: nobody reads the tables yet; what is written is as APM volume 2, chapter 4, has it.
    unsafe {
        let gdt = &mut *GDT.0.get();
        let limit = size_of::<[u32; 26]>() as u64 - 1;
        let base = (task & 0xFF_FFFF) << 16 | (task >> 24 & 0xFF) << 56;
        gdt[5] = PRESENT_TASK | limit | base;
        gdt[6] = task >> 32;
        // No I/O permission map: its offset is beyond the limit.
        (*TASK.0.get())[25] = (size_of::<[u32; 26]>() as u32) << 16;
        for (n, stack) in entry::STACKS_APART.iter().enumerate() {
            let end = &raw const *stack as u64 + size_of_val(stack) as u64;
            let place = FIRST_APART + 2 * n;
            ((*TASK.0.get())[place], (*TASK.0.get())[place + 1]) = (end as u32, (end >> 32) as u32);
        }
        for (n, gate) in (*IDT.0.get()).iter_mut().enumerate() {
            let at = entry::gate(n as u8);
            let apart = entry::APART.iter().position(|vector| usize::from(*vector) == n);
            let stack = apart.map_or(0, |apart| apart as u64 + 1) << 32;
            let code = u64::from(selector::KERNEL_CODE) << 16;
            gate[0] = at & 0xFFFF | code | stack | INTERRUPT_GATE | (at >> 16 & 0xFFFF) << 48;
            gate[1] = at >> 32;
        }
        asm!("lgdt [{}]", in(reg) &GDT.pointer(), options(nostack));
        asm!("lidt [{}]", in(reg) &IDT.pointer(), options(nostack));
        asm!(
            "mov ss, {data:e}", "mov ds, {null:e}", "mov es, {null:e}", "mov fs, {null:e}", "mov gs, {null:e}",
            // A program shall find no descriptors but these.
            "lldt {null:x}",
            "push {code}", "lea {next}, [rip + 2f]", "push {next}", "retfq", "2:",
            "ltr {task:x}",
            data = in(reg) u32::from(selector::KERNEL_DATA), null = in(reg) 0,
            code = in(reg) u64::from(selector::KERNEL_CODE), next = out(reg) _,
            task = in(reg) selector::TASK,
        );
        // Those of GS nothing changes any more.
        for base in [msr::FS_BASE, msr::GS_BASE, msr::KERNEL_GS_BASE] {
            wrmsr(base, 0);
        }
    }
}

#[inline(always)]
fn calls() {
    const SYSCALL_ENABLE: u64 = 1 << 0;
    const NO_EXECUTE_ENABLE: u64 = 1 << 11;
    // Interrupts, direction, trap, alignment check and nested task off in the kernel.
    const MASK: u64 = 1 << 9 | 1 << 10 | 1 << 8 | 1 << 18 | 1 << 14;
    let kernel = u64::from(selector::KERNEL_CODE) << 32;
    let user = u64::from(selector::KERNEL_DATA) << 48;
    // SAFETY: registers that every x86-64 has; the entry is the kernel's. SYSRET loads SS from the
    // selector after `user`, CS from the one after that (APM volume 3, SYSRET).
    unsafe {
        wrmsr(msr::EFER, rdmsr(msr::EFER) | SYSCALL_ENABLE | NO_EXECUTE_ENABLE);
        wrmsr(msr::STAR, kernel | user);
        wrmsr(msr::LSTAR, &raw const kernel_call as u64);
        wrmsr(msr::SFMASK, MASK);
    }
}

/// Switches vector registers on for those who ask for them; the components that there are.
#[inline(always)]
fn vector_registers() -> u32 {
    const XSAVE: u32 = 1 << 26;
    const OSFXSR_OSXMMEXCPT_OSXSAVE: u64 = 1 << 9 | 1 << 10 | 1 << 18;
    const X87_SSE_AVX: u32 = 0b111;
    if cpuid(1, 0).ecx & XSAVE == 0 {
        return 0;
    }
    let components = cpuid(0xD, 0).eax & X87_SSE_AVX;
    // SAFETY: CPUID says that XSAVE is there, and these components. CR0: TS and MP on, EM off, so that
    // using them is an exception until the kernel lends them.
    unsafe {
        asm!("mov {r}, cr4", "or {r}, {bits}", "mov cr4, {r}", r = out(reg) _, bits = in(reg) OSFXSR_OSXMMEXCPT_OSXSAVE);
        asm!("xsetbv", in("ecx") 0, in("eax") components, in("edx") 0);
        asm!("mov {r}, cr0", "and {r}, {off}", "or {r}, {on}", "mov cr0, {r}",
            r = out(reg) _, off = in(reg) !4u64, on = in(reg) 0b1010u64);
    }
    components
}

/// From the tables of the start to the kernel's own, which know what may be executed. The kernel has no
/// business in programs' memory: where the processor can see to that, it shall.
///
/// CR4 is written as a whole, whatever was on before. So programs can't write the bases of FS and GS (FSGSBASE) nor
/// read performance counters (PCE), and a machine check is an exception (MCE) instead of a shutdown.
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
    let on = |has: bool, bit: u64| if has { bit } else { 0 };
    let bits = PHYSICAL_ADDRESS_EXTENSION
        | MACHINE_CHECKS
        | GLOBAL_PAGES
        | on(features.ebx & 1 << 7 != 0, SMEP)
        | on(features.ebx & 1 << 20 != 0, SMAP)
        | on(features.ecx & 1 << 2 != 0, UMIP);
    // SAFETY: they map the kernel where it is; execute protection is on.
    unsafe {
        asm!("mov cr3, {root}", "mov cr4, {bits}", root = in(reg) root, bits = in(reg) bits, options(nostack));
    }
}

/// What a monitor would have done.
#[inline(always)]
fn x2apic() {
    const ENABLE: u64 = 0b11 << 10;
    // SAFETY: the boot code has seen that there is such a mode; it is on already, or the core comes from a reset.
    unsafe { wrmsr(msr::APIC_BASE, rdmsr(msr::APIC_BASE) | ENABLE) }
}

#[inline(always)]
fn timer() {
    const ON: u64 = 1 << 8;
    const DIVIDE_BY_1: u64 = 0b1011;
    const X2APIC: u64 = 0b11 << 10;
    // SAFETY: in a sandbox x2APIC mode is on at the entry; every vector has an entry.
    unsafe {
        if rdmsr(msr::APIC_BASE) & X2APIC != X2APIC {
            wrmsr(msr::APIC_BASE, rdmsr(msr::APIC_BASE) | X2APIC);
        }
        wrmsr(msr::SVR, ON | u64::from(SPURIOUS));
        wrmsr(msr::TPR, 0);
        wrmsr(msr::DCR, DIVIDE_BY_1);
        wrmsr(msr::LVT_TIMER, u64::from(TIMER));
    }
}
