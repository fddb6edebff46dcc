//! An end of the channel `channel=NAME`; its part there is `role=` (`crates/testing/scenarios`). With `lives=N` it
//! restarts itself that often but once.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::guest::Guest;
use bulkhead_sdk::{Context, hypercall};

bulkhead_sdk::entry!(guest);

fn guest(context: Context) -> u32 {
    let code = bulkhead_scenarios::run(&context);
    if code == 0 && context.life() + 1 < context.number("lives").unwrap_or(1) {
        hypercall::restart();
    }
    code
}
