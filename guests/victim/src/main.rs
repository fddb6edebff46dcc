//! Stands by while others attack. It fills its memory with canaries. Then it looks every millisecond if they are as
//! they were, and if an interrupt came that it did not ask for. It never ends by itself; exit code 1 means a changed
//! canary, 2 an interrupt, 3 a timer that was late by 100 ms.
//!
//! `lock`: it locks its sandbox.
//!
//! Canaries lie from 4 MiB to the end of its RAM. Each word is its address times an odd number, so that the test driver
//! can check them, too.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::{Context, hypercall, interrupt, println, time};
use core::sync::atomic::{AtomicU64, Ordering};

bulkhead_sdk::entry!(guest);

const FIRST: u64 = 4 << 20;
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
const PAGE: u64 = 4096;
/// Vector of the SDK's timer.
const TIMER: u8 = 0xEF;

static STRAY: AtomicU64 = AtomicU64::new(0);

fn stray(frame: &mut interrupt::Frame, _: u64) {
    STRAY.store(frame.vector, Ordering::Relaxed);
}

fn canary(address: u64) -> u64 {
    address.wrapping_mul(FACTOR)
}

fn words(page: u64) -> impl Iterator<Item = *mut u64> {
    (page..page + PAGE).step_by(8).map(|a| a as *mut u64)
}

fn guest(context: Context) -> u32 {
    for vector in interrupt::FIRST..=u8::MAX {
        if !matches!(vector, TIMER | interrupt::SPURIOUS | 0x81) {
            interrupt::set(vector, stray);
        }
    }
    interrupt::set(2, stray);
    let end = context.info().memory;
    for page in (FIRST..end).step_by(PAGE as usize) {
        // SAFETY: own RAM beyond the program, which no other code uses.
        words(page).for_each(|p| unsafe { p.write_volatile(canary(p as u64)) });
    }
    if context.arg("lock").is_some() && hypercall::lock(true) != hypercall::OK {
        println!("victim: is not locked");
    }
    println!("victim: stands by");
    // The first one sets the timer up, with an exit; none comes after it.
    time::sleep(1);
    hypercall::ready();
    let mut page = FIRST;
    loop {
        let due = time::counter() + time::ticks(1_000_000);
        time::sleep_until(due);
        if context.arg("strict").is_some() && time::counter() > due + time::ticks(100_000_000) {
            println!("victim: a timer was late");
            return 3;
        }
        // SAFETY: own RAM beyond the program, which no other code uses.
        if let Some(p) = words(page).find(|&p| unsafe { p.read_volatile() } != canary(p as u64)) {
            println!("victim: the canary at {p:?} is changed");
            return 1;
        }
        page = if page + PAGE < end { page + PAGE } else { FIRST };
        let vector = STRAY.load(Ordering::Relaxed);
        if vector != 0 {
            println!("victim: stray interrupt {vector:#x}");
            return 2;
        }
    }
}
