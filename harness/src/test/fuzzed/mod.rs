//! Fuzzing in the running machine: a sandbox of four cores and one beside it make random exits. The parts of their
//! monitors' text that they reach guide them. No monitor may fail, no other sandbox may notice, and the tables have to
//! be as they were. `docs/fuzzing.md` has how it works.

mod cover;
mod high;
mod watcher;

use super::attack::VICTIM as MEMORY;
use super::driver::{Bench, Job};
use super::system::{FAST, Manifest, artifacts};
use crate::build;
use crate::rows::{Row, Rows};
use bulkhead_layout::need::{CHECKED, MONITORS};
use bulkhead_layout::report::{CAUSE_NAMES, CAUSES, CONDITION_NAMES, Cause, Condition, Kind};
use bulkhead_qemu::Time;
use bulkhead_run::Event;
use fuzz_guest::NEWS;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use watcher::{Done, FUZZERS, Goal, Ram, Watcher};

pub fn jobs() -> Vec<Job> {
    const HIGH: &str = "fuzz/high-rcx";
    let high = Job::new(HIGH, [HIGH.to_owned()], 60, |bench| high::job(bench, HIGH));
    let mut jobs = vec![Job::one("fuzz/machine", 900, machine), high];
    jobs.push(Job::one("fuzz/checked", 400, checked));
    if soaks() {
        let hours = soak_time() + Duration::from_secs(300);
        jobs.push(Job::one("fuzz/machine-long", hours.as_secs(), long));
        jobs.extend(PLANTED.map(|rule| {
            let found = move |bench: &Bench| {
                super::mutate::build_mutants().and_then(|()| planted(bench, rule))
            };
            Job::one(format!("fuzz/planted-{rule}"), 600, found)
        }));
    }
    jobs
}

/// Tells if this is `make soak`, which fuzzes for `SOAK_SECONDS` or two hours.
fn soaks() -> bool {
    std::env::var_os("SOAK").is_some()
}

fn soak_time() -> Duration {
    let told = std::env::var("SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(told.unwrap_or(2 * 3600))
}

/// Rules of the monitor without which fuzzing has to find something.
const PLANTED: [&str; 6] = [
    "ipi-destination",
    "control-right",
    "message-core",
    "line-core",
    "load-head",
    "hypercall-length",
];

/// A monitor that lacks a rule is found out.
fn planted(bench: &Bench, rule: &str) -> Result<String, String> {
    let folder = super::mutate::monitor_without(rule)?;
    std::fs::copy(artifacts().join("fuzz"), folder.join("fuzz")).map_err(|e| e.to_string())?;
    std::fs::copy(artifacts().join("victim"), folder.join("victim")).map_err(|e| e.to_string())?;
    let goal = Goal { exits: EXITS, time: Duration::from_secs(240), seed: SEED };
    match fuzz(&bench.dir, folder, FAST, goal) {
        // One that did not get so far as to make exits has found nothing.
        Err(found) if !found.contains(", 0 exits: ") && found.starts_with("seed ") => Ok(found),
        Err(other) => Err(other),
        Ok(done) => Err(format!("{} exits, and nothing is found", done.exits)),
    }
}

/// Random exits of monitors that are built with checks.
const CHECKED_EXITS: u64 = EXITS / 10;

/// No check of a monitor's fails, whatever guests do: each monitor is the build with checks.
fn checked(bench: &Bench) -> Result<String, String> {
    let folder = bench.dir.join("checked");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let monitors = MONITORS.iter().map(|(name, _)| (*name, MONITORS[CHECKED].0));
    for (to, from) in monitors.chain(["boot", "fuzz", "victim"].map(|name| (name, name))) {
        let copied = std::fs::copy(artifacts().join(from), folder.join(to));
        copied.map_err(|e| format!("{from}: {e}"))?;
    }
    let goal = Goal { exits: CHECKED_EXITS, time: Duration::from_secs(240), seed: SEED };
    let done = fuzz(&bench.dir, folder, FAST, goal)?;
    match done.exits >= CHECKED_EXITS {
        true => Ok(format!("{} exits, {} restarts, and no check fails", done.exits, done.restarts)),
        false => Err(format!("only {} exits", done.exits)),
    }
}

/// Hours of it, with another seed each time, cores in parallel and in virtual time by turns.
fn long(bench: &Bench) -> Result<String, String> {
    const TURN: Duration = Duration::from_secs(600);
    let (begun, mut all, mut told_last) = (std::time::Instant::now(), 0, String::new());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut seed = now.map_or(SEED, |time| time.as_secs());
    let times = [Time::virtual_time(), FAST, Time::Live];
    while begun.elapsed() < soak_time() {
        seed += 1;
        let left = soak_time().saturating_sub(begun.elapsed());
        let goal = Goal { exits: u64::MAX, time: left.min(TURN), seed };
        let time = times[seed as usize % times.len()];
        let done =
            fuzz(&bench.dir, artifacts(), time, goal).map_err(|why| format!("{time:?}, {why}"))?;
        all += done.exits;
        (told_last, _) = told(bench, &done)?;
        println!("{time:?}, seed {seed}: {told_last}");
    }
    Ok(format!("{all} exits; the last turn: {told_last}"))
}

/// Random exits of a run, which reaches each cause and condition.
const EXITS: u64 = 2_000_000;
const SEED: u64 = 2026;

/// Kinds of denials by which a sandbox of this system begins anew, and bytes of what is told of them.
const ENDING: [u16; 2] = [Kind::Memory as u16, Kind::Shutdown as u16];
const SAID: usize = 1 << 18;

/// The system: [`watcher`] has who is who.
fn system(seed: u64) -> Manifest {
    let health = |name: &str| {
        ["memory-violation", "triple-fault"].map(|on| {
            format!("[[health]]\nsandbox = \"{name}\"\non = \"{on}\"\naction = \"restart\"\n")
        })
    };
    let links = |other: &str, count: u32| {
        format!("links = {{ to = [\"{other}\"], count = {count}, size = \"8 KiB\" }}\n")
    };
    let may = |what: &str, whom: &str, every: &str| {
        format!("{what} = [{{ sandbox = \"{whom}\", every = \"{every}\" }}]\n")
    };
    let first = links("peer", 2)
        + &["stop", "start", "restart"].map(|what| may(what, "peer", "200 ms")).concat()
        + "devices = [\"uart1\", \"rtc\", \"pci:00:08.0\", \"pci:00:09.1\"]";
    let second = links("fuzz", 1) + "devices = [\"pit\", \"pci:01:00.0\", \"pci:00:1f.2\"]";
    let keeps =
        ["start", "restart"].map(|what| format!("{what} = [\"fuzz\", \"peer\"]\n")).concat();
    let mut manifest = Manifest::new()
        .ends_with(&["keeper"])
        .bare("victim", "victim", "", &[0], MEMORY, "devices = [\"uart0\", \"pci:00:03.0\"]")
        .bare(
            "fuzz",
            "fuzz",
            &format!("seed={seed} functions=40,49"),
            &[1, 2, 3, 4],
            "4 MiB",
            &first,
        )
        .bare("peer", "fuzz", &format!("seed={} functions=100,fa", !seed), &[5], "4 MiB", &second)
        .bare("keeper", "fuzz", "keep=1,2", &[6], "4 MiB", &keeps);
    // Operations are written by the guest, and executed.
    let program = "program = \"artifact:fuzz\"";
    manifest.0 = manifest.0.replace(program, &format!("{program}, access = \"rwx\""));
    let channel = |name: &str, from: &str, to: &str, more: &str| {
        format!("[[channel]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = [\"{to}\"]\n{more}\n")
    };
    const QUEUE: &str = "size = \"4 KiB\"\nkind = \"queue\"\nmessage = 64\nnotify = \"doorbell\"";
    manifest.0 += &channel("fuzz-peer", "fuzz", "peer", QUEUE);
    manifest.0 += &channel("peer-fuzz", "peer", "fuzz", QUEUE);
    manifest.0 += &channel("lessons", "fuzz", "peer", "size = \"64 KiB\"\nkind = \"program\"");
    for name in ["fuzz", "peer"] {
        let size = format!("size = \"{} KiB\"", fuzz_guest::BOOK_SIZE >> 10);
        manifest.0 += &channel(&format!("{}{name}", fuzz_guest::BOOK), name, "keeper", &size);
        health(name).iter().for_each(|text| manifest.0 += text);
    }
    manifest
}

/// Runs it with monitors from a folder.
fn fuzz(dir: &Path, folder: PathBuf, time: Time, goal: Goal) -> Result<Done, String> {
    let checked = system(goal.seed).load(dir)?;
    let baked = bulkhead_run::build(&checked, &folder).map_err(|e| e.to_string())?;
    let mut options = super::system::options(dir);
    options.artifacts.clone_from(&folder);
    options.time = time;
    options.limit = goal.time + Duration::from_secs(90);
    options.plugin = Some(build::plugin().map_err(|e| e.to_string())?);
    options.cover = FUZZERS.iter().map(|&i| (i, NEWS)).collect();
    // A finding ends the run, also one by which the keeper cannot end it any more.
    let found = Arc::new(AtomicBool::new(false));
    let over = found.clone();
    options.stop = Some(Box::new(move || over.load(Ordering::Relaxed)));
    let (mut watcher, mut said) = (None, String::new());
    let outcome = bulkhead_run::run(checked, &options, |event| match event {
        Event::Started(running) => {
            let ram = Ram::open(running.ram().path(), running.ram().below_4g());
            let new = ram.and_then(|ram| Watcher::new(ram, dir, &baked, &folder));
            let found = found.clone();
            watcher = Some(std::thread::spawn(move || {
                let done = new.and_then(|watcher| watcher.run(goal));
                found.store(done.is_err(), Ordering::Relaxed);
                done
            }));
        }
        // The denials that ended lives.
        Event::Denied(denial) if ENDING.contains(&denial.record.kind) && said.len() < SAID => {
            said += &format!("{denial}\n");
        }
        Event::State(name, state) if said.len() < SAID => {
            said += &format!("{name} is now {state:?}\n")
        }
        Event::Console(name, text) if said.len() < SAID => said += &format!("{name}: {}", text),
        _ => {}
    });
    let _ = std::fs::write(dir.join("said.txt"), said);
    let watcher = watcher
        .ok_or_else(|| outcome.as_ref().err().map_or("no machine".into(), |e| e.to_string()))?;
    let done = watcher.join().map_err(|_| "the watcher failed")??;
    outcome.map_err(|e| e.to_string())?;
    Ok(done)
}

/// Exits that no guest can cause here: SMI and INIT come from the machine, and no sandbox has a watchdog.
const NOT_CAUSES: [Cause; 2] = [Cause::Other, Cause::Watchdog];
/// Denials that no guest can cause here: of a device that does not come to rest. The others are findings of monitors
/// with a watchdog, a ladder or snapshots, which this system has not.
const NOT_CONDITIONS: [Condition; 8] = [
    Condition::DeviceRest,
    Condition::Hang,
    Condition::Failure,
    Condition::GuestSum,
    Condition::MonitorSum,
    Condition::ControlBlock,
    Condition::MonitorHang,
    Condition::Snapshot,
];

fn machine(bench: &Bench) -> Result<String, String> {
    // A quiet machine needs a sixth of that.
    let goal = Goal { exits: EXITS, time: Duration::from_secs(720), seed: SEED };
    let done = fuzz(&bench.dir, artifacts(), FAST, goal)?;
    let (mut said, functions) = told(bench, &done)?;
    note(done.exits)?;
    if done.exits < EXITS {
        return Err(format!("only {said}"));
    }
    let missing = |names: &[&str], seen: &[u64], not: &[usize]| {
        let missing = (0..names.len()).filter(|n| seen[*n] == 0 && !not.contains(n));
        missing.map(|n| names[n].to_owned()).collect::<Vec<_>>()
    };
    let mut never = missing(&CAUSE_NAMES[..CAUSES], &done.causes, &NOT_CAUSES.map(|c| c as usize));
    never.extend(missing(&CONDITION_NAMES, &done.conditions, &NOT_CONDITIONS.map(|c| c as usize)));
    if !never.is_empty() {
        return Err(format!("never seen: {never:?}; {said}"));
    }
    let listed =
        cover::held(&functions, &cover::known()?).map_err(|why| format!("{why}\n{said}"))?;
    said += &listed;
    Ok(said)
}

/// The rows of the figures; a finding leaves none. How many exits are made beyond the bound is chance.
fn note(exits: u64) -> Result<(), String> {
    let row = |name, value| Row::new(name, "exits", value);
    let mut made = row("fuzz.exits", exits.min(EXITS) as f64).higher();
    (made.bound, made.reached) = (Some(format!("at least {EXITS}")), Some(exits >= EXITS));
    let mut found = Row { unit: "findings".into(), ..row("fuzz.findings", 0.0) };
    (found.bound, found.reached) = (Some("0".into()), Some(true));
    let file = build::target().join("bench/results.json");
    Rows::add_to(&file, &[made, found]).map_err(|e| e.to_string())
}

/// Tells a run in words, the functions that it did not reach, and all functions. Lines not reached go to a file.
fn told(bench: &Bench, done: &Done) -> Result<(String, [BTreeSet<cover::Function>; 2]), String> {
    let lines = cover::lines(&artifacts().join("monitor"), &done.reached)?;
    let functions = cover::functions(&lines);
    let [all, reached] = lines.instructions;
    let missed = cover::missed(&lines);
    let count = lines.lines.values().filter(|reached| !**reached).count();
    let file = bench.dir.join("not-reached.txt");
    let text = format!(
        "functions: {:#?}\nin the source: {:#?}\n{missed}\ntriple faults that were not meant: {}\n{}",
        lines.functions,
        functions[0],
        done.shutdowns.len(),
        done.shutdowns.concat()
    );
    std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    let causes: Vec<_> = CAUSE_NAMES
        .iter()
        .zip(done.causes)
        .map(|(name, exits)| format!("{name} {exits}"))
        .collect();
    let conditions: Vec<_> = CONDITION_NAMES
        .iter()
        .zip(done.conditions)
        .map(|(name, denials)| format!("{name} {denials}"))
        .collect();
    let said = format!(
        "{} exits by {} operations in {} s; {} restarts, {} audits in {} s, {} lives not audited; {reached} of {all} \
         instructions, {count} of {} lines never (not-reached.txt); {} inputs kept; {}; denied: {}\n\
         never reached: {}\n{missed}",
        done.exits,
        done.operations,
        done.took.as_secs(),
        done.restarts,
        done.audits,
        done.audited.as_secs(),
        done.unaudited,
        lines.lines.len(),
        done.kept,
        causes.join(", "),
        conditions.join(", "),
        lines.functions.join(", ")
    );
    Ok((said, functions))
}
