//! A control loop: every millisecond a sample goes through the filter, and it is counted how many releases came too
//! late.
//!
//! Arguments: `releases=N` (default 500).
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{Message, Periodic, Program, Woken, now, println, ready};

bulkhead_program::entry!(control);

const MILLISECOND: u64 = 1_000_000;

fn control(program: Program) -> u32 {
    let releases = program.number("releases").unwrap_or(500);
    let filter = program.endpoint("filter");
    let mut timer = Periodic::new(program.waits("timer"), now() + MILLISECOND, MILLISECOND);
    ready();
    let (mut late, mut value) = (0, 0);
    for _ in 0..releases {
        match timer.wait() {
            Ok(Woken::Release { missed, .. }) => late += missed,
            other => println!("control: {other:?}"),
        }
        match filter.call(Message::new(0, &[1000])) {
            Ok(answer) => value = answer.words[0],
            Err(error) => println!("control: {error}"),
        }
    }
    println!("control: {releases} releases, {late} missed, the filter is at {value}");
    u32::from(late > 0)
}
