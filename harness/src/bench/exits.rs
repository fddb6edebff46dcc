//! Exits of a Linux in steady state.

use super::Found;
use super::figure::{Figure, Must};
use super::system::{System, by_cause, entries, event};
use crate::rows::Row;
use bulkhead_layout::marker::id;
use bulkhead_layout::report::CAUSE_NAMES;
use std::collections::BTreeMap;

/// How long the load lasts, in ms of the guest's time.
const LOAD: u32 = 1_000;

/// Asleep.
pub fn idle() -> Found {
    one_core("idle", "exits.linux_idle")
}

/// fork and exec.
pub fn forkexec() -> Found {
    one_core("forkexec", "exits.linux_forkexec")
}

/// UDP, a pipe and timers.
pub fn load() -> Found {
    one_core("load", "exits.linux_load")
}

/// The plugin counts entries (VMRUN) of the core from the load's start to its end.
fn one_core(load: &'static str, name: &str) -> Found {
    let ran = System::new("linux", load).with("linux", job(load)).one_core().run()?;
    let exits = entries(&ran.counts, 0)?;
    let row = Row::new(name, "exits/s", per_second(exits, LOAD));
    let note = format!("{exits} exits in {LOAD} ms");
    Ok(vec![Figure::new(row).must(Must::AtMost(0.0)).note(note)])
}

fn job(load: &str) -> String {
    format!("bulkhead.run=bhbench:{load},{LOAD}")
}

fn per_second(exits: u64, ms: u32) -> f64 {
    exits as f64 * 1000.0 / f64::from(ms)
}

/// Two cores that wake one another: the monitors' own counters by cause, as they
/// are at the load's start and at its end.
pub fn smp() -> Found {
    let ran = System::new("smp", "smp").with("linux", job("smp")).coarse().run()?;
    let at = |which| event(&ran.counts, which, 0).map(|event| by_cause(&event.words));
    let (before, after) = (at(id::START)?, at(id::FINISH)?);
    let seen: BTreeMap<_, _> = CAUSE_NAMES
        .into_iter()
        .zip(after.iter().zip(before).map(|(after, before)| after - before))
        .filter(|(_, exits)| *exits != 0)
        .collect();
    let ipis = seen.get("ipi").copied().unwrap_or(0);
    let others = seen.values().sum::<u64>() - ipis;
    let note = format!("{seen:?} in {LOAD} ms");
    let rate = |name, exits| Row::new(name, "exits/s", per_second(exits, LOAD));
    Ok(vec![
        Figure::new(rate("exits.linux_smp_ipi", ipis)).note(note.clone()),
        Figure::new(rate("exits.linux_smp_other", others)).must(Must::AtMost(0.0)).note(note),
    ])
}
