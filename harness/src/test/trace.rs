//! Traced kernels: systems of `tests/kernel` with kernels that tell their events. Nothing is lost, all adds up, and
//! everything that such a system does is among it. `tests/kernel/NAME.trace` has each event once, sorted (`BLESS=1`
//! writes it). It has no times and numbers, which depend on how fast the code is.

use super::driver::{Bench, Job};
use super::system::{Manifest, artifacts, run};
use super::verify::bulkhead;
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
    let command = Job::one("trace/command", 120, command);
    SYSTEMS.into_iter().map(job).chain([attached(), command]).collect()
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

/// Runs `bulkhead trace` on a system that asks for no trace; returns its file and its words.
fn written(file: &std::path::Path, more: &[&str]) -> Result<(Vec<u8>, String), String> {
    let file = file.to_string_lossy();
    let first = ["trace", "tests/kernel/passive.toml", "-o", &file];
    let (status, said, wrong) = bulkhead(&[&first, more].concat())?;
    if status != 0 || !said.contains(", 0 lost\n") {
        return Err(format!("status {status}\n{said}{wrong}"));
    }
    Ok((std::fs::read(&*file).map_err(|e| format!("{file}: {e}"))?, said))
}

/// The command: two milliseconds as text, a line for each event; and all of it as Perfetto's messages.
fn command(bench: &Bench) -> Result<String, String> {
    const LENGTH: f64 = 2_000.0;
    let more = ["--for", "2ms", "--format", "text"];
    let (text, said) = written(&bench.dir.join("part.txt"), &more)?;
    let text = String::from_utf8(text).map_err(|e| e.to_string())?;
    let times: Option<Vec<f64>> =
        text.lines().map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    let times =
        times.filter(|times| times.len() > 20).ok_or_else(|| format!("no times in\n{text}"))?;
    let length = times[times.len() - 1] - times[0];
    let count = format!("rt: {} events in ", times.len());
    let named = text.lines().all(|line| line.split_whitespace().nth(1) == Some("rt"));
    if !(times.is_sorted() && named && said.contains(&count) && length > 0.0 && length <= LENGTH) {
        return Err(format!("{} events in {length} us, and it says\n{said}{text}", times.len()));
    }
    let (messages, said) = written(&bench.dir.join("all.perfetto-trace"), &[])?;
    let count = packets(&messages).ok_or("the file's messages do not end with it")?;
    if count <= times.len() {
        return Err(format!("{count} messages of all, {} events of a part\n{said}", times.len()));
    }
    Ok(format!("{} lines of 2 ms, {count} messages of all", times.len()))
}

/// How many messages a file of Perfetto's holds: each is field 1 of a `Trace`, by its length.
fn packets(mut bytes: &[u8]) -> Option<usize> {
    let mut count = 0;
    while let Some((field, rest)) = bytes.split_first() {
        let digits = rest.iter().position(|byte| byte & 0x80 == 0)? + 1;
        let len =
            rest[..digits].iter().rev().fold(0, |len, byte| len << 7 | usize::from(byte & 0x7F));
        bytes = rest[digits..].get(len..).filter(|_| *field == 0x0A)?;
        count += 1;
    }
    Some(count)
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
    if name == "flight" {
        let all = timeline.records().map(|record| names.tell(&record.event));
        shown(&all.collect::<Vec<_>>()).map_err(|why| seen.wrong(&why))?;
        let control =
            figures.contexts.iter().filter(|(at, _)| names.context((**at).into()) == "control");
        busy(control.map(|(_, ns)| ns).sum()).map_err(|why| seen.wrong(&why))?;
    }
    let told = told(timeline.records().map(|record| names.tell(&record.event)));
    let expected = file(name, "trace");
    if std::env::var("BLESS").is_ok() {
        std::fs::write(&expected, &told).map_err(|e| e.to_string())?;
    }
    let wanted = std::fs::read_to_string(&expected).map_err(|e| e.to_string())?;
    seen.ensure(told == wanted, format!("told:\n{told}expected:\n{wanted}"))?;
    Ok(format!("{} events add up, {} of a kind", timeline.items.len(), wanted.lines().count()))
}

/// The demo's manifest says how much of its core the attitude loop takes; here are four seconds of it.
fn busy(ns: u64) -> Result<(), String> {
    const SECONDS: u64 = 4;
    let manifest = std::fs::read_to_string(build::root().join("systems/demo.toml"));
    let manifest = manifest.map_err(|e| format!("systems/demo.toml: {e}"))?;
    let before = manifest.split_once(" % of its core").map_or("", |(before, _)| before);
    let said: u64 = before
        .rsplit(' ')
        .next()
        .and_then(|number| number.parse().ok())
        .ok_or("systems/demo.toml does not say how busy flight is")?;
    let is = (ns / SECONDS + 5_000_000) / 10_000_000;
    if is == said {
        Ok(())
    } else {
        Err(format!("busy for {is} %, and systems/demo.toml says {said}"))
    }
}

/// The events on the command's page are told by such a kernel, one after the other.
fn shown(told: &[String]) -> Result<(), String> {
    let page = super::typed::block("docs/tracing.md", "       ")?;
    // Microseconds and the sandbox stand before.
    let event = |line: &str| line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ");
    let events: Vec<_> = page.lines().map(event).collect();
    let there = events.len() > 1 && told.windows(events.len()).any(|some| some == events);
    if there { Ok(()) } else { Err(format!("docs/tracing.md shows what is not told:\n{page}")) }
}

/// Each line once.
fn told(lines: impl Iterator<Item = String>) -> String {
    let lines: BTreeSet<_> = lines.collect();
    lines.into_iter().map(|line| line + "\n").collect()
}
