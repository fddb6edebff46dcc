//! The interrupt descriptor table, one for all cores of the sandbox. Vectors from 32 on are
//! acknowledged (EOI) after their handler.

use super::percpu;
use bulkhead_guest::{Here, Instructions};
use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;

/// The interrupted state: the general registers as pushed by the entry code, and the CPU's frame (APM volume 2, 8.9.3).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)] // Register names are their own documentation.
pub struct Frame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rbp: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rbx: u64,
    pub rax: u64,
    pub vector: u64,
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

/// First vector that is no exception.
pub const FIRST: u8 = 32;
/// Vector of spurious interrupts: not acknowledged.
pub const SPURIOUS: u8 = 0xFF;
/// Vector by which code at CPL 3 comes back ([`super::user`]).
pub(crate) const RETURN: u8 = 0x81;

#[derive(Clone, Copy)]
#[repr(C)]
struct Gate {
    offset_low: u16,
    selector: u16,
    kind: u16,
    offset_mid: u16,
    offset_high: u32,
    reserved: u32,
}

#[repr(C, align(4096))]
struct Idt(UnsafeCell<[Gate; 256]>);

// SAFETY: written by the first core before any other one runs, then only read.
unsafe impl Sync for Idt {}

static IDT: Idt = Idt(UnsafeCell::new(
    [Gate { offset_low: 0, selector: 0, kind: 0, offset_mid: 0, offset_high: 0, reserved: 0 }; 256],
));

unsafe extern "C" {
    static bulkhead_vectors: u8;
}

/// Bytes from one entry stub to the next.
const STUB: u64 = 16;

/// Fills the table; once, on the first core.
pub(crate) fn build() {
    /// Present, 64-bit interrupt gate, no IST.
    const GATE: u16 = 0x8E00;
    /// DPL 3.
    const USER: u16 = 0x6000;
    let base = &raw const bulkhead_vectors as u64;
    for vector in 0..=255u8 {
        let offset = base + STUB * u64::from(vector);
        let gate = Gate {
            offset_low: offset as u16,
            selector: percpu::CODE,
            kind: if vector == RETURN { GATE | USER } else { GATE },
            offset_mid: (offset >> 16) as u16,
            offset_high: (offset >> 32) as u32,
            reserved: 0,
        };
        // SAFETY: the only writer, before the table is in use.
        unsafe { (*IDT.0.get())[usize::from(vector)] = gate };
    }
}

/// Loads the table on this core.
pub(crate) fn load() {
    let pointer = percpu::Pointer::new(IDT.0.get() as u64, size_of::<[Gate; 256]>());
    // SAFETY: the table is complete and lives for ever.
    unsafe { asm!("lidt [{}]", in(reg) &pointer, options(nostack, preserves_flags)) }
}

// One stub a vector: an error code where the CPU pushes none, the vector, then
// the common part. AT&T syntax, because in the other one `push i` is a load.
global_asm!(
    ".balign 16",
    ".global bulkhead_vectors",
    "bulkhead_vectors:",
    ".set bulkhead_i, 0",
    ".rept 256",
    ".balign 16",
    ".if !(bulkhead_i == 8 || (bulkhead_i >= 10 && bulkhead_i <= 14) || bulkhead_i == 17 || bulkhead_i == 21 || bulkhead_i == 29 || bulkhead_i == 30)",
    "pushq $0",
    ".endif",
    "pushq $bulkhead_i",
    "jmp bulkhead_common",
    ".set bulkhead_i, bulkhead_i + 1",
    ".endr",
    "bulkhead_common:",
    "pushq %rax",
    "pushq %rbx",
    "pushq %rcx",
    "pushq %rdx",
    "pushq %rsi",
    "pushq %rdi",
    "pushq %rbp",
    "pushq %r8",
    "pushq %r9",
    "pushq %r10",
    "pushq %r11",
    "pushq %r12",
    "pushq %r13",
    "pushq %r14",
    "pushq %r15",
    "cld",
    "movq %rsp, %rdi",
    "movq %rsp, %rbx",
    "andq $-16, %rsp",
    // The registers that channels copy messages with: a handler may use them, too. The compiler uses no others.
    "subq $64, %rsp",
    "movaps %xmm0, (%rsp)",
    "movaps %xmm1, 16(%rsp)",
    "movaps %xmm2, 32(%rsp)",
    "movaps %xmm3, 48(%rsp)",
    "call {dispatch}",
    "movaps (%rsp), %xmm0",
    "movaps 16(%rsp), %xmm1",
    "movaps 32(%rsp), %xmm2",
    "movaps 48(%rsp), %xmm3",
    "movq %rbx, %rsp",
    "popq %r15",
    "popq %r14",
    "popq %r13",
    "popq %r12",
    "popq %r11",
    "popq %r10",
    "popq %r9",
    "popq %r8",
    "popq %rbp",
    "popq %rdi",
    "popq %rsi",
    "popq %rdx",
    "popq %rcx",
    "popq %rbx",
    "popq %rax",
    "addq $16, %rsp",
    "iretq",
    dispatch = sym dispatch,
    options(att_syntax),
);

extern "C" fn dispatch(frame: &mut Frame) {
    let tsc = Here::ordered_counter();
    let vector = frame.vector as u8;
    if let Some(handler) = crate::interrupt::handler(vector) {
        handler(frame, tsc);
    } else if vector < FIRST || vector == RETURN {
        super::fault::raised(frame);
    }
    if vector >= FIRST && vector != SPURIOUS && vector != RETURN {
        super::apic::eoi();
    }
}
