//! Events that begin by themselves: refills and ends of budgets. A thread that executes nothing but `BEGIN` markers
//! leaves the last one right before the interrupt. A thread that executes nothing but `END` has its first right behind
//! the kernel's return.

use crate::marked::{Behind, call, quad};
use bulkhead_program::abi::{Op, Status};
use bulkhead_program::marker::{BEGIN, END, id};
use bulkhead_program::{FOREVER, Program, now, println, ready, wait_until};

/// Ends the system after `rounds=N` milliseconds.
pub fn watch(program: Program) -> u32 {
    ready();
    let until = now() + program.number("rounds").unwrap_or(20) * 1_000_000;
    let nobody = wait_until(program.waits("never"), until);
    assert!(nobody == Ok(None), "{nobody:?}");
    println!("measure: done");
    0
}

/// A marker again and again, until a time.
pub fn markers_until<const CODE: u16>(until: u64) {
    while now() < until {
        // SAFETY: instructions without effect.
        #[cfg(target_os = "none")]
        unsafe {
            core::arch::asm!(
                ".rept 512", ".quad {marker}", ".endr",
                marker = const quad(CODE), options(nostack, nomem, preserves_flags)
            );
        }
    }
}

/// A marker, for ever.
#[cfg(target_os = "none")]
fn markers<const CODE: u16>() -> ! {
    // SAFETY: instructions without effect.
    unsafe {
        core::arch::asm!(
            "2:", ".rept 64", ".quad {marker}", ".endr", "jmp 2b",
            marker = const quad(CODE), options(noreturn, nostack, nomem)
        )
    }
}

#[cfg(not(target_os = "none"))]
fn markers<const CODE: u16>() -> ! {
    unreachable!("a program runs on the kernel, not here: {:?}", quad(CODE))
}

/// Is interrupted: `until=refill` by the refill of another, `until=end` by its budget's end.
pub fn spin(program: Program) -> u32 {
    match program.arg("until") {
        Some("refill") => markers::<{ BEGIN | id::KERNEL_REPLENISH }>(),
        _ => markers::<{ BEGIN | id::KERNEL_TIMEOUT }>(),
    }
}

/// Ends the spans that others began, as soon as no other thread runs.
#[cfg(target_os = "none")]
pub fn bystander() -> ! {
    // SAFETY: instructions without effect.
    unsafe {
        core::arch::asm!(
            "2:", ".rept 32", ".quad {rollback}", ".quad {kill}", ".endr", "jmp 2b",
            rollback = const quad(END | id::KERNEL_ROLLBACK),
            kill = const quad(END | id::KERNEL_KILL), options(noreturn, nostack, nomem)
        )
    }
}

#[cfg(not(target_os = "none"))]
pub fn bystander() -> ! {
    unreachable!("a program runs on the kernel, not here")
}

/// Uses each refill up.
pub fn refilled(_: Program) -> u32 {
    markers::<{ END | id::KERNEL_REPLENISH }>()
}

/// Is told of the ends of budgets, and lets the thread wait for its next refill.
pub fn handler(program: Program) -> u32 {
    type Told = Behind<{ id::KERNEL_TIMEOUT }>;
    let (from, reply) = (program.serves("timeouts").0, program.reply("handler").0);
    let mut got = call::<Told>(Op::Recv, reply, from, FOREVER);
    loop {
        assert!(got.0 == Status::OK.0, "status {:#x}", got.0);
        got = call::<Told>(Op::ReplyRecv, reply, from, 0);
    }
}
