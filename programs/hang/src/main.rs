//! Kicks the watchdog of its sandbox at each release for a while, and goes on without.
//!
//! Arguments: `kicks=N` (default: for ever).
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{Program, now, println, ready};

bulkhead_program::entry!(hang);

fn hang(program: Program) -> u32 {
    let Some(alive) = program.alive() else {
        println!("hang: nobody looks");
        return 1;
    };
    ready();
    let kicks = program.number("kicks").unwrap_or(u64::MAX);
    println!("hang: begins");
    for _ in 0..kicks {
        program.kick();
        // It has a fifth of its core: the other four are no time of its own.
        let due = now() + alive / 2;
        while now() < due {
            core::hint::spin_loop();
        }
    }
    println!("hang: stops");
    loop {
        core::hint::spin_loop();
    }
}
