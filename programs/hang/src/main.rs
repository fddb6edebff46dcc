//! Kicks the watchdog of its sandbox at each release for a while, and goes on without.
//!
//! Arguments: `kicks=N` (default: for ever); `sign=MS`: it moves a word for its guard that often, in place of that of
//! its sandbox. `takes=CONTEXT`: in place of a stop it takes all of the core, by its right to configure that context.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::abi::Policy;
use bulkhead_program::{Program, Sign, now, println, ready};

bulkhead_program::entry!(hang);

/// Longer than a test, ns.
const UNLIMITED: u64 = 3_000_000_000_000;

fn hang(program: Program) -> u32 {
    let sign = Sign::find(program, program.name());
    let every = program.number("sign").map(|millis| millis * 1_000_000);
    let Some(alive) = every.or(program.alive()) else {
        println!("hang: nobody looks");
        return 1;
    };
    if sign.is_none() {
        ready();
    }
    let kicks = program.number("kicks").unwrap_or(u64::MAX);
    match sign {
        None => println!("hang: begins"),
        Some(_) => println!("{} begins", program.name()),
    }
    for _ in 0..kicks {
        sign.map_or_else(|| program.kick(), Sign::kick);
        // It has a fifth of its core: the other four are no time of its own.
        let due = now() + alive / 2;
        while now() < due {
            core::hint::spin_loop();
        }
    }
    println!("hang: stops");
    if let Some(context) = program.arg("takes") {
        let all = program.context(context).configure(Policy::Full, UNLIMITED, UNLIMITED, 0);
        println!("hang: takes all: {all:?}");
    }
    loop {
        core::hint::spin_loop();
    }
}
