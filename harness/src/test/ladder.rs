//! Ladders: each failure takes the rung that its ladder stands on, and each answer leaves a record.

use super::driver::{Bench, Job};
use super::mutate;
use super::system::{Manifest, Seen, run};
use bulkhead_explain::Deed;
use std::time::Duration;

/// Test of a monitor that knows no limit.
pub const MUTANT: &str = "ladder/mutant";

/// Rungs: two restarts, two starts of the alternative, then a stop.
const RUNGS: &str = "{ action = \"restart\", at_most = { times = 2, within = \"10 s\" } },
    { action = \"alternative\", name = \"NAME-other\", at_most = { times = 2, within = \"10 s\" } },
    { action = \"stop\" }";

/// Ways to fail (`guests/fail`), with the condition that each is found by.
const WAYS: [(&str, &str); 4] =
    [("exit", "failure"), ("memory", "memory-read"), ("shutdown", "shutdown"), ("hang", "hang")];

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("ladder/alternative", 120, alternative),
        Job::one("ladder/stop", 120, stop),
        Job::one("ladder/window", 120, window),
        Job::one("ladder/anew", 120, anew),
        Job::one("ladder/second-core", 120, second),
        Job::one("ladder/start", 120, start),
        Job::one("ladder/kernel", 120, kernel),
        Job::one("ladder/linux", 240, linux),
        Job::one(MUTANT, 400, mutant),
    ]
}

/// A sandbox with `guests/fail`, its other guest, and a ladder for all kinds of failures.
fn failing(name: &str, core: u32, args: &str, other: &str, rungs: &str) -> String {
    let watch = match args.contains("hang") || args.contains("each") {
        true => "watchdog = \"20 ms\"\nalive = \"15 ms\"\n",
        false => "",
    };
    let hang = if watch.is_empty() { "" } else { ", \"hang\"" };
    let rungs = rungs.replace("NAME", name);
    let other = match rungs.contains("alternative") {
        true => format!(
            "[[alternative]]\nname = \"{name}-other\"\nsandbox = \"{name}\"
guest = {{ kind = \"bare\", program = \"artifact:{other}\" }}\n"
        ),
        false => String::new(),
    };
    let cores =
        if args.contains("core=1") { format!("{core}, {}", core + 1) } else { core.to_string() };
    format!(
        "[[sandbox]]\nname = \"{name}\"\ncores = [{cores}]\nmemory = \"4 MiB\"
guest = {{ kind = \"bare\", program = \"artifact:fail\", args = \"{args}\" }}
{watch}{other}[[health]]\nsandbox = \"{name}\"
on = [\"failure\", \"memory-violation\", \"triple-fault\"{hang}]
ladder = [{rungs}]\n"
    )
}

fn with(manifest: Manifest, more: &str) -> Manifest {
    Manifest(manifest.0 + more)
}

/// The deeds of a sandbox as condition, rung, action, guest.
fn deeds(seen: &Seen, name: &str) -> Result<Vec<(&'static str, u8, &'static str, String)>, String> {
    let deed = |deed: &Deed| (deed.condition, deed.rung, deed.action, deed.guest.clone());
    Ok(seen.sandbox(name)?.newest_deeds.iter().map(deed).collect())
}

/// Compares the deeds of a sandbox with those expected, and judges their numbers, times and lives.
fn expect(
    seen: &Seen,
    name: &str,
    expected: &[(&'static str, u8, &'static str, &str)],
) -> Result<(), String> {
    let expected: Vec<_> =
        expected.iter().map(|(c, r, a, g)| (*c, *r, *a, (*g).to_owned())).collect();
    let found = deeds(seen, name)?;
    seen.ensure(found == expected, format!("{name}: {found:?}, expected {expected:?}"))?;
    let s = seen.sandbox(name)?;
    for (number, deed) in (1..).zip(&s.newest_deeds) {
        let began = (deed.action == "stop") == deed.took_us.is_none();
        let right = deed.number == number && u64::from(deed.incarnation) == number - 1 && began;
        seen.ensure(right, format!("{name}: {deed:?}"))?;
    }
    let restarts = expected.iter().filter(|deed| deed.2 != "stop").count() as u64;
    seen.ensure(s.restarts == restarts, format!("{name} was restarted {} times", s.restarts))?;
    let promise = format!("each failure of {name} is answered as its ladder says");
    let promises = bulkhead_run::judge(seen.outcome()?, false);
    let held = promises.iter().any(|one| one.name == promise && one.held);
    seen.ensure(held, format!("`{promise}` is not held"))
}

/// Each kind of failure: two restarts, then the other guest, which is well.
fn alternative(bench: &Bench) -> Result<String, String> {
    let names: Vec<&str> = WAYS.iter().map(|(way, _)| *way).collect();
    let mut more = String::new();
    for (core, (way, _)) in (0..).zip(&WAYS) {
        // As `guests/hang` finds another life than its first one, it ends at once with exit code 0.
        more += &failing(way, core, &format!("way={way}"), "hang", RUNGS);
    }
    let manifest =
        Manifest::new().ends_with(&names).bare("steady", "victim", "", &[4], "8 MiB", "");
    let seen = run(&with(manifest, &more), &bench.dir, |o| {
        o.limit = Duration::from_secs(100);
        o.audit = true;
    })?;
    for (way, condition) in WAYS {
        let other = format!("{way}-other");
        let expected = [
            (condition, 1, "restart", way),
            (condition, 1, "restart", way),
            (condition, 2, "alternative", &*other),
        ];
        expect(&seen, way, &expected)?;
        seen.exited(way)?;
        let says = |text: String| seen.console.contains(&text);
        let lives = (0..3).all(|life| says(format!("[{way}] fail: life {life}, {way}")));
        let other = says(format!("[{way}] hang: life 3"));
        if way == "exit" {
            let own = seen.denials.iter().find(|d| d.sandbox == way).map(ToString::to_string);
            let told = own.as_ref().is_some_and(|d| d.contains("an end with exit code 7"));
            seen.ensure(told, format!("the record says {own:?}"))?;
        }
        seen.ensure(lives && other, format!("{way} had other lives"))?;
    }
    seen.undisturbed("steady", &["running", "exited"])?;
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))?;
    let us = WAYS.iter().flat_map(|(way, _)| seen.sandbox(way).map(|s| &s.newest_deeds));
    let us = us.flatten().filter_map(|deed| deed.took_us).max().unwrap_or(0);
    Ok(format!("{} ways, another guest after two restarts, within {us} us each", WAYS.len()))
}

/// The other guest fails as well, in all ways in turn: the sandbox is stopped.
fn stop(bench: &Bench) -> Result<String, String> {
    stopped(&run(&each(), &bench.dir, |o| o.audit = true)?)
}

/// A sandbox that fails in all ways, with a watchdog that has all looks.
pub fn each() -> Manifest {
    let manifest = Manifest::new().ends_with(&["one"]);
    let more = failing("one", 0, "way=each", "fail", RUNGS);
    with(manifest, &more.replace("watchdog =", "sweep = \"100 ms\"\nwatchdog ="))
}

/// It has climbed its ladder.
pub fn stopped(seen: &Seen) -> Result<String, String> {
    let expected = [
        ("failure", 1, "restart", "one"),
        ("memory-read", 1, "restart", "one"),
        ("shutdown", 2, "alternative", "one-other"),
        ("hang", 2, "alternative", "one-other"),
        ("failure", 3, "stop", "one-other"),
    ];
    expect(seen, "one", &expected)?;
    let state = seen.sandbox("one")?.state;
    seen.ensure(state == "stopped", format!("it is {state}"))?;
    Ok("stopped at the fifth failure".into())
}

/// A rung gives way only where its time is not over.
fn window(bench: &Bench) -> Result<String, String> {
    let rungs = |ms| {
        format!(
            "{{ action = \"restart\", at_most = {{ times = 2, within = \"{ms} ms\" }} }}, {{ action = \"stop\" }}"
        )
    };
    let manifest = Manifest::new().ends_with(&["slow", "fast"]);
    // A life lasts for 20 ms, or for 1 ms. No window of 30 ms holds three of the longer ones.
    let more = failing("slow", 0, "pause=20000 fails=6", "", &rungs(30))
        + &failing("fast", 1, "pause=1000 fails=6", "", &rungs(200));
    let seen = run(&with(manifest, &more), &bench.dir, |_| {})?;
    expect(&seen, "slow", &[("failure", 1, "restart", "slow"); 6])?;
    seen.exited("slow")?;
    let [restart, stop] = [("failure", 1, "restart", "fast"), ("failure", 2, "stop", "fast")];
    expect(&seen, "fast", &[restart, restart, stop])?;
    Ok("6 restarts, 2 restarts and a stop".into())
}

/// A guest that begins itself anew between its failures does not begin at the lowest rung again.
fn anew(bench: &Bench) -> Result<String, String> {
    let manifest = Manifest::new().ends_with(&["one"]);
    let more = failing("one", 0, "anew=1", "fail", RUNGS);
    let seen = run(&with(manifest, &more), &bench.dir, |_| {})?;
    let found = deeds(&seen, "one")?;
    let rungs: Vec<u8> = found.iter().map(|deed| deed.1).collect();
    seen.ensure(rungs == [1, 1, 2, 2, 3], format!("{found:?}"))?;
    let s = seen.sandbox("one")?;
    seen.ensure((s.state, s.restarts) == ("stopped", 8), format!("{}, {}", s.state, s.restarts))?;
    Ok("8 lives, 5 failures".into())
}

/// The second core fails: the record names it.
fn second(bench: &Bench) -> Result<String, String> {
    let manifest = Manifest::new().ends_with(&["two"]);
    let more = failing("two", 2, "core=1 way=memory", "hang", RUNGS);
    let seen = run(&with(manifest, &more), &bench.dir, |o| o.audit = true)?;
    let restart = ("memory-read", 1, "restart", "two");
    expect(&seen, "two", &[restart, restart, ("memory-read", 2, "alternative", "two-other")])?;
    let cores: Vec<usize> = seen.sandbox("two")?.newest_deeds.iter().map(|d| d.core).collect();
    seen.ensure(cores == [3; 3], format!("found by cores {cores:?}"))?;
    Ok("found by core 3 of the machine".into())
}

/// Another sandbox starts one that its ladder has stopped: its own guest begins, at the lowest rung.
fn start(bench: &Bench) -> Result<String, String> {
    let manifest = Manifest::new().ends_with(&["keeper"]).bare(
        "keeper",
        "warden",
        "do=gone,flood,nap,gone,flood,nap,gone calls=1 ask=start nap=20",
        &[1],
        "4 MiB",
        "start = [\"one\"]\n",
    );
    let more = failing("one", 0, "way=memory", "fail", RUNGS);
    let seen = run(&with(manifest, &more), &bench.dir, |_| {})?;
    seen.exited("keeper")?;
    let found = deeds(&seen, "one")?;
    let rungs: Vec<u8> = found.iter().map(|deed| deed.1).collect();
    let thrice = [1, 1, 2, 2, 3].repeat(3);
    seen.ensure(rungs == thrice, format!("{found:?}"))?;
    let first = found.get(5).map(|deed| deed.3.as_str());
    seen.ensure(first == Some("one"), format!("{first:?} began"))?;
    Ok("3 times up the ladder".into())
}

/// A kernel's sandbox ends by its program's exit code: another file of that program takes its place.
fn kernel(bench: &Bench) -> Result<String, String> {
    let manifest = Manifest::new().ends_with(&["one"]);
    let more = "[[sandbox]]\nname = \"one\"\nguest = { kind = \"kernel\" }\ncores = [0]\nmemory = \"8 MiB\"
[[program]]\nname = \"work\"\nsandbox = \"one\"\nfile = \"artifact:program-fail\"\nends_sandbox = true
[[thread]]\nname = \"work\"\nprogram = \"work\"\npriority = 10\ncontext = \"work\"
[[context]]\nname = \"work\"\nsandbox = \"one\"\nbudget = \"1 ms\"\nperiod = \"5 ms\"
[[alternative]]\nname = \"one-other\"\nsandbox = \"one\"\nprograms = [{ name = \"work\", file = \"artifact:program-hello\" }]
[[health]]\nsandbox = \"one\"\non = \"failure\"\nladder = [RUNGS]\n";
    let more = more.replace("RUNGS", &RUNGS.replace("NAME", "one"));
    let seen = run(&with(manifest, &more), &bench.dir, |o| o.audit = true)?;
    let restart = ("failure", 1, "restart", "one");
    expect(&seen, "one", &[restart, restart, ("failure", 2, "alternative", "one-other")])?;
    seen.exited("one")?;
    Ok("another file of its program after two restarts".into())
}

/// A Linux that panics, and another kernel in its place.
fn linux(bench: &Bench) -> Result<String, String> {
    let [own, other] = ["linux-6.12-cloud", "linux-6.1-cloud"];
    // A reset by a triple fault: the failure that a monitor sees.
    let job = "boot rdinit=/none panic=-1 reboot=t";
    let manifest = Manifest::new().ends_with(&["one"]).linux("one", own, job, &[0], "256 MiB", 1);
    let more = format!(
        "[[alternative]]\nname = \"one-other\"\nsandbox = \"one\"
guest = {{ kind = \"linux\", kernel = \"artifact:{other}\", initrd = \"artifact:test.cpio\", cmdline = \"{}\" }}
[[health]]\nsandbox = \"one\"\non = \"triple-fault\"\nladder = [
    {{ action = \"restart\", at_most = {{ times = 1, within = \"100 s\" }} }},
    {{ action = \"alternative\", name = \"one-other\" }},
]\n",
        "console=ttyS1,115200 quiet bulkhead.run=boot"
    );
    let seen = run(&with(manifest, &more), &bench.dir, |o| {
        o.limit = Duration::from_secs(220);
        o.audit = true;
    })?;
    let restart = ("shutdown", 1, "restart", "one");
    expect(&seen, "one", &[restart, ("shutdown", 2, "alternative", "one-other")])?;
    Ok(format!("{other} after {own} has panicked twice"))
}

/// A monitor without the limit restarts for ever.
fn mutant(bench: &Bench) -> Result<String, String> {
    mutate::build_mutants()?;
    let folder = mutate::monitor_without("ladder")?;
    let manifest = Manifest::new().ends_with(&["one"]);
    let more = failing("one", 0, "fails=12", "hang", RUNGS);
    let seen = run(&with(manifest, &more), &bench.dir, |o| o.artifacts = folder)?;
    let s = seen.sandbox("one")?;
    let climbed = s.newest_deeds.iter().any(|deed| deed.rung > 1);
    seen.ensure(s.restarts == 12 && !climbed, "a monitor without limits has climbed")?;
    Ok("a monitor without limits restarts for ever".into())
}
