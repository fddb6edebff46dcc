//! Takes all the time that it gets: a neighbour to be protected from.
//!
//! Arguments: `crash=N` panics after N milliseconds, each time that it begins.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{Program, now};
use core::hint::black_box;

bulkhead_program::entry!(hog);

/// Some microseconds.
const LOOPS: u32 = 1_000;

fn hog(program: Program) -> u32 {
    let end = program.number("crash").map_or(u64::MAX, |after| now() + after * 1_000_000);
    while now() < end {
        // An emulator takes far longer to look at the clock, or to spin, than for other instructions.
        (0..LOOPS).for_each(|n| _ = black_box(n));
    }
    panic!("told to")
}
