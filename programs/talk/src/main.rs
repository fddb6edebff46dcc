//! An end of the channel `channel=NAME`, and of `and=NAME` if it needs two; its part there is `role=`
//! (`crates/testing/scenarios`). Sleeping takes the notification `pause`, and to be woken `news`.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{Program, ready};

bulkhead_program::entry!(talk);

fn talk(program: Program) -> u32 {
    ready();
    bulkhead_scenarios::run(&program)
}
