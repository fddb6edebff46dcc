//! Locks its sandbox, so that no other one ends it. By its lives:
//!
//! * 0: locks, and restarts itself after half a second;
//! * 1: is locked still, and unlocks after half a second; another one is to restart it;
//! * 2: locks, and ends itself after half a second; another one is to start it;
//! * 3: locks, and goes on.
//!
//! Exit code 9 means that it may not lock, 1 that a wrong call did something.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::hypercall::{BAD_ARGUMENT, NO_CALL, OK};
use bulkhead_sdk::layout::hypercall::LOCK;
use bulkhead_sdk::{Context, hypercall, println, time};

bulkhead_sdk::entry!(guest);

/// Nanoseconds in which it is asked to end.
const WHILE: u64 = 500_000_000;

fn guest(context: Context) -> u32 {
    let life = context.incarnation();
    if life != 1 {
        match hypercall::lock(true) {
            OK => {}
            NO_CALL => return 9,
            _ => return 1,
        }
    }
    if hypercall::raw(LOCK, 2, 0, 0, 0) != BAD_ARGUMENT {
        return 1;
    }
    println!("locker: life {life}");
    time::sleep(WHILE);
    match life {
        0 => hypercall::restart(),
        1 if hypercall::lock(false) != OK => return 1,
        2 => return 0,
        _ => {}
    }
    loop {
        time::sleep(WHILE);
    }
}
