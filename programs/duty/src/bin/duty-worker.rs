//! Does its duty in rounds of 5 ms, and checks itself in each: for campaigns of faults (`docs/inject.md`).
//!
//! A round looks if the patterns in the memory `patterns` are as they were: a word there is its number times an odd
//! one. Then it sends the number of the round through the mailbox `state`, and moves the word by which a guard sees
//! that it goes on. Each tenth round it prints a line, which is always that one. A wrong pattern is told, and ends the
//! sandbox with exit code 1.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::typed::Writer;
use bulkhead_program::{Program, Sign, now, println, sleep_until};
use bulkhead_scenarios::{Guest as _, Note};
use core::sync::atomic::Ordering;

bulkhead_program::entry!(worker);

const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
/// Nanoseconds of a round.
const ROUND: u64 = 5_000_000;
/// Rounds to a line.
const TELLS: u64 = 10;

fn worker(program: Program) -> u32 {
    let words = program.memory("patterns").words();
    let pattern = |n: usize| (n as u64 + 1).wrapping_mul(FACTOR);
    words.iter().enumerate().for_each(|(n, word)| word.store(pattern(n), Ordering::Relaxed));
    let mut out = program.pairs("state").next().and_then(|pair| Writer::<Note>::open(&pair).ok());
    let (pause, sign) = (program.waits("pause"), Sign::find(program, program.name()));
    println!("worker begins");
    let mut due = now();
    for round in 1.. {
        due += ROUND;
        let _ = sleep_until(pause, due);
        let changed =
            words.iter().enumerate().find(|(n, word)| word.load(Ordering::Relaxed) != pattern(*n));
        if let Some((n, _)) = changed {
            println!("worker: word {n} is changed");
            return 1;
        }
        if let Some(out) = &mut out {
            // A mailbox never refuses.
            let _ = out.write(&Note::of(round));
        }
        if let Some(sign) = sign {
            sign.kick();
        }
        if round % TELLS == 0 {
            println!("worker: right");
        }
    }
    0
}
