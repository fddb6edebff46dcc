//! Systems of the kernel: each of `tests/kernel/NAME.toml` runs to its end, exits with 0, undisturbed, and its
//! console says what `NAME.txt` has (`BLESS=1` writes that).

use super::driver::{Bench, Job};
use super::system::{Manifest, run};
use crate::build;
use std::path::{Path, PathBuf};

pub fn jobs() -> Vec<Job> {
    let mut systems: Vec<_> = systems().collect();
    systems.sort();
    systems.into_iter().map(job).collect()
}

fn folder() -> PathBuf {
    build::root().join("tests/kernel")
}

fn systems() -> impl Iterator<Item = String> {
    let files = std::fs::read_dir(folder()).into_iter().flatten().flatten();
    files.filter_map(|file| file.file_name().to_str()?.strip_suffix(".toml").map(String::from))
}

fn job(name: String) -> Job {
    Job::one(format!("kernel/{name}"), 120, move |bench| {
        let path = |ending: &str| folder().join(format!("{name}.{ending}"));
        check(bench, &path("toml"), &path("txt"))
    })
}

fn check(bench: &Bench, system: &Path, expected: &Path) -> Result<String, String> {
    let read =
        |path: &Path| std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    let seen = run(&Manifest(read(system)?), &bench.dir, |options| {
        options.time = bulkhead_qemu::Time::one_core();
    })?;
    let outcome = seen.outcome()?;
    for sandbox in &outcome.report.sandboxes {
        seen.undisturbed(&sandbox.name, &["exited", "running"])?;
        if sandbox.state == "exited" {
            seen.exited(&sandbox.name)?;
        }
    }
    // Which states the watcher comes to see depends on the host.
    let said: String = seen
        .console
        .lines()
        .filter(|line| !line.contains("] is now "))
        .map(|line| format!("{line}\n"))
        .collect();
    if std::env::var("BLESS").is_ok() {
        std::fs::write(expected, &said).map_err(|e| e.to_string())?;
    }
    let wanted = read(expected)?;
    seen.ensure(said == wanted, format!("expected:\n{wanted}"))?;
    Ok(format!("{} lines as expected", wanted.lines().count()))
}
