//! The cost of the kernel's scheduler.

use super::Found;
use super::figure::{Figure, Must};
use super::system::System;
use crate::Failure;
use crate::rows::Row;
use bulkhead_layout::marker::{NAMES, id};

/// Instructions of an operation, at most: of the worst case among those that the guest sets up. Each has room of a
/// tenth, so that no correction is shaped by its bound.
const BOUNDS: [(u16, f64); 9] = [
    (id::SCHED_WAKE, 130.0),
    (id::SCHED_SEARCH, 150.0),
    (id::SCHED_BLOCK, 165.0),
    (id::SCHED_REFILL, 180.0),
    (id::SCHED_ALARM, 225.0),
    // Two more than before calls with limits (decision 30).
    (id::SCHED_EXPIRE, 235.0),
    (id::SCHED_PIBS, 120.0),
    (id::SCHED_PIBS_BLOCK, 155.0),
    (id::SCHED_DONATE, 15.0),
];

/// Their names.
pub const ROWS: [&str; 9] = [
    "sched.wake",
    "sched.wake_search",
    "sched.block",
    "sched.refill",
    "sched.alarm",
    "sched.expire",
    "sched.pibs_wake",
    "sched.pibs_block",
    "sched.donate",
];

/// Each operation of `guests/sched`, its decision included.
pub fn operations() -> Found {
    let ran = System::new("sched", "sched").one_core().run()?;
    let one = |(which, most)| -> Result<Figure, Failure> {
        let name = NAMES.iter().find(|(id, _)| *id == which).map_or("?", |(_, name)| name);
        let d = ran.counts.span(which).filter(|d| d.n > 0).ok_or_else(|| format!("no {name}"))?;
        let row = Row::new(name, "instructions", d.max as f64);
        let note = format!("the most; {} the least, {} the median of {}", d.min, d.median, d.n);
        Ok(Figure::new(row).must(Must::AtMost(most)).note(note))
    };
    BOUNDS.into_iter().map(one).collect()
}

/// Sets that the admission admits and the oracle sees late; those with calls that it refuses, of all in which nothing
/// is late.
pub fn oracle() -> Found {
    let all = crate::test::oracle();
    let calls = all.calls;
    let misses = Row::new("sched.oracle_misses", "sets", all.missed as f64);
    let refused = Row::new("sched.oracle_refused", "%", calls.refused_share() as f64 / 10.0);
    Ok(vec![
        Figure::new(misses).must(Must::AtMost(0.0)).note(all.to_string()),
        Figure::new(refused)
            .must(Must::AtMost(30.0))
            .note(format!("{} sets with calls refused, {} admitted", calls.silent, calls.admitted)),
    ])
}
