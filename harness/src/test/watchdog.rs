//! Watchdogs: a core that stops, in whatever way, is found in time, and its sandbox does what the manifest says.

use super::driver::{Bench, Job};
use super::mutate;
use super::spoil::Spoil;
use super::system::{Manifest, Seen, run};
use bulkhead_image::{Baked, Part};
use bulkhead_layout::map::IMAGE_PA;
use bulkhead_layout::report::Kind;
use std::time::Duration;

/// Ways to stop (`guests/hang`).
const WAYS: [&str; 12] = [
    "off",
    "on",
    "sleep",
    "sleep-off",
    "shadow",
    "masked",
    "nmi",
    "itself",
    "deaf",
    "calls",
    "cpuid",
    "registers",
];
/// Milliseconds of a period. Without a metronome timers are late by milliseconds where six cores are busy.
const PERIOD: u64 = 20;
/// Longest time to a finding here, ns. A tick that is late by more than an eighth of a period hides the next one, which
/// makes it three periods. In precise time it is two: that is the bound of `recover.hang_found`.
const MOST: u64 = 3 * PERIOD * 1_000_000;

/// Cores of QEMU's machine that the tests use.
const CORES: usize = 6;

/// Test of a monitor that does not look.
pub const MUTANT: &str = "watchdog/mutant";

pub fn jobs() -> Vec<Job> {
    let mut jobs: Vec<Job> = WAYS
        .chunks(CORES)
        .map(|ways| {
            let name = format!("watchdog/{}", ways[0]);
            Job::one(name, 120, move |bench| found(&stopping(ways, bench)?, ways))
        })
        .collect();
    jobs.push(Job::one("watchdog/second-core", 120, second));
    jobs.push(Job::one("watchdog/alive", 120, alive));
    jobs.push(Job::one("watchdog/never", 120, never));
    jobs.push(Job::one("watchdog/ignored", 120, ignored));
    jobs.push(Job::one("watchdog/program", 120, program));
    jobs.push(Job::one("watchdog/sign", 120, sign));
    jobs.push(Job::one("watchdog/idle", 120, idle));
    jobs.push(Job::one("watchdog/c", 120, in_c));
    jobs.push(Job::one("watchdog/linux", 300, linux));
    jobs.push(Job::one(MUTANT, 400, mutant));
    jobs
}

/// Lines of a sandbox with a watchdog.
fn watched(alive: &str) -> String {
    format!("watchdog = \"{PERIOD} ms\"\nalive = {alive}\n")
}

/// An entry of `[[health]]`.
fn health(sandbox: &str, action: &str) -> String {
    format!("[[health]]\nsandbox = \"{sandbox}\"\non = \"hang\"\naction = \"{action}\"\n")
}

fn every() -> String {
    format!("\"{} ms\"", PERIOD * 3 / 4)
}

fn with(manifest: Manifest, more: &str) -> Manifest {
    Manifest(manifest.0 + more)
}

/// A sandbox for each way, on a core of its own, beside one that goes on.
fn stopping(ways: &[&str], bench: &Bench) -> Result<Seen, String> {
    let mut manifest = Manifest::new().ends_with(ways);
    for (core, way) in (0..).zip(ways) {
        let args = format!("way={way}");
        manifest = manifest.bare(way, "hang", &args, &[core], "4 MiB", &watched(&every()));
    }
    let steady = watched(&every());
    manifest = manifest.bare("steady", "hang", "", &[CORES as u32], "4 MiB", &steady);
    let healths: String = ways.iter().map(|way| health(way, "restart")).collect();
    run(&with(manifest, &healths), &bench.dir, |o| {
        o.limit = Duration::from_secs(100);
        o.audit = true;
    })
}

/// Nanoseconds from the end of a sandbox' progress to its finding.
fn taken(seen: &Seen, name: &str, way: &str) -> Result<u64, String> {
    let said = format!("[{name}] hang: {way} at ");
    let at = seen.console.split_once(&said).and_then(|(_, rest)| rest.lines().next());
    let at = at.and_then(|at| at.trim().parse::<u64>().ok());
    let at = at.ok_or_else(|| seen.wrong(format!("{name} does not say when it stops")))?;
    let own = |d: &&bulkhead_explain::Explained| d.sandbox == name && d.kind == "hang";
    let found = seen.denials.iter().find(own);
    let found = found.ok_or_else(|| seen.wrong(format!("no record of {name}'s hang")))?;
    let hz = seen.outcome()?.snapshot.boot.map_or(0, |boot| boot.hz);
    seen.ensure(hz > 0 && found.record.ticks > at, "it was found before it stopped")?;
    Ok(((found.record.ticks - at) as u128 * 1_000_000_000 / u128::from(hz)) as u64)
}

/// Each was found in time and began anew; the one beside them was not touched.
fn found(seen: &Seen, ways: &[&str]) -> Result<String, String> {
    let mut worst = 0;
    for way in ways {
        let took = taken(seen, way, way)?;
        worst = worst.max(took);
        seen.ensure(took <= MOST, format!("{way} was found after {took} ns"))?;
        seen.exited(way)?;
        let s = seen.sandbox(way)?;
        seen.ensure(s.restarts == 1, format!("{way} has begun anew {} times", s.restarts))?;
        let hangs = { s.by_condition.iter() }.filter(|c| c.condition == "hang").map(|c| c.count);
        seen.ensure(hangs.sum::<u64>() == 1, format!("{way} was not found once"))?;
    }
    seen.undisturbed("steady", &["running", "exited"])?;
    audited(seen)?;
    Ok(format!(
        "{} ways, found within {:.2} periods",
        ways.len(),
        worst as f64 / (PERIOD as f64 * 1e6)
    ))
}

fn audited(seen: &Seen) -> Result<(), String> {
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))
}

/// A Linux moves its words by `bulkheadctl kick`, until a driver hangs with interrupts off on one of its cores. It is
/// begun anew, hangs again, and stops. A neighbour goes on.
fn linux(bench: &Bench) -> Result<String, String> {
    let commands = "bulkheadctl kick & sleep 1; echo kicking; insmod /bhhang.ko after_ms=1";
    let job = super::block::script(commands);
    let watch = "watchdog = \"20 ms\"\nalive = { every = \"400 ms\", first = \"60 s\" }\n";
    let kernel = "linux-6.12-cloud";
    let ground = Manifest::new().ends_with(&["ground"]);
    let ground = ground.linux("ground", kernel, &job, &[0, 1], "256 MiB", 1);
    let ground = ground.0.replace("artifact:test.cpio", "artifact:hang.cpio") + watch;
    let steady = format!("{}[[health]]\nsandbox = \"ground\"\non = \"hang\"\n", watched(&every()));
    let ladder = "ladder = [{ action = \"restart\", at_most = { times = 1, within = \"600 s\" } }, { action = \"stop\" }]\n";
    let manifest =
        Manifest(ground).bare("steady", "hang", "kicks=1000000", &[2], "4 MiB", &(steady + ladder));
    let seen = run(&manifest, &bench.dir, |o| o.limit = Duration::from_secs(280))?;
    let s = seen.sandbox("ground")?;
    let right = (s.state, s.restarts) == ("stopped", 1);
    seen.ensure(right, format!("it is {} after {} restarts", s.state, s.restarts))?;
    let hangs = seen.denials.iter().filter(|d| d.kind == "hang").count();
    let said = seen.serial(1)?;
    let times = |text: &str| said.matches(text).count();
    let told = [times("2 cores move their words"), times("bhhang: hangs")];
    seen.ensure(told == [2, 2] && hangs == 2, format!("{told:?}, {hangs} hangs"))?;
    seen.undisturbed("steady", &["running"])?;
    Ok("found twice, begun anew once".into())
}

/// The second core stops, the first one goes on.
fn second(bench: &Bench) -> Result<String, String> {
    let manifest = Manifest::new().ends_with(&["two"]).bare(
        "two",
        "hang",
        "way=off core=1",
        &[0, 1],
        "4 MiB",
        &watched(&every()),
    );
    let seen = run(&with(manifest, &health("two", "restart")), &bench.dir, |o| o.audit = true)?;
    let took = taken(&seen, "two", "off")?;
    seen.ensure(took <= MOST, format!("it was found after {took} ns"))?;
    seen.exited("two")?;
    let core = seen.denials.iter().find(|d| d.kind == "hang").map(|d| d.core);
    seen.ensure(core == Some(1), format!("the record is of core {core:?}"))?;
    audited(&seen)?;
    Ok("the record names its core".into())
}

/// A guest that goes on is not taken for one that hangs, and its ticks come at their rate.
fn alive(bench: &Bench) -> Result<String, String> {
    let manifest = Manifest::new().ends_with(&["one"]).bare(
        "one",
        "hang",
        "",
        &[0],
        "4 MiB",
        &watched(&format!("\"{PERIOD} ms\"")),
    );
    let seen = run(&with(manifest, &health("one", "restart")), &bench.dir, |_| {})?;
    seen.undisturbed("one", &["exited"])?;
    let s = seen.sandbox("one")?;
    let count = |cause: &str| s.exits.steady.get(cause).copied().unwrap_or(0);
    let expected = (s.exits.steady_seconds * 1_000.0 / PERIOD as f64) as u64;
    // In virtual time QEMU's HPET sends each message a second time, a microsecond later (docs/watchdog.md).
    let again = count("doorbell") <= count("watchdog") + 1;
    let right = count("watchdog").abs_diff(expected) <= 1 && again;
    let detail =
        format!("{} ticks of {expected}, {} doorbells", count("watchdog"), count("doorbell"));
    seen.ensure(right, &detail)?;
    Ok(detail)
}

/// A guest that does not begin is found by the time until its first move.
fn never(bench: &Bench) -> Result<String, String> {
    let first = format!("{{ every = \"{PERIOD} ms\", first = \"200 ms\" }}");
    let manifest = Manifest::new().ends_with(&["deaf"]).bare(
        "deaf",
        "victim",
        "",
        &[0],
        "8 MiB",
        &watched(&first),
    );
    let seen = run(&with(manifest, &health("deaf", "stop")), &bench.dir, |_| {})?;
    let s = seen.sandbox("deaf")?;
    let found = seen.denials.iter().filter(|d| d.record.kind == Kind::Hang as u16).count();
    seen.ensure((s.state, found) == ("stopped", 1), format!("{}, {found} records", s.state))?;
    Ok("stopped".into())
}

/// A hang that the manifest ignores leaves one record, and the ticks go on.
fn ignored(bench: &Bench) -> Result<String, String> {
    let manifest = Manifest::new()
        .ends_with(&["timer"])
        .bare("stuck", "hang", "way=off", &[0], "4 MiB", &watched(&every()))
        .bare("timer", "hang", "", &[1], "4 MiB", &watched(&every()));
    let seen = run(&with(manifest, &health("stuck", "ignore")), &bench.dir, |_| {})?;
    seen.exited("timer")?;
    let s = seen.sandbox("stuck")?;
    let hangs: u64 =
        { s.by_condition.iter() }.filter(|c| c.condition == "hang").map(|c| c.count).sum();
    let ticks = s.exits.steady.get("watchdog").copied().unwrap_or(0);
    let right = s.state == "running" && hangs == 1 && ticks > 20;
    seen.ensure(right, format!("{}, {hangs} records, {ticks} ticks", s.state))?;
    Ok(format!("1 record, {ticks} ticks"))
}

/// A kernel's sandbox with a program that kicks its watchdog.
fn kernel(name: &str, core: u32, args: &str) -> String {
    format!(
        "[[sandbox]]\nname = \"{name}\"\nguest = {{ kind = \"kernel\" }}\ncores = [{core}]\nmemory = \"8 MiB\"\n{}
[[program]]\nname = \"{name}\"\nsandbox = \"{name}\"\nfile = \"artifact:program-hang\"\nargs = \"{args}\"\nends_sandbox = true\nwatchdog = true
[[thread]]\nname = \"{name}\"\nprogram = \"{name}\"\npriority = 10\ncontext = \"{name}\"
[[context]]\nname = \"{name}\"\nsandbox = \"{name}\"\nbudget = \"1 ms\"\nperiod = \"5 ms\"\n",
        // Several ticks: without a metronome the timer of a budget can be late by more than one.
        watched("\"50 ms\"")
    )
}

/// A program that stops kicking while its kernel goes on, beside one that kicks.
fn program(bench: &Bench) -> Result<String, String> {
    let manifest = Manifest::new().ends_with(&["timer"]).bare(
        "timer",
        "hang",
        "",
        &[2],
        "4 MiB",
        &watched(&every()),
    );
    let more =
        kernel("stops", 0, "kicks=10") + &kernel("steady", 1, "") + &health("stops", "restart");
    let seen = run(&with(manifest, &more), &bench.dir, |o| o.audit = true)?;
    seen.exited("timer")?;
    seen.undisturbed("steady", &["running"])?;
    let s = seen.sandbox("stops")?;
    let begins = seen.console.matches("[stops] hang: begins").count() as u64;
    let right = s.restarts > 1 && s.denials == s.restarts && begins == s.restarts + 1;
    seen.ensure(right, format!("{} restarts, {} records, {begins} lives", s.restarts, s.denials))?;
    audited(&seen)?;
    Ok(format!("found and begun anew {} times", s.restarts))
}

/// A program with a word for its guard.
fn ward(name: &str, args: &str) -> String {
    format!(
        "[[shared]]\nname = \"alive-{name}\"\nsandbox = \"rt\"\nsize = \"4 KiB\"
[[program]]\nname = \"{name}\"\nsandbox = \"rt\"\nfile = \"artifact:program-hang\"\nargs = \"sign=5 {args}\"\nmaps = [{{ shared = \"alive-{name}\", access = \"rw\" }}]
[[thread]]\nname = \"{name}\"\nprogram = \"{name}\"\npriority = 10\ncontext = \"{name}\"\nfault = \"trouble\"
[[context]]\nname = \"{name}\"\nsandbox = \"rt\"\nbudget = \"1 ms\"\nperiod = \"5 ms\"\n"
    )
}

/// Programs of a kernel, each with a word of its own: one stops moving it, one never does, and one goes on.
fn guarded(args: &str) -> Manifest {
    const WARDS: [(&str, &str); 3] = [("stops", "kicks=10"), ("never", "kicks=0"), ("steady", "")];
    let list = |before: &str| WARDS.map(|(name, _)| format!("\"{before}{name}\"")).join(", ");
    let manifest = Manifest::new().ends_with(&["timer"]).bare(
        "timer",
        "hang",
        "",
        &[2],
        "4 MiB",
        &watched(&every()),
    );
    let guard = format!(
        "[[sandbox]]\nname = \"rt\"\nguest = {{ kind = \"kernel\" }}\ncores = [0]\nmemory = \"8 MiB\"
[[endpoint]]\nname = \"trouble\"\nsandbox = \"rt\"
[[program]]\nname = \"guard\"\nsandbox = \"rt\"\nfile = \"artifact:flight-guard\"\nargs = \"restarts=2 {args}\"\nends_sandbox = true\nserves = [\"trouble\"]\nmaps = [{}]\nmanages = [{}]
[[thread]]\nname = \"guard\"\nprogram = \"guard\"\npriority = 100\ncontext = \"guard\"\nstack = \"16 KiB\"
[[context]]\nname = \"guard\"\nsandbox = \"rt\"\nbudget = \"200 us\"\nperiod = \"2 ms\"\n",
        list("alive-"),
        list("thread:")
    );
    with(manifest, &(guard + &WARDS.map(|(name, args)| ward(name, args)).concat()))
}

/// A guard finds the programs that do not move their words, and lets them begin anew by its ladder. One that looks at
/// no word finds none.
fn sign(bench: &Bench) -> Result<String, String> {
    let looks = "alive-stops=50 alive-never=50:100 alive-steady=50";
    let seen = run(&guarded(looks), &bench.dir, |_| {})?;
    let count = |seen: &Seen, name: &str, what: &str| {
        let said = seen.console.lines().filter(|line| line.contains(name));
        said.filter(|line| line.ends_with(what)).count()
    };
    for (name, right) in [("stops", [3, 2, 1]), ("never", [3, 2, 1]), ("steady", [1, 0, 0])] {
        let found = [" begins", ": it hangs; it begins anew", ": it hangs; it stays stopped"]
            .map(|what| count(&seen, name, what));
        seen.ensure(found == right, format!("{name}: {found:?}, not {right:?}"))?;
    }
    seen.undisturbed("rt", &["running"])?;
    let blind = run(&guarded("alive-steady=50"), &bench.dir, |_| {})?;
    let found = blind.console.matches("it hangs").count();
    blind.ensure(found == 0, format!("{found} found without a look"))?;
    Ok("two begun anew twice each, then stopped; the third one goes on".into())
}

/// A kernel with a program that shows its idle time, below one that works.
fn idling(name: &str, core: u32, args: &str) -> String {
    format!(
        "[[sandbox]]\nname = \"{name}\"\nguest = {{ kind = \"kernel\" }}\ncores = [{core}]\nmemory = \"8 MiB\"\n{}
[[program]]\nname = \"idle-{name}\"\nsandbox = \"{name}\"\nfile = \"artifact:program-idle\"\nwatchdog = true
[[thread]]\nname = \"idle-{name}\"\nprogram = \"idle-{name}\"\npriority = 1\ncontext = \"idle-{name}\"
[[context]]\nname = \"idle-{name}\"\nsandbox = \"{name}\"\nbudget = \"4 ms\"\nperiod = \"10 ms\"
[[program]]\nname = \"{name}\"\nsandbox = \"{name}\"\nfile = \"artifact:program-hang\"\nargs = \"sign=10 kicks=20 {args}\"\nends_sandbox = true\nsched_control = true\nmanages = [\"context:{name}\"]
[[thread]]\nname = \"{name}\"\nprogram = \"{name}\"\npriority = 10\ncontext = \"{name}\"
[[context]]\nname = \"{name}\"\nsandbox = \"{name}\"\nbudget = \"1 ms\"\nperiod = \"5 ms\"\n",
        // Long: without a metronome timers are late where the host is busy.
        watched("{ every = \"200 ms\", first = \"300 ms\" }")
    )
}

/// Lets a kernel stay where an interrupt of its timer enters it: it comes to its scheduler no more. It is changed in
/// the image, since an emulator goes on with code that it has translated.
fn stay(bytes: &mut Vec<u8>, baked: &Baked, name: &str, code: &[u8]) {
    const JUMP_HERE: [u8; 2] = [0xEB, 0xFE];
    let owner = baked.plan.sandboxes.iter().position(|sandbox| sandbox.name == name);
    let own = |part: &&Part| part.owner == owner && part.what == "pristine guest";
    for part in baked.map.parts.iter().filter(own) {
        let from = (part.start - IMAGE_PA) as usize;
        let guest = &mut bytes[from..from + part.len as usize];
        let at = guest.windows(code.len()).position(|part| part == code);
        at.into_iter().for_each(|at| guest[at..at + 2].copy_from_slice(&JUMP_HERE));
    }
    Spoil::new(bytes, baked).seal();
}

/// A kernel comes to its scheduler no more, and in another one a program takes more than was admitted. Neither has the
/// idle time that was promised. A third one has.
fn idle(bench: &Bench) -> Result<String, String> {
    let manifest = Manifest::new().ends_with(&["timer"]).bare(
        "timer",
        "hang",
        "kicks=200",
        &[2],
        "4 MiB",
        &watched(&every()),
    );
    let more = idling("takes", 0, "takes=takes")
        + &idling("steady", 1, "")
        + &idling("stays", 3, "")
        + &health("takes", "stop")
        + &health("stays", "restart");
    let code = super::failing::code("bulkhead_kernel_image::entry::interrupted")?;
    let seen = run(&with(manifest, &more), &bench.dir, |o| {
        o.spoil = Some(Box::new(move |bytes, baked| stay(bytes, baked, "stays", &code)));
    })?;
    seen.exited("timer")?;
    seen.undisturbed("steady", &["running"])?;
    let [takes, stays] = [seen.sandbox("takes")?, seen.sandbox("stays")?];
    let right = takes.state == "stopped" && seen.console.contains("[takes] hang: takes all: Ok(");
    seen.ensure(right && takes.denials == 1, format!("takes is {}", takes.state))?;
    // Each life comes to that.
    let right = stays.restarts > 0 && stays.denials == stays.restarts;
    seen.ensure(right, format!("stays is {} after {} restarts", stays.state, stays.restarts))?;
    Ok("both are found; the third one has its idle time".into())
}

/// A guest and a program in C stop moving their words, beside a guest in C that goes on.
fn in_c(bench: &Bench) -> Result<String, String> {
    let bare = |manifest: Manifest, name: &str, core, args: &str| {
        manifest.bare(name, "hang-c", args, &[core], "4 MiB", &watched(&every()))
    };
    let manifest = Manifest::new().ends_with(&["timer"]).bare(
        "timer",
        "hang",
        "",
        &[3],
        "4 MiB",
        &watched(&every()),
    );
    let manifest = bare(manifest, "bare-c", 0, "kicks=10");
    let manifest = bare(manifest, "steady-c", 1, "");
    let program = kernel("program-c", 2, "kicks=10").replace("program-hang\"", "program-hang-c\"");
    let more = program + &health("bare-c", "restart") + &health("program-c", "restart");
    let seen = run(&with(manifest, &more), &bench.dir, |_| {})?;
    seen.exited("timer")?;
    seen.undisturbed("steady-c", &["running"])?;
    for name in ["bare-c", "program-c"] {
        let s = seen.sandbox(name)?;
        let right = s.restarts > 1 && s.denials == s.restarts;
        seen.ensure(right, format!("{name}: {} restarts, {} records", s.restarts, s.denials))?;
        let stops = format!("[{name}] hang-c: stops");
        seen.ensure(seen.console.contains(&stops), format!("{name} did not come to its stop"))?;
    }
    Ok("both are found and begun anew; the third one goes on".into())
}

/// One that stops with interrupts off, for a machine with VT-x.
pub fn one() -> Manifest {
    let manifest = Manifest::new().ends_with(&["one"]);
    let manifest = manifest.bare("one", "hang", "way=off", &[0], "4 MiB", &watched(&every()));
    with(manifest, &health("one", "restart"))
}

/// It was found and began anew.
pub fn begun_anew(seen: &Seen) -> Result<String, String> {
    seen.exited("one")?;
    let s = seen.sandbox("one")?;
    let hangs = seen.denials.iter().filter(|d| d.kind == "hang").count();
    seen.ensure((s.restarts, hangs) == (1, 1), format!("{} restarts, {hangs} hangs", s.restarts))?;
    Ok("found by the preemption timer".into())
}

/// A monitor that does not compare the word finds no core that stops: it is that look which finds them.
fn mutant(bench: &Bench) -> Result<String, String> {
    mutate::build_mutants()?;
    let folder = mutate::monitor_without("watchdog")?;
    let manifest = Manifest::new()
        .ends_with(&["timer"])
        .bare("stuck", "hang", "way=off", &[0], "4 MiB", &watched(&every()))
        .bare("timer", "hang", "", &[1], "4 MiB", &watched(&every()));
    let manifest = with(manifest, &health("stuck", "restart"));
    let seen = run(&manifest, &bench.dir, |o| o.artifacts = folder)?;
    seen.exited("timer")?;
    let s = seen.sandbox("stuck")?;
    let missed = s.state == "running" && s.restarts == 0 && s.denials == 0;
    seen.ensure(missed, "a monitor that does not look has found it")?;
    Ok("a monitor that does not look finds nothing".into())
}
