//! Monitors that stop: a peer finds them, takes their cores, and their sandboxes go on in a spare monitor.

use super::driver::{Bench, Job};
use super::mutate;
use super::sweep::Listed;
use super::system::{Manifest, Seen, artifacts, run_from, started};
use bulkhead_layout::map::{
    CORE_CONTROL, CORE_REPORT, CORE_STACK, CORE_STACK_SIZE, CORE_STRIDE, CORES_VA,
};
use bulkhead_layout::report::{Cause, State};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Test of a monitor that does not look at its peers.
pub const MUTANT: &str = "peer/mutant";

/// Milliseconds of a tick, and from a heartbeat to the next.
const PERIOD: u64 = 20;
const EVERY: u64 = 40;
/// The sandbox with the monitor that stops, and its number.
pub const STOPS: &str = "driver";
pub const INDEX: usize = 1;
pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("peer/data", 120, |bench| goes_on(bench, deaf(0))),
        Job::one("peer/second-core", 120, |bench| goes_on(bench, deaf(1))),
        Job::one("peer/fault", 120, |bench| goes_on(bench, Box::new(fault))),
        Job::one("peer/told", 120, told),
        Job::one("peer/stopped", 120, stopped),
        Job::one("peer/device", 120, device),
        Job::one("peer/sum", 120, sum),
        Job::one("peer/again", 120, again),
        Job::one("peer/flood", 120, flood),
        Job::one(MUTANT, 400, mutant),
    ]
}

/// Changes the memory of a machine when the sandbox runs for the first time: what lies where is listed.
pub type Strike = Box<dyn Fn(&Listed, &File) -> std::io::Result<()>>;

/// Waits until a core has had ticks in its guest.
pub fn wait_for_ticks(listed: &Listed, ram: &File, core: u64) -> std::io::Result<()> {
    let counts = CORES_VA + core * CORE_STRIDE + CORE_REPORT + Cause::Watchdog as u64 * 8;
    let pa = listed.behind(INDEX, counts).expect("a report");
    let begin = Instant::now();
    loop {
        let mut ticks = [0; 8];
        ram.read_exact_at(&mut ticks, pa)?;
        if u64::from_le_bytes(ticks) > 2 {
            return Ok(());
        }
        if begin.elapsed() > Duration::from_secs(60) {
            return Err(std::io::Error::other("no tick in a minute"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The first core's clock of ticks.
const DUE: u64 = CORES_VA + CORE_STACK + 8;

/// One bit of a core's clock: it takes no doorbell for a tick any more.
pub fn deaf(core: u64) -> Strike {
    Box::new(move |listed, ram| {
        let pa = listed.behind(INDEX, DUE + core * CORE_STRIDE).expect("a stack");
        wait_for_ticks(listed, ram, core)?;
        let mut word = [0; 8];
        ram.read_exact_at(&mut word, pa)?;
        word[7] ^= 0x40;
        ram.write_all_at(&word, pa)
    })
}

/// The word by which a core enters its guest: the next entry is an exception in the monitor.
fn fault(listed: &Listed, ram: &File) -> std::io::Result<()> {
    wait_for_ticks(listed, ram, 0)?;
    let stack = listed.behind(INDEX, CORES_VA + CORE_STACK).expect("a stack");
    let block = listed.behind(INDEX, CORES_VA + CORE_CONTROL);
    let mut bytes = vec![0; CORE_STACK_SIZE as usize];
    ram.read_exact_at(&mut bytes, stack)?;
    let block = block.expect("a control block").to_le_bytes();
    for (at, word) in (0..).step_by(8).zip(bytes.chunks_exact(8)) {
        if *word == block {
            ram.write_all_at(&1u64.to_le_bytes(), stack + at)?;
        }
    }
    Ok(())
}

/// A guard that looks at a driver, beside one that goes on; `may` is the guard's right, `health` the driver's answer.
fn manifest(may: &str, health: &str) -> Manifest {
    with("core=1 way=sleep", 120, "", may, health)
}

/// With other arguments of the driver, so many kicks of the guard until the end, and more keys of the driver.
pub fn with(args: &str, kicks: u32, more: &str, may: &str, health: &str) -> Manifest {
    let watch = format!("watchdog = \"{PERIOD} ms\"\n");
    let alive = format!("{watch}alive = \"{} ms\"\n", PERIOD * 3 / 4);
    let driver = format!("{watch}devices = [\"pci:00:03.0\"]\n{more}");
    Manifest(
        Manifest::new()
            .ends_with(&["guard"])
            .bare("guard", "hang", &format!("kicks={kicks}"), &[0], "4 MiB", &alive)
            .bare(STOPS, "hang", args, &[1, 2], "8 MiB", &driver)
            .bare("steady", "hang", "", &[3], "4 MiB", &alive)
            .0
            + &format!(
                "[[peer]]\nsandbox = \"guard\"\nwatches = \"{STOPS}\"\nevery = \"{EVERY} ms\"\nfirst = \"1 s\"\nmay = [{may}]\n{health}"
            ),
    )
}

pub const BOTH: &str = "\"init\", \"bus-master\"";

pub fn health(action: &str) -> String {
    format!("[[health]]\nsandbox = \"{STOPS}\"\non = \"monitor\"\n{action}\n")
}

/// Runs it, with a monitor that is struck.
pub fn struck(
    manifest: &Manifest,
    dir: &Path,
    folder: Option<PathBuf>,
    strike: Strike,
) -> Result<Seen, String> {
    struck_in(manifest, dir, (STOPS, 1), strike, |o| {
        o.artifacts = folder.unwrap_or_else(artifacts);
    })
}

/// Runs a system with a monitor that is struck: that of the sandbox with number [`INDEX`]. That happens when
/// a sandbox begins to run, for the first time or a later one.
pub fn struck_in(
    manifest: &Manifest,
    dir: &Path,
    (when, times): (&str, usize),
    strike: Strike,
    options: impl FnOnce(&mut bulkhead_run::Options),
) -> Result<Seen, String> {
    let listed: Rc<RefCell<Listed>> = Rc::default();
    let keep = Rc::clone(&listed);
    let ram: Rc<RefCell<PathBuf>> = Rc::default();
    let path = Rc::clone(&ram);
    let (mut done, mut runs) = (None, 0);
    let seen = run_from(
        manifest,
        dir,
        |o| {
            o.limit = Duration::from_secs(100);
            o.audit = true;
            options(o);
            o.spoil = Some(Box::new(move |bytes, baked| {
                *keep.borrow_mut() = Listed::of(bytes, baked);
            }));
        },
        started(|running| *path.borrow_mut() = running.ram().path().to_owned()),
        |(of, state), _| {
            runs += usize::from(of == when && state == State::Running);
            if runs == times && done.is_none() {
                let file = File::options().read(true).write(true).open(&*ram.borrow());
                let struck = file.and_then(|file| strike(&listed.borrow(), &file));
                done = Some(struck.map_err(|error| error.to_string()));
            }
        },
    )?;
    done.unwrap_or_else(|| Err(format!("{when} ran {runs} times, not {times}")))?;
    Ok(seen)
}

/// Number of findings of a sandbox' own records.
pub fn findings(seen: &Seen, name: &str) -> usize {
    let own = |d: &&bulkhead_explain::Explained| d.sandbox == name && d.condition == "monitor-hang";
    seen.denials.iter().filter(own).count()
}

/// Without a right to act there is a record, and the sandbox is as its monitor left it.
fn told(bench: &Bench) -> Result<String, String> {
    let seen = struck(&manifest("", ""), &bench.dir, None, deaf(0))?;
    let found = [findings(&seen, "guard"), findings(&seen, STOPS)];
    seen.ensure(found == [1, 0], format!("{found:?} records"))?;
    let s = seen.sandbox(STOPS)?;
    seen.ensure(s.restarts == 0, format!("{STOPS} has begun anew"))?;
    seen.undisturbed("steady", &["running", "exited"])?;
    seen.exited("guard")?;
    Ok("a record, and nothing else".into())
}

/// Functions do not master the bus any more when their monitor has stopped. The guest goes on behind it.
fn device(bench: &Bench) -> Result<String, String> {
    let manifest = with("core=1 way=sleep master=1", 120, "", "\"bus-master\"", "");
    let seen = struck(&manifest, &bench.dir, None, deaf(0))?;
    let found = [findings(&seen, "guard"), findings(&seen, STOPS)];
    seen.ensure(found == [1, 0], format!("{found:?} records"))?;
    let commands: Vec<u64> = { seen.console.lines() }
        .filter_map(|line| line.split_once("hang: command 0x"))
        .filter_map(|(_, value)| u64::from_str_radix(value.trim(), 16).ok())
        .collect();
    let right = matches!(commands[..], [on, off] if on & 4 != 0 && off == on & !4);
    seen.ensure(right, format!("the command register had {commands:x?}"))?;
    seen.exited("guard")?;
    Ok("bus mastering is off".into())
}

/// A bit of its text: its own sweep finds it, and stops it.
fn sum(bench: &Bench) -> Result<String, String> {
    let answer = health("action = \"restart\"");
    let manifest = with("core=1 way=sleep", 120, "sweep = \"100 ms\"\n", BOTH, &answer);
    let text = |listed: &Listed, ram: &File| {
        let pa = listed.text(INDEX).expect("text");
        let mut byte = [0];
        ram.read_exact_at(&mut byte, pa)?;
        ram.write_all_at(&[byte[0] ^ 1], pa)
    };
    let seen = struck(&manifest, &bench.dir, None, Box::new(text))?;
    let sums = seen.denials.iter().filter(|d| d.condition == "monitor-sum").count();
    let found = [findings(&seen, "guard"), findings(&seen, STOPS)];
    seen.ensure(found == [1, 1] && sums == 1, format!("{found:?} records, {sums} sums"))?;
    let s = seen.sandbox(STOPS)?;
    seen.ensure((s.state, s.restarts) == ("exited", 1), format!("{STOPS} is {}", s.state))?;
    seen.undisturbed("steady", &["running", "exited"])?;
    Ok("found by its sweep, and it goes on in the spare monitor".into())
}

/// The spare monitor stops, too: the limits of a ladder count on.
fn again(bench: &Bench) -> Result<String, String> {
    let ladder = health(
        "ladder = [{ action = \"restart\", at_most = { times = 1, within = \"10 s\" } }, { action = \"stop\" }]",
    );
    // Its clock is wrong again at each time that it is right.
    let strike = |listed: &Listed, ram: &File| {
        deaf(0)(listed, ram)?;
        let pa = listed.behind(INDEX, DUE).expect("a stack");
        let ram = ram.try_clone()?;
        std::thread::spawn(move || {
            let (begin, mut word) = (Instant::now(), [0; 8]);
            while begin.elapsed() < Duration::from_secs(90)
                && ram.read_exact_at(&mut word, pa).is_ok()
            {
                if word[7] & 0x40 == 0 {
                    word[7] |= 0x40;
                    let _ = ram.write_all_at(&word, pa);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Ok(())
    };
    let manifest = with("core=1 way=sleep lives=2", 120, "", BOTH, &ladder);
    let seen = struck(&manifest, &bench.dir, None, Box::new(strike))?;
    let s = seen.sandbox(STOPS)?;
    let deeds: Vec<_> = s.newest_deeds.iter().map(|deed| (deed.rung, deed.action)).collect();
    let right = deeds == [(1, "restart"), (2, "stop")] && s.state == "stopped";
    seen.ensure(right, format!("{STOPS} is {}, after {deeds:?}", s.state))?;
    seen.ensure(findings(&seen, "guard") == 2, "it was not found twice")?;
    seen.undisturbed("steady", &["running", "exited"])?;
    Ok("restarted once, then stopped".into())
}

/// A guest that floods its monitor keeps it from no heartbeat.
fn flood(bench: &Bench) -> Result<String, String> {
    let manifest = with("core=1 way=calls", 16, "", BOTH, &health("action = \"restart\""));
    let nothing = |listed: &Listed, ram: &File| wait_for_ticks(listed, ram, 0);
    let seen = struck(&manifest, &bench.dir, None, Box::new(nothing))?;
    let found = [findings(&seen, "guard"), findings(&seen, STOPS)];
    seen.ensure(found == [0, 0], format!("{found:?} records"))?;
    let s = seen.sandbox(STOPS)?;
    seen.ensure((s.state, s.restarts) == ("running", 0), format!("{STOPS} is {}", s.state))?;
    seen.exited("guard")?;
    Ok("not found".into())
}

/// Without an answer in the manifest the sandbox stops; its spare monitor waits for a start.
fn stopped(bench: &Bench) -> Result<String, String> {
    let seen = struck(&manifest(BOTH, ""), &bench.dir, None, deaf(0))?;
    let found = [findings(&seen, "guard"), findings(&seen, STOPS)];
    seen.ensure(found == [1, 1], format!("{found:?} records"))?;
    let s = seen.sandbox(STOPS)?;
    let right = (s.state, s.restarts) == ("stopped", 0);
    seen.ensure(right, format!("{STOPS} is {} after {} restarts", s.state, s.restarts))?;
    seen.exited("guard")?;
    Ok("its sandbox stopped".into())
}

/// A monitor that does not look finds nothing.
fn mutant(bench: &Bench) -> Result<String, String> {
    mutate::build_mutants()?;
    let folder = mutate::monitor_without("peer")?;
    let manifest = manifest(BOTH, &health("action = \"restart\""));
    let seen = struck(&manifest, &bench.dir, Some(folder), deaf(0))?;
    let found = [findings(&seen, "guard"), findings(&seen, STOPS)];
    seen.ensure(found == [0, 0], format!("a monitor that does not look has found it: {found:?}"))?;
    seen.exited("guard")?;
    Ok("a monitor that does not look finds nothing".into())
}

/// Its guest begins anew in the spare monitor, and nobody else is touched.
fn goes_on(bench: &Bench, strike: Strike) -> Result<String, String> {
    let seen = struck(&manifest(BOTH, &health("action = \"restart\"")), &bench.dir, None, strike)?;
    let found = [findings(&seen, "guard"), findings(&seen, STOPS)];
    let report = &seen.outcome()?.snapshot.sandboxes[INDEX].report;
    let fault = [report.fault, report.fault_detail];
    seen.ensure(found == [1, 1], format!("{found:?} records, {fault:x?}"))?;
    let s = seen.sandbox(STOPS)?;
    let right = (s.state, s.restarts) == ("exited", 1);
    seen.ensure(right, format!("{STOPS} is {} after {} restarts", s.state, s.restarts))?;
    seen.undisturbed("steady", &["running", "exited"])?;
    seen.exited("guard")?;
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))?;
    let took = taken(&seen)?;
    Ok(format!(
        "found {} us behind the last heartbeat, and in the spare monitor {} us later",
        took[0], took[1]
    ))
}

/// Microseconds from the last heartbeat to the finding, and from there to the spare monitor.
fn taken(seen: &Seen) -> Result<[u64; 2], String> {
    let record = |name: &str| {
        let own = |d: &&bulkhead_explain::Explained| d.sandbox == name && d.kind == "monitor";
        let found = seen.denials.iter().find(own).map(|d| d.record);
        found.ok_or_else(|| seen.wrong(format!("{name} has no record")))
    };
    let (found, taken) = (record("guard")?, record(STOPS)?);
    let hz = seen.outcome()?.snapshot.boot.map_or(1, |boot| boot.hz);
    let us = |ticks: u64| (u128::from(ticks) * 1_000_000 / u128::from(hz)) as u64;
    // A heartbeat is the time at which it was moved.
    let took = [found.ticks - found.info, taken.ticks - found.ticks].map(us);
    // A tick here can be late by more than an eighth of a period, which hides the next one.
    let most = (EVERY * 8 / 7 / PERIOD + 4) * PERIOD * 1_000;
    seen.ensure(took[0] <= most, format!("it was found after {} us, not {most}", took[0]))?;
    Ok(took)
}
