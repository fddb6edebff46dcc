//! Fails in each of its lives, until it has failed often enough.
//!
//! Arguments:
//!
//! * `way=exit|memory|shutdown|hang|each` (`each`: in turn), `fails=N` (default: for ever);
//! * `pause=US`: from its start to the failure; `core=1`: its second core fails;
//! * `anew=1`: each second life begins itself anew, without a failure.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::{Context, cores, hypercall, interrupt, println, time, watchdog};

bulkhead_sdk::entry!(guest);

/// Exit code of a failure.
const CODE: u32 = 7;
const WAYS: [&str; 4] = ["exit", "memory", "shutdown", "hang"];
/// Where no sandbox has memory.
const NOWHERE: u64 = 0x5000_0000;

fn fail(way: &str) -> u32 {
    match way {
        "memory" => {
            // SAFETY: this program maps the address, its sandbox has nothing there: the monitor ends this life.
            unsafe { core::ptr::read_volatile(NOWHERE as *const u64) };
        }
        "shutdown" => {
            interrupt::disable();
            // SAFETY: nothing of this life is needed any more: the first exception finds no handler.
            unsafe {
                core::arch::asm!("lidt [{}]", "ud2", in(reg) &[0u64; 2], options(readonly, nostack));
            }
        }
        "hang" => loop {
            interrupt::disable();
        },
        _ => {}
    }
    CODE
}

fn failing(context: Context) -> u32 {
    let life = context.incarnation();
    let due = time::counter() + time::ticks(context.arg_u64("pause").unwrap_or(0) * 1_000);
    while time::counter() < due {
        watchdog::kick(context);
    }
    let way = match context.arg("way") {
        Some("each") => WAYS[life as usize % WAYS.len()],
        way => way.unwrap_or("exit"),
    };
    println!("fail: life {life}, {way}");
    watchdog::kick(context);
    fail(way)
}

fn second(context: Context, _: usize) {
    failing(context);
}

fn guest(context: Context) -> u32 {
    let life = context.incarnation();
    if life >= context.arg_u64("fails").unwrap_or(u64::MAX) {
        println!("fail: life {life} is well");
        return 0;
    }
    if context.arg("anew").is_some() && life % 2 == 1 {
        hypercall::restart();
    }
    if context.arg_u64("core") == Some(1) {
        if !cores::start(context, 1, second) {
            println!("fail: the second core does not start");
        }
        loop {
            core::hint::spin_loop();
        }
    }
    failing(context)
}
