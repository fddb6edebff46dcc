//! Which monitor a sandbox gets: the small one has no code for devices, so no sandbox with one may get it.

use super::driver::{Bench, Job};
use super::system::{Manifest, artifacts};
use bulkhead_run::audit::claim;
use bulkhead_run::build;
use std::path::{Path, PathBuf};

/// What a first sandbox has, by keys of its own; and what follows it.
struct Case {
    what: &'static str,
    own: &'static str,
    more: &'static str,
    /// Its monitor answers for some of it.
    answered: bool,
}

const fn case(what: &'static str, own: &'static str, more: &'static str, answered: bool) -> Case {
    Case { what, own, more, answered }
}

const OTHER: &str =
    "[[channel]]\nname = \"news\"\nfrom = \"one\"\nto = [\"other\"]\nsize = \"8 KiB\"\n";
const WOKEN: &str = "[[channel]]\nname = \"news\"\nfrom = \"one\"\nto = [\"other\"]\nsize = \"8 KiB\"\nkind = \"records\"\nnotify = \"doorbell\"\n";
const ALL_RIGHTS: &str = "stop = [\"other\"]\nstart = [\"other\"]\nrestart = [\"other\"]\nobserve = [\"other\"]\nmay_connect = { to = [\"other\"], slots = 2, size = \"4 KiB\" }";

/// Each condition by itself, and each thing that is none.
const CASES: [Case; 15] = [
    case("nothing", "", "", false),
    case("several cores", "cores = [0, 2]", "", false),
    case("all rights", ALL_RIGHTS, "", false),
    case("a channel", "", OTHER, false),
    case("a channel with a doorbell", "", WOKEN, false),
    case("ports without a line", "devices = [\"pmtimer\"]", "", false),
    case("a line", "devices = [\"uart1\"]", "", true),
    case("the timer's line", "devices = [\"pit\"]", "", true),
    case("the clock", "devices = [\"rtc\"]", "", true),
    case("MSI", "devices = [\"pci:00:08.0\"]", "", true),
    case("MSI-X and a reset by a register", "devices = [\"pci:00:03.0\"]", "", true),
    case("MSI-X and a reset of its own", "devices = [\"pci:class:010802\"]", "", true),
    case("two functions of one group", "devices = [\"pci:00:09.0\", \"pci:00:09.1\"]", "", true),
    case("a function behind a bridge", "devices = [\"pci:01:00.0\"]", "", true),
    case("a Linux' channel", "LINUX", OTHER, true),
];

pub fn jobs() -> Vec<Job> {
    vec![Job::one("host/monitor-by-need", 120, by_need)]
}

fn manifest(case: &Case) -> Manifest {
    let (linux, own) = (case.own == "LINUX", case.own.replace("LINUX", ""));
    let mut all = match linux {
        true => Manifest::new().linux("one", "linux-6.12-cloud", "true", &[0], "256 MiB", 0),
        false => Manifest::new().bare("one", "hello", "", &[0], "4 MiB", &own),
    };
    if own.contains("cores") {
        all.0 = all.0.replacen("cores = [0]\n", "", 1);
    }
    // What is left is a Linux whose channel is all that its monitor answers for.
    all.0 = all.0.replace("devices = [\"uart0\"]\n", "");
    all = all.bare("other", "hello", "", &[1], "4 MiB", "");
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

/// Bytes of the text that the auditor expects in the first one's monitor: it decides by itself.
fn expected(bench: &Bench, case: &Case) -> Result<u64, String> {
    let checked = manifest(case).load(&bench.dir)?;
    let baked = build(&checked, &artifacts()).map_err(|e| e.to_string())?;
    let claim = claim(&baked.plan, &artifacts()).map_err(|e| e.to_string())?;
    Ok(claim.sandboxes[0].monitor.iter().filter(|s| s.execute).map(|s| s.len).sum())
}

/// A folder in which the small monitor is the only one: whatever chooses, it is chosen.
fn small_only(bench: &Bench) -> Result<PathBuf, String> {
    let folder = bench.dir.join("small");
    std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    for (to, from) in
        [("boot", "boot"), ("monitor", "monitor-plain"), ("monitor-plain", "monitor-plain")]
    {
        std::fs::copy(artifacts().join(from), folder.join(to))
            .map_err(|e| format!("{from}: {e}"))?;
    }
    Ok(folder)
}

/// Each case gets the monitor that it needs, beside one that needs nothing; the auditor expects the same. Where the
/// wrong one is chosen, no image is made.
fn by_need(bench: &Bench) -> Result<String, String> {
    let small = small_only(bench)?;
    let [plain, _] = texts(bench, &CASES[0], &artifacts())?;
    let mut whole = None;
    for case in &CASES {
        let what = case.what;
        let [one, other] = texts(bench, case, &artifacts()).map_err(|e| format!("{what}: {e}"))?;
        let right = if case.answered { *whole.get_or_insert(one) } else { plain };
        if one != right || other != plain || (one > plain) != case.answered {
            return Err(format!("{what}: monitors of {one} and {other} bytes"));
        }
        let audited = expected(bench, case)?;
        if audited != one {
            return Err(format!("{what}: the auditor expects {audited} bytes, not {one}"));
        }
        match (case.answered, texts(bench, case, &small)) {
            (true, Err(why)) if why.contains("monitor of one has no code for devices") => {}
            (false, Ok(_)) => {}
            (_, other) => return Err(format!("{what}, with the small one: {other:?}")),
        }
    }
    Ok(format!("{} cases, {plain} bytes and {}", CASES.len(), whole.unwrap_or(0)))
}
