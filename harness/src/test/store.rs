//! A driver sandbox serves a disk behind the IOMMU to clients in other sandboxes (`tests/store/virtio.toml`,
//! docs/store.md), with doorbells, looking, and both. An audit finds nothing. A disk that is told to write to memory of
//! others reaches none of it.

use super::drive::{self, Kind};
use super::driver::{Bench, Job};
use super::system::{Manifest, Seen, run};
use crate::build;
use std::path::Path;
use std::time::Duration;

/// Bytes of the disk's file.
const SIZE: u64 = 64 << 20;
/// Sectors of the disk, and of the second client's part.
const SECTORS: u64 = SIZE / 512;
const FIRST: u64 = 4096;

pub fn jobs() -> Vec<Job> {
    let served = |notify: &'static str| {
        Job::one(format!("store/virtio-{notify}"), 120, move |bench| served(bench, notify))
    };
    let late = |name, kind: Kind, change: fn(String) -> String| {
        Job::one(name, 120, move |bench| late(kind, change, &bench.dir))
    };
    vec![
        served("doorbell"),
        served("poll"),
        served("adaptive"),
        Job::one("store/nvme", 120, |bench| served_by(&nvme(system()?), &bench.dir, "doorbell")),
        Job::one("store/ahci", 120, |bench| served_by(&ahci(system()?), &bench.dir, "doorbell")),
        late("store/late-virtio", drive::VIRTIO, |text| text),
        late("store/late-nvme", drive::NVME, nvme),
        late("store/late-ahci", drive::AHCI, ahci),
        Job::one("store/bare", 120, bare),
        Job::one("store/trespass", 120, trespass),
        Job::one("store/trespass-recorded", 120, recorded),
        Job::one("store/hostile-client", 120, hostile),
    ]
}

fn system() -> Result<String, String> {
    let path = build::root().join("tests/store/virtio.toml");
    std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Makes the disk's file.
pub fn disk(dir: &Path) -> Result<(), String> {
    let content: Vec<u8> = (0..SIZE).map(|at| 0xA0 | (at / 512) as u8 & 0xF).collect();
    let file = std::fs::create_dir_all(dir);
    let file = file.and_then(|()| std::fs::write(dir.join("disk.img"), content));
    file.map_err(|e| format!("disk.img: {e}"))
}

/// Runs it, with the disk's file, in real time: virtual time runs ahead of a disk.
fn start(text: String, dir: &Path, audit: bool) -> Result<Seen, String> {
    disk(dir)?;
    run(&Manifest(text), dir, |options| {
        options.time = bulkhead_qemu::Time::Live;
        options.limit = Duration::from_secs(100);
        options.audit = audit;
    })
}

/// The system with another way to notify.
fn notified(notify: &str) -> Result<String, String> {
    let text = system()?.replace("notify = \"doorbell\"", &format!("notify = \"{notify}\""));
    let signals = [
        ("{ channel = \"first\", notification = \"work\", bits = 2 }", "\"first\""),
        ("{ channel = \"second\", notification = \"work\", bits = 4 }", "\"second\""),
        ("{ channel = \"first\", notification = \"answers\" }", "\"first\""),
        ("{ channel = \"second\", notification = \"answers\" }", "\"second\""),
        ("waits = [\"answers\"]\n", ""),
        ("[[notification]]\nname = \"answers\"\nsandbox = \"one\"\n", ""),
        ("[[notification]]\nname = \"answers\"\nsandbox = \"two\"\n", ""),
    ];
    Ok(match notify {
        "poll" => signals.iter().fold(text, |text, (from, to)| text.replace(from, to)),
        _ => text,
    })
}

/// Both clients have their part of the disk, the second one cannot write, and nobody is denied anything.
fn served(bench: &Bench, notify: &str) -> Result<String, String> {
    served_by(&notified(notify)?, &bench.dir, notify)
}

/// The first client is a bare guest, which looks for its answers.
fn bare(bench: &Bench) -> Result<String, String> {
    let text = notified("poll")?;
    let parts = text
        .split_once("[[sandbox]]\nname = \"one\"")
        .and_then(|(before, rest)| Some((before, rest.split_once("# Another one may only")?.1)));
    let (before, after) = parts.ok_or("the first client is not where it was")?;
    let one = "[[sandbox]]
name = \"one\"
guest = { kind = \"bare\", program = \"artifact:talk\", args = \"role=disk channel=first rounds=64\" }
cores = [1]
memory = \"16 MiB\"

# Another one may only";
    let seen = start(format!("{before}{one}{after}"), &bench.dir, true)?;
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))?;
    for client in ["one", "two"] {
        seen.exited(client)?;
        seen.undisturbed(client, &["exited"])?;
    }
    seen.undisturbed("store", &["running"])?;
    let said = format!("one: {FIRST} sectors, 64 rounds, 0 wrong, 3 refused, 1 lives of the disk");
    seen.ensure(seen.console.contains(&said), format!("nobody says {said:?}"))?;
    Ok(said)
}

/// The system with an AHCI controller, which tells of its answers by its only message.
pub fn ahci(text: String) -> String {
    let changes = [("pci:00:03.0", "pci:00:1f.2"), ("name = \"disk0\"", "name = \"disk3\"")];
    changes.iter().fold(text, |text, (from, to)| text.replace(from, to))
}

/// The system with an NVMe controller, which tells of its answers by message 1 and needs more memory for its queues.
pub fn nvme(text: String) -> String {
    let changes = [
        ("pci:00:03.0", "pci:00:07.0"),
        ("name = \"disk0\"", "name = \"disk2\""),
        ("number = 0", "number = 1"),
        ("size = \"16 KiB\"", "size = \"64 KiB\""),
    ];
    changes.iter().fold(text, |text, (from, to)| text.replace(from, to))
}

fn served_by(text: &str, dir: &Path, notify: &str) -> Result<String, String> {
    let seen = start(text.to_owned(), dir, true)?;
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))?;
    good(&seen)?;
    let polls = notify == "poll";
    let woken = seen.console.matches("slept and was woken").count();
    seen.ensure(woken == if polls { 0 } else { 2 }, format!("{woken} clients were woken"))?;
    // Each side wakes the other, or neither does.
    let mut all = Vec::new();
    for name in ["store", "one", "two"] {
        let rings = seen.sandbox(name)?.exits.steady.get("ring").copied().unwrap_or(0);
        seen.ensure((rings == 0) == polls, format!("{name} rang {rings} times"))?;
        all.push(format!("{name} rang {rings} times"));
    }
    Ok(all.join(", "))
}

fn good(seen: &Seen) -> Result<(), String> {
    for client in ["one", "two"] {
        seen.exited(client)?;
        seen.undisturbed(client, &["exited"])?;
    }
    seen.undisturbed("store", &["running"])?;
    for said in [
        format!("store: {SECTORS} sectors"),
        format!("one: a disk of {FIRST} sectors"),
        format!("two: a disk of {} sectors", SECTORS - FIRST),
        "one: 3 sessions, 0 wrong".to_owned(),
        "two: 1 sessions, 0 wrong".to_owned(),
    ] {
        seen.ensure(seen.console.contains(&said), format!("nobody says {said:?}"))?;
    }
    Ok(())
}

/// The driver tells the disk to write where it must not: to the client's section, to both headers, and to the kernel.
/// The disk reaches none of that, and the clients are served as ever.
fn trespass(bench: &Bench) -> Result<String, String> {
    let seen = start(trespassing(system()?), &bench.dir, false)?;
    good(&seen)?;
    tried(&seen)?;
    Ok("5 places".into())
}

fn trespassing(text: String) -> String {
    text.replace("artifact:program-store", "artifact:store-rogue")
        .replace("args = \"disk=first", "args = \"trespass=1 disk=first")
}

fn tried(seen: &Seen) -> Result<(), String> {
    const TRIED: &str = "store: tried 5 places that are not the disk's, reached none";
    seen.ensure(seen.console.contains(TRIED), format!("nobody says {TRIED:?}"))
}

/// A driver fails while its disk, which carries out one request a second, owes it many reads. In the next life none of
/// them comes to the section, nor an answer to the rings. Without the disk's reset they come.
fn late(kind: Kind, change: fn(String) -> String, dir: &Path) -> Result<String, String> {
    let seen = begun_anew(kind, change, dir, Ok)?;
    let under_way = under_way(&seen)?;
    seen.ensure(watched(&seen)? == [0, 0], "a request of the last life came late")?;
    let without = begun_anew(kind, change, dir, |text| drive::without_reset(kind, text))?;
    let [section, rings] = watched(&without)?;
    without.ensure(section > 0, "without a reset nothing came late: this shows nothing")?;
    Ok(format!(
        "{under_way} requests under way, none came late; without a reset {section} words of the section and {rings} \
         of the rings changed"
    ))
}

/// Runs it with a slow disk, for a life with requests under way and one that watches.
fn begun_anew(
    kind: Kind,
    change: fn(String) -> String,
    dir: &Path,
    machine: impl FnOnce(String) -> Result<String, String>,
) -> Result<Seen, String> {
    /// Requests a second. An AHCI disk can be late with one alone, and that has to come while it is watched for.
    const RATE: u32 = 1;
    let Manifest(head) = drive::slow(kind, RATE, dir, machine)?;
    let machine = head.lines().find(|line| line.starts_with("machine = ")).unwrap_or_default();
    let text = change(system()?);
    let drive = text.split_once("[[run.drive]]").and_then(|(_, rest)| rest.split_once("\n\n"));
    let drive = format!("[[run.drive]]{}\n\n", drive.ok_or("no drive in it")?.0);
    let text = text
        .replace("machine = \"machines/qemu-q35.toml\"", machine)
        .replace(&drive, "")
        .replace("artifact:program-store", "artifact:store-rogue")
        .replace("args = \"disk=first", "args = \"late=2000 disk=first")
        .replace("args = \"missed=100\"", "args = \"missed=100 pause=10\"")
        .replace("waits = [\"work\"]", "waits = [\"work\"]\nends_sandbox = true")
        .replace("ends_with = [\"one\", \"two\"]", "ends_with = [\"store\"]");
    let seen = run(&Manifest(text), dir, |options| {
        options.time = bulkhead_qemu::Time::Live;
        options.limit = Duration::from_secs(50);
    })?;
    let store = seen.sandbox("store")?;
    seen.ensure(store.restarts == 1, format!("{} restarts", store.restarts))?;
    Ok(seen)
}

/// Requests that the first life left under way. A few are no load.
fn under_way(seen: &Seen) -> Result<u64, String> {
    const LEAST: u64 = 16;
    let said = seen.console.lines().find_map(|line| {
        line.split_once("store: ends with ")?.1.split(' ').next()?.parse::<u64>().ok()
    });
    let said = said.unwrap_or(0);
    seen.ensure(said >= LEAST, format!("{said} requests were under way"))?;
    Ok(said)
}

/// Words of the section and of the rings that changed in the second life.
fn watched(seen: &Seen) -> Result<[u64; 2], String> {
    let said = seen.console.lines().find_map(|line| {
        let (section, rest) = line.split_once("store: watched, ")?.1.split_once(' ')?;
        let rings = rest.split_once("section and ")?.1.split(' ').next()?;
        Some([section.parse().ok()?, rings.parse().ok()?])
    });
    said.ok_or_else(|| seen.wrong("the second life did not watch"))
}

/// Intel's IOMMU in QEMU records the first access that it blocks, as AMD's there does not. The report names the owner
/// of that memory, and the rule that denies it.
fn recorded(bench: &Bench) -> Result<String, String> {
    let text = trespassing(system()?).replace("qemu-q35.toml", "qemu-q35-vtd.toml");
    let seen = start(text, &bench.dir, false)?;
    good(&seen)?;
    tried(&seen)?;
    match &seen.outcome()?.report.blocked_dma[..] {
        [one] if one.owner == "channel first tx" && one.guarantee == "dma-rights" => {
            Ok(format!("{}: {}", one.access, one.allow))
        }
        all => Err(seen.wrong(format!("not one write to the client's section: {all:?}"))),
    }
}

/// The second client lies in its rings, headers and registers, is greedy, and its sandbox begins anew while it lies.
/// The driver goes on in its one life, and the first client in its one session. The disk is as it was where neither of
/// the two has a part.
fn hostile(bench: &Bench) -> Result<String, String> {
    /// Lives of the hostile one, and lies in all of them.
    const LIVES: u64 = 5;
    const LEAST: u64 = 100;
    let foe =
        format!("file = \"artifact:store-foe\"\nargs = \"channel=second ms=400 lives={LIVES}\"");
    // The first client has far more time than the lives take together.
    let changes = [
        ("file = \"disk.img\"", "file = \"disk.img\"\nkeep = true"),
        ("second:4096:0:ro", "second:4096:4096"),
        ("channel=first anew=3", "channel=first ms=10000"),
        ("file = \"artifact:store-client\"\nargs = \"channel=second readonly=1\"", foe.as_str()),
    ];
    let text = changes.iter().fold(system()?, |text, (from, to)| text.replace(from, to));
    let seen = start(text, &bench.dir, true)?;
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))?;
    seen.undisturbed("store", &["running"])?;
    seen.undisturbed("one", &["exited"])?;
    seen.exited("one")?;
    seen.exited("two")?;
    let two = seen.sandbox("two")?;
    seen.ensure(two.restarts == LIVES - 1, format!("{} restarts", two.restarts))?;
    seen.ensure(two.denials == 0, "the hostile client was denied something")?;
    let blocked = &seen.outcome()?.report.blocked_dma;
    seen.ensure(blocked.is_empty(), format!("the disk was told to go astray: {blocked:?}"))?;
    for said in ["store: second wrote what cannot be", "store: second is gone"] {
        seen.ensure(seen.console.contains(said), format!("nobody says {said:?}"))?;
    }
    // Number and text of a client's line.
    let line = |begins: &str, has: &str| {
        let lines = seen.console.lines().map(|line| line.split_once("] ").unwrap_or_default().1);
        let found =
            lines.enumerate().find(|(_, line)| line.starts_with(begins) && line.contains(has));
        found.ok_or_else(|| seen.wrong(format!("nobody says \"{begins}…{has}\"")))
    };
    let (lied, counts) = line("two: lied ", "times")?;
    let (served, _) = line("one: ", "1 sessions, 0 wrong")?;
    let (_, rounds) = line("one: ", "rounds, the longest took")?;
    seen.ensure(lied < served, "the first client was not at work for all of that time")?;
    let lies = counts.split(' ').nth(2).and_then(|count| count.parse::<u64>().ok());
    seen.ensure(lies.is_some_and(|lies| lies >= LEAST), format!("few lies: {counts:?}"))?;
    outside_is_whole(&bench.dir, 2 * FIRST)?;
    Ok(format!("{counts}; {rounds}"))
}

/// The disk from a sector on is as [`disk`] made it.
fn outside_is_whole(dir: &Path, sector: u64) -> Result<(), String> {
    let path = dir.join("disk.img");
    let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    if bytes.len() as u64 != SIZE {
        return Err(format!("the disk has {} bytes", bytes.len()));
    }
    let made = |sector: u64| 0xA0 | sector as u8 & 0xF;
    let sectors = bytes.chunks(512).zip(0u64..);
    let mut changed = sectors.filter(|(bytes, n)| bytes.iter().any(|b| *b != made(*n)));
    // The first client has written there.
    if changed.next().is_none_or(|(_, first)| first != 0) {
        return Err("the file keeps no write: this shows nothing".into());
    }
    match changed.find(|(_, n)| *n >= sector) {
        Some((_, n)) => Err(format!("sector {n} has changed, and is nobody's")),
        None => Ok(()),
    }
}

/// The machine of the system above, stopped, for errors to be planted in its tables.
pub fn stopped(dir: &Path) -> Result<Seen, String> {
    let seen = start(system()?, dir, true)?;
    good(&seen)?;
    Ok(seen)
}
