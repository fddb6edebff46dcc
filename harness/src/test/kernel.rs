//! Systems of the kernel, in sandboxes (`tests/kernel`) and without monitors on a processor that could have none
//! (`tests/multikernel`): each `NAME.toml` runs to its end, exits with 0, undisturbed, and its
//! console says what `NAME.txt` has (`BLESS=1` writes that).

use super::driver::{Bench, Job};
use super::system::{Manifest, run};
use crate::build;
use std::path::{Path, PathBuf};

pub fn jobs() -> Vec<Job> {
    ["kernel", "multikernel"]
        .into_iter()
        .flat_map(|kind| {
            let mut systems: Vec<_> = systems(kind).collect();
            systems.sort();
            systems.into_iter().map(move |name| job(kind, name))
        })
        .collect()
}

fn folder(kind: &str) -> PathBuf {
    build::root().join("tests").join(kind)
}

fn systems(kind: &str) -> impl Iterator<Item = String> {
    let files = std::fs::read_dir(folder(kind)).into_iter().flatten().flatten();
    files.filter_map(|file| file.file_name().to_str()?.strip_suffix(".toml").map(String::from))
}

fn job(kind: &'static str, name: String) -> Job {
    Job::one(format!("{kind}/{name}"), 120, move |bench| {
        let path = |ending: &str| folder(kind).join(format!("{name}.{ending}"));
        let cpu = (kind == "multikernel").then_some(PLAIN);
        check(bench, cpu, &path("toml"), &path("txt"))
    })
}

/// A processor without virtualization, and without what only monitors need.
const PLAIN: &str = "EPYC,-svm,-npt,-pdpe1gb,+x2apic,tsc-frequency=1000000000";

fn check(
    bench: &Bench,
    cpu: Option<&str>,
    system: &Path,
    expected: &Path,
) -> Result<String, String> {
    let read =
        |path: &Path| std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    let seen = run(&Manifest(read(system)?), &bench.dir, |options| {
        options.time = bulkhead_qemu::Time::one_core();
        options.cpu = cpu.map(String::from);
    })?;
    let outcome = seen.outcome()?;
    for sandbox in &outcome.report.sandboxes {
        seen.undisturbed(&sandbox.name, &["exited", "running"])?;
        if sandbox.state == "exited" {
            seen.exited(&sandbox.name)?;
        }
    }
    let said = normal(&seen.console);
    if std::env::var("BLESS").is_ok() {
        std::fs::write(expected, &said).map_err(|e| e.to_string())?;
    }
    let wanted = read(expected)?;
    seen.ensure(said == normal(&wanted), format!("expected:\n{wanted}"))?;
    Ok(format!("{} lines as expected", wanted.lines().count()))
}

/// Which states the watcher comes to see, and in which order consoles, depends on the host; at which address a
/// program fails on its compiler.
fn normal(console: &str) -> String {
    let lines = console.lines().filter(|line| !line.contains("] is now "));
    let mut lines: Vec<_> = lines.filter_map(|line| line.split(" at 0x").next()).collect();
    lines.sort_by_key(|line| line.split(']').next());
    lines.iter().map(|line| format!("{line}\n")).collect()
}
