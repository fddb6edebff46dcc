//! Patterns of releases that hurt. A thread that is late when all are released at once may be later if another
//! entered a server just before. Hill climbing makes a promised thread come as near to its period as it can.

use crate::core::{Core, Seen};
use crate::generate::TICK;
use crate::random::Random;
use crate::set::{Pattern, Promise, Set, Time};

/// Outcome of a search.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The worst patterns.
    pub patterns: Vec<Pattern>,
    /// Time that the worst job took, in thousandths of its promise.
    pub worst: u64,
    /// The late thread, and the release of its job.
    pub missed: Option<(usize, Time)>,
    /// A budget ended inside a server in some run.
    pub ended_in_call: bool,
    /// A call waited for budget before it began in some run.
    pub held: bool,
    /// A call took longer than it may in some run.
    pub overran: bool,
    /// A driver was asked from inside a server.
    pub asked_in_call: bool,
    /// A job never ended in some run.
    pub stuck: bool,
    /// An entry of the kernel used up some of a thread's budget in some run.
    pub charged: bool,
    /// Runs.
    pub runs: u64,
}

/// Plays a set in so many ways, each derived from the worst one so far.
pub fn search(
    core: &mut Core,
    set: &Set,
    promises: &[Promise],
    random: &mut Random,
    runs: u64,
) -> Found {
    let mut found = Found::default();
    let mut patterns = vec![Pattern::default(); set.threads.len()];
    let mut best = patterns.clone();
    let mut delicate: Vec<Time> = Vec::new();
    for run in 0..runs {
        patterns.clone_from(&best);
        if run > 0 {
            change(set, &mut patterns, &delicate, random);
        }
        let seen = core.play(set, promises, &patterns, horizon(set, &patterns));
        found.runs += 1;
        found.ended_in_call |= seen.ended_in_call;
        found.held |= seen.held;
        found.overran |= seen.overran;
        found.asked_in_call |= seen.asked_in_call;
        found.stuck |= seen.stuck;
        found.charged |= seen.charged;
        let worst = nearness(promises, seen);
        if worst >= found.worst || run == 0 {
            found.worst = worst;
            best.clone_from(&patterns);
            delicate.clone_from(&seen.delicate);
        }
        if seen.missed.is_some() {
            found.missed = seen.missed;
            break;
        }
    }
    found.patterns = best;
    found
}

/// Three of the longest periods, from when all have begun.
fn horizon(set: &Set, patterns: &[Pattern]) -> Time {
    let last = patterns.iter().map(|p| p.offset).max().unwrap_or(0);
    last + 3 * set.threads.iter().map(|t| t.period).max().unwrap_or(TICK)
}

/// Returns the time that the worst job took, in thousandths of its promise.
fn nearness(promises: &[Promise], seen: &Seen) -> u64 {
    let share = |took: Time, promised: Time| {
        if promised < Time::MAX { took * 1_000 / promised.max(1) } else { 0 }
    };
    let of = |(n, promise): (usize, &Promise)| {
        share(seen.worst[n], promise.job).max(share(seen.pieces[n], promise.piece))
    };
    promises.iter().enumerate().map(of).max().unwrap_or(0)
}

fn change(set: &Set, patterns: &mut [Pattern], delicate: &[Time], random: &mut Random) {
    for _ in 0..=random.below(2) {
        let n = random.below(patterns.len() as u64) as usize;
        let period = set.threads[n].period;
        let pattern = &mut patterns[n];
        match random.below(8) {
            // Just when somebody else has got into something, or a little later.
            0..=4 if !delicate.is_empty() => {
                let at = delicate[random.below(delicate.len() as u64) as usize];
                pattern.offset = at + [0, 1, TICK][random.below(3) as usize];
            }
            0..=5 => pattern.offset = TICK * random.below(2 * period / TICK),
            6 => pattern.gap = TICK * random.below(period / TICK),
            _ => *pattern = Pattern::default(),
        }
    }
}
