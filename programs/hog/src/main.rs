//! Takes all the time that it gets: a neighbour to be protected from.
//!
//! Arguments: `crash=N` panics after N milliseconds, each time that it begins.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{Program, now};

bulkhead_program::entry!(hog);

fn hog(program: Program) -> u32 {
    let end = program.number("crash").map_or(u64::MAX, |after| now() + after * 1_000_000);
    while now() < end {
        core::hint::spin_loop();
    }
    panic!("told to")
}
