//! A live view of the sandboxes that this one observes. Their reports are memory that it may read, so a look takes no
//! exit in any of them.

use crate::Wrong;
use crate::machine::{Known, Machine};
use bulkhead_explain::state;
use bulkhead_layout::report::CAUSE_NAMES;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::{Duration, Instant};

/// A look at one of them: exits by cause, of all its lives.
struct Look {
    known: Known,
    exits: BTreeMap<&'static str, u64>,
}

fn look(machine: &Machine, all: &[usize]) -> Vec<Look> {
    let one = |&n: &usize| {
        let known = machine.known(n);
        let mut exits = BTreeMap::new();
        if let Some(seen) = &known.report {
            let of = machine.exits(seen);
            for (cause, count) in of.boot.iter().chain(&of.steady) {
                *exits.entry(*cause).or_default() += count;
            }
        }
        Look { known, exits }
    };
    all.iter().map(one).collect()
}

/// Shows a table again and again, `count` times if that is not 0.
pub fn top(machine: &Machine, interval: Duration, count: u64) -> Result<String, Wrong> {
    let all: Vec<usize> =
        (0..machine.info.sandboxes.len()).filter(|n| machine.observes(*n)).collect();
    if all.is_empty() {
        return Err(format!(
            "`{}` observes no sandbox: `observe = [...]` in its [[sandbox]] would let it",
            machine.info.name
        ));
    }
    let terminal = std::io::stdout().is_terminal();
    let (mut before, mut at) = (look(machine, &all), Instant::now());
    for round in 1.. {
        std::thread::sleep(interval);
        let now = look(machine, &all);
        let rows = table(machine, &all, &before, &now, at.elapsed());
        (before, at) = (now, Instant::now());
        let clear = if terminal { "\x1b[H\x1b[J" } else { "" };
        let mut out = std::io::stdout().lock();
        // A reader that has gone is no error.
        if write!(out, "{clear}{rows}").and_then(|()| out.flush()).is_err() || round == count {
            break;
        }
    }
    Ok(String::new())
}

fn table(
    machine: &Machine,
    all: &[usize],
    before: &[Look],
    now: &[Look],
    elapsed: Duration,
) -> String {
    let mut out = format!(
        "{:<16}{:<11}{:>8}{:>7}{:>14}{:>11}{:>9}  {}\n",
        "sandbox", "state", "restarts", "cores", "exits", "exits/s", "denials", "most exits by"
    );
    for ((n, before), now) in all.iter().zip(before).zip(now) {
        let Known { status, report } = &now.known;
        let (was, restarts) = match status {
            Some(status) if status.locked => ("locked".to_owned(), status.restarts.to_string()),
            Some(status) => (state(status.state).to_owned(), status.restarts.to_string()),
            None => ("?".to_owned(), "-".to_owned()),
        };
        let (cores, denials) = match report {
            Some(seen) => (seen.cores.len().to_string(), seen.denials().to_string()),
            None => ("-".to_owned(), "-".to_owned()),
        };
        let count = |look: &Look, cause: &str| look.exits.get(cause).copied().unwrap_or(0);
        let news = |cause: &&str| count(now, cause).saturating_sub(count(before, cause));
        let sum: u64 = now.exits.values().sum();
        let rate = CAUSE_NAMES.iter().map(news).sum::<u64>() as f64 / elapsed.as_secs_f64();
        let most = CAUSE_NAMES.iter().max_by_key(|cause| news(cause)).filter(|c| news(c) > 0);
        let most = most.copied().unwrap_or("-");
        let name = &machine.info.sandboxes[*n];
        // Text takes all.
        let _ = writeln!(
            out,
            "{name:<16}{was:<11}{restarts:>8}{cores:>7}{sum:>14}{rate:>11.1}{denials:>9}  {most}"
        );
    }
    out
}
