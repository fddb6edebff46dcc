//! Program of a bay while nothing was created there. It ends at once, and so its sandbox waits with its memory zeroed
//! and its devices silent.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::Context;

bulkhead_sdk::entry!(guest);

fn guest(_: Context) -> u32 {
    0
}
