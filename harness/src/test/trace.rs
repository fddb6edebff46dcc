//! Traced kernels: systems of `tests/kernel` whose kernels tell what they do. Nothing is lost, all adds up, and
//! everything that such a system does is among it. `tests/kernel/NAME.trace` has what is told, once each and sorted
//! (`BLESS=1` writes it); not when and how often, for that depends on how fast the code is.

use super::driver::{Bench, Job};
use super::system::{Manifest, artifacts, run};
use crate::build;
use bulkhead_run::Traced;
use bulkhead_trace::check;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// Systems, and how many calls with donation each makes, where that is certain.
const SYSTEMS: [(&str, Option<u64>); 3] =
    [("passive", Some(1_000)), ("edu", None), ("flight", None)];

pub fn jobs() -> Vec<Job> {
    let job = |(name, calls)| {
        Job::one(format!("trace/{name}"), 120, move |bench| traced(bench, name, calls))
    };
    SYSTEMS.into_iter().map(job).chain([attached()]).collect()
}

/// The rings of a machine that runs can be read from outside, while it goes on: what they hold, and what comes.
fn attached() -> Job {
    Job::one("trace/attached", 120, |bench| {
        let system = std::fs::read_to_string(file("passive", "toml")).map_err(|e| e.to_string())?;
        let manifest =
            Manifest(system.replace("kind = \"kernel\"", "kind = \"kernel\", trace = \"1 MiB\""));
        let baked = bulkhead_run::build(&manifest.load(&bench.dir)?, &artifacts());
        let (baked, dir) = (baked.map_err(|e| e.to_string())?, bench.dir.clone());
        let found = Rc::new(Cell::new(0));
        let seen = Rc::clone(&found);
        let ran = run(&manifest, &bench.dir, |options| {
            options.time = bulkhead_qemu::Time::one_core();
            options.stop = Some(Box::new(move || {
                let limit = Duration::from_secs(1);
                let traces = bulkhead_run::attached(&dir, &baked, None, limit, &|| false);
                let events = |traces: Vec<Traced>| traces[0].timeline.records().count();
                seen.set(seen.get().max(traces.map_or(0, events)));
                false
            }));
        })?;
        ran.undisturbed(&ran.outcome()?.report.sandboxes[0].name, &["exited"])?;
        ran.ensure(found.get() > 0, "nothing was read of the running machine")?;
        Ok(format!("{} events of a machine that ran on", found.get()))
    })
}

fn file(name: &str, ending: &str) -> PathBuf {
    build::root().join(format!("tests/kernel/{name}.{ending}"))
}

fn traced(bench: &Bench, name: &str, calls: Option<u64>) -> Result<String, String> {
    let system = std::fs::read_to_string(file(name, "toml")).map_err(|e| e.to_string())?;
    let quiet = "kind = \"kernel\"";
    let system = system
        .replace(quiet, &format!("{quiet}, trace = \"8 MiB\""))
        .replace("memory = \"16 MiB\"", "memory = \"32 MiB\"");
    let seen = run(&Manifest(system), &bench.dir, |options| {
        options.time = bulkhead_qemu::Time::one_core();
        options.trace = true;
    })?;
    let outcome = seen.outcome()?;
    let [Traced { timeline, names, budgets, sandbox }] = &outcome.traces[..] else {
        return Err(seen.wrong("there is no trace"));
    };
    seen.undisturbed(&outcome.report.sandboxes[*sandbox].name, &["exited"])?;
    let figures = check(timeline, budgets, 0).map_err(|why| seen.wrong(&why))?;
    if let Some(calls) = calls {
        seen.ensure(figures.donations == calls, format!("{} donations", figures.donations))?;
    }
    let used = budgets.keys().filter(|context| figures.contexts.contains_key(*context)).count();
    seen.ensure(used == budgets.len(), format!("{used} contexts of {} ran", budgets.len()))?;
    let told = told(timeline.records().map(|record| names.tell(&record.event)));
    let expected = file(name, "trace");
    if std::env::var("BLESS").is_ok() {
        std::fs::write(&expected, &told).map_err(|e| e.to_string())?;
    }
    let wanted = std::fs::read_to_string(&expected).map_err(|e| e.to_string())?;
    seen.ensure(told == wanted, format!("told:\n{told}expected:\n{wanted}"))?;
    Ok(format!("{} events add up, {} of a kind", timeline.items.len(), wanted.lines().count()))
}

/// Each line once.
fn told(lines: impl Iterator<Item = String>) -> String {
    let lines: BTreeSet<_> = lines.collect();
    lines.into_iter().map(|line| line + "\n").collect()
}
