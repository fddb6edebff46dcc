//! Starting the sandbox's other cores: INIT and start-up interrupt (APM volume
//! 2, 16.5), a few real-mode instructions, then Rust.
//!
//! The start-up code is a segment of the program (`.smp`, at 0x8000), not a copy made there: the nested tables make
//! text read-only.

use super::{apic, cpu, idt, percpu};
use crate::cores::Entry;
use crate::{Context, interrupt, time};
use bulkhead_guest::{Here, Instructions};
use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

// Read by the start-up code by their 32-bit addresses.
static CR3: AtomicU64 = AtomicU64::new(0);
static CR4: AtomicU64 = AtomicU64::new(0);
static EFER: AtomicU64 = AtomicU64::new(0);
static STACK: AtomicU64 = AtomicU64::new(0);
static ENTRY: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static INCARNATION: AtomicU64 = AtomicU64::new(0);
static INFO: AtomicU64 = AtomicU64::new(0);
static INDEX: AtomicU64 = AtomicU64::new(0);
static UP: AtomicBool = AtomicBool::new(false);

const EFER_MSR: u32 = 0xC000_0080;
/// Long mode enable and no-execute enable, of what EFER says.
const EFER_KEPT: u64 = 1 << 8 | 1 << 11 | 1;

unsafe extern "C" {
    static bulkhead_smp: u8;
}

// CS holds the page, so that the real-mode part knows where its descriptor
// table is; from protected mode on everything has its linked address.
global_asm!(
    ".section .smp, \"ax\"",
    ".code16",
    ".balign 4096",
    ".global bulkhead_smp",
    "bulkhead_smp:",
    "cli",
    "movw %cs, %ax",
    "movw %ax, %ds",
    "lgdtl (5f - bulkhead_smp)",
    "movl $0x11, %eax",
    "movl %eax, %cr0",
    "ljmpl $0x08, $2f",
    ".code32",
    "2:",
    "movw $0x18, %ax",
    "movw %ax, %ds",
    "movw %ax, %ss",
    "movw %ax, %es",
    "movl {cr4}, %eax",
    "movl %eax, %cr4",
    "movl {cr3}, %eax",
    "movl %eax, %cr3",
    "movl ${efer_msr}, %ecx",
    "movl {efer}, %eax",
    "xorl %edx, %edx",
    "wrmsr",
    "movl $0x80010033, %eax",
    "movl %eax, %cr0",
    "ljmpl $0x10, $3f",
    ".code64",
    "3:",
    "movq {stack}, %rsp",
    "xorl %ebp, %ebp",
    "movabsq ${secondary}, %rax",
    "call *%rax",
    "ud2",
    ".balign 8",
    "4:",
    ".quad 0, 0x00CF9B000000FFFF, 0x00AF9B000000FFFF, 0x00CF93000000FFFF",
    "5:",
    ".word 31",
    ".long 4b",
    ".previous",
    cr3 = sym CR3,
    cr4 = sym CR4,
    efer = sym EFER,
    stack = sym STACK,
    secondary = sym secondary,
    efer_msr = const EFER_MSR,
    options(att_syntax),
);

extern "C" fn secondary() -> ! {
    let index = INDEX.load(Ordering::Acquire) as usize;
    // SAFETY: this core's first Rust code, and only this core has this block.
    unsafe { percpu::enter(index) };
    idt::load();
    // SAFETY: these are the first core's arguments to `start`.
    let context =
        unsafe { Context::new(INCARNATION.load(Ordering::Relaxed), INFO.load(Ordering::Relaxed)) };
    // SAFETY: `start` stored an `Entry`.
    let entry = unsafe { core::mem::transmute::<*mut (), Entry>(ENTRY.load(Ordering::Relaxed)) };
    apic::enable();
    UP.store(true, Ordering::Release);
    entry(context, index);
    interrupt::disable();
    loop {
        interrupt::wait();
    }
}

/// Starts a core by INIT and SIPI.
pub(crate) fn start(context: Context, index: usize, entry: Entry) -> bool {
    let info = context.info();
    if index == 0 || index >= (info.cores as usize).min(info.core_ids.len()) {
        return false;
    }
    let id = info.core_ids[index];
    let page = &raw const bulkhead_smp as u64 >> 12;
    // SAFETY: EFER exists. The other core's stack is still unused.
    let (efer, stack) = unsafe {
        let stack = &raw const (*percpu::block(index)).stack as u64;
        (cpu::rdmsr(EFER_MSR), stack + percpu::STACK as u64)
    };
    CR3.store(cpu::cr3(), Ordering::Relaxed);
    CR4.store(cpu::cr4(), Ordering::Relaxed);
    EFER.store(efer & EFER_KEPT, Ordering::Relaxed);
    STACK.store(stack, Ordering::Relaxed);
    ENTRY.store(entry as *mut (), Ordering::Relaxed);
    INCARNATION.store(context.incarnation(), Ordering::Relaxed);
    INFO.store(core::ptr::from_ref(info) as u64, Ordering::Relaxed);
    INDEX.store(index as u64, Ordering::Release);
    UP.store(false, Ordering::Release);
    apic::init(id);
    pause(10_000_000);
    apic::sipi(id, page as u8);
    let limit = Here::ordered_counter() + time::ticks(100_000_000);
    while !UP.load(Ordering::Acquire) {
        if Here::ordered_counter() > limit {
            return false;
        }
        pause(10_000);
    }
    true
}

/// Waits asleep: on an emulated machine a spinning core holds up the starting one.
fn pause(nanos: u64) {
    interrupt::without(|| time::sleep(nanos));
}
