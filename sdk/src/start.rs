//! Entry of a guest: 64-bit mode, identity-mapped, interrupts off, RDI =
//! incarnation, RSI = information page; no stack yet.

use crate::{Context, console, println};
use core::arch::global_asm;
use core::panic::PanicInfo;

global_asm!(
    ".section .text.start, \"ax\"",
    ".global _start",
    "_start:",
    "cld",
    "lea rsp, [rip + {stack} + {size}]",
    "xor ebp, ebp",
    "call {start}",
    "ud2",
    ".previous",
    stack = sym STACK,
    size = const STACK_SIZE,
    start = sym start,
);

const STACK_SIZE: usize = 256 * 1024;

#[repr(C, align(4096))]
struct Stack(core::cell::UnsafeCell<[u8; STACK_SIZE]>);

// SAFETY: only the first core's stack pointer ever refers to it.
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(core::cell::UnsafeCell::new([0; STACK_SIZE]));

unsafe extern "C" {
    safe fn bulkhead_main(context: Context) -> !;
}

extern "C" fn start(context: Context) -> ! {
    console::select(context.arg("console"));
    bulkhead_main(context)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    println!("{info}");
    crate::hypercall::exit(101)
}
