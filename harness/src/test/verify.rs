//! The user's view: ISO boots by BIOS and by UEFI firmware, and the commands from the outside.

use super::driver::{Bench, Job, Verdict};
use super::system::{Manifest, NEWER, Seen, artifacts, run};
use crate::build;
use crate::program::Program as _;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

/// Where distributions put OVMF as one file.
const OVMF: [&str; 2] = ["/usr/share/ovmf/OVMF.fd", "/usr/share/OVMF/OVMF.fd"];

pub fn jobs() -> Vec<Job> {
    vec![
        boots(),
        Job::one("command/check", 60, |_| check()),
        Job::one("command/plan", 60, |b| plan(&b.dir)),
        Job::one("command/build", 90, |b| build_twice(&b.dir)),
        Job::one("command/exits", 60, |b| exits(&b.dir)),
        Job::one("command/doctor", 60, |_| doctor()),
        Job::one("command/top", 90, |b| top(&b.dir)),
        Job::one("command/audit", 60, |b| audit(&b.dir)),
        Job::one("command/limits", 120, |b| limits(&b.dir)),
        Job::one("command/book", 60, |_| book()),
    ]
}

/// Boots one system by `-kernel`, and from an ISO by SeaBIOS and by OVMF.
fn boots() -> Job {
    let tests = ["boot/kernel", "boot/iso-bios", "boot/iso-uefi"];
    Job::new("boot", tests.map(String::from), 800, move |bench| {
        let uefi = OVMF.map(PathBuf::from).into_iter().find(|f| f.is_file());
        let mut expected = None;
        for (test, iso) in tests.into_iter().zip([None, Some(None), Some(uefi.clone())]) {
            if test == tests[2] && uefi.is_none() {
                let why = format!("{} is missing; `make setup` installs it", OVMF[0]);
                bench.verdict(test, Verdict::Skipped(why));
                continue;
            }
            let result = boot(bench, test, iso).and_then(|(said, remark)| {
                let first = expected.get_or_insert(said.clone());
                if *first == said {
                    Ok(remark)
                } else {
                    Err(format!("not the same end as with -kernel:\n{first}\nbut\n{said}"))
                }
            });
            bench.result(test, result);
        }
    })
}

/// Builds a system with timers that may be late by so many nanoseconds.
fn system(late: u64) -> Manifest {
    let mut manifest = Manifest::new()
        .bare("flight", "hello", "", &[1], "{ size = \"16 MiB\", at = \"4 GiB\" }", "")
        .bare("checks", "selftest", &format!("late={late} restarts=1"), &[2, 0], "4 MiB", "")
        .linux("ground", NEWER, "boot", &[3], "256 MiB", 1);
    manifest.0 +=
        "[[channel]]\nname = \"news\"\nfrom = \"flight\"\nto = [\"ground\"]\nsize = \"64 KiB\"\n";
    manifest
}

/// Boots the system; returns the guests' lines and ends.
fn boot(
    bench: &Bench,
    test: &str,
    iso: Option<Option<PathBuf>>,
) -> Result<(String, String), String> {
    // OVMF waits for the CD in turns of its clock: in virtual time that is two minutes of the host's. In the host's
    // time a timer is as late as the host has other work.
    let live = matches!(iso, Some(Some(_)));
    let late = if live { 1_000_000_000 } else { 2_000_000 };
    let seen = run(&system(late), &bench.dir.join(test.replace('/', "-")), |o| {
        o.limit = Duration::from_secs(500);
        if live {
            o.time = bulkhead_qemu::Time::Live;
        }
        o.iso = iso;
    })?;
    seen.exited("flight")?;
    seen.exited("checks")?;
    seen.undisturbed("ground", &["stopped"])?;
    let outcome = seen.outcome()?;
    let user_space = outcome.serials[1].contains("bulkhead-init: user space");
    seen.ensure(user_space, "Linux did not reach user space")?;
    let boot = outcome.report.boot.as_ref().ok_or("there is no boot in the report")?;
    let remark =
        format!("{} instructions, {} µs to the launch", boot.instructions, boot.to_launch_us);
    Ok((ends(&seen)?, remark))
}

fn ends(seen: &Seen) -> Result<String, String> {
    let outcome = seen.outcome()?;
    let sandboxes = outcome.report.sandboxes.iter().zip(&outcome.consoles);
    let text = sandboxes.map(|(s, console)| {
        format!("{} {} {:?} {} {}\n{console}", s.name, s.state, s.exit_code, s.restarts, s.denials)
    });
    Ok(text.collect())
}

/// Exit status, standard output, standard error.
pub fn bulkhead(arguments: &[&str]) -> Result<(i32, String, String), String> {
    let program = build::target().join("release/bulkhead");
    let out = Command::new(&program)
        .args(arguments)
        .current_dir(build::root())
        .env("BULKHEAD_ARTIFACTS", artifacts())
        .env("CI", "true")
        .printed()?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let code = out.status.code().ok_or("the command was killed")?;
    Ok((code, text(out.stdout), text(out.stderr)))
}

fn well(arguments: &[&str]) -> Result<String, String> {
    match bulkhead(arguments)? {
        (0, out, _) => Ok(out),
        (code, out, err) => Err(format!("bulkhead {arguments:?}: status {code}\n{out}{err}")),
    }
}

/// Files of a folder with an ending, sorted.
pub fn files(folder: &str, ending: &str) -> Result<Vec<String>, String> {
    let all =
        std::fs::read_dir(build::root().join(folder)).map_err(|e| format!("{folder}: {e}"))?;
    let names = all.flatten().map(|f| f.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> =
        names.filter(|n| n.ends_with(ending)).map(|n| format!("{folder}/{n}")).collect();
    names.sort();
    Ok(names)
}

/// Checks that every system of ours is right. Every bad manifest ends with status 1 and a message with file, line,
/// column and the right form, in all formats.
fn check() -> Result<String, String> {
    let good = [files("systems", ".toml")?, files("systems/bench", ".toml")?].concat();
    for manifest in &good {
        let out = well(&["check", manifest])?;
        if !out.starts_with(&format!("{manifest}: ok (")) {
            return Err(format!("bulkhead check {manifest} said {out}"));
        }
    }
    let bad = files("tests/manifests/bad", ".toml")?;
    if good.len() < 5 || bad.len() < 40 {
        return Err(format!("only {} good and {} bad manifests", good.len(), bad.len()));
    }
    for manifest in &bad {
        let wrong =
            |what: &str, said: &str| Err(format!("bulkhead check {manifest}: {what}\n{said}"));
        let (code, out, err) = bulkhead(&["check", manifest])?;
        let is_place = |line: &str| {
            let Some(place) = line.trim_start().strip_prefix("--> ") else {
                return false;
            };
            let mut parts = place.trim().rsplitn(3, ':');
            let number =
                |part: Option<&str>| part.is_some_and(|p| p.parse::<u32>().is_ok_and(|n| n > 0));
            number(parts.next()) && number(parts.next()) && parts.next().is_some()
        };
        if code != 1 || !out.is_empty() {
            return wrong(&format!("status {code}"), &out);
        }
        if !err.contains("error[") || !err.lines().any(is_place) || !err.contains("help: ") {
            return wrong("no error with a place and help", &err);
        }
        let (code, out, _) = bulkhead(&["check", manifest, "--format", "json"])?;
        let report: serde_json::Value =
            serde_json::from_str(&out).map_err(|e| format!("{manifest}: {e}"))?;
        if code != 1 || report["errors"].as_u64().is_none_or(|n| n == 0) {
            return wrong("JSON without an error", &out);
        }
    }
    Ok(format!("{} right, {} wrong manifests", good.len(), bad.len()))
}

/// Every system has a table and a picture that is well-formed.
fn plan(dir: &Path) -> Result<String, String> {
    let picture = dir.join("plan.svg");
    let file = picture.display().to_string();
    let mut elements = 0;
    let all = [files("systems", ".toml")?, vec!["tests/manifests/good.toml".into()]].concat();
    for manifest in &all {
        let out = well(&["plan", manifest, "--skip-files", "--svg", &file])?;
        for heading in ["Memory (", "Sandboxes", "Reach (", "Cores"] {
            if !out.contains(heading) {
                return Err(format!("the plan of {manifest} has no {heading}\n{out}"));
            }
        }
        let svg = std::fs::read_to_string(&picture).map_err(|e| format!("{file}: {e}"))?;
        elements += well_formed(&svg).map_err(|why| format!("the picture of {manifest}: {why}"))?;
    }
    well(&["sched", "tests/manifests/sched.toml", "--skip-files", "--svg", &file])?;
    let svg = std::fs::read_to_string(&picture).map_err(|e| format!("{file}: {e}"))?;
    elements += well_formed(&svg).map_err(|why| format!("the picture of a schedule: {why}"))?;
    Ok(format!("{elements} elements in {} pictures", all.len() + 1))
}

/// Checks that a text is XML as our pictures use it: elements nested and closed, attributes quoted and once, no bare
/// `&` or `<`. Returns the number of elements.
fn well_formed(xml: &str) -> Result<usize, String> {
    let (mut open, mut count, mut rest) = (Vec::new(), 0, xml);
    while let Some(at) = rest.find('<') {
        text(&rest[..at])?;
        if open.is_empty() && (count > 0 || !rest[..at].trim().is_empty()) {
            return Err("something beside the root".into());
        }
        let end = tag_end(&rest[at..]).ok_or("a tag without an end")?;
        let tag = &rest[at + 1..at + end];
        rest = &rest[at + end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            let last: Option<&str> = open.pop();
            if last != Some(name.trim_end()) {
                return Err(format!("</{name}> closes {last:?}"));
            }
            continue;
        }
        let inner = tag.strip_suffix('/').unwrap_or(tag);
        let name = inner.split_whitespace().next().unwrap_or_default();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(format!("<{tag}> has no name"));
        }
        attributes(&inner[name.len()..]).map_err(|why| format!("<{tag}>: {why}"))?;
        count += 1;
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    match (open.last(), rest.trim()) {
        (Some(name), _) => Err(format!("<{name}> is not closed")),
        (None, "") if count > 0 => Ok(count),
        _ => Err("no element, or text after the last one".into()),
    }
}

/// Where the tag at the beginning ends: `>` outside of quotes.
fn tag_end(xml: &str) -> Option<usize> {
    let mut quoted = false;
    xml.char_indices().find_map(|(at, c)| {
        quoted ^= c == '"';
        (c == '>' && !quoted).then_some(at)
    })
}

fn attributes(mut rest: &str) -> Result<(), String> {
    let mut names = Vec::new();
    while !rest.trim().is_empty() {
        let (name, after) = rest.split_once("=\"").ok_or("an attribute without a quoted value")?;
        let (value, after) = after.split_once('"').ok_or("a value without an end")?;
        if !name.starts_with(char::is_whitespace)
            || name.trim().contains(char::is_whitespace)
            || names.contains(&name.trim())
        {
            return Err(format!("the attribute {name:?}"));
        }
        if value.contains('<') {
            return Err(format!("the value {value:?}"));
        }
        text(value)?;
        names.push(name.trim());
        rest = after;
    }
    Ok(())
}

fn text(text: &str) -> Result<(), String> {
    let entity = |rest: &str| {
        ["amp;", "lt;", "gt;", "quot;", "apos;", "#"].iter().any(|e| rest.starts_with(e))
    };
    match text.split('&').skip(1).find(|rest| !entity(rest)) {
        Some(rest) => Err(format!("a bare & before {rest:?}")),
        None => Ok(()),
    }
}

/// Builds an image and an ISO twice: the bytes are equal, and have the kind that they claim.
fn build_twice(dir: &Path) -> Result<String, String> {
    let path = |name: &str| dir.join(name).display().to_string();
    let read = |name: &str| std::fs::read(dir.join(name)).map_err(|e| format!("{name}: {e}"));
    let (one, two, iso) = (path("one.image"), path("two.image"), path("image.iso"));
    let out = well(&["build", "systems/demo.toml", "-o", &one])?;
    well(&["build", "systems/demo.toml", "-o", &two])?;
    let image = read("one.image")?;
    if image != read("two.image")? {
        return Err("two builds of one manifest differ".into());
    }
    if !out.contains(&format!("{} bytes", image.len())) {
        return Err(format!("it has {} bytes, and was said to have: {out}", image.len()));
    }
    // Multiboot 0.6.96, 3.1.1.
    if image.get(..4) != Some(&0x1BAD_B002u32.to_le_bytes()) {
        return Err("it does not begin with a multiboot header".into());
    }
    well(&["build", "systems/demo.toml", "-o", &iso, "--iso"])?;
    let iso = read("image.iso")?;
    // ISO 9660's volume descriptor, and the boot record of El Torito after it.
    let at = |sector: usize, from: usize, len: usize| {
        iso.get(sector * 2048 + from..sector * 2048 + from + len)
    };
    if at(16, 1, 5) != Some(b"CD001") || at(17, 7, 23) != Some(b"EL TORITO SPECIFICATION") {
        return Err("it is no bootable ISO".into());
    }
    let (code, _, err) = bulkhead(&["build", "tests/manifests/bad/core-twice.toml", "-o", &one])?;
    if code != 1 || !err.contains("core-twice") {
        return Err(format!("a bad manifest is built: status {code}\n{err}"));
    }
    Ok(format!("{} bytes, ISO {}", image.len(), iso.len()))
}

/// `bulkhead run --report`, then `bulkhead exits`, `report` and `compare` of it.
fn exits(dir: &Path) -> Result<String, String> {
    let manifest = Manifest::new().bare("guest", "selftest", "late=2000000", &[0], "4 MiB", "");
    manifest.load(dir)?;
    let path = |name: &str| dir.join(name).display().to_string();
    let (system, report) = (path("system.toml"), path("report.json"));
    let (_, said, _) = bulkhead(&["run", &system, "--report", &report, "--limit", "60"])?;
    super::walk::schema(Path::new(&report)).map_err(|e| format!("{e}\n{said}"))?;
    super::page::check(dir)?;
    super::page::compared(dir)?;
    let out = well(&["exits", &report])?;
    let counted = out.lines().any(|l| {
        let words: Vec<_> = l.split_whitespace().collect();
        words.first() == Some(&"guest")
            && words.get(1) == Some(&"hypercall")
            && words.get(2).is_some_and(|n| n.parse::<u64>().is_ok_and(|n| n > 0))
    });
    if !counted || !out.contains("steady for ") {
        return Err(format!("no hypercalls of guest in it:\n{out}"));
    }
    let (code, _, err) = bulkhead(&["exits", "no-such.json"])?;
    if code != 1 || !err.contains("no-such.json") {
        return Err(format!("a missing report: status {code}\n{err}"));
    }
    Ok(String::new())
}

/// `bulkhead top` looks at a machine that runs meanwhile. Its guest takes as many exits as one that nobody looks at,
/// and ends as that does.
fn top(dir: &Path) -> Result<String, String> {
    let manifest = Manifest::new().bare("guest", "duty", "rounds=4000", &[0], "8 MiB", "");
    let look = move |folder: &Path| {
        Command::new(build::target().join("release/bulkhead"))
            .args(["top", "system.toml", "--once", "--interval", "50", "--attach", "."])
            .current_dir(folder)
            .env("BULKHEAD_ARTIFACTS", artifacts())
            .printed()
    };
    let one_core = bulkhead_qemu::Time::one_core();
    let exits = |ran: &Seen| {
        ran.undisturbed("guest", &["exited"])?;
        let exits = &ran.outcome()?.report.sandboxes[0].exits;
        let all = exits.boot.iter().chain(&exits.steady).map(|(cause, count)| (*cause, *count));
        Ok::<Vec<_>, String>(all.collect())
    };
    let alone = run(&manifest, &dir.join("alone"), |options| options.time = one_core)?;
    let (folder, seen) = (dir.to_owned(), Rc::new(RefCell::new(Vec::new())));
    let all = Rc::clone(&seen);
    let watched = run(&manifest, dir, |options| {
        options.time = one_core;
        options.stop = Some(Box::new(move || {
            let said = look(&folder).ok().filter(|out| out.status.success());
            let said = said.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
            all.borrow_mut().extend(said.filter(|said| said.contains(" running ")));
            false
        }));
    })?;
    let late = look(dir)?;
    let says = String::from_utf8_lossy(&late.stderr).into_owned();
    if late.status.code() != Some(1) || !says.contains("no machine runs in .") {
        return Err(format!("no machine: {}\n{says}", late.status));
    }
    let count = |said: &String| {
        let line = said.lines().find(|line| line.trim_start().starts_with("guest"))?;
        line.split_whitespace().nth(4)?.parse::<u64>().ok()
    };
    let counts: Vec<u64> = seen.borrow().iter().filter_map(count).collect();
    let (before, after) = (exits(&alone)?, exits(&watched)?);
    if before != after {
        return Err(format!("exits alone {before:?}, watched {after:?}"));
    }
    match counts.as_slice() {
        [first, .., last] if first < last && *last <= after.iter().map(|e| e.1).sum() => {
            Ok(format!("{} looks, from {first} to {last} exits, as many as alone", counts.len()))
        }
        other => Err(format!("looks: {other:?}\n{}", seen.borrow().concat())),
    }
}

/// `bulkhead doctor` finds what `make setup` has installed and `make build` has built, and what a folder lacks.
fn doctor() -> Result<String, String> {
    let said = well(&["doctor"])?;
    for part in ["QEMU emulator version", "boot code, monitors, kernel", "x86_64-unknown-none"] {
        if !said.lines().any(|line| line.starts_with("  ok ") && line.contains(part)) {
            return Err(format!("no `{part}`:\n{said}"));
        }
    }
    let (code, said, _) = bulkhead(&["doctor", "--artifacts", "docs", "--format", "json"])?;
    let found: serde_json::Value = serde_json::from_str(&said).map_err(|e| e.to_string())?;
    let lacks = |one: &&serde_json::Value| {
        one["state"] == "missing" && one["part"] == "to build and run systems"
    };
    let lacking = found["found"].as_array().into_iter().flatten().filter(lacks).count();
    match (code, lacking) {
        (1, 1) => Ok(String::new()),
        _ => Err(format!("without artifacts: status {code}\n{said}")),
    }
}

/// `bulkhead audit` of a machine that it boots, and of the dump that this leaves.
fn audit(dir: &Path) -> Result<String, String> {
    let manifest = Manifest::new().bare("guest", "victim", "", &[0], "4 MiB", "");
    manifest.load(dir)?;
    let path = |name: &str| dir.join(name).display().to_string();
    let (system, dump) = (path("system.toml"), path("dump"));
    let live = well(&["audit", &system, "--save", &dump])?;
    let dumped = well(&["audit", &system, "--dump", &dump])?;
    if live != dumped || !live.contains("guest") {
        return Err(format!("the machine:\n{live}\nits dump:\n{dumped}"));
    }
    let folder = dir.display().to_string();
    let (code, _, err) = bulkhead(&["audit", "systems/demo-vmx.toml", "--attach", &folder])?;
    if code != 1 || !err.contains("Bochs answers nobody but its own process") {
        return Err(format!("attached to a Bochs: status {code}\n{err}"));
    }
    Ok(format!("{} lines, twice", live.lines().count()))
}

/// Tests the limits: a manifest of 100,000 of anything is refused within a second of processor time. So is one that
/// exhausts the limits: a limit that lets pass minutes of work would be none.
fn limits(dir: &Path) -> Result<String, String> {
    const MANY: usize = 100_000;
    const MOST: usize = 1_024;
    let machine = build::root().join("machines/qemu-q35.toml");
    let head = format!(
        "version = 1\n[system]\nname = \"many\"\nmachine = {:?}\n",
        machine.display().to_string()
    );
    let all = |count: usize, one: &dyn Fn(usize) -> String| (0..count).map(one).collect::<String>();
    let sandbox = |n: usize| {
        format!(
            "[[sandbox]]\nname = \"s{n}\"\nguest = {{ kind = \"bare\", program = \"artifact:hello\" }}\ncores = [0]\nmemory = \"4 MiB\"\n"
        )
    };
    let channel = |n: usize| {
        format!(
            "[[channel]]\nname = \"c{n}\"\nfrom = \"s0\"\nto = [\"s{}\"]\nsize = \"4 KiB\"\n",
            n % 40
        )
    };
    let health = |n: usize| {
        format!(
            "[[health]]\nsandbox = \"s{}\"\non = \"memory-violation\"\naction = \"stop\"\n",
            n % 40
        )
    };
    let program = |n: usize| {
        format!(
            "[[program]]\nname = \"p{n}\"\nsandbox = \"s0\"\nfile = \"artifact:hello\"\ncalls = [\"e{n}\"]\n"
        )
    };
    let context = |n: usize| {
        format!(
            "[[context]]\nname = \"x{n}\"\nsandbox = \"s0\"\nbudget = \"1 ms\"\nperiod = \"{} ms\"\n",
            n + 2000
        )
    };
    let thread = |n: usize| {
        format!(
            "[[thread]]\nname = \"t{n}\"\nprogram = \"p{n}\"\npriority = 9\ncontext = \"x{n}\"\n"
        )
    };
    let endpoint = |n: usize| format!("[[endpoint]]\nname = \"e{n}\"\nsandbox = \"s0\"\n");
    let kernel = "[[sandbox]]\nname = \"s0\"\nguest = { kind = \"kernel\" }\ncores = [0]\nmemory = \"16 MiB\"\n";
    // Pairs of a caller and the passive server that it calls: every rule looks at them, and the admission.
    let pair = |n: usize| {
        format!(
            "[[program]]\nname = \"p{n}\"\nsandbox = \"s0\"\nfile = \"artifact:program-hello\"\ncalls = [\"e{n}\"]\n\
             [[program]]\nname = \"q{n}\"\nsandbox = \"s0\"\nfile = \"artifact:program-hello\"\nserves = [\"e{n}\"]\n\
             [[thread]]\nname = \"u{n}\"\nprogram = \"q{n}\"\npriority = 10\n\
             [[endpoint]]\nname = \"e{n}\"\nsandbox = \"s0\"\nlongest = \"50 us\"\n"
        ) + &thread(n)
            + &context(n).replace("1 ms", "100 us")
    };
    let right = kernel.replace("16 MiB", "1 GiB") + &all(MOST / 2, &pair);
    let few = all(32, &sandbox);
    let texts = [
        ("right", right),
        ("sandboxes", all(MANY, &sandbox)),
        ("channels", few.clone() + &all(MANY, &channel)),
        ("health", few.clone() + &all(MANY, &health)),
        // Short enough for a file that is read.
        ("tables", "[[channel]]\n".repeat(80_000)),
        ("errors", "=\n".repeat(400_000)),
        ("most sandboxes", all(MOST, &sandbox)),
        ("most channels", few.clone() + &all(MOST, &channel)),
        ("most health", few.clone() + &all(MOST, &health)),
        (
            "most programs",
            kernel.to_owned()
                + &all(MOST, &program)
                + &all(MOST, &context)
                + &all(MOST, &thread)
                + &all(MOST, &endpoint),
        ),
    ];
    let file = dir.join("many.toml");
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut worst = (0.0, "");
    for (what, text) in texts {
        std::fs::write(&file, head.clone() + &text)
            .map_err(|e| format!("{}: {e}", file.display()))?;
        // Work on the other core adds a quarter, at times. The least of three is the file's own time.
        let mut took = f64::INFINITY;
        for _ in 0..3 {
            let again = processor_time(&file, what != "right");
            took = took.min(again.map_err(|why| format!("{what}: {why}"))?);
            if took <= 1.0 {
                break;
            }
        }
        if took > 1.0 {
            return Err(format!("{what}: {took:.2} s of processor time"));
        }
        if took > worst.0 {
            worst = (took, what);
        }
    }
    for endless in ["/dev/zero", "/proc/self/fd"] {
        let text = head.replace(&machine.display().to_string(), endless);
        std::fs::write(&file, text + &few).map_err(|e| format!("{}: {e}", file.display()))?;
        processor_time(&file, true).map_err(|why| format!("{endless}: {why}"))?;
    }
    Ok(format!("{:.2} s at most, for {}", worst.0, worst.1))
}

/// Seconds of processor time that `bulkhead check` takes to refuse a file, or
/// to find it right.
fn processor_time(file: &Path, refused: bool) -> Result<f64, String> {
    let program = build::target().join("release/bulkhead");
    // The shell's own, then its children's: minutes and seconds for the user, and for the system.
    let script =
        format!("{} check {} >/dev/null 2>&1; echo $?; times", program.display(), file.display());
    let out = Command::new("bash").args(["-c", &script]).printed()?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut lines = said.lines();
    if lines.next() != Some(if refused { "1" } else { "0" }) {
        return Err(format!("refused: not {refused}: {said}"));
    }
    let seconds = |word: &str| {
        let (minutes, seconds) = word.trim_end_matches('s').split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.replace(',', ".").parse::<f64>().ok()?)
    };
    let last = lines.last().unwrap_or_default();
    last.split_whitespace().map(seconds).sum::<Option<f64>>().ok_or(format!("no times: {said}"))
}

/// Every `bulkhead` and `make` command line in the book is one that exists.
fn book() -> Result<String, String> {
    let makefile =
        std::fs::read_to_string(build::root().join("Makefile")).map_err(|e| e.to_string())?;
    let pages =
        [files("docs", ".md")?, vec!["README.md".into(), "CONTRIBUTING.md".into()]].concat();
    let mut seen = 0;
    for page in pages {
        let text = std::fs::read_to_string(build::root().join(&page))
            .map_err(|e| format!("{page}: {e}"))?;
        let mut fenced = false;
        for line in text.lines() {
            fenced ^= line.starts_with("```");
            // In a fence each line is a command; elsewhere what stands in backticks.
            let spans: Vec<&str> = if fenced {
                vec![line.trim_start_matches("$ ")]
            } else {
                line.split('`').skip(1).step_by(2).collect()
            };
            for span in spans {
                let mut words = span.split_whitespace();
                let program = words.next().unwrap_or_default();
                let words: Vec<_> = words.take_while(|w| *w != "#").collect();
                match (program.rsplit('/').next(), words.first()) {
                    (Some("make"), Some(target))
                        if target.chars().all(|c| c.is_ascii_lowercase()) =>
                    {
                        seen += 1;
                        if !makefile.contains(&format!("\n{target}:")) {
                            return Err(format!("{page}: there is no `make {target}`"));
                        }
                    }
                    (Some("bulkhead"), Some(command)) => {
                        seen += 1;
                        let help = well(&[command.trim_end_matches([',', '.']), "--help"])
                            .map_err(|e| format!("{page}: {e}"))?;
                        let flags = words.iter().filter(|w| w.starts_with("--"));
                        let missing = flags
                            .map(|w| w.split('=').next().unwrap_or(w))
                            .find(|w| !help.contains(*w));
                        if let Some(flag) = missing {
                            return Err(format!("{page}: bulkhead {command} has no {flag}"));
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    if seen < 10 {
        return Err(format!("only {seen} command lines found"));
    }
    Ok(format!("{seen} command lines"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_that_is_not_well_formed_is_told() {
        assert_eq!(well_formed("<a b=\"1 > 0\"><c/>&amp;<d>x</d></a>\n"), Ok(3));
        for bad in [
            "",
            "<a>",
            "</a>",
            "<a></b>",
            "<a/><b/>",
            "<a/>x",
            "x<a/>",
            "<a b=1/>",
            "<a b=\"1\" b=\"2\"/>",
            "<a>a & b</a>",
            "<a b=\"<\"/>",
            "<a b=\"1\"c=\"2\"/>",
            "<a",
            "< a/>",
        ] {
            assert!(well_formed(bad).is_err(), "{bad}");
        }
    }
}
