//! A control loop: every millisecond a step, and every tenth step a sample of it into the channel `samples`.
//!
//! Arguments: `releases=N`, how many steps.
#![no_std]
#![no_main]

use bulkhead_program::typed::Sender;
use bulkhead_program::{Guest, Periodic, Program, Woken, now, println, ready};

bulkhead_program::entry!(control);

const PERIOD_NS: u64 = 1_000_000;

/// Returns the sandbox's exit code.
fn control(program: Program) -> u32 {
    let releases = program.number("releases").unwrap_or(200);
    let pair = program.pair("samples");
    let (Ok(mut samples), Some(mut bell)) = (Sender::open(&pair), program.caller(&pair)) else {
        return 1;
    };
    let mut timer = Periodic::new(program.waits("timer"), now() + PERIOD_NS, PERIOD_NS);
    ready();
    let (mut late, mut position, mut sent) = (0, 0, 0);
    for release in 1..=releases {
        match timer.wait() {
            Ok(Woken::Release { missed, .. }) => late += missed,
            other => println!("control: {other:?}"),
        }
        // Half of the way to its goal.
        position += (1000 - position) / 2;
        // The loop waits for nobody: a sample that finds no room, or no other end yet, is sent in the next release.
        let due = release / 10 > sent;
        if due && bell.after(samples.send(&[sent + 1, position])).is_ok() {
            sent += 1;
        }
    }
    println!("control: {releases} releases, {late} missed, {sent} samples sent");
    u32::from(late > 0 || sent < releases / 10)
}
