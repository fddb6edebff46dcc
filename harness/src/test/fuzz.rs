//! The fuzz targets with a fixed budget: each gets its corpus, then so many inputs
//! more. `make fuzz` looks further, with libFuzzer.

use super::driver::Job;
use crate::build;
use bulkhead_fuzz::drive::Driver;
use bulkhead_fuzz::{TARGETS, Target};
use std::path::PathBuf;

/// Repeats a run; any other one is as good.
const SEED: u64 = 2026;

/// A target, its inputs, and the share of their attempts that is accepted, in percent. With less they would not get
/// past the first check. With more a check would have nothing to refuse.
const BUDGETS: [(&str, u64, [u64; 2]); 12] = [
    ("channel", 20_000, [10, 90]),
    ("dmar", 20_000, [10, 90]),
    ("hypercall", 20_000, [5, 60]),
    ("icr", 20_000, [5, 60]),
    ("image", 60_000, [1, 60]),
    ("ioapic", 20_000, [1, 60]),
    ("kernel", 10_000, [10, 60]),
    ("manifest", 400, [1, 90]),
    ("mmio", 8_000, [5, 95]),
    ("pci", 30_000, [10, 95]),
    ("virtio", 2_000, [2, 90]),
    ("web", 20_000, [10, 60]),
];

pub fn jobs() -> Vec<Job> {
    let job = |target: &'static Target| {
        Job::one(format!("fuzz/{}", target.name), 120, move |_| budget(target))
    };
    let mut jobs: Vec<_> = TARGETS.iter().map(job).collect();
    jobs.push(Job::one("fuzz/corpora", 30, |_| corpora()));
    jobs
}

/// Where a target's corpus lies: that of the manifests' loader is our manifests.
fn folders(target: &Target) -> Vec<PathBuf> {
    let manifests = ["systems", "systems/bench", "tests/manifests", "tests/manifests/bad"];
    match target.name {
        "manifest" => manifests.map(|folder| build::root().join(folder)).to_vec(),
        name => vec![build::root().join("fuzz/corpus").join(name)],
    }
}

fn driver(target: &'static Target, seed: u64) -> Result<Driver, String> {
    let folders = folders(target);
    let folders: Vec<_> = folders.iter().map(PathBuf::as_path).collect();
    Driver::new(target, &folders, seed).map_err(|e| format!("{}: {e}", target.name))
}

fn budget(target: &'static Target) -> Result<String, String> {
    let (_, inputs, [least, most]) =
        BUDGETS.into_iter().find(|b| b.0 == target.name).ok_or("it has no budget")?;
    let mut driver = driver(target, SEED)?;
    driver.replay()?;
    for _ in 0..inputs {
        driver.step()?;
    }
    let seen = driver.seen;
    let share = seen.through * 100 / seen.tried.max(1);
    let said = format!(
        "{} of a corpus, {inputs} more inputs, {} tries, {share} % accepted",
        driver.corpus(),
        seen.tried
    );
    if (least..=most).contains(&share) { Ok(said) } else { Err(format!("only {said}")) }
}

/// Each target of libFuzzer's is one of ours, and its corpus is small: files of some
/// hundred bytes at most.
fn corpora() -> Result<String, String> {
    let list = build::root().join("fuzz/Cargo.toml");
    let list = std::fs::read_to_string(&list).map_err(|e| format!("{}: {e}", list.display()))?;
    let mut all = Vec::new();
    for target in TARGETS.iter().filter(|target| target.name != "manifest") {
        if !list.contains(&format!("name = \"{}\"", target.name)) {
            return Err(format!("libFuzzer is not given {}", target.name));
        }
        let folder = folders(target).swap_remove(0);
        let files = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let sizes: Vec<_> =
            files.flatten().filter_map(|f| Some(f.metadata().ok()?.len())).collect();
        let largest = sizes.iter().max().copied().unwrap_or(0);
        if !(1..=200).contains(&sizes.len()) || largest > 512 {
            let count = sizes.len();
            return Err(format!("{} has {count} files of up to {largest} bytes", target.name));
        }
        all.extend(sizes);
    }
    Ok(format!("{} files, {} bytes", all.len(), all.iter().sum::<u64>()))
}

/// Feeds all targets in turn until the time is up; what they did.
///
/// # Errors
/// A deed that a target must not do, with the input.
pub fn long(seed: u64, time: std::time::Duration) -> Result<String, String> {
    let drivers: Result<Vec<_>, _> = TARGETS.iter().map(|t| driver(t, seed)).collect();
    let (mut drivers, end) = (drivers?, std::time::Instant::now() + time);
    drivers.iter_mut().try_for_each(Driver::replay)?;
    while std::time::Instant::now() < end {
        for driver in &mut drivers {
            driver.step()?;
        }
    }
    let done = drivers.iter().zip(&TARGETS).map(|(d, target)| {
        let (name, seen) = (target.name, d.seen);
        format!("{name}: {} inputs, {} tries, {} accepted", d.inputs, seen.tried, seen.through)
    });
    Ok(done.collect::<Vec<_>>().join("\n"))
}
