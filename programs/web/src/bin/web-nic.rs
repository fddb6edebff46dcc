//! The driver of a web server's card: virtio's or Intel's 82574, woken by its interrupt.
//!
//! It needs the function, memory `rings` of 1 MiB for the card, and the memory between it and the server
//! (docs/web.md). The notification `work` wakes it, which the card's interrupt, the server and the guard signal.
//!
//! With `role=NAME` it waits for that role of its sandbox, which has the card and `rings`. It then looks at the card
//! each 250 microseconds.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::Program;
use web_programs::nic::{News, drive, open};

bulkhead_program::entry!(nic);

fn nic(program: Program) -> u32 {
    let news = News::of(program);
    drive(program, open(program), news)
}
