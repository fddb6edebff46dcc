//! Makes one attack a life: see the library of this crate.
//!
//! Arguments beside the library's:
//!
//! * `once` exits with code 0 after an attack instead of restarting;
//! * `pause=N` waits N milliseconds before each attack and `linger=N` after it;
//! * `lives=N` exits with code 0 in life N;
//! * `paced=1` waits before an attack until the test driver has read all lives but the last sixteen;
//! * `core=1` attacks from the second core while the first one sleeps.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::{
    Context, cores, hypercall, interrupt, mark, marker, paging, println, time, window,
};
use core::sync::atomic::Ordering;
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

/// Lives that may go unread: they fill no ring.
const AHEAD: u64 = 16;
/// Looks for a reader, at most: many seconds on any machine.
const LOOKS: u32 = 100_000_000;

/// Waits for who reads the lines and records of the lives before.
fn wait_for_reader(context: Context) {
    let word = window::channel(context, rogue::PACE)
        .and_then(|news| news.words().get(rogue::PACE_AT / size_of::<u64>()));
    let read = || word.is_none_or(|w| w.load(Ordering::Relaxed) + AHEAD >= context.incarnation());
    if !(0..LOOKS).any(|_| read()) {
        println!("rogue: nobody read the {} lives before", context.incarnation());
    }
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
    if context.arg("paced").is_some() {
        wait_for_reader(context);
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
