//! Shows the watchdog of its sandbox that the kernel has idle time. Its thread is below all others, and kicks each time
//! that it has been given so much of the processor.
//!
//! Its context is a part of the manifest's arithmetic: admission finds that there is room for it beside all others. If
//! they take more than they should, it is late. It is late, too, if the kernel takes no interrupt of its timer, or does
//! not come to its scheduler.
//!
//! Arguments: `each=US` (100): processor time from a kick to the next.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{Program, now, println};

bulkhead_program::entry!(idle);

/// Longest time between two looks at the clock that is its own, ns. Others have had the processor for a longer one.
const OWN: u64 = 5_000;

fn idle(program: Program) -> u32 {
    if program.alive().is_none() {
        println!("{}: nobody looks", program.name());
        return 1;
    }
    let each = program.number("each").unwrap_or(100).saturating_mul(1_000);
    let (mut last, mut had) = (now(), 0);
    loop {
        let time = now();
        let step = time - last;
        last = time;
        had += if step < OWN { step } else { 0 };
        if had >= each {
            had = 0;
            program.kick();
        }
    }
}
