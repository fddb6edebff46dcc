//! A party of channels made at run time: `do=STEP,STEP...` (`crates/testing/scenarios`, `meet`).
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_scenarios::meet::{last, meet, watch};
use bulkhead_sdk::link::{Link, Links};
use bulkhead_sdk::{Context, cores};
use core::sync::atomic::{AtomicU64, Ordering};

bulkhead_sdk::entry!(guest);

/// One more than the number of the link that the other core watches.
static WATCHED: AtomicU64 = AtomicU64::new(0);

/// Watches the last words of the link in `WATCHED`, on the other core.
fn other(context: Context, _: usize) {
    let watched = WATCHED.load(Ordering::Acquire);
    let link = context.links().find(|link| u64::from(link.number) + 1 == watched);
    if let Some(words) = link.and_then(|link| last(&context, &link)) {
        watch(words);
    }
}

fn guest(context: Context) -> u32 {
    meet(&context, context.arg("do").unwrap_or_default(), |link: &Link| {
        WATCHED.store(u64::from(link.number) + 1, Ordering::Release);
        cores::start(context, 1, other)
    })
}
