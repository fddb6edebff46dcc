//! Rights, abused: what a holder that uses one without a pause can do to somebody else.

use super::driver::Job;
use super::system::{Manifest, Seen, run};
use crate::selftest;
use bulkhead_qemu::Time;
use std::collections::BTreeMap;

/// Rights that leave it alive, each for 10 ms.
const ALIVE: &str = "do=start,observe,links,lines,channels ms=10";
/// Rights that end its lives, each for 60 ms.
const DEADLY: &str = "do=stop,restart ms=60";

pub fn jobs() -> Vec<Job> {
    let precise = |o: &mut bulkhead_run::Options| o.time = Time::virtual_time();
    vec![
        Job::one("abuse/alive", 120, move |bench| {
            alive(&run(&system(ALIVE, "1 ms"), &bench.dir, precise)?)
        }),
        Job::one("abuse/deadly", 60, |bench| {
            deadly(&run(&system(DEADLY, "20 ms"), &bench.dir, |_| {})?)
        }),
    ]
}

/// A flight controller, and one who has every right over it that there is.
fn system(what: &str, every: &str) -> Manifest {
    let over = format!("[{{ sandbox = \"flight\", every = \"{every}\" }}]");
    let rights = format!(
        "stop = {over}\nstart = {over}\nrestart = {over}\nobserve = [\"flight\"]\nlinks = {{ to = [\"flight\"], count = 1, size = \"4 KiB\" }}\ndevices = [\"rtc\"]"
    );
    let mut manifest = Manifest::new()
        .ends_with(&["abuser"])
        .bare("flight", "flight", "substeps=9", &[0], "16 MiB", "")
        .bare("abuser", "abuser", what, &[1], "4 MiB", &rights);
    manifest.0 += "[[channel]]\nname = \"telemetry\"\nfrom = \"flight\"\nto = [\"abuser\"]\nsize = \"64 KiB\"\n";
    manifest
}

fn doorbells(seen: &Seen) -> Result<u64, String> {
    let exits = &seen.sandbox("flight")?.exits;
    let of = |phase: &BTreeMap<&str, u64>| phase.get("doorbell").copied().unwrap_or(0);
    Ok(of(&exits.boot) + of(&exits.steady))
}

/// Checks what the abuser says of each right, and that it did abuse it.
fn abused(seen: &Seen) -> Result<String, String> {
    seen.exited("abuser")?;
    let said: Vec<&str> =
        seen.console.lines().filter_map(|l| l.split_once("abuser: ")).map(|l| l.1).collect();
    Ok(said.join("; "))
}

/// Checks that no doorbell rang, that nothing was an exit, and that every release was in time.
fn alive(seen: &Seen) -> Result<String, String> {
    let said = abused(seen)?;
    seen.undisturbed("flight", &["running"])?;
    let flight = seen.sandbox("flight")?;
    let rings = flight.doorbells.get("abuser").map_or(0, |rung| rung.rings);
    let exits = doorbells(seen)?;
    seen.ensure(
        exits == 0 && rings == 0,
        format!("{exits} doorbell exits, {rings} rings: {said}"),
    )?;
    let telemetry = &seen.outcome()?.telemetry;
    let (_, record) = telemetry.first().ok_or("the flight says nothing")?;
    let right =
        record.releases > 30 && record.missed == 0 && record.jitter_max <= selftest::BUSY[1];
    let what = format!(
        "{} releases, {} missed, {} ns late",
        record.releases, record.missed, record.jitter_max
    );
    seen.ensure(right, format!("{what}: {said}"))?;
    Ok(format!("{what}: {said}"))
}

/// No more lives than the rates of the rights let, and no ring that they don't; and of both nearly as many.
fn deadly(seen: &Seen) -> Result<String, String> {
    let said = abused(seen)?;
    let flight = seen.sandbox("flight")?;
    let rung = flight.doorbells.get("abuser").ok_or_else(|| seen.wrong("nobody could ring"))?;
    let lives = flight.restarts;
    // Stops and starts in turn, then restarts: as many of each as fit, and one.
    let most = 2 * (60 / 20 + 1);
    let what = format!("{lives} lives more, {} rings of at most {}: {said}", rung.rings, rung.most);
    let right = (3..=most).contains(&lives) && rung.rings <= rung.most && rung.rings >= lives;
    seen.ensure(right, &what)?;
    Ok(what)
}
