//! Exits of a Linux in steady state.

use super::Found;
use super::figure::{Figure, Must};
use super::system::{System, entries};
use crate::rows::Row;

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
    let ran = System::new("linux", load).with("linux", job(load)).run()?;
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

/// Two cores that wake one another: the monitors' counters by cause, from the
/// boot's end on. The boot ends on a core at its first CPUID in user mode.
pub fn smp() -> Found {
    let ran = System::new("smp", "smp").with("linux", job("smp")).run()?;
    let sandbox = &ran.outcome.report.sandboxes[0];
    let exits = &sandbox.exits;
    let ipis = exits.steady.get("ipi").copied().unwrap_or(0);
    let seconds = exits.steady_seconds;
    let others: u64 = exits
        .steady
        .iter()
        .filter(|(cause, _)| **cause != "ipi")
        .map(|(_, n)| n)
        .sum();
    let row = Row::new("exits.linux_smp_ipi", "exits/s", ipis as f64 / seconds);
    let note = format!("{:?} in {seconds:.3} s", exits.steady);
    let other = Row::new("exits.linux_smp_other", "exits", others as f64);
    Ok(vec![
        Figure::new(row).note(note.clone()),
        Figure::new(other).note(note),
    ])
}
