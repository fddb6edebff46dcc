//! Snapshots: what one costs.

use super::Found;
use super::figure::{Figure, Must};
use super::system::System;
use crate::rows::Row;
use bulkhead_layout::marker::id;

/// Snapshots that are measured.
const ROUNDS: u64 = 64;

/// Instructions for a snapshot of 64 KiB of which 4 KiB changed, in the worst order: the page before was another one.
pub fn taken() -> Found {
    const CORES: &str = "cores = [0, 1]\nmemory = \"4 MiB\"\n";
    let own = "cores = [0]\nmemory = \"4 MiB\"\nsnapshot = \"64 KiB\"\n\
        [[health]]\nsandbox = \"micro\"\non = \"failure\"\naction = \"restart warm\"\n";
    let ran = System::new("micro", "snapshot")
        .changed(CORES, own)
        .with("micro", format!("snapshots=16 rounds={ROUNDS}"))
        .one_core()
        .run()?;
    let found = ran.counts.span(id::HYPERCALL).filter(|d| d.n == ROUNDS);
    let found = found.ok_or("too few snapshots")?;
    if found.vmruns != found.n {
        return Err(format!("{} exits for {} snapshots", found.vmruns, found.n).into());
    }
    let row =
        Row::new("recover.snapshot_64k", "instructions", found.privileged as f64 / found.n as f64);
    let note = format!(
        "in the monitor, with its entry and its exit: two pages are copied and summed up, the one that changed and the one before; mean of {ROUNDS}"
    );
    Ok(vec![Figure::new(row).must(Must::AtMost(2_500.0)).note(note)])
}
