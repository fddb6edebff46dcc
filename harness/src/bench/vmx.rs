//! Intel's VT-x, in Bochs: prices of exits, exits of a Linux, lines, size.

use super::Found;
use super::figure::{Figure, Must};
use super::monitor::counted;
use super::system::System;
use crate::rows::Row;
use crate::{Failure, build, numbers};
use bulkhead_run::audit::program_of;
use std::collections::BTreeMap;

/// Most instructions of CPUID, which SVM does without.
const CPUID: f64 = 75.0;
/// Instructions that VT-x may take beyond SVM's row of an exit.
const BEYOND: f64 = 15.0;

/// Exits on one core: the mean of 1,000, the guest's side included, less an empty loop. An instruction is a tick.
pub fn calls() -> Found {
    let ran = System::new("micro", "vmx-cost")
        .changed("artifact:micro", "artifact:ring")
        .changed("cores = [0, 1]", "cores = [0]")
        .with("micro", "cost")
        .run_vmx()?;
    let console = ran.consoles.first().map(ToString::to_string).unwrap_or_default();
    let of = |name: &str| -> Result<f64, Failure> {
        let after = console.split(&format!("ring: {name} takes ")).nth(1);
        let number = after.and_then(|rest| rest.split(' ').next()?.parse().ok());
        Ok(number.ok_or_else(|| format!("no price of {name}: {console}"))?)
    };
    let svm = |row| numbers::said(row).map(|said| said + BEYOND);
    let figure = |name, value, most| {
        Figure::new(Row::new(name, "instructions", value)).must(Must::AtMost(most))
    };
    Ok(vec![
        figure("vmx.hypercall", of("hypercall")?, svm("monitor.hypercall")?),
        figure("vmx.icr", of("icr")?, svm("monitor.icr")?),
        figure("vmx.cpuid", of("cpuid")?, CPUID).note("leaf 1, of the guest's kernel"),
    ])
}

/// A Linux that sleeps.
pub fn idle() -> Found {
    linux("idle", ["exits.vmx_linux_idle", "exits.vmx_linux_idle_cpuid"], [1, 11])
}

/// A Linux with UDP, a pipe and timers.
pub fn load() -> Found {
    linux("load", ["exits.vmx_linux_load", "exits.vmx_linux_load_cpuid"], [1, 2])
}

/// Exits by cause of two runs that differ in the seconds of the load alone, one from the other. Bochs is deterministic,
/// so the rest of both is alike.
fn linux(load: &'static str, rows: [&'static str; 2], seconds: [u64; 2]) -> Found {
    let [short, long] = seconds.map(|seconds| counted_exits(load, seconds));
    let (short, long) = (short?, long?);
    let mut more = BTreeMap::new();
    for (cause, exits) in long {
        let exits = exits.cast_signed() - short.get(cause).copied().unwrap_or(0).cast_signed();
        if exits != 0 {
            more.insert(cause, exits);
        }
    }
    let longer = seconds[1] - seconds[0];
    let note = format!("{more:?} in {longer} s");
    let cpuid = more.remove("cpuid").unwrap_or(0) as f64;
    let others = more.values().map(|exits| exits.unsigned_abs()).sum::<u64>() as f64;
    let row = |name, exits: f64| Row::new(name, "exits/s", exits / longer as f64);
    Ok(vec![
        Figure::new(row(rows[0], others)).must(Must::AtMost(0.0)).note(note),
        Figure::new(row(rows[1], cpuid)),
    ])
}

fn counted_exits(load: &str, seconds: u64) -> Result<BTreeMap<&'static str, u64>, Failure> {
    // A folder for each run: parts are measured side by side.
    let ran = System::new("linux", format!("vmx-{load}-{seconds}"))
        .changed("512 MiB", "256 MiB")
        // Numbers of one length, so that both images are alike. Quiet, as a letter takes the serial port 87,000
        // instructions.
        .with("linux", format!("quiet bulkhead.run=bhbench:{load},{:05}", seconds * 1000))
        .run_vmx()?;
    let linux = ran.report.sandboxes.first().ok_or("no sandbox")?;
    let mut all: BTreeMap<&'static str, u64> = BTreeMap::new();
    for (cause, exits) in linux.exits.boot.iter().chain(&linux.exits.steady) {
        *all.entry(cause).or_default() += exits;
    }
    Ok(all)
}

/// Lines of VT-x: of its shell, and in crates that know no x86.
pub fn lines() -> Found {
    let row = |name, lines| Row::new(name, "lines", lines);
    Ok(vec![
        Figure::new(row("vmx.lines", counted("portable ")?))
            .must(Must::AtMost(0.0))
            .note("lines that name it in crates without x86 which its monitor links"),
        Figure::new(row("vmx.lines_shell", counted("vmx ")?))
            .must(Must::AtMost(900.0))
            .note("what its monitor links and SVM's does not"),
    ])
}

/// Text of the monitor of a kernel sandbox without functions and lines.
pub fn text() -> Found {
    let segments = program_of(&build::target().join("artifacts/vmx-monitor-small"))?;
    let text: u64 = segments.iter().filter(|s| s.execute).map(|s| s.len).sum();
    let row = Row::new("vmx.text_kernel", "bytes", text as f64);
    Ok(vec![Figure::new(row).must(Must::AtMost(8_192.0))])
}
