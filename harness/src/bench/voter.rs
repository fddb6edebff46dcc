//! Three copies of a flight controller behind a voter, with faults in one copy at a time.

use super::Found;
use super::figure::{Figure, Must};
use super::system::{Ran, System};
use crate::Failure;
use crate::rows::Row;
use crate::test::voter::{Flown, returns};

const COPIES: [&str; 3] = ["one", "two", "three"];
/// Places of the vehicle, the voter and the copies in the manifest.
const AIRFRAME: usize = 0;
const VOTER: usize = 1;
const FIRST: usize = 2;
/// Releases for each fault, and those before the first one.
const GAP: u64 = 20;
const LEAD: u64 = 40;

/// Flies through so many faults.
fn fly(dir: &str, kinds: u32, faults: u64, seed: u64) -> Result<Ran, Failure> {
    let releases = LEAD + faults * GAP;
    let mut system =
        System::new("three", dir).changed("releases=1000", format!("releases={releases}"));
    for copy in COPIES {
        system = system.with(copy, format!("kinds={kinds} seed={seed}"));
    }
    let ran = system.run()?;
    // A restart behind each fault: the voter's, the monitor's, or the copy's own where a flipped bit had no effect.
    let restarts: u64 = (0..3).map(|n| ran.outcome.report.sandboxes[FIRST + n].restarts).sum();
    match restarts.abs_diff(faults) {
        0..=2 => Ok(ran),
        _ => Err(format!("{restarts} restarts behind {faults} faults").into()),
    }
}

fn text(ran: &Ran, sandbox: usize) -> String {
    ran.outcome.consoles[sandbox].text()
}

/// Wrong values, silence and ends: releases without the right output, and how long a copy was away.
pub fn faults() -> Found {
    const FAULTS: u64 = 60;
    let ran = fly("three-faults", 0x3FF, FAULTS, 1)?;
    let (vehicle, voter) = (text(&ran, AIRFRAME), text(&ran, VOTER));
    let flown = Flown::of(&vehicle).ok_or("the vehicle does not say how it flew")?;
    let back = returns(&voter);
    let slowest = back.iter().max().copied().ok_or("no copy was outvoted")?;
    let missed = Row::new("recover.flight_missed_tmr", "releases", flown.not_right() as f64);
    let replaced = Row::new("recover.flight_replaced", "releases", slowest as f64);
    let outvoted = back.len();
    let releases = flown.count("releases");
    Ok(vec![
        Figure::new(missed).must(Must::AtMost(0.0)).note(format!(
            "of {releases} without the right output; {FAULTS} faults of ten kinds, one at a time, in three builds"
        )),
        Figure::new(replaced).must(Must::AtMost(3.0)).note(format!(
            "from the vote that a copy lost to the one that it agreed with again; the worst of {outvoted}"
        )),
    ])
}

/// Flipped bits of the state, of registers and of the stack: wrong outputs that left the machine.
pub fn flips() -> Found {
    const FAULTS: u64 = 150;
    let ran = fly("three-flips", 7, FAULTS, 2)?;
    let vehicle = text(&ran, AIRFRAME);
    let flown = Flown::of(&vehicle).ok_or("the vehicle does not say how it flew")?;
    let quiet: usize =
        (0..3).map(|n| text(&ran, FIRST + n).matches("no effect by release").count()).sum();
    let effect = FAULTS - (quiet as u64).min(FAULTS);
    let row = Row::new("inject.unnoticed_wrong", "outputs", flown.count("wrong") as f64);
    Ok(vec![Figure::new(row).must(Must::AtMost(0.0)).note(format!(
        "wrong outputs behind {FAULTS} flipped bits in state, registers and stack of one copy; {effect} had an effect, \
         and {} releases lacked the right output",
        flown.not_right()
    ))])
}
