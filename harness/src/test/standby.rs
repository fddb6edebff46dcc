//! Roles: a flight controller fails, and one that stands by goes on.

use super::driver::{Bench, Job, tail};
use super::mutate;
use super::peer::{deaf, struck_in};
use super::system::{Manifest, Seen, artifacts, run};
use super::typed::sample;
use super::voter::{Flown, system};
use crate::build;
use crate::program::Program as _;
use bulkhead_explain::{Deed, FAILOVER, TOOK};
use bulkhead_qemu::Time;
use std::process::Command;
use std::time::Duration;

/// Test of a monitor that shows a role's memory to each holder.
pub const MUTANT: &str = "standby/mutant";

/// Arguments of both holders in the system of the book.
const ARGS: &str = "way=each after=150";
/// Their ladders there.
const LADDER: &str = "ladder = [{ action = \"failover\", at_most = { times = 8, within = \"10 s\" } }, { action = \"stop\" }]";

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("standby/page", 120, page),
        Job::one("standby/hot", 200, hot),
        Job::one("standby/given", 120, given),
        Job::one("standby/cold", 120, cold),
        Job::one("standby/kernel", 120, kernel),
        Job::one("standby/kernel-hot", 300, kernel_hot),
        Job::one("standby/kernel-early", 200, kernel_early),
        Job::one("standby/monitor", 120, monitor),
        Job::one("standby/nobody", 120, nobody),
        Job::one("standby/loaded", 120, loaded),
        Job::one("standby/early", 120, early),
        Job::one(MUTANT, 400, mutant),
    ]
}

/// A holder of the system in the book: its arguments, its answer to failures, and more keys of its sandbox.
#[derive(Clone, Copy)]
struct Holder<'a> {
    args: &'a str,
    answer: &'a str,
    more: &'a str,
}

/// Each failure is answered by a failover.
const OVER: &str = "ladder = [{ action = \"failover\" }]";

const fn holder(args: &str) -> Holder<'_> {
    Holder { args, answer: OVER, more: "" }
}

/// The system of the book with other holders, flying for so many releases.
fn with(releases: u64, [one, two]: [Holder; 2]) -> Result<Manifest, String> {
    let Manifest(mut text) =
        system("standby.toml", &[("releases=1000", format!("releases={releases}"))])?;
    for holder in [one, two] {
        text = text.replacen(&format!("\"{ARGS}\""), &format!("\"{}\"", holder.args), 1);
        text = text.replacen(LADDER, holder.answer, 1);
    }
    for (core, holder) in [(1, one), (2, two)] {
        let key = format!("cores = [{core}]\n");
        text = text.replacen(&key, &format!("{key}{}", holder.more), 1);
    }
    Ok(Manifest(text))
}

fn options(o: &mut bulkhead_run::Options) {
    // Vehicle and pilots share the clock: each has to have its turn within a release.
    o.time = Time::virtual_time();
    o.limit = Duration::from_secs(150);
    o.audit = true;
}

/// Runs it, and looks at what has to be so in each run.
fn flown(seen: &Seen) -> Result<Flown<'_>, String> {
    seen.exited("airframe")?;
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))?;
    seen.undisturbed("airframe", &["exited"])?;
    Flown::of(&seen.console).ok_or_else(|| seen.wrong("the vehicle does not say how it flew"))
}

/// Deeds of a sandbox with some action.
pub fn deeds<'a>(seen: &'a Seen, name: &str, action: &'a str) -> Result<Vec<&'a Deed>, String> {
    let own = |deed: &&Deed| deed.action == action;
    Ok(seen.sandbox(name)?.newest_deeds.iter().filter(own).collect())
}

/// The command of the page: no release misses its output, and the report holds all promises.
fn page(_: &Bench) -> Result<String, String> {
    let out = Command::new(build::target().join("release/bulkhead"))
        .args(["run", "systems/standby.toml", "--icount"])
        .current_dir(build::root())
        .env("BULKHEAD_ARTIFACTS", artifacts())
        .printed()?;
    let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    let wrong = |why: &str| format!("{why}\n{}", tail(&said));
    if !out.status.success() {
        return Err(wrong(&out.status.to_string()));
    }
    let flown = Flown::of(&said).ok_or_else(|| wrong("the vehicle does not say how it flew"))?;
    if flown.not_right() != 0 {
        return Err(wrong("a release lacked its output"));
    }
    let page = build::root().join("docs/standby.md");
    let page = std::fs::read_to_string(&page).map_err(|e| format!("{}: {e}", page.display()))?;
    let shown = page.split_once("```text\n").and_then(|(_, rest)| rest.split_once("```"));
    let shown = sample(shown.ok_or("the page shows no run")?.0, &said)?;
    Ok(format!("{} releases, {shown} lines of the page", flown.count("releases")))
}

/// Four ways to fail at three places of a release, twice each. At most the release of a core that hangs is missed.
fn hot(bench: &Bench) -> Result<String, String> {
    let manifest = with(520, [holder("way=each after=20"); 2])?;
    let seen = run(&manifest, &bench.dir, options)?;
    let flown = flown(&seen)?;
    let (mut over, mut hangs) = (0, 0);
    for name in ["one", "two"] {
        let all = deeds(&seen, name, FAILOVER)?;
        seen.ensure(
            all.iter().all(|deed| deed.roles == ["controls"] && deed.rung == 1),
            format!("{all:?}"),
        )?;
        over += all.len() as u64;
        hangs += all.iter().filter(|deed| deed.condition == "hang").count() as u64;
    }
    // The oldest ones have no record any more.
    let epochs = seen.console.matches("takes over in epoch").count() as u64 - 1;
    let (missed, right) = (flown.count("missed"), flown.count("right"));
    seen.ensure(epochs >= 20 && hangs >= 3, format!("{epochs} failovers, {hangs} hangs kept"))?;
    seen.ensure(right + missed == flown.count("releases"), "an output was wrong")?;
    let row = in_a_row(&seen.console);
    seen.ensure(row <= 1, format!("{row} releases in a row were missed"))?;
    Ok(format!("{epochs} failovers, {over} kept, {missed} releases missed, {row} in a row"))
}

/// The most releases in a row that the vehicle says it missed.
pub fn in_a_row(console: &str) -> u64 {
    let number = |line: &str| {
        let rest = line.split_once("airframe: ")?.1.strip_suffix(": missed")?;
        rest.parse::<u64>().ok()
    };
    let (mut last, mut row, mut most) = (0, 0, 0);
    for release in console.lines().filter_map(number) {
        row = if release == last + 1 { row + 1 } else { 1 };
        (last, most) = (release, most.max(row));
    }
    most
}

/// A holder that is well gives its role away, and gets it back. No release is missed.
fn given(bench: &Bench) -> Result<String, String> {
    let manifest = with(200, [holder("way=give after=20"); 2])?;
    let seen = run(&manifest, &bench.dir, options)?;
    let flown = flown(&seen)?;
    seen.ensure(flown.not_right() == 0, format!("{} were not right", flown.not_right()))?;
    let took = deeds(&seen, "one", TOOK)?.len() + deeds(&seen, "two", TOOK)?.len();
    seen.ensure(took >= 8, format!("{took} takeovers"))?;
    for name in ["one", "two"] {
        let s = seen.sandbox(name)?;
        seen.ensure(s.denials == 0, format!("{name} was denied something"))?;
    }
    Ok(format!("{took} times"))
}

/// A standby has not begun yet: it does when the role comes, and waits again when that goes.
fn cold(bench: &Bench) -> Result<String, String> {
    let two = Holder { more: "autostart = false\n", ..holder("way=exit after=40") };
    let manifest = with(200, [holder("way=memory after=40"), two])?;
    let seen = run(&manifest, &bench.dir, options)?;
    let flown = flown(&seen)?;
    let took = deeds(&seen, "two", TOOK)?;
    let begun = took.iter().filter_map(|deed| deed.took_us).max().unwrap_or(0);
    seen.ensure(took.len() >= 2 && begun > 0, format!("{took:?}"))?;
    let missed = flown.count("missed");
    // Each launch takes less than two releases, and the first look of a pilot is one later.
    let times = seen.console.matches("takes over in epoch").count() as u64 - 1;
    seen.ensure(missed > 0 && missed <= 4 * times, format!("{missed} in {times} failovers"))?;
    let state = seen.sandbox("two")?.state;
    let states = ["stopped", "launching", "running"];
    seen.ensure(states.contains(&state), format!("two is {state}"))?;
    Ok(format!("{times} times, {missed} releases missed, it began {begun} us later at most"))
}

/// A kernel with a program that sends, beside another program; one that ends makes its sandbox fail.
fn programs(name: &str, core: u32, count: u32, other: &str) -> String {
    let program = |of: &str, file: &str, args: &str, priority: u32, budget: &str| {
        // Parts of kernels have names of their own in all of the manifest.
        let of = format!("{name}-{of}");
        format!(
            "[[program]]\nname = \"{of}\"\nsandbox = \"{name}\"\nfile = \"artifact:program-{file}\"\nends_sandbox = true\n{args}
[[thread]]\nname = \"{of}\"\nprogram = \"{of}\"\npriority = {priority}\ncontext = \"{of}\"\nstack = \"16 KiB\"
[[context]]\nname = \"{of}\"\nsandbox = \"{name}\"\nbudget = \"{budget}\"\nperiod = \"10 ms\"\n"
        )
    };
    let sends =
        &format!("args = \"role=send channel=state count={count}\"\nchannels = [\"state\"]");
    format!(
        "[[sandbox]]\nname = \"{name}\"\nguest = {{ kind = \"kernel\" }}\ncores = [{core}]\nmemory = \"8 MiB\"
[[health]]\nsandbox = \"{name}\"\non = \"failure\"\n{OVER}\n{}{}",
        program("send", "talk", sends, 100, "2 ms"),
        program("other", other, "", 10, "1 ms"),
    )
}

/// Kernels stand by cold: the next one's program finds the role's memory, and the one that failed waits.
fn kernel(bench: &Bench) -> Result<String, String> {
    let role = "[[role]]\nname = \"place\"\nholders = [\"one\", \"two\"]\nstandby = \"cold\"
[[channel]]\nname = \"state\"\nfrom = \"place\"\nto = [\"reader\"]\nsize = \"4 KiB\"\nkind = \"mailbox\"\nmessage = 64\n";
    // The second one has no program that fails.
    let [one, two] = [programs("one", 0, 4_000_000, "fail"), programs("two", 1, 400, "hog")];
    let watch = "watchdog = \"20 ms\"\nalive = \"15 ms\"\n";
    let manifest = Manifest::new().ends_with(&["reader"]);
    let manifest = manifest.bare("reader", "hang", "kicks=20", &[2], "4 MiB", watch);
    let manifest = Manifest(format!("{}{one}{two}{role}", manifest.0));
    let seen = run(&manifest, &bench.dir, |o| {
        options(o);
        o.limit = Duration::from_secs(100);
    })?;
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))?;
    seen.exited("two")?;
    let denials = seen.sandbox("two")?.denials;
    seen.ensure(denials == 0, format!("two was denied {denials} accesses"))?;
    let s = seen.sandbox("one")?;
    seen.ensure((s.state, s.restarts) == ("stopped", 0), format!("one is {}", s.state))?;
    let took = deeds(&seen, "two", TOOK)?;
    let [deed] = took[..] else { return Err(seen.wrong(format!("{took:?}"))) };
    Ok(format!("two began {} us later", deed.took_us.unwrap_or(0)))
}

/// A holder with a kernel: its pilot is a program, beside a guard that hears of its exceptions. One in C says what it
/// sees of the role.
fn piloted(name: &str, args: &str) -> String {
    let part = |of: &str, file: &str, more: &str, priority: u32, time: [&str; 2]| {
        let [budget, period] = time;
        format!(
            "[[program]]\nname = \"{name}-{of}\"\nsandbox = \"{name}\"\nfile = \"artifact:{file}\"\nends_sandbox = true\n{more}
[[context]]\nname = \"{name}-{of}\"\nsandbox = \"{name}\"\nbudget = \"{budget}\"\nperiod = \"{period}\"
[[thread]]\nname = \"{name}-{of}\"\nprogram = \"{name}-{of}\"\npriority = {priority}\ncontext = \"{name}-{of}\"\nstack = \"16 KiB\"\n"
        )
    };
    let pilot = format!(
        "args = \"{args}\"\nwatchdog = true\nsignals = [\"pause\"]\nwaits = [\"pause\"]\nchannels = [\"sensors\", \"motors\", \"kept\", \"fence\"]"
    );
    let eye = "args = \"kicks=0 role=controls\"\nchannels = [\"kept\"]";
    let guard = "serves = [\"trouble\"]";
    format!(
        "[[endpoint]]\nname = \"trouble\"\nsandbox = \"{name}\"\n[[notification]]\nname = \"pause\"\nsandbox = \"{name}\"
{}fault = \"trouble\"\n{}{}",
        part("pilot", "program-pilot", &pilot, 100, ["800 us", "1 ms"]),
        part("guard", "flight-guard", guard, 200, ["100 us", "10 ms"]),
        part("eye", "program-hang-c", eye, 10, ["10 us", "10 ms"]),
    )
}

/// The system of the book with kernels as holders. The role `fence` stays with the vehicle, for who has to be denied.
fn with_kernels(releases: u64, args: [&str; 2]) -> Result<Manifest, String> {
    let Manifest(mut text) = with(releases, args.map(holder))?;
    for args in args {
        let bare =
            format!("{{ kind = \"bare\", program = \"artifact:pilot\", args = \"{args}\" }}");
        text = text.replacen(&bare, "{ kind = \"kernel\" }", 1);
    }
    for name in ["one", "two"] {
        let place = text.find(&format!("name = \"{name}\"")).ok_or("no holder")?;
        text.replace_range(place.., &text[place..].replacen("4 MiB", "8 MiB", 1));
    }
    let nobody = "[[sandbox]]\nname = \"nobody\"\nguest = { kind = \"bare\", program = \"artifact:hang\" }\ncores = [3]\nmemory = \"4 MiB\"\nautostart = false
[[role]]\nname = \"fenced\"\nholders = [\"airframe\", \"one\", \"two\"]
[[channel]]\nname = \"fence\"\nfrom = \"fenced\"\nto = [\"nobody\"]\nsize = \"4 KiB\"\n";
    let [one, two] = [piloted("one", args[0]), piloted("two", args[1])];
    Ok(Manifest(format!("{text}\n{nobody}{one}{two}")))
}

/// Kernels stand by hot: a program of each looks for the role in each release. Its ways to fail are an exit code, a
/// denied access, an exception that its guard hears of, and a hang.
fn kernel_hot(bench: &Bench) -> Result<String, String> {
    let manifest = with_kernels(600, ["way=each after=20"; 2])?;
    let seen = run(&manifest, &bench.dir, options)?;
    let flown = flown(&seen)?;
    let mut conditions = Vec::new();
    for name in ["one", "two"] {
        let all = deeds(&seen, name, FAILOVER)?;
        let right = all.iter().all(|deed| deed.roles == ["controls"] && deed.rung == 1);
        seen.ensure(right, format!("{all:?}"))?;
        conditions.extend(all.into_iter().map(|deed| deed.condition));
    }
    let of = |condition: &str| conditions.iter().filter(|one| **one == condition).count();
    let ways = ["hang", "failure", "memory-read"].map(of);
    // The oldest ones have no record any more.
    let epochs = seen.console.matches("takes over in epoch").count() as u64 - 1;
    seen.ensure(epochs >= 16 && ways.into_iter().min() >= Some(2), format!("{epochs}, {ways:?}"))?;
    for says in ["[one] one-eye: role in epoch 1\n", "[two] two-eye: role in epoch 0\n"] {
        seen.ensure(seen.console.contains(says), says)?;
    }
    let guarded = seen.console.matches("in what control cannot do without").count();
    seen.ensure(guarded >= 3, format!("{guarded} exceptions"))?;
    let (missed, right) = (flown.count("missed"), flown.count("right"));
    seen.ensure(right + missed == flown.count("releases"), "an output was wrong")?;
    let row = in_a_row(&seen.console);
    seen.ensure(row <= 1, format!("{row} releases in a row were missed"))?;
    Ok(format!("{epochs} failovers, {ways:?} kept, {missed} releases missed, {row} in a row"))
}

/// A program of a standby reads the role's memory before it has the role.
fn kernel_early(bench: &Bench) -> Result<String, String> {
    let seen = run(&with_kernels(60, ["", "way=early"])?, &bench.dir, options)?;
    flown(&seen)?;
    seen.ensure(!seen.console.contains("reads release"), "two has read the role's memory")?;
    let denial = seen.denials.iter().find(|denial| denial.sandbox == "two");
    let denial = denial.ok_or_else(|| seen.wrong("no record of two"))?.to_string();
    seen.ensure(denial.contains("it is channel kept's, by role controls"), &denial)?;
    Ok(denial)
}

/// The monitor of the holder stops. Its peer takes its cores, and its spare monitor gives the role away.
fn monitor(bench: &Bench) -> Result<String, String> {
    let Manifest(text) = with(400, [holder(""), holder("")])?;
    let peer = "[[peer]]\nsandbox = \"two\"\nwatches = \"one\"\nevery = \"1 ms\"\nfirst = \"100 ms\"\nmay = [\"init\"]\n";
    let health = format!("[[health]]\nsandbox = \"one\"\non = \"monitor\"\n{OVER}\n");
    let seen = struck_in(
        &Manifest(format!("{text}\n{peer}{health}")),
        &bench.dir,
        ("one", 1),
        deaf(0),
        options,
    )?;
    let flown = flown(&seen)?;
    let over = deeds(&seen, "one", FAILOVER)?;
    let right = matches!(over[..], [deed] if deed.condition == "monitor-hang");
    seen.ensure(right, format!("{over:?}"))?;
    // Its guest goes on until the cores are taken, so there is no gap.
    seen.ensure(flown.not_right() <= 1, format!("{} were not right", flown.not_right()))?;
    seen.ensure(deeds(&seen, "two", TOOK)?.len() == 1, "two has not taken over")?;
    Ok(format!("{} releases not right", flown.not_right()))
}

/// No holder can take over: the one that failed begins anew with its role.
fn nobody(bench: &Bench) -> Result<String, String> {
    let two = Holder { answer: "action = \"stop\"", ..holder("way=early") };
    let manifest = with(120, [holder("way=exit after=30"), two])?;
    let seen = run(&manifest, &bench.dir, options)?;
    let flown = flown(&seen)?;
    let over = deeds(&seen, "one", FAILOVER)?;
    seen.ensure(
        over.len() >= 2 && over.iter().all(|deed| deed.roles.is_empty() && deed.party.is_none()),
        format!("{over:?}"),
    )?;
    let told = over[0].to_string();
    seen.ensure(told.contains("and no holder could take over, one began"), told)?;
    seen.ensure(seen.sandbox("two")?.state == "stopped", "two has not stopped")?;
    Ok(format!("{} times, {} releases missed", over.len(), flown.count("missed")))
}

/// Three holders of three roles: a role goes to the one that its policy, or the rung, chooses.
fn loaded(bench: &Bench) -> Result<String, String> {
    let Manifest(text) = system("standby.toml", &[("releases=1000", "releases=150".into())])?;
    let text = text.replace(
        "holders = [\"one\", \"two\"]",
        "holders = [\"one\", \"two\", \"three\"]\nchoose = \"least-loaded\"",
    );
    let text = text.replace("to = [\"one\", \"two\"]", "to = [\"one\", \"two\", \"three\"]");
    let third =
        text.split_once("# It runs along").and_then(|(_, rest)| rest.split_once("# Each holder"));
    let third = third.ok_or("the system has another form")?.0.replace("\"two\"", "\"three\"");
    let third = third.replace("cores = [2]", "cores = [3]").replacen(
        ", with the inputs of the last releases.\n",
        "",
        1,
    );
    // `two` has another role already.
    let more = "\n[[role]]\nname = \"other\"\nholders = [\"two\", \"one\"]\n";
    let text = text.replace(ARGS, "way=exit after=40").replace(LADDER, OVER);
    let third = third.replace(ARGS, "").replace(LADDER, OVER);
    let seen = run(&Manifest(format!("{text}\n{third}{more}")), &bench.dir, options)?;
    flown(&seen)?;
    let over = deeds(&seen, "one", FAILOVER)?;
    let to: Vec<_> = over.iter().map(|deed| deed.party.as_deref()).collect();
    seen.ensure(to == [Some("three")], format!("{to:?}"))?;
    Ok("the one without a role took over".into())
}

/// A standby reads the role's memory before it has the role, and one that had it does so afterwards.
fn thieves() -> Result<Manifest, String> {
    let two = Holder { answer: "action = \"restart\"", ..holder("way=early") };
    with(60, [holder("way=exit after=4000"), two])
}

fn early(bench: &Bench) -> Result<String, String> {
    let seen = run(&thieves()?, &bench.dir, options)?;
    flown(&seen)?;
    let read = seen.console.contains("reads release");
    seen.ensure(!read, "two has read the role's memory")?;
    let denial = seen.denials.iter().find(|denial| denial.sandbox == "two");
    let denial = denial.ok_or_else(|| seen.wrong("no record of two"))?.to_string();
    let told = denial.contains("it is channel kept's, by role controls");
    seen.ensure(told, &denial)?;
    Ok(denial)
}

fn mutant(bench: &Bench) -> Result<String, String> {
    mutate::build_mutants()?;
    let folder = mutate::monitor_without("role-given")?;
    let seen = run(&thieves()?, &bench.dir, |o| {
        options(o);
        // It confines less than the manifest says.
        o.audit = false;
        o.artifacts = folder;
    })?;
    // Its monitor shows it the role, too.
    let both = ["one", "two"].map(|name| format!("[{name}] {name}: takes over in epoch 1,"));
    seen.ensure(both.iter().all(|says| seen.console.contains(says)), "two has nothing of it")?;
    Ok("two guests reach the role's memory".into())
}
