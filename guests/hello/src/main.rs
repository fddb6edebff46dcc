//! The smallest bare guest: it says its name and exits; with `again` it begins anew, for measurements.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::{Context, hypercall, mark, marker, println};

bulkhead_sdk::entry!(guest);

fn guest(ctx: Context) -> u32 {
    println!(
        "hello from {}, incarnation {}, {} MiB, {} core(s)",
        ctx.name(),
        ctx.incarnation(),
        ctx.info().memory >> 20,
        ctx.info().cores
    );
    if ctx.arg("again").is_some() {
        // The next life's first instruction ends this stretch.
        mark!(marker::BEGIN | marker::id::RESTART);
        hypercall::restart();
    }
    0
}
