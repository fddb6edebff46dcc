//! Entry of a guest: 64-bit mode, identity-mapped, interrupts off, RDI =
//! incarnation, RSI = information page; no stack yet.

use super::{apic, idt, percpu};
use crate::{Context, marker};
use core::arch::global_asm;

global_asm!(
    ".section .text.start, \"ax\"",
    ".global _start",
    "_start:",
    // The first instruction, for measurements of launches and restarts.
    ".quad {entered}, {restarted}",
    "cld",
    "lea rsp, [rip + {stack} + {size}]",
    "xor ebp, ebp",
    "call {start}",
    "ud2",
    ".previous",
    entered = const quad(marker::EVENT | marker::id::ENTRY),
    restarted = const quad(marker::END | marker::id::RESTART),
    stack = sym STACK,
    size = const STACK_SIZE,
    start = sym start,
);

/// A marker's bytes as an assembler's operand.
const fn quad(code: u16) -> u64 {
    u64::from_le_bytes(marker::encode(code))
}

const STACK_SIZE: usize = 256 * 1024;

#[repr(C, align(4096))]
struct Stack(core::cell::UnsafeCell<[u8; STACK_SIZE]>);

// SAFETY: only the first core's stack pointer ever refers to it.
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(core::cell::UnsafeCell::new([0; STACK_SIZE]));

extern "C" fn start(context: Context) -> ! {
    // SAFETY: the first thing that the first core does.
    unsafe { percpu::enter(0) };
    idt::build();
    idt::load();
    apic::enable();
    crate::start::begin(context)
}
