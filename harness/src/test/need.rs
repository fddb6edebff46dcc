//! Which monitor a sandbox gets: the smallest one that has code for all that the sandbox needs.

use super::driver::{Bench, Job};
use super::system::{Manifest, NEWER, artifacts};
use bulkhead_layout::need::MONITORS;
use bulkhead_run::audit::{claim, program_of};
use bulkhead_run::build;
use std::path::{Path, PathBuf};

/// A first sandbox' own keys, and what follows it.
struct Case {
    what: &'static str,
    own: &'static str,
    more: &'static str,
    /// Monitors of the first sandbox and of the other one, without `monitor-`; of devices none.
    monitors: [&'static str; 2],
}

const fn case(
    what: &'static str,
    own: &'static str,
    more: &'static str,
    monitors: [&'static str; 2],
) -> Case {
    Case { what, own, more, monitors }
}

const OTHER: &str =
    "[[channel]]\nname = \"news\"\nfrom = \"one\"\nto = [\"other\"]\nsize = \"8 KiB\"\n";
const WOKEN: &str = "[[channel]]\nname = \"news\"\nfrom = \"one\"\nto = [\"other\"]\nsize = \"8 KiB\"\nkind = \"records\"\nnotify = \"doorbell\"\n";
const LOADED: &str = "[[channel]]\nname = \"lesson\"\nfrom = \"one\"\nto = [\"other\"]\nsize = \"8 KiB\"\nkind = \"program\"\n";
const SHARED: &str = "[[shared_mmio]]\nname = \"panel\"\naddress = \"0xfed1d000\"\nparts = [{ sandbox = \"one\", access = \"rw\" }]\n";
const RANGE: &str = "[[shared_mmio]]\nname = \"dial\"\naddress = \"0xfed1d000\"\nparts = [{ sandbox = \"one\", access = \"rw\", offset = 0, size = 4 }]\n";
const STOPS: &str = "stop = [\"other\"]";
const LINKS: &str = "links = { to = [\"other\"], count = 2, size = \"4 KiB\" }";
const WATCHED_LINKS: &str =
    "watchdog = \"10 ms\"\nlinks = { to = [\"other\"], count = 2, size = \"4 KiB\" }";
const SMALL: [&str; 2] = ["small", "small"];
const WHOLE: [&str; 2] = ["", "small"];

/// Each need by itself, and things that are none.
const CASES: [Case; 26] = [
    case("nothing", "", "", SMALL),
    case("several cores", "cores = [0, 2]", "", ["control", "small"]),
    case("the right to stop", "stop = [\"other\"]", "", ["control", "control"]),
    case("the right to restart", "restart = [\"other\"]", "", ["control", "control"]),
    case("the right to observe", "observe = [\"other\"]", "", SMALL),
    case("a lock", "lockable = true", "", ["control-locks", "small"]),
    case("the right to stop who locks", STOPS, "lockable = true\n", ["control-locks"; 2]),
    case("a shared page", "", SHARED, SMALL),
    case("a range of registers", "", RANGE, ["control-registers", "small"]),
    case("links", LINKS, "", ["plain", "plain"]),
    case("a channel", "", OTHER, SMALL),
    case("a channel with a doorbell", "", WOKEN, SMALL),
    case("a program to load", "", LOADED, ["small", "control"]),
    case("ports without a line", "devices = [\"pmtimer\"]", "", SMALL),
    case("a line", "devices = [\"uart1\"]", "", WHOLE),
    case("the timer's line", "devices = [\"pit\"]", "", WHOLE),
    case("the clock", "devices = [\"rtc\"]", "", WHOLE),
    case("MSI", "devices = [\"pci:00:08.0\"]", "", WHOLE),
    case("MSI-X and a reset by a register", "devices = [\"pci:00:03.0\"]", "", WHOLE),
    case("MSI-X and a reset of its own", "devices = [\"pci:class:010802\"]", "", WHOLE),
    case("two functions of one group", "devices = [\"pci:00:09.0\", \"pci:00:09.1\"]", "", WHOLE),
    case("a function behind a bridge", "devices = [\"pci:01:00.0\"]", "", WHOLE),
    case("a Linux", "LINUX", "", ["plain", "small"]),
    case("a Linux' channel", "LINUX", OTHER, WHOLE),
    case("a watchdog", "watchdog = \"10 ms\"", "", ["control-watched", "small"]),
    case("a watchdog and links", WATCHED_LINKS, "", ["watched", "plain"]),
];

pub fn jobs() -> Vec<Job> {
    vec![Job::one("host/monitor-by-need", 120, by_need)]
}

fn manifest(case: &Case) -> Manifest {
    let (linux, own) = (case.own == "LINUX", case.own.replace("LINUX", ""));
    let mut all = match linux {
        true => Manifest::new().linux("one", NEWER, "true", &[0], "256 MiB", 0),
        false => Manifest::new().bare("one", "hello", "", &[0], "4 MiB", &own),
    };
    if own.contains("cores") {
        all.0 = all.0.replacen("cores = [0]\n", "", 1);
    }
    // A Linux is left; its monitor answers for nothing but its channel.
    all.0 = all.0.replace("devices = [\"uart0\"]\n", "");
    all = all.bare("other", "hello", "", &[1], "4 MiB", "");
    if case.more == LOADED {
        all.0 = all.0.replace("artifact:hello\"", "artifact:hello\", access = \"rwx\"");
    }
    all.0 += case.more;
    all
}

/// Bytes of text of both sandboxes' monitors; why there are none.
fn texts(bench: &Bench, case: &Case, programs: &Path) -> Result<[u64; 2], String> {
    let checked = manifest(case).load(&bench.dir)?;
    let baked = build(&checked, programs).map_err(|e| e.to_string())?;
    match baked.map.texts[..] {
        [(_, one), (_, other)] => Ok([one, other]),
        _ => Err("not two monitors".into()),
    }
}

/// Bytes of the text that the auditor expects in each monitor: it decides by itself.
fn expected(bench: &Bench, case: &Case) -> Result<[u64; 2], String> {
    let checked = manifest(case).load(&bench.dir)?;
    let baked = build(&checked, &artifacts()).map_err(|e| e.to_string())?;
    let claim = claim(&baked.plan, &artifacts()).map_err(|e| e.to_string())?;
    let text = |n: usize| {
        let segments = claim.sandboxes[n].monitor.iter();
        segments.filter(|s| s.execute).map(|s| s.len).sum()
    };
    Ok([text(0), text(1)])
}

/// Bytes of a built monitor's text.
fn size(name: &str) -> Result<u64, String> {
    let name = if name.is_empty() { "monitor".into() } else { format!("monitor-{name}") };
    let segments = program_of(&artifacts().join(&name)).map_err(|e| e.to_string())?;
    Ok(segments.iter().filter(|s| s.execute).map(|s| s.len).sum())
}

/// A folder in which the smallest monitor is the only one: whatever chooses, it is chosen.
fn small_only(bench: &Bench) -> Result<PathBuf, String> {
    let folder = bench.dir.join("small");
    std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let monitors = MONITORS.iter().map(|(name, _)| (*name, MONITORS[0].0));
    for (to, from) in monitors.chain([("boot", "boot")]) {
        std::fs::copy(artifacts().join(from), folder.join(to))
            .map_err(|e| format!("{from}: {e}"))?;
    }
    Ok(folder)
}

/// Tests that each case gets the monitors that it needs, and that the auditor expects these. No image is made with a
/// wrong one.
fn by_need(bench: &Bench) -> Result<String, String> {
    let small = small_only(bench)?;
    for case in &CASES {
        let what = case.what;
        let right = [size(case.monitors[0])?, size(case.monitors[1])?];
        let found = texts(bench, case, &artifacts()).map_err(|e| format!("{what}: {e}"))?;
        let audited = expected(bench, case)?;
        if found != right || audited != right {
            return Err(format!(
                "{what}: {found:?} bytes, the auditor expects {audited:?}, not {right:?}"
            ));
        }
        match (case.monitors == SMALL, texts(bench, case, &small)) {
            (false, Err(why)) if why.contains("has no code for") => {}
            (true, Ok(_)) => {}
            (_, other) => return Err(format!("{what}, with the small one: {other:?}")),
        }
    }
    let sizes = MONITORS.iter().map(|(name, _)| {
        let bytes = size(name.trim_start_matches("monitor").trim_start_matches('-'))?;
        Ok(format!("{name} {bytes}"))
    });
    let sizes = sizes.collect::<Result<Vec<_>, String>>()?;
    let apart = |pair: &[String]| pair[0] != pair[1];
    match sizes.windows(2).all(apart) {
        true => Ok(format!("{} cases; {}", CASES.len(), sizes.join(", "))),
        false => Err(format!("monitors that are alike: {}", sizes.join(", "))),
    }
}
