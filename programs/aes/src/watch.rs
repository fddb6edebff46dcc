//! Measures the server's speed with no other thread on the processor, then each client's share of that.

use crate::{CLIENTS, Table};
use bulkhead_program::marker::{VALUE, id};
use bulkhead_program::{Endpoint, Message, Program, mark, now, println, ready, sleep_until};
use core::sync::atomic::Ordering;

/// Periods until all is as it goes on.
const SETTLE: u64 = 2;
/// By how much a throughput may differ from a share, millionths.
const APART: u64 = 30_000;
const MILLION: u128 = 1_000_000;

/// Numbers between commas.
fn numbers(program: Program, name: &str) -> [u64; CLIENTS] {
    let mut all = program.arg(name).unwrap_or_default().split(',');
    core::array::from_fn(|_| all.next().and_then(|n| n.parse().ok()).expect("a number for each"))
}

/// How long `pieces` take, ns, with as much time as it takes.
fn alone(work: Endpoint, pieces: u64) -> u64 {
    let begin = now();
    let answer = work.call(Message::new(0, &[0, pieces])).expect("an answer");
    assert!(answer.words[1] == pieces, "{} of {pieces} pieces", answer.words[1]);
    now() - begin
}

fn done(table: Table) -> [u64; CLIENTS] {
    core::array::from_fn(|n| table.done(n).load(Ordering::Relaxed))
}

/// The sandbox's exit code: 0, or how many clients did not get their share.
pub fn watch(program: Program) -> u32 {
    let number = |name| program.number(name).expect("a number");
    let (budgets, period, pieces) =
        (numbers(program, "budgets"), number("period"), number("pieces"));
    let (table, never, go) = (Table::of(program), program.waits("never"), program.signals("go"));
    ready();
    let mut filled = 0;
    while filled != (1 << CLIENTS) - 1 {
        filled |= program.waits("filled").wait().expect("a signal");
    }
    // A thread that was kept from running, and not waiting, makes up for that afterwards.
    assert!(sleep_until(never, now() + period).is_ok());
    let whole = alone(program.endpoint("work"), pieces);
    mark!(VALUE | id::AES_ALONE, whole);
    budgets.iter().for_each(|_| go.signal());
    let begin = now() + SETTLE * period;
    assert!(sleep_until(never, begin).is_ok());
    let (before, from) = (done(table), now());
    assert!(sleep_until(never, begin + number("periods") * period).is_ok());
    let (after, took) = (done(table), now() - from);
    let share = |n: usize| {
        // The server's work in all of the time, and the client's part of that; millionths.
        let all = u128::from(took) * u128::from(pieces);
        let mine = u128::from(after[n] - before[n]) * u128::from(whole);
        ((mine * MILLION / all) as u64, budgets[n] * MILLION as u64 / period)
    };
    let shares: [_; CLIENTS] = core::array::from_fn(share);
    mark!(VALUE | id::AES_A, shares[0].0);
    mark!(VALUE | id::AES_B, shares[1].0);
    { shares.into_iter().zip(["a", "b"]).enumerate() }
        .map(|(n, ((found, wanted), name))| {
            let held = found.abs_diff(wanted) * MILLION as u64 <= APART * wanted;
            let seen = table.checked(n).load(Ordering::Relaxed) > 0;
            let how = if held { "within 3 % of" } else { "not" };
            let right = if seen { "right" } else { "not seen" };
            println!("{name}: {how} its share of {} %, what it got is {right}", wanted / 10_000);
            u32::from(!held || !seen)
        })
        .sum()
}
