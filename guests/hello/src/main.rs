//! The smallest bare guest: it says its name and exits.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::{Context, println};

bulkhead_sdk::entry!(guest);

fn guest(ctx: Context) -> u32 {
    println!(
        "hello from {}, incarnation {}, {} MiB, {} core(s)",
        ctx.name(),
        ctx.incarnation(),
        ctx.info().memory >> 20,
        ctx.info().cores
    );
    0
}
