//! Fails in each of its lives, until it has failed often enough.
//!
//! Arguments:
//!
//! * `way=exit|memory|shutdown|hang|each` (`each`: in turn), `fails=N` (default: for ever);
//! * `pause=US`: from its start to the failure; `core=1`: its second core fails;
//! * `anew=1`: each second life begins itself anew, without a failure.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::{Context, cores, hypercall, println, time, watchdog};
use fail::{fail, way};

bulkhead_sdk::entry!(guest);

fn failing(context: Context) -> u32 {
    let life = context.incarnation();
    let due = time::counter() + time::ticks(context.arg_u64("pause").unwrap_or(0) * 1_000);
    while time::counter() < due {
        watchdog::kick(context);
    }
    let way = way(context.arg("way"), life);
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
