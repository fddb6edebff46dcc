//! Counts in turns with another of its kind, on another kernel: each writes to a channel of its own and looks into
//! the other's.
//!
//! Arguments: `own=CHANNEL other=CHANNEL`, `first=1` for the side that begins, `rounds=N` (default 1000); or `fail=1`:
//! it overflows its stack.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{Program, println, ready};
use core::hint::black_box;

bulkhead_program::entry!(ping);

fn ping(program: Program) -> u32 {
    if program.number("fail").is_some() {
        println!("{} fails", program.name());
        return deeper(0);
    }
    let channel = |which| program.registers(program.arg(which).unwrap_or_default());
    let (own, other) = (channel("own"), channel("other"));
    let rounds = program.number("rounds").unwrap_or(1000);
    let first = program.number("first").is_some();
    println!("{} begins", program.name());
    ready();
    for round in 1..=rounds {
        if first {
            own.write64(0, round);
        }
        while other.read64(0) < round {
            core::hint::spin_loop();
        }
        own.write64(0, round);
    }
    println!("{} counted to {}", program.name(), other.read64(0));
    u32::from(other.read64(0) != rounds)
}

/// Nothing is there for its stack to grow into.
fn deeper(depth: u32) -> u32 {
    match black_box(depth) {
        u32::MAX => 0,
        depth => black_box(deeper(depth + 1)) + 1,
    }
}
