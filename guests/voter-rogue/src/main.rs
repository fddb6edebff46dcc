//! A voter that takes any two values for one, so the first copy's claim is the output. Tests must find that.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::Context;
use bulkhead_voter::Agreement;

bulkhead_sdk::entry!(guest);

/// All values agree.
struct Any;

impl<V> Agreement<V> for Any {
    fn agree(&self, _: &V, _: &V) -> bool {
        true
    }
}

fn guest(context: Context) -> u32 {
    voter::run(context, Any)
}
