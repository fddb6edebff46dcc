//! A copy of a flight controller without faults: `copy::fly`.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::Context;

bulkhead_sdk::entry!(guest);

fn guest(context: Context) -> u32 {
    copy::fly(context, &mut copy::Healthy)
}
