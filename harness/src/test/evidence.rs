//! A guest that tries to forge, wipe and flood the evidence against it.

use super::driver::{Bench, Job};
use super::system::{Manifest, Seen, artifacts, run};
use crate::build;
use crate::program::Program as _;
use bulkhead_explain::Sandbox;
use bulkhead_monitor_abi::report::{DENIALS, FIRST};
use screen::Terminal;
use std::process::Command;

#[path = "../../../crates/host/untrusted/tests/screen/mod.rs"]
pub mod screen;

/// Columns of the terminal that a run is shown on.
const COLUMNS: usize = 80;

pub fn jobs() -> Vec<Job> {
    let chaff = Job::one("evidence/records-survive-chaff", 60, |bench| {
        chaff(&run(&forger("serial=0x2f8"), &bench.dir, |_| {})?)
    });
    let shown = Job::one("evidence/text-only-prints", 60, shown);
    let bounded = Job::one("evidence/consoles-are-bounded", 60, |bench| {
        flood(&run(&forger("flood"), &bench.dir, |_| {})?)
    });
    vec![chaff, shown, bounded]
}

fn forger(args: &str) -> Manifest {
    let serial = "devices = [\"uart1\"]";
    Manifest::new().ends_with(&["forger"]).bare("forger", "forger", args, &[0], "4 MiB", serial)
}

/// Tests a guest that tries to forge the command's lines, on a terminal and in the report. The guest prints letters,
/// and rows that begin as the command's own lines do.
fn shown(bench: &Bench) -> Result<String, String> {
    forger("serial=0x2f8").load(&bench.dir)?;
    let file = |name: &str| bench.dir.join(name).display().to_string();
    let (manifest, report) = (file("system.toml"), file("report.json"));
    let program = build::target().join("release/bulkhead");
    let command = format!(
        "stty cols {COLUMNS}; cd '{}'; '{}' run '{manifest}' --serial --report '{report}' --artifacts '{}'",
        build::root().display(),
        program.display(),
        artifacts().display()
    );
    let out = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("CI", "true")
        .stdin(std::process::Stdio::null())
        .printed()?;
    let terminal = Terminal::show(COLUMNS, &out.stdout);
    if !terminal.other.is_empty() {
        return Err(format!("a terminal would do {:?}", terminal.other));
    }
    let rows = &terminal.rows[..terminal.rows.len() - 1];
    // The guest's text is in rows of its own, however it is cut.
    let own = |row: &String| row.starts_with("[forger] ") || row.starts_with("  serial port 2: ");
    let forged = |row: &&String| row.starts_with("[denied] flight") || row.contains("forged");
    if let Some(row) = rows.iter().filter(forged).find(|row| !own(row)) {
        return Err(format!("a row begins with {row:?}"));
    }
    let ends = |mark: &str| rows.iter().any(|row| *row == format!("{mark}the end"));
    if !ends("[forger] ") || !ends("  serial port 2: ") {
        return Err(format!(
            "not all was shown: {:#?}",
            rows.iter().rev().take(20).collect::<Vec<_>>()
        ));
    }
    let report = std::fs::read(&report).map_err(|e| format!("{report}: {e}"))?;
    let in_report = Terminal::show(usize::MAX, &report);
    if !in_report.other.is_empty() {
        return Err(format!("of the report a terminal would do {:?}", in_report.other));
    }
    Ok(format!("{} rows of letters", rows.len()))
}

/// A console of megabytes: its end in memory, all of it in the file that is told.
fn flood(seen: &Seen) -> Result<String, String> {
    const MIB: usize = 1 << 20;
    let outcome = seen.outcome()?;
    let kept = outcome.consoles[0].bytes().len();
    let log = outcome.logs.iter().find(|log| log.name == "console of forger");
    let log = log.ok_or_else(|| seen.wrong("its file is not told"))?;
    let file = std::fs::metadata(&log.path).map_err(|e| e.to_string())?.len();
    let all = seen.sandbox("forger")?.state == "exited";
    let right =
        kept <= MIB && file == log.bytes && log.cut == 0 && log.bytes + log.lost > 1_700_000;
    seen.ensure(all && right, format!("{kept} bytes kept, {file} in the file; {log:?}"))?;
    Ok(format!("{kept} bytes of {} kept, {file} in the file, {} overwritten", log.bytes, log.lost))
}

/// 200 harmless port reads after a write to VM_CR: its record is there, and how many are not is told.
fn chaff(seen: &Seen) -> Result<String, String> {
    let s = seen.sandbox("forger")?;
    let count = |s: &Sandbox, condition: &str| {
        s.by_condition.iter().find(|c| c.condition == condition).map_or(0, |c| c.count)
    };
    let vm_cr = |access: &str| access.contains("MSR 0xc0010114");
    let kept = s.newest_denials.iter().any(|d| vm_cr(&d.access));
    seen.ensure(kept, "no record of the write to VM_CR is left")?;
    let first = s.by_condition.iter().filter_map(|c| c.first.as_ref());
    seen.ensure({ first }.any(|d| vm_cr(&d.access)), "it is not the first of its condition")?;
    let counts = (s.denials, count(s, "msr-write"), count(s, "port-read"));
    seen.ensure(counts == (201, 1, 200), format!("counted {counts:?}"))?;
    let kept: u64 = s.newest_denials.iter().map(|d| d.times).sum();
    // The first of the life and the newest, and none besides: the firsts of conditions are among them.
    let right = s.overwritten == 201 - kept && kept == (FIRST + DENIALS) as u64;
    seen.ensure(right, format!("{kept} kept, {} overwritten", s.overwritten))?;
    Ok(format!("{kept} of 201 records kept, {} told to be overwritten", s.overwritten))
}
