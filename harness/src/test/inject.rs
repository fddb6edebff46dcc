//! Campaigns of faults (`bulkhead inject`). The judge comes first. A breach that is planted in each kind of place has
//! to be harm. With the look taken away that sees it, it must not be. Then faults are struck, in shards, by GNU
//! parallel, and twice.

use super::driver::{Bench, Job};
use super::spoil::Spoil;
use super::system::{Manifest, artifacts};
use super::verify::bulkhead;
use crate::build;
use crate::program::Program as _;
use bulkhead_inject::run::planted;
use bulkhead_inject::{Class, Golden, Judge, Row, Stand, Stop, Store, System};
use bulkhead_layout::map::{CORE_CONTROL, CORES_VA};
use bulkhead_manifest::{Options, load};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The system of the tests.
const PAIR: &str = "tests/inject/pair.toml";
/// And the one with a kernel, a device with memory, and a guard.
const KERNEL: &str = "tests/inject/kernel.toml";
/// Index of the sandbox that must not notice.
const WITNESS: usize = 1;
const PAGE: u64 = 4096;
/// Where `guests/duty` has patterns, and the odd number of all its words.
const PATTERNS: u64 = 7 << 19;
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
/// Faults of `make test`.
const FAULTS: u64 = 300;

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("inject/faults", 600, faults),
        Job::one("inject/planted", 300, breaches),
        Job::one("inject/tables", 200, tables),
        Job::one("inject/kernel", 300, kernel),
        Job::one("inject/parts", 300, parts),
        Job::one("inject/command", 200, command),
        Job::one("inject/parallel", 300, parallel),
    ]
}

fn wrong(error: bulkhead_inject::Error) -> String {
    error.to_string()
}

fn library() -> Result<PathBuf, String> {
    build::plugin().map_err(|error| error.to_string())
}

/// The pair, struck in `flight`.
fn pair() -> Result<System, String> {
    flight(PAIR)
}

fn flight(manifest: &str) -> Result<System, String> {
    let options = Options { artifacts: Some(artifacts()), ..Options::default() };
    let checked = load(&build::root().join(manifest), &options)
        .map_err(|findings| bulkhead_manifest::render::human(&findings, false))?;
    System::new(&checked, &artifacts(), library()?, Some("flight")).map_err(wrong)
}

/// Looks of the judge: all, words alone, pages alone, none.
const JUDGES: [Judge; 4] = [
    Judge { deeds: true, pages: true },
    Judge { deeds: true, pages: false },
    Judge { deeds: false, pages: true },
    Judge { deeds: false, pages: false },
];

/// Sees by words, by pages.
type By = (bool, bool);

/// A breach: its name, the looks that see it, how it is planted in the machine that stands.
type Breach = (&'static str, By, fn(&System, &mut Stand) -> bulkhead_inject::Result<()>);

const BREACHES: [Breach; 11] = [
    // Its own sweep finds it, too, and ends it.
    ("text of the witness", (true, true), |system, stand| {
        let own = ram(system);
        let pages = stand.executed(own, own + PATTERNS)?;
        stand.flip(pages.first().copied().unwrap_or(own) + 100, 3)
    }),
    ("a pattern of the witness", (true, true), |system, stand| {
        stand.flip(ram(system) + PATTERNS + 0x2468, 5)
    }),
    ("a constant that the witness does not look at", (false, true), |system, stand| {
        // Between the program and its patterns nothing is in use.
        stand.flip(ram(system) + PATTERNS - 0x1230, 0)
    }),
    ("the table of the witness", (true, false), |system, stand| {
        let at = word(system, stand, 25u64.wrapping_mul(FACTOR))?;
        stand.flip(at, 1)
    }),
    ("the stack pointer of the witness", (true, false), |_, stand| {
        stand.flip_register(WITNESS, 4, 1 << 40)
    }),
    ("the root of the page tables of the witness", (true, true), |system, stand| {
        let came = stand.go(Stop { core: Some(WITNESS), text: span(system), ..Stop::any(0) })?;
        let root = came.at().map_or(0, |at| at.root) & !(PAGE - 1);
        stand.flip(ram(system) + root, 0)
    }),
    // The SDK takes one below 32 for an exception.
    ("an interrupt that the witness does not wait for", (true, false), |system, stand| {
        stand.interrupt(system.baked.plan.sandboxes[WITNESS].core_ids[0], 0x14)
    }),
    ("the configuration of the witness' monitor", (false, true), |system, stand| {
        stand.flip(part(system, "configuration, launch record") + PAGE - 9, 2)
    }),
    ("the text of the witness' monitor", (true, true), |system, stand| {
        stand.flip(system.baked.map.texts[WITNESS].0 + 8, 0)
    }),
    // An intercept that its guest never meets: its own tick finds the field, and begins anew.
    ("the control block of the witness", (true, false), |system, stand| {
        let regions = &system.baked.map.spaces[WITNESS].monitor.regions;
        let at = CORES_VA + CORE_CONTROL + 0x14;
        let region = regions.iter().find(|region| at.wrapping_sub(region.at) < region.len);
        stand.flip(region.map_or(0, |region| at - region.at + region.pa), 0)
    }),
    ("the compiled manifest", (false, true), |system, stand| {
        stand.flip(system.baked.map.header + 8, 0)
    }),
];

/// Where the witness' memory begins.
fn ram(system: &System) -> u64 {
    system.baked.plan.sandboxes[WITNESS].ram[0].hpa
}

fn span(system: &System) -> (u64, u64) {
    let ram = &system.baked.plan.sandboxes[WITNESS].ram[0];
    (ram.hpa, ram.hpa + ram.len)
}

/// A part of its monitor's memory.
fn part(system: &System, what: &str) -> u64 {
    let mut parts = system.baked.map.parts.iter();
    parts.find(|part| part.owner == Some(WITNESS) && part.what == what).map_or(0, |part| part.start)
}

/// Where a word is below its patterns.
fn word(system: &System, stand: &Stand, value: u64) -> bulkhead_inject::Result<u64> {
    let mut bytes = vec![0; PATTERNS as usize];
    stand.ram().read(ram(system), &mut bytes)?;
    let found = bytes.chunks_exact(8).position(|word| word == value.to_le_bytes());
    let none = || bulkhead_inject::Error::Other("the witness has no such word".into());
    found.map(|n| ram(system) + n as u64 * 8).ok_or_else(none)
}

/// A breach in each kind of place: harm, and only by the looks that see it.
fn breaches(bench: &Bench) -> Result<String, String> {
    let system = pair()?;
    let golden = Golden::new(&system, &bench.dir).map_err(wrong)?;
    let stop = Stop::any(golden.begin + (golden.end - golden.begin) / 4);
    let sound = planted(&system, &golden, stop, &|_, _| Ok(()), &JUDGES, &bench.dir);
    let sound = sound.map_err(wrong)?;
    if sound.iter().any(|verdict| verdict.class != Class::NoEffect) {
        return Err(format!("without a breach: {sound:?}"));
    }
    for (name, (words, pages), plant) in BREACHES {
        let seen = planted(&system, &golden, stop, &plant, &JUDGES, &bench.dir).map_err(wrong)?;
        let harm: Vec<bool> = seen.iter().map(|verdict| verdict.class == Class::Harm).collect();
        let expected = [words || pages, words, pages, false];
        if harm != expected {
            return Err(format!("{name}: harm {harm:?}, expected {expected:?}; {seen:?}"));
        }
    }
    Ok(format!("{} places", BREACHES.len()))
}

/// Tables that let the struck sandbox reach another one: its writes are harm, and denied ones are not.
fn tables(bench: &Bench) -> Result<String, String> {
    const GIB: u64 = 1 << 30;
    let pair = std::fs::read_to_string(build::root().join(PAIR)).map_err(|e| e.to_string())?;
    let (head, rest) = pair.split_once("[[sandbox]]\nname = \"witness\"").ok_or("no witness")?;
    let head = head.split("[[sandbox]]").next().unwrap_or(head);
    let (witness, _) = rest.split_once("[[channel]]").ok_or("no channel")?;
    let witness = witness
        .replace("in=state ", "")
        .replace("memory = \"4 MiB\"", "memory = { size = \"4 MiB\", at = \"64 MiB\" }");
    let machine = build::root().join("tests/inject/machine.toml");
    let head = head.replace("machine.toml", &machine.display().to_string());
    let manifest = Manifest(format!("{head}[[sandbox]]\nname = \"witness\"{witness}")).bare(
        "rogue",
        "rogue",
        &format!("victim={:#x} attack=write-victim once pause=30", GIB + (64 << 20) + PATTERNS),
        &[0],
        "4 MiB",
        "",
    );
    let checked = manifest.load(&bench.dir)?;
    let new = || System::new(&checked, &artifacts(), library()?, Some("rogue")).map_err(wrong);
    let mut system = new()?;
    let golden = Golden::new(&system, &bench.dir).map_err(wrong)?;
    let stop = Stop::any(golden.begin);
    let class = |system: &System| {
        // Pages of the other image differ from the start.
        let seen = planted(system, &golden, stop, &|_, _| Ok(()), &JUDGES[1..2], &bench.dir);
        seen.map(|seen| seen[0].clone()).map_err(wrong)
    };
    let denied = class(&system)?;
    let index = system.target;
    let mut bytes = std::mem::take(&mut system.baked.bytes);
    let mut spoil = Spoil::new(&mut bytes, &system.baked);
    spoil.expose(index, GIB, 0, GIB);
    spoil.seal();
    system.baked.bytes = bytes;
    let through = class(&system)?;
    let right = denied.class != Class::Harm && through.class == Class::Harm;
    match right && through.harm.contains("witness: ") {
        true => Ok(format!("harm: {}", through.harm)),
        false => Err(format!("sound tables: {denied:?}; spoilt ones: {through:?}")),
    }
}

/// Runs the command; its output.
fn inject(arguments: &[&str]) -> Result<String, String> {
    let (status, out, err) = bulkhead(&[&["inject"], arguments].concat())?;
    match status {
        0 => Ok(out),
        _ => Err(format!("bulkhead inject {arguments:?}: status {status}\n{out}{err}")),
    }
}

fn fresh(dir: &Path, name: &str) -> Result<String, String> {
    let path = dir.join(name);
    for file in [path.clone(), path.with_extension("db-journal")] {
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("{}: {error}", file.display()));
            }
            _ => {}
        }
    }
    Ok(path.display().to_string())
}

/// Rows of a database, without the host's time.
fn rows(file: &str) -> Result<Vec<Row>, String> {
    let rows = Store::existing(Path::new(file)).and_then(|store| store.rows()).map_err(wrong)?;
    Ok(rows.into_iter().map(|row| Row { wall_ms: 0, ..row }).collect())
}

fn same(name: &str, one: &[Row], other: &[Row]) -> Result<(), String> {
    if one.len() != other.len() {
        return Err(format!("{name}: {} rows, not {}", one.len(), other.len()));
    }
    match one.iter().zip(other).find(|(one, other)| one != other) {
        Some((one, other)) => Err(format!("{name}: {one:?}\nis not\n{other:?}")),
        None => Ok(()),
    }
}

/// The faults of `make test`. No one harms another sandbox; each kind was struck.
fn faults(bench: &Bench) -> Result<String, String> {
    let file = fresh(&bench.dir, "faults.db")?;
    let begun = Instant::now();
    let out = inject(&[PAIR, "--faults", &FAULTS.to_string(), "--jobs", "2", "-o", &file])?;
    let took = begun.elapsed();
    let rows = rows(&file)?;
    if rows.len() as u64 != FAULTS {
        return Err(format!("{} of {FAULTS} faults\n{out}", rows.len()));
    }
    struck(&pair()?, &rows, &out)?;
    // These are found each time that they have an effect, and the service is right again.
    for (kind, by) in [("core-stops", "hang"), ("text", "guest-sum"), ("device-silent", "failure")]
    {
        let found = rows
            .iter()
            .any(|row| row.kind == kind && row.class == "recovered" && row.caught_by == by);
        if !found {
            return Err(format!("no {kind} was found by {by}\n{out}"));
        }
    }
    let rate = FAULTS as f64 * 60.0 / took.as_secs_f64();
    Ok(format!("{FAULTS} faults, no harm, {rate:.0} a minute"))
}

/// Tells if each kind that has a place in a system was struck, and no other one.
fn struck(system: &System, rows: &[Row], out: &str) -> Result<(), String> {
    for (kind, name) in bulkhead_inject::KINDS {
        let all = rows.iter().filter(|row| row.kind == name && row.place != "not reached").count();
        if (all > 0) != kind.fits(system) {
            return Err(format!("{all} faults of the kind {name} were struck\n{out}"));
        }
    }
    Ok(())
}

/// Faults in a kernel, in its programs, and in a device with memory: few, of a seed that draws each kind.
fn kernel(bench: &Bench) -> Result<String, String> {
    const FAULTS: usize = 18;
    const SEED: &str = "2909";
    let file = fresh(&bench.dir, "kernel.db")?;
    let faults = FAULTS.to_string();
    let out = inject(&[KERNEL, "--faults", &faults, "--seed", SEED, "--jobs", "2", "-o", &file])?;
    let rows = rows(&file)?;
    if rows.len() != FAULTS {
        return Err(format!("{} of {FAULTS} faults\n{out}", rows.len()));
    }
    struck(&flight(KERNEL)?, &rows, &out)?;
    // The programs' guard finds what stops, their driver what is wrong with the device.
    let ways = [
        ("core-stops", "core, program", "guard"),
        ("device-silent", "pci:00:08.0", "failure"),
        ("device-dma", "pci:00:08.0", "failure"),
        ("text", "page with text", "guest-sum"),
    ];
    for (kind, place, by) in ways {
        let found = rows.iter().any(|row| {
            row.kind == kind
                && row.place == place
                && row.caught_by == by
                && row.class == "recovered"
        });
        if !found {
            return Err(format!("no {kind} in {place} was found by {by}\n{out}"));
        }
    }
    // Regions that the plugin has put before a device's are in equal places each time.
    for kind in ["device-silent", "device-dma"] {
        let row = rows.iter().find(|row| row.kind == kind).ok_or("not struck")?;
        let again = inject(&[KERNEL, "--seed", SEED, "--repeat", &row.id.to_string()])?;
        let after = row.after_ns.map_or("-".into(), |ns| format!("{ns} ns"));
        for part in [&row.class, &row.detail, &row.instant.to_string(), &after] {
            if !again.contains(part.as_str()) {
                return Err(format!("fault {} was {row:?}, and is\n{again}", row.id));
            }
        }
    }
    Ok(format!("{FAULTS} faults, no harm"))
}

/// Shards together are the whole, one of them killed in the middle and begun again; a second whole is equal.
fn parts(bench: &Bench) -> Result<String, String> {
    const FAULTS: &str = "18";
    const OF: usize = 3;
    let whole = fresh(&bench.dir, "whole.db")?;
    let campaign = |file: &str, shard: &str, jobs: &str| {
        inject(&[
            PAIR, "--faults", FAULTS, "--seed", "7", "--jobs", jobs, "--shard", shard, "-o", file,
        ])
    };
    campaign(&whole, "1/1", "2")?;
    let mut files = Vec::new();
    for part in 1..=OF {
        let file = fresh(&bench.dir, &format!("part-{part}.db"))?;
        let shard = format!("{part}/{OF}");
        if part == 1 {
            killed(&file, &shard, FAULTS)?;
        }
        campaign(&file, &shard, "1")?;
        files.push(file);
    }
    let merged = fresh(&bench.dir, "merged.db")?;
    let names = files.iter().map(String::as_str);
    inject(&[&["merge", "-o", &merged], &names.collect::<Vec<_>>()[..]].concat())?;
    same("merged shards", &rows(&merged)?, &rows(&whole)?)?;
    let (status, _, err) =
        bulkhead(&["inject", PAIR, "--faults", FAULTS, "--seed", "8", "-o", &merged])?;
    if status != 1 || !err.contains("another campaign") {
        return Err(format!("a file of seed 7 took rows of seed 8: status {status}, {err}"));
    }
    Ok(format!("{FAULTS} faults in {OF} shards, one killed; all as in one piece"))
}

/// Begins a shard and kills it once it has a row, and not all.
fn killed(file: &str, shard: &str, faults: &str) -> Result<(), String> {
    const LIMIT: Duration = Duration::from_secs(100);
    let mut child = Command::new(build::target().join("release/bulkhead"))
        .args(["inject", PAIR, "--faults", faults, "--seed", "7", "--jobs", "1"])
        .args(["--shard", shard, "-o", file])
        .current_dir(build::root())
        .env("BULKHEAD_ARTIFACTS", artifacts())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let begun = Instant::now();
    let is_there = || Path::new(file).is_file() && rows(file).is_ok_and(|rows| !rows.is_empty());
    while !is_there() && begun.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(20));
    }
    let running = child.try_wait().map_err(|error| error.to_string())?.is_none();
    // It is gone, or will be.
    let _ = child.kill();
    let _ = child.wait();
    let done = rows(file)?.len();
    match running && done > 0 {
        true => Ok(()),
        false => Err(format!("the shard was not killed in its middle: {done} rows")),
    }
}

/// The commands of docs/inject.md.
fn command(bench: &Bench) -> Result<String, String> {
    let (file, svg) = (fresh(&bench.dir, "command.db")?, fresh(&bench.dir, "command.svg")?);
    let kinds = "text,core-stops";
    let out = inject(&[PAIR, "--faults", "4", "--kinds", kinds, "-o", &file, "--svg", &svg])?;
    let shown = inject(&["show", &file])?;
    let last = "4 faults: 0 of guests and 0 of monitors harmed another sandbox\n";
    if out != shown || !out.ends_with(last) || !out.starts_with("| fault | place | faults |") {
        return Err(format!("it prints\n{out}and then\n{shown}"));
    }
    let picture = std::fs::read_to_string(&svg).map_err(|error| format!("{svg}: {error}"))?;
    if !picture.contains("</svg>") || !picture.contains("core-stops: core") {
        return Err(format!("{svg} is no plot of it"));
    }
    for row in rows(&file)? {
        let id = row.id.to_string();
        let again = inject(&[PAIR, "--kinds", kinds, "--repeat", &id])?;
        for part in [&row.kind, &row.class, &row.detail, &row.instant.to_string()] {
            if !again.contains(part.as_str()) {
                return Err(format!("fault {id} was {row:?}, and is\n{again}"));
            }
        }
    }
    let (status, _, err) = bulkhead(&["inject", PAIR, "--kinds", "flood"])?;
    if status != 2 || !err.contains("register") {
        return Err(format!("a kind that is none: status {status}, {err}"));
    }
    Ok("4 faults, each repeated".into())
}

/// A `bulkhead` before the real one: its first run is lost after some seconds, as a worker is that loses its power.
const LOST: &str = "#!/bin/sh
if mkdir DIR/lost 2>/dev/null; then exec timeout -s KILL 3 BULKHEAD \"$@\"; fi
exec BULKHEAD \"$@\"
";

/// GNU parallel runs the shards, and begins one anew that was lost: the line of docs/inject.md.
fn parallel(bench: &Bench) -> Result<String, String> {
    let page = build::root().join("docs/inject.md");
    let page = std::fs::read_to_string(page).map_err(|error| error.to_string())?;
    let line = page.lines().find(|line| line.starts_with("parallel ")).ok_or("no line of it")?;
    let dir = bench.dir.display().to_string();
    let short = [("--faults 20000", "--faults 8"), ("{}/64", "{}/2"), ("{1..64}", "{1..2}")];
    let script = short.iter().try_fold(line.to_owned(), |line, (long, short)| {
        let shorter = line.replace(long, short);
        if shorter == line { Err(format!("no {long} in {line}")) } else { Ok(shorter) }
    })?;
    let script = script.replace("part-", &format!("{dir}/part-"));
    (1..=2).try_for_each(|n| fresh(&bench.dir, &format!("part-{n}.db")).map(|_| ()))?;
    let real = build::target().join("release/bulkhead").display().to_string();
    let wrapper = LOST.replace("DIR", &dir).replace("BULKHEAD", &real);
    let failed = |error: std::io::Error| format!("{dir}: {error}");
    let _ = std::fs::remove_dir(bench.dir.join("lost"));
    std::fs::create_dir_all(bench.dir.join("bin")).map_err(failed)?;
    let file = bench.dir.join("bin/bulkhead");
    std::fs::write(&file, wrapper).map_err(failed)?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).map_err(failed)?;
    let path = format!("{dir}/bin:{}", std::env::var("PATH").unwrap_or_default());
    let out = Command::new("bash")
        .args(["-c", &script])
        .current_dir(build::root())
        .env("PATH", path)
        .env("BULKHEAD_ARTIFACTS", artifacts())
        .printed()
        .map_err(|error| error.to_string())?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        return Err(format!("{script}: {}\n{said}", out.status));
    }
    let merged = fresh(&bench.dir, "all.db")?;
    let part = |n: usize| bench.dir.join(format!("part-{n}.db")).display().to_string();
    inject(&["merge", "-o", &merged, &part(1), &part(2)])?;
    match (rows(&merged)?.len(), bench.dir.join("lost").is_dir()) {
        (8, true) => Ok("8 faults in 2 shards of GNU parallel, one lost".into()),
        other => Err(format!("rows of 8, and was one lost: {other:?}")),
    }
}
