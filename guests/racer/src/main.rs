//! Races the end of its own sandbox against INIT and start-up interrupts between its cores. In each life the first core
//! wakes the second one anew and restarts the sandbox a little later than in the life before. A core that slipped out
//! of an end would never park again, and its monitor says so.
//!
//! `lives=N` (default 100) ends with exit code 0 after so many restarts; `step=N` turns of a loop come in between per
//! life, modulo `turns=N`. A third core, if there is one, sends INIT and start-up interrupts to the second all the
//! while. With `who=1` the second core restarts and the first one just waits. With `low=1` the first core leaves an
//! interrupt of a vector below 16 pending, as some APICs let it. Exit code 4 means a register that a former life left
//! behind.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::{Context, apic, cores, cpu, hypercall, interrupt};
use core::arch::asm;
use core::hint::black_box;

bulkhead_sdk::entry!(guest);

const INIT: u64 = 0x4500;
const STARTUP: u64 = 0x4600 | 0x08;

/// Wakes the second core: it comes to the start-up code that `cores::start` prepared.
fn wake(context: Context) {
    let to = u64::from(context.info().core_ids[1]) << 32;
    // SAFETY: a core of this sandbox, which runs nothing that others rely on.
    unsafe {
        cpu::wrmsr(apic::ICR, to | INIT);
        cpu::wrmsr(apic::ICR, to | STARTUP);
    }
}

fn turns(context: Context) {
    let argument = |name, or| context.arg_u64(name).unwrap_or(or);
    let turns = context.incarnation() * argument("step", 1) % argument("turns", 1_000);
    for n in 0..turns {
        black_box(n);
    }
}

/// Tells if registers are as after a reset; leaves them otherwise.
fn fresh() -> bool {
    const AT_RESET: u32 = 0x1F80;
    let (mut control, other) = (0u32, AT_RESET | 1 << 15);
    let vectors: u64;
    // SAFETY: registers of this core, which no code here relies on: flushing to
    // zero changes no integer.
    unsafe {
        asm!("stmxcsr [{}]", in(reg) &raw mut control, options(nostack));
        asm!("movq {}, xmm7", out(reg) vectors, options(nostack, nomem));
        asm!("ldmxcsr [{}]", in(reg) &raw const other, options(nostack));
        asm!("movq xmm7, {}", in(reg) u64::MAX, out("xmm7") _, options(nostack, nomem));
        let divide = cpu::rdmsr(apic::DCR);
        cpu::wrmsr(apic::DCR, 0b1010);
        control == AT_RESET && vectors == 0 && divide == 0
    }
}

/// Leaves an interrupt pending that looks like an exception.
fn leave_pending(vector: u64) {
    interrupt::disable();
    // SAFETY: interrupts are off, and this life ends.
    unsafe { cpu::wrmsr(apic::SELF, vector) };
}

fn second(context: Context, _: usize) {
    if context.arg_u64("who") == Some(1) {
        turns(context);
        hypercall::restart();
    }
    loop {
        black_box(0);
    }
}

fn third(context: Context, _: usize) {
    loop {
        wake(context);
    }
}

fn guest(context: Context) -> u32 {
    if context.incarnation() >= context.arg_u64("lives").unwrap_or(100) {
        return 0;
    }
    if !fresh() {
        return 4;
    }
    if context.arg_u64("low") == Some(1) {
        leave_pending(context.incarnation() % 16);
        hypercall::restart();
    }
    if context.info().cores > 2 && !cores::start(context, 2, third) {
        return 3;
    }
    // With a third core the second one may be held up for ever.
    if !cores::start(context, 1, second) && context.info().cores == 2 {
        return 2;
    }
    wake(context);
    turns(context);
    if context.arg_u64("who") == Some(1) {
        loop {
            black_box(0);
        }
    }
    hypercall::restart()
}
