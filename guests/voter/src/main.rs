//! Votes on the outputs of copies: `voter::run`.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::Context;
use bulkhead_voter::Exact;

bulkhead_sdk::entry!(guest);

fn guest(context: Context) -> u32 {
    voter::run(context, Exact)
}
