//! `make bench`: the figures that the project promises, each with its bound.
//!
//! A [`part`](PARTS) runs one system or two and turns what the plugin and the
//! monitors counted into [`Figure`]s. Parts share nothing, so they run side by
//! side: virtual time doesn't care.

mod exits;
mod figure;
mod flight;
mod linux;
mod monitor;
mod system;

pub use figure::{Figure, Must, table};

use crate::Failure;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What a part finds.
type Found = Result<Vec<Figure>, Failure>;

/// A part: the figures that it finds, and how. The longest ones come first.
type Part = (&'static [&'static str], fn() -> Found);

const PARTS: &[Part] = &[
    (&["flight.jitter", "exits.flight"], flight::jitter),
    (&["linux.", "exits.linux_boot"], linux::rows),
    (&["exits.linux_load"], exits::load),
    (&["exits.linux_smp_ipi"], exits::smp),
    (&["exits.linux_forkexec"], exits::forkexec),
    (&["exits.linux_idle"], exits::idle),
    (&["monitor.hypercall", "monitor.icr"], monitor::calls),
    (&["monitor.restart"], monitor::restart),
    (&["monitor.text", "boot.instructions"], monitor::sizes),
];

/// Runs every part that may find a figure with this prefix. What failed is told
/// in words, after the figures.
#[must_use]
pub fn run(only: &str) -> (Vec<Figure>, Vec<String>) {
    let wanted = |part: &&Part| {
        part.0
            .iter()
            .any(|name| name.starts_with(only) || only.starts_with(name))
    };
    let parts: Vec<_> = PARTS.iter().filter(wanted).collect();
    let queue: Mutex<VecDeque<usize>> = Mutex::new((0..parts.len()).collect());
    let found = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(n) = next(&queue) {
                    let (names, measure) = parts[n];
                    let begun = Instant::now();
                    let result = measure().map_err(|why| format!("{}: {why}", names.join(", ")));
                    eprintln!(
                        "bench: {} took {:.0} s",
                        names.join(", "),
                        begun.elapsed().as_secs_f64()
                    );
                    found
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((n, result));
                }
            });
        }
    });
    sort(
        found.into_inner().unwrap_or_else(PoisonError::into_inner),
        only,
    )
}

fn next(queue: &Mutex<VecDeque<usize>>) -> Option<usize> {
    queue
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .pop_front()
}

/// Figures in an order that does not depend on who was first.
fn sort(
    mut found: Vec<(usize, Result<Vec<Figure>, String>)>,
    only: &str,
) -> (Vec<Figure>, Vec<String>) {
    found.sort_by_key(|(n, _)| *n);
    let (mut figures, mut failures) = (Vec::new(), Vec::new());
    for (_, result) in found {
        match result {
            Ok(more) => figures.extend(more),
            Err(why) => failures.push(why),
        }
    }
    figures.retain(|figure: &Figure| figure.row.name.starts_with(only));
    figures.sort_by(|a, b| a.row.name.cmp(&b.row.name));
    (figures, failures)
}
