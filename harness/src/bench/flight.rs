//! The flight controller's releases, alone and beside noisy neighbours.

use super::Found;
use super::figure::{Figure, Must};
use super::system::{Ran, System, entries, event};
use crate::rows::Row;
use crate::selftest;
use crate::{Failure, build};
use bulkhead_initramfs::{Archive, Entry};
use bulkhead_layout::marker::id;
use bulkhead_qemu::counts::Distribution;

/// Seconds that it flies alone, and beside the others. A Linux that has a third of the clock boots for six seconds
/// before it can be a load.
pub(super) const ALONE: u64 = 2;
const LOADED: u64 = 8;
/// Instructions of an interrupt of the SDK for bare guests until its handler looks at the clock: 52, and a tenth more.
/// The entry saves the vector registers that messages are copied by, which made it 47 instructions before (a message of
/// 64 bytes takes 60 since). The host has no part in them.
const ENTRY: f64 = 58.0;
/// In the loaded system: the core that it flies on, and Linux's.
const CORE: u64 = 2;
const LINUX: u64 = 0;

/// Measures the jitter of a flight alone: only the interrupt's own instructions, as many in each run.
pub fn idle() -> Found {
    let (late, note, missed) = releases(&alone("flight-idle")?, ALONE)?;
    let row = Row::new("flight.jitter_idle", "ns", late.max as f64);
    let note = format!("{note}, {missed} missed");
    Ok(vec![Figure::new(row).must(Must::AtMost(ENTRY)).note(note)])
}

/// Jitter beside others against none, and the exits of the loaded one.
pub fn jitter() -> Found {
    let seconds = |n: u64| format!("seconds={n}");
    let alone = alone("flight")?;
    let loaded = System::new("loaded", "loaded")
        .with("flight", seconds(LOADED))
        .with("ground", "bulkhead.run=bhbench:load,60000")
        .precise()
        .run()?;
    let (idle, busy) = (releases(&alone, ALONE)?, releases(&loaded, LOADED)?);
    let missed = (busy.2 + idle.2) as f64;
    let exits = entries(&loaded.counts, CORE)?;
    let rate = exits as f64 / LOADED as f64;
    let jitter = |name: &str, d: &Distribution| Row::new(name, "ns", d.max as f64);
    let rogue = &loaded.outcome.report.sandboxes[2];
    // Without this event Linux was still booting at the end.
    let begun = event(&loaded.counts, id::START, LINUX)?.instructions;
    let work = loaded.counts.instructions(LINUX, None) - begun;
    let neighbours = format!(
        "beside {} restarts of rogue and {:.1} G instructions of Linux's load",
        rogue.restarts,
        work as f64 / 1e9
    );
    Ok(vec![
        Figure::new(jitter("flight.jitter_loaded", &busy.0).against(idle.0.max as f64))
            .must(Must::Above(selftest::BUSY[0] as f64))
            .note(format!("{}, {neighbours}", busy.1)),
        Figure::new(Row::new("flight.missed", "releases", missed)).must(Must::AtMost(0.0)),
        Figure::new(Row::new("exits.flight", "exits/s", rate))
            .must(Must::AtMost(0.0))
            .note(format!("{exits} exits, {neighbours}")),
    ])
}

/// Jitter beside a driver sandbox that serves a Linux' disk, and is begun anew by each of its planted faults.
pub fn driver() -> Found {
    const SECONDS: u64 = 8;
    /// Restarts without which there was no load: the Linux boots for most of the time.
    const LEAST: u64 = 5;
    const STORE: usize = 0;
    const LINUX: u64 = 1;
    let idle = releases(&alone("flight-driver-alone")?, ALONE)?;
    let loaded = System::new("flight-driver", "flight-driver")
        .with("flight", format!("seconds={SECONDS}"))
        .with("one", super::block::script("bhvirtio disk bhvirtio exercise /dev/vda 60000"))
        .precise()
        .run()?;
    let busy = releases(&loaded, SECONDS)?;
    let restarts = loaded.outcome.report.sandboxes[STORE].restarts;
    if restarts < LEAST {
        return Err(format!("{restarts} restarts of the driver: no load").into());
    }
    let row = Row::new("flight.jitter_driver", "ns", busy.0.max as f64).against(idle.0.max as f64);
    Ok(vec![Figure::new(row).must(Must::Above(selftest::BUSY[0] as f64)).note(format!(
        "{}; {} missed; beside {restarts} restarts of a disk's driver, and {:.1} G instructions of its client",
        busy.1,
        busy.2,
        loaded.counts.instructions(LINUX, None) as f64 / 1e9
    ))])
}

/// Jitter beside parts that come and go in a bay, and the instructions until one of them begins.
pub fn life() -> Found {
    const SECONDS: u64 = 8;
    /// Parts that come and go at least.
    const LEAST: usize = 4;
    /// Words that are zeroed first: the bay's 4 MiB. Each counts as an instruction.
    const ZEROED: u64 = (4 << 20) / 8;
    const SCRIPT: &str =
        "while bulkheadctl create /part.toml && bulkheadctl destroy part; do :; done";
    const PART: &str = "[part]\nname = \"part\"\nmemory = \"4 MiB\"\nguest = { kind = \"bare\", program = \"hello\", args = \"again\" }\n";
    let idle = releases(&alone("flight-life-alone")?, ALONE)?;
    let part = [("/part.toml", PART.into()), ("/hello", artifact("hello")?)];
    let ran = beside("life", SECONDS, SCRIPT, part, |system| system)?;
    let busy = releases(&ran, SECONDS)?;
    let text = ran.outcome.serials[1].text();
    let [created, gone] = ["is created in bay", "is vacant"].map(|said| text.matches(said).count());
    if gone < LEAST {
        let last: String = text.lines().rev().take(4).collect::<Vec<_>>().join("; ");
        return Err(format!("{created} created and {gone} destroyed: no load; {last}").into());
    }
    let jitter = Row::new("flight.jitter_life", "ns", busy.0.max as f64).against(idle.0.max as f64);
    let mut figures =
        vec![Figure::new(jitter).must(Must::Above(selftest::BUSY[0] as f64)).note(format!(
            "{}; {} missed; beside {created} parts that were created, and {gone} destroyed",
            busy.1, busy.2
        ))];
    let lives = ran.counts.span(id::RESTART).ok_or("no part began again")?;
    let begins = lives.median.saturating_sub(ZEROED) as f64;
    figures.push(Figure::new(Row::new("create.bare", "instructions", begins)).must(Must::AtMost(500_000.0)).note(
        format!(
            "of its core, from the end of a part's life to the first instruction of its next one: its monitor copies the program and sums it up; zeroing apart; median of {}. What `bulkheadctl create` does before is a process of a Linux",
            lives.n
        ),
    ));
    Ok(figures)
}

/// Jitter while a Linux looks at it again and again, and the exits that it takes for that.
pub fn watched() -> Found {
    const SECONDS: u64 = 8;
    /// Looks at least.
    const LEAST: usize = 50;
    const FLIGHT: usize = 2;
    let idle = releases(&alone("flight-watched-alone")?, ALONE)?;
    let script = "bulkheadctl top --interval 20";
    let sees = |system: System| {
        system
            .changed("restart = [\"bay\"]", "restart = [\"bay\"]\nobserve = [\"flight\", \"bay\"]")
    };
    let ran = beside("watched", SECONDS, script, [], sees)?;
    let busy = releases(&ran, SECONDS)?;
    let text = ran.outcome.serials[1].text();
    let looks = text.lines().filter(|line| line.starts_with("flight ")).count();
    if looks < LEAST {
        let last: String = text.lines().rev().take(4).collect::<Vec<_>>().join("; ");
        return Err(format!("{looks} looks: nobody watches; {last}").into());
    }
    let exits: u64 = ran.outcome.report.sandboxes[FLIGHT].exits.steady.values().sum();
    let row = Row::new("flight.jitter_watched", "ns", busy.0.max as f64).against(idle.0.max as f64);
    Ok(vec![
        Figure::new(row).must(Must::Above(selftest::BUSY[0] as f64)).note(format!(
            "{}; {} missed; `bulkheadctl top` in a Linux looked {looks} times",
            busy.1, busy.2
        )),
        Figure::new(Row::new("top.exits", "exits", exits as f64))
            .must(Must::AtMost(0.0))
            .note("of the one that is looked at, in steady state"),
    ])
}

fn artifact(name: &str) -> std::io::Result<Vec<u8>> {
    std::fs::read(build::target().join("artifacts").join(name))
}

/// Flies beside the Linux of `systems/bench/life.toml`, which runs a script and has these files, too. Logs go to a
/// folder of this name.
fn beside<const N: usize>(
    dir: &'static str,
    seconds: u64,
    script: &str,
    files: [(&str, Vec<u8>); N],
    change: impl Fn(System) -> System,
) -> Result<Ran, Failure> {
    let system = System::new("life", dir)
        .with("flight", format!("seconds={seconds}"))
        .changed("artifact:ctl.cpio", "life.cpio")
        .precise();
    let system = change(system);
    let root = build::root();
    let mut archive = Archive::default();
    let mut add = |name: &str, bytes| archive.add(name, Entry::File(0o644, bytes));
    add("/life.sh", script.into());
    files.into_iter().for_each(|(name, bytes)| add(name, bytes));
    // The command looks for the machine's description from the manifest's folder.
    let manifest = std::fs::read_to_string(root.join("systems/bench/life.toml"))?;
    let near = manifest.replace("../../machines/", "machines/");
    add("/etc/bulkhead/system.toml", near.into());
    let machine = "machines/qemu-q35.toml";
    add(&format!("/etc/bulkhead/{machine}"), std::fs::read(root.join(machine))?);
    std::fs::create_dir_all(system.dir())?;
    let all = [artifact("ctl.cpio")?, archive.to_bytes()].concat();
    std::fs::write(system.dir().join("life.cpio"), all)?;
    system.run()
}

/// Flies alone; logs go to this folder.
pub(super) fn alone(dir: &'static str) -> Result<Ran, Failure> {
    System::new("flight", dir).with("flight", format!("seconds={ALONE}")).precise().run()
}

/// Lateness of all releases, a note, and how many are missing.
pub(super) fn releases(ran: &Ran, seconds: u64) -> Result<(Distribution, String, u64), Failure> {
    let seen = ran.counts.value(id::FLIGHT_JITTER).ok_or("flight was not released")?;
    let work = ran.counts.span(id::FLIGHT_RELEASE).ok_or("flight did nothing")?;
    // A release that comes while the one before is still served is a missed one.
    let missing = (seconds * 1000).saturating_sub(work.n);
    let note = format!(
        "{} releases, median {}, 99 % {}, work {} instructions",
        seen.n, seen.median, seen.p99, work.median
    );
    Ok((seen, note, missing))
}
