//! Says its name.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{Program, println, ready};

bulkhead_program::entry!(hello);

fn hello(program: Program) -> u32 {
    println!("hello from {}", program.name());
    ready();
    0
}
