//! Copies of a flight controller behind a voter: whatever one copy does, each release has its right output.

use super::driver::{Bench, Job, tail};
use super::system::{Manifest, Seen, artifacts, run};
use super::typed::sample;
use crate::build;
use crate::program::Program as _;
use bulkhead_qemu::Time;
use std::process::Command;
use std::time::Duration;

/// Releases that a copy takes at most from the vote that it loses to the one that it agrees with again.
const BACK: u64 = 3;
/// Release of the first fault, and releases from one copy's fault to the next copy's.
const STRIKES: u64 = 60;
const EACH: u64 = 20;
/// Sets of faults, as `guests/copy-rogue` has their bits: wrong values and numbers, flipped bits among them; silence
/// without an end; an end.
const LIES: u32 = 0x3F;
const STALLS: u32 = 0x240;
const DIES: u32 = 0x180;
const COPIES: [&str; 3] = ["one", "two", "three"];

pub fn jobs() -> Vec<Job> {
    let strikes = |name: &'static str, kinds, seed| {
        Job::one(name, 120, move |bench| one_at_a_time(bench, kinds, seed))
    };
    vec![
        Job::one("voter/healthy", 120, healthy),
        strikes("voter/lies", LIES, 1),
        strikes("voter/stalls", STALLS, 2),
        strikes("voter/dies", DIES, 3),
        Job::one("voter/two-lie", 120, two_lie),
        Job::one("voter/all-die", 120, all_die),
        Job::one("voter/begins-anew", 120, begins_anew),
        Job::one("voter/mutant", 120, mutant),
    ]
}

/// A system of the source tree, with other words.
pub fn system(name: &str, changes: &[(&str, String)]) -> Result<Manifest, String> {
    let path = build::root().join("systems").join(name);
    let mut text =
        std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let machines = format!("\"{}/", build::root().join("machines").display());
    text = text.replace("\"../../machines/", &machines).replace("\"../machines/", &machines);
    for (from, to) in changes {
        if text.matches(from).count() != 1 {
            return Err(format!("{name}: `{from}` does not stand there once"));
        }
        text = text.replace(from, to);
    }
    Ok(Manifest(text))
}

/// Copies with these arguments in place of theirs, flying for so many releases.
fn planted(releases: u64, args: [String; 3]) -> Result<Manifest, String> {
    let mut changes = vec![("releases=1000", format!("releases={releases}"))];
    let places =
        ["from=60 gap=20 of=3 turn=0", "from=60 gap=20 of=3 turn=1", "from=60 gap=20 of=3 turn=2"];
    changes.extend(places.into_iter().zip(args));
    system("bench/three.toml", &changes)
}

fn seen(bench: &Bench, manifest: &Manifest) -> Result<Seen, String> {
    run(manifest, &bench.dir, |o| {
        // Copies and voter share the clock: each has to have its turn within a release.
        o.time = Time::virtual_time();
        o.limit = Duration::from_secs(100);
        o.audit = true;
    })
}

/// The vehicle's words about all releases: a number before each word.
pub struct Flown<'a>(&'a str);

impl<'a> Flown<'a> {
    /// Finds it in the text of the vehicle's console.
    pub fn of(console: &'a str) -> Option<Self> {
        console.lines().find(|line| line.contains(" releases, ")).map(Self)
    }

    /// A number of the line, by the word behind it.
    pub fn count(&self, word: &str) -> u64 {
        let parts = self.0.split([',', ' ']).filter(|part| !part.is_empty()).collect::<Vec<_>>();
        let at = parts.iter().position(|part| *part == word).unwrap_or(0);
        parts.get(at.wrapping_sub(1)).and_then(|number| number.parse().ok()).unwrap_or(u64::MAX)
    }

    /// Releases without the right output.
    pub fn not_right(&self) -> u64 {
        self.count("releases").abs_diff(self.count("right"))
    }
}

/// For each return of a copy the releases that it took.
pub fn returns(console: &str) -> Vec<u64> {
    let lines = console
        .lines()
        .filter_map(|line| line.split_once(" agrees again, ")?.1.split_once(" later"));
    lines.filter_map(|(number, _)| number.parse().ok()).collect()
}

/// The console up to the vehicle's end.
struct Flight<'a> {
    console: &'a str,
    /// Number of the first release.
    from: u64,
}

impl<'a> Flight<'a> {
    fn of(console: &'a str) -> Option<Self> {
        let console = &console[..console.find(Flown::of(console)?.0)?];
        let (_, from) = console.split_once("airframe: from release ")?;
        Some(Self { console, from: from.split_once(' ')?.0.parse().ok()? })
    }

    /// Number of the last life that a copy told of: how often it began anew.
    fn life(&self, name: &str) -> u64 {
        let own = |line: &str| {
            let said = line.strip_prefix(&format!("[{name}] "))?.split_once(": life ")?.1;
            said.split(',').next()?.parse().ok()
        };
        self.console.lines().filter_map(own).next_back().unwrap_or(0)
    }
}

fn flown(seen: &Seen) -> Result<Flown<'_>, String> {
    seen.exited("airframe")?;
    Flown::of(&seen.console).ok_or_else(|| seen.wrong("the vehicle does not say how it flew"))
}

/// All releases were right, and the audit found nothing.
fn all_right(seen: &Seen) -> Result<u64, String> {
    let flown = flown(seen)?;
    seen.ensure(flown.not_right() == 0, flown.0)?;
    let found = &seen.audited()?.report.findings;
    seen.ensure(found.is_empty(), format!("the audit: {found:?}"))?;
    seen.undisturbed("airframe", &["exited"])?;
    seen.undisturbed("voter", &["running"])?;
    Ok(flown.count("releases"))
}

/// The command of the page: three builds agree to the bit, and the report holds all promises. No copy takes an exit.
fn healthy(_: &Bench) -> Result<String, String> {
    let out = Command::new(build::target().join("release/bulkhead"))
        .args(["run", "systems/three.toml", "--icount"])
        .current_dir(build::root())
        .env("BULKHEAD_ARTIFACTS", artifacts())
        .printed()?;
    let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    let wrong = |why: &str| format!("{why}\n{}", tail(&said));
    if !out.status.success() {
        return Err(wrong(&out.status.to_string()));
    }
    let flown = Flown::of(&said).ok_or_else(|| wrong("the vehicle does not say how it flew"))?;
    if flown.not_right() != 0 || !returns(&said).is_empty() {
        return Err(wrong("a copy was outvoted"));
    }
    for name in COPIES {
        let quiet =
            |line: &&str| line.trim_start().starts_with(name) && line.contains("steady 0 in ");
        said.lines().find(quiet).ok_or_else(|| wrong(&format!("{name} takes exits")))?;
    }
    let page = build::root().join("docs/redundancy.md");
    let page = std::fs::read_to_string(&page).map_err(|e| format!("{}: {e}", page.display()))?;
    let shown = page.split_once("```text\n").and_then(|(_, rest)| rest.split_once("```"));
    let shown = sample(shown.ok_or("the page shows no run")?.0, &said)?;
    Ok(format!("{} releases of three builds, {shown} lines of the page", flown.count("releases")))
}

/// One copy after the other fails. No release lacks its right output, and each copy comes back.
fn one_at_a_time(bench: &Bench, kinds: u32, seed: u64) -> Result<String, String> {
    let args = [0, 1, 2].map(|turn| {
        format!("from={STRIKES} gap={EACH} of=3 turn={turn} seed={seed} kinds={kinds}")
    });
    let seen = seen(bench, &planted(400, args)?)?;
    let releases = all_right(&seen)?;
    let back = returns(&seen.console);
    let slowest = back.iter().max().copied().unwrap_or(0);
    seen.ensure(slowest <= BACK, format!("a copy took {slowest} releases"))?;
    // One fault in each 20 releases, for one copy after the other, and a restart behind each. If a copy dies between
    // two votes no vote misses it. If a flipped bit has no effect the copy begins anew by itself.
    let flight = Flight::of(&seen.console).ok_or_else(|| seen.wrong("no flight is told of"))?;
    let lives = COPIES.map(|name| flight.life(name));
    let due = (flight.from + releases).saturating_sub(STRIKES) / (EACH * COPIES.len() as u64);
    let spread = lives.iter().all(|life| life.abs_diff(due) <= 1);
    seen.ensure(spread && !back.is_empty(), format!("they began anew {lives:?} times, not {due}"))?;
    let faults = lives.iter().sum::<u64>();
    let outvoted = back.len();
    Ok(format!(
        "{releases} releases right; {faults} faults, {outvoted} outvoted, back after {slowest}"
    ))
}

/// Two copies lie differently: nobody is believed, the output is held, and that is said.
fn two_lie(bench: &Bench) -> Result<String, String> {
    let liar = |seed| format!("from=100 gap=100 at=3 seed={seed} kinds=8");
    let seen = seen(bench, &planted(150, [liar(1), liar(2), String::new()])?)?;
    let flown = flown(&seen)?;
    let told = seen.console.contains(": the output is Held");
    let held = flown.count("held");
    // For eight releases none of them is to blame. Then all begin anew, and are back.
    let right =
        flown.count("wrong") == 0 && (8..=8 + BACK).contains(&held) && flown.count("safe") == 0;
    seen.ensure(told && right && flown.not_right() == held, flown.0)?;
    Ok(format!("{held} releases held, none wrong"))
}

/// All copies die within a release: those that begin anew go on from the state that was agreed on.
fn all_die(bench: &Bench) -> Result<String, String> {
    let dead = || "from=100 gap=100 seed=7 kinds=0x80".to_owned();
    let seen = seen(bench, &planted(150, [dead(), dead(), dead()])?)?;
    let flown = flown(&seen)?;
    let missing = flown.not_right();
    let right = flown.count("wrong") == 0 && flown.count("held") == missing && missing <= BACK;
    seen.ensure(right && missing > 0, flown.0)?;
    Ok(format!("{missing} releases held, and then right"))
}

/// The voter begins anew: outputs are missing meanwhile, and the copies fly on from their own states.
fn begins_anew(bench: &Bench) -> Result<String, String> {
    let warden = "\n[[sandbox]]\nname = \"warden\"\ncores = [5]\nmemory = \"4 MiB\"\nrestart = [\"voter\"]
guest = { kind = \"bare\", program = \"artifact:warden\", args = \"target=1 do=nap,restart nap=60\" }\n";
    let mut manifest = system("three.toml", &[("releases=1000", "releases=150".into())])?;
    manifest.0 += warden;
    let seen = seen(bench, &manifest)?;
    let flown = flown(&seen)?;
    let missed = flown.count("missed");
    let right = (1..=BACK).contains(&missed) && flown.not_right() == missed;
    seen.ensure(right && seen.sandbox("voter")?.restarts == 1, flown.0)?;
    for name in COPIES {
        seen.undisturbed(name, &["running"])?;
    }
    Ok(format!("{missed} releases missed, none wrong"))
}

/// A voter that believes its first copy drives the motors by a lie, and the judge finds it.
fn mutant(bench: &Bench) -> Result<String, String> {
    let liar = "from=100 gap=100 at=3 kinds=8".to_owned();
    let mut manifest = planted(100, [liar, String::new(), String::new()])?;
    manifest.0 = manifest.0.replace("artifact:voter", "artifact:voter-rogue");
    let seen = seen(bench, &manifest)?;
    let wrong = flown(&seen)?.count("wrong");
    seen.ensure(wrong > 0, "a voter that believes one copy is not found")?;
    Ok(format!("{wrong} wrong outputs are found"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_behind_the_flight_do_not_count() {
        let text = "[airframe] airframe: from release 31 on\n[one] copy: life 0\n[two] copy: life 0, in C\n\
            [one] copy: life 1\n[airframe] airframe: 40 releases, 40 right\n[one] copy: life 2\n";
        let flight = Flight::of(text).expect("a flight");
        assert_eq!((flight.from, flight.life("one"), flight.life("two")), (31, 1, 0));
    }

    #[test]
    fn the_vehicles_words_are_numbers() {
        let text = "x\nairframe: 400 releases, 397 right, 1 wrong, 2 held, 0 safe, 0 missed, error at most 9 mrad\n";
        let flown = Flown::of(text).expect("a line");
        assert_eq!(
            ["releases", "right", "wrong", "held"].map(|w| flown.count(w)),
            [400, 397, 1, 2]
        );
        assert_eq!((flown.not_right(), flown.count("lost")), (3, u64::MAX));
        assert!(Flown::of("airframe: from release 3 on").is_none());
        let text = "voter: 7: one agrees again, 2 later\nvoter: 9: two agrees again, 12 later\n";
        assert_eq!(returns(text), [2, 12]);
    }
}
