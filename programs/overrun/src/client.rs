//! Asks for steps, and checks the answers against its own computation.

use bulkhead_program::{Message, Program, println, ready};
use program_overrun::chain::step;

/// Requests of `steps=N` steps each, for ever. After `rounds=N` of them it says how it went, and signals `done`.
pub fn ask(program: Program) -> u32 {
    let work = program.endpoint("work");
    let (rounds, steps) = (program.number("rounds"), program.number("steps").unwrap_or(200));
    let (mut again, mut mine, mut theirs) = (0, 0, 0);
    for round in 1.. {
        let mut left = steps;
        while left > 0 {
            let answer = work.call(Message::new(0, &[theirs, left])).expect("an answer");
            let [value, count, ..] = answer.words;
            assert!(count <= left, "request {round}: {count} steps instead of {left}");
            if count > 0 {
                (theirs, left) = (value, left - count);
            }
            again += u64::from(left > 0);
        }
        (0..steps).for_each(|_| mine = step(mine, || ()));
        assert!(mine == theirs, "request {round}: {theirs:#x} instead of {mine:#x}");
        if rounds == Some(round) {
            let how = if again == 0 { "each at once" } else { "in pieces" };
            println!("{}: {round} requests, {how}", program.name());
            program.signals("done").signal();
        }
    }
    0
}

/// Ends the system when `clients=N` have signalled that they are done, each a bit.
pub fn wait(program: Program) -> u32 {
    ready();
    let (done, clients) = (program.waits("done"), program.number("clients").unwrap_or(1));
    let mut bits = 0u64;
    while u64::from(bits.count_ones()) < clients {
        bits |= done.wait().expect("clients that signal");
    }
    println!("all others are served");
    0
}
