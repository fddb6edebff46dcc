//! Makes one attack a life: see the library of this crate.
//!
//! Arguments beside the library's:
//!
//! * `once` exits with code 0 after an attack instead of restarting;
//! * `pause=N` waits N milliseconds before each attack and `linger=N` after it;
//! * `lives=N` exits with code 0 in life N;
//! * `core=1` attacks from the second core while the first one sleeps.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::{Context, cores, hypercall, interrupt, mark, marker, paging, println, time};
use rogue::expect::Outcome;
use rogue::{Aim, Attack, Set, by_name};

bulkhead_sdk::entry!(guest);

fn guest(context: Context) -> u32 {
    if context.arg_u64("lives") == Some(context.incarnation()) {
        return 0;
    }
    // Without this the own page tables would be in the way, not the monitor.
    paging::map_everything();
    if context.arg_u64("core") != Some(1) {
        return live(context);
    }
    let from_there = |context, _| {
        hypercall::exit(live(context));
    };
    if !cores::start(context, 1, from_there) {
        println!("rogue: the second core did not start");
        return 3;
    }
    interrupt::disable();
    loop {
        // SAFETY: sleeps; with interrupts off, until the restart.
        unsafe { core::arch::asm!("hlt", options(nomem, nostack)) };
    }
}

/// The name of a life.
fn turn(names: &'static str, incarnation: u64) -> Option<&'static str> {
    let n = names.split('+').count() as u64;
    names.split('+').nth((incarnation % n) as usize)
}

/// One life.
fn live(context: Context) -> u32 {
    let attack: &Attack = match context.arg("attack") {
        None => Set::named(context.arg("set")).of_life(context.incarnation()),
        Some(names) => match turn(names, context.incarnation()).and_then(by_name) {
            Some(attack) => attack,
            None => {
                println!("rogue: no attack {names}");
                return 2;
            }
        },
    };
    if context.arg_u64("lives").is_some_and(|lives| context.incarnation() >= lives) {
        return 0;
    }
    let wait = |name| time::sleep(context.arg_u64(name).unwrap_or(0) * 1_000_000);
    wait("pause");
    let aim = Aim::new(context);
    println!("rogue: attack {}: expected {}", attack.name, attack.expect.text(&aim));
    mark!(marker::BEGIN | marker::id::RESTART);
    let got = attack.act.run(&aim);
    println!("rogue: attack {}: got {}", attack.name, Outcome(got));
    wait("linger");
    if context.arg("once").is_some() {
        return 0;
    }
    hypercall::restart()
}
