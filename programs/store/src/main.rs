//! Drives a disk, and serves it to clients in other sandboxes: [`store_programs::serve`], docs/store.md.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::Program;

bulkhead_program::entry!(store);

fn store(program: Program) -> u32 {
    store_programs::serve::store(program, |disk, _| disk)
}
