//! Ends with an exit code that says that it has failed.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{Program, println, ready};

bulkhead_program::entry!(fail);

fn fail(_: Program) -> u32 {
    ready();
    println!("fail: it does not work");
    7
}
