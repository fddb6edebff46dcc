//! A set in which something was late, made smaller as long as it is admitted and late.

use crate::core::Core;
use crate::generate::TICK;
use crate::judge::Verdict;
use crate::random::Random;
use crate::search::{Found, search};
use crate::set::{Op, Set, Thread};

/// Patterns that are tried for each smaller set.
const PATTERNS: u64 = 64;

/// The smallest that a search by single steps finds.
pub fn shrink(
    core: &mut Core,
    mut set: Set,
    mut verdict: Verdict,
    mut found: Found,
    judged: impl Fn(&Set) -> Verdict,
) -> (Set, Verdict, Found) {
    'again: loop {
        for mut smaller in smaller(&set) {
            let other = judged(&smaller);
            other.shorten(&mut smaller);
            if !other.is_admitted() {
                continue;
            }
            let seen = search(core, &smaller, &other.promises, &mut Random::new(1), PATTERNS);
            if seen.missed.is_some() {
                (set, verdict, found) = (smaller, other, seen);
                continue 'again;
            }
        }
        return (set, verdict, found);
    }
}

fn smaller(set: &Set) -> Vec<Set> {
    let mut all = Vec::new();
    for n in 0..set.threads.len() {
        if !set.threads[n].serves {
            let mut without = set.clone();
            without.threads.remove(n);
            all.extend(renumbered(without, n));
        }
        for (from, to) in pieces(&set.threads[n]) {
            let mut without = set.clone();
            without.threads[n].job.drain(from..=to);
            if without.threads[n].serves || uses_time(&without.threads[n]) {
                all.push(without);
            }
        }
        all.extend(simpler(set, n));
    }
    if set.overhead > 0 {
        all.push(Set { overhead: 0, ..set.clone() });
    }
    if set.entry > 0 {
        all.push(Set { entry: 0, ..set.clone() });
    }
    all
}

/// Requests name threads by number.
fn renumbered(mut set: Set, removed: usize) -> Option<Set> {
    let mut right = true;
    for op in set.threads.iter_mut().flat_map(|thread| &mut thread.job) {
        if let Op::Ask(driver, _) = op {
            right &= usize::from(*driver) != removed;
            *driver -= u8::from(usize::from(*driver) > removed);
        }
    }
    (right && !set.threads.is_empty()).then_some(set)
}

fn uses_time(thread: &Thread) -> bool {
    thread.job.iter().any(|op| matches!(op, Op::Run(1..)))
}

/// Parts that can be taken out of a job: each step, a call with all that is in it.
fn pieces(thread: &Thread) -> Vec<(usize, usize)> {
    let job = &thread.job;
    let end = |from: usize| {
        let mut depth = 0;
        let closes = |op: &Op| {
            depth += match op {
                Op::Call(_) => 1,
                Op::Answer => -1,
                _ => 0,
            };
            depth == 0
        };
        job[from..].iter().position(closes).map(|len| from + len)
    };
    (0..job.len()).filter(|n| job[*n] != Op::Answer).filter_map(|n| Some((n, end(n)?))).collect()
}

fn simpler(set: &Set, n: usize) -> Vec<Set> {
    let mut all = Vec::new();
    let mut change = |with: &dyn Fn(&mut Thread)| {
        let mut other = set.clone();
        with(&mut other.threads[n]);
        if other != *set {
            all.push(other);
        }
    };
    change(&|thread| thread.background = false);
    change(&|thread| thread.interrupt = 0);
    for at in 0..set.threads[n].job.len() {
        change(&|thread| match &mut thread.job[at] {
            Op::Run(time) | Op::Ask(_, time) | Op::Sleep(time) if *time > TICK => {
                *time = *time / 2 / TICK * TICK
            }
            _ => {}
        });
        change(&|thread| match &mut thread.job[at] {
            Op::Run(time) | Op::Ask(_, time) | Op::Sleep(time) if *time > TICK => *time -= TICK,
            _ => {}
        });
    }
    all
}
