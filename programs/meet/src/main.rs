//! A party of channels made at run time: `do=STEP,STEP...` (`crates/testing/scenarios`, `meet`). It sleeps at the
//! notification `pause`. To begin anew is its fault handler's to do, or its sandbox's; its thread `other` watches for
//! `watch`.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::guest::Guest;
use bulkhead_program::link::{Link, Links};
use bulkhead_program::{Program, now, ready};
use bulkhead_scenarios::meet::{last, meet, watch};
use core::sync::atomic::{AtomicU64, Ordering};

bulkhead_program::entry!(party);
bulkhead_program::thread!(other, looks);

/// One more than the number of the link that the other thread watches.
static WATCHED: AtomicU64 = AtomicU64::new(0);

fn party(program: Program) -> u32 {
    ready();
    meet(&program, program.arg("do").unwrap_or_default(), |link: &Link| {
        WATCHED.store(u64::from(link.number) + 1, Ordering::Release);
        true
    })
}

/// The other thread's work.
fn looks(program: Program) -> u32 {
    loop {
        let watched = WATCHED.load(Ordering::Acquire);
        let link = program.links().find(|link| u64::from(link.number) + 1 == watched);
        if let Some(words) = link.and_then(|link| last(&program, &link)) {
            watch(words);
        }
        program.sleep_until(now() + 1_000_000);
    }
}
