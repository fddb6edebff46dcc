//! What a holder of a right who abuses it can do to a flight controller: its worst jitter, a row for each right.

use super::Found;
use super::figure::{Figure, Must};
use super::flight::releases;
use super::system::{Ran, System};
use crate::Failure;
use crate::rows::Row;
use crate::selftest;
use bulkhead_layout::marker::id;
use bulkhead_qemu::counts::Distribution;

/// Rows of [`all`].
pub const ROWS: [&str; 1] = ["flight.jitter_right_"];

/// Seconds of flight, and milliseconds of the abuse.
const SECONDS: u64 = 1;
const ABUSE: u64 = 900;
/// Most that a doorbell takes of its receiver's time, ns: its exit, where no life ends.
const DOORBELL: f64 = 2_000.0;

/// Those that leave it alive.
const ALIVE: [(&str, &str); 5] = [
    ("start", "start = [\"flight\"]"),
    ("observe", "observe = [\"flight\"]"),
    ("slots", "may_connect = { to = [\"flight\"], slots = 1, size = \"4 KiB\" }"),
    ("lines", "devices = [\"rtc\"]"),
    ("channels", ""),
];
/// Those that end its lives: jitter is of the releases within them.
const DEADLY: [(&str, &str); 2] = [
    (
        "stop",
        "stop = [{ sandbox = \"flight\", every = \"50 ms\" }]\nstart = [{ sandbox = \"flight\", every = \"50 ms\" }]",
    ),
    ("restart", "restart = [{ sandbox = \"flight\", every = \"50 ms\" }]"),
];

/// A flight with a neighbour that has a right and does this.
fn system(dir: &'static str, right: &str, what: &str, grant: &str, ends: &str) -> System {
    const OWN: &str = "cores = [1]\nmemory = \"16 MiB\"\n";
    // Who may not ask whether it runs waits long enough.
    let blind = if grant.contains("st") && !grant.starts_with("obs") { "" } else { " blind=1" };
    let neighbour = format!(
        "{OWN}[[sandbox]]\nname = \"abuser\"\nguest = {{ kind = \"bare\", program = \"artifact:abuser\", args = \"do={what} ms={ABUSE}{blind}\" }}\ncores = [2]\nmemory = \"4 MiB\"\n{grant}\n[[channel]]\nname = \"telemetry\"\nfrom = \"flight\"\nto = [\"abuser\"]\nsize = \"64 KiB\"\n"
    );
    let _ = right;
    System::new("flight", dir)
        .changed(OWN, neighbour)
        .changed("ends_with = [\"flight\"]", format!("ends_with = [\"{ends}\"]"))
        .precise()
}

/// The rows, each against a flight whose neighbour computes and has no right to it.
pub fn all() -> Found {
    let seconds = format!("seconds={SECONDS}");
    let beside = |what: &str, grant: &str| {
        system("rights", what, what, grant, "flight").with("flight", seconds.clone()).run()
    };
    let alone = beside("none,channels", "")?;
    let idle = releases(&alone, SECONDS)?.0.max;
    let mut figures = Vec::new();
    for (right, grant) in ALIVE {
        let ran = beside(right, grant)?;
        let (late, note, missed) = releases(&ran, SECONDS)?;
        if missed > 0 {
            return Err(format!("{right}: {missed} releases missed").into());
        }
        // Nobody else may start it, so not even a start can come late.
        let rings = ran.outcome.baked.plan.rings_of_a_life(0) as f64;
        figures.push(figure(right, &late, idle, rings, format!("{note}; {}", told(&ran)?)));
    }
    for (right, grant) in DEADLY {
        let ran = system("rights", right, right, grant, "abuser").run()?;
        let late = ran.counts.value(id::FLIGHT_JITTER).ok_or("flight was not released")?;
        let restarts = ran.outcome.report.sandboxes[0].restarts;
        // As many as the right's rate lets, and not many fewer: else it was not abused.
        let most = ABUSE / 50 + 1;
        if restarts > most || restarts + 3 < most {
            return Err(format!("{right}: {restarts} restarts, at most {most}").into());
        }
        let note = format!("{} releases in {restarts} lives more; {}", late.n, told(&ran)?);
        figures.push(figure(right, &late, idle, 1.0, note));
    }
    Ok(figures)
}

fn figure(right: &str, late: &Distribution, idle: u64, rings: f64, note: String) -> Figure {
    let name = format!("flight.jitter_right_{right}");
    // The clock's own, and the doorbells that the manifest lets others ring in a life.
    let bound = selftest::BUSY[0] as f64 + rings * DOORBELL;
    Figure::new(Row::new(&name, "ns", late.max as f64).against(idle as f64))
        .must(Must::Above(bound))
        .note(note)
}

/// What the abuser did, the victim's exits, and how often the abuser's monitor rang.
fn told(ran: &Ran) -> Result<String, Failure> {
    let all = ran.outcome.consoles.iter().map(ToString::to_string).collect::<String>();
    let said = all.lines().find(|line| line.starts_with("abuser:"));
    let said = said.ok_or("the abuser does not say what it did")?;
    let flight = &ran.outcome.report.sandboxes[0];
    let rung = flight.doorbells.get("abuser").map_or((0, 0), |rung| (rung.rings, rung.most));
    let doorbells = [&flight.exits.boot, &flight.exits.steady];
    let doorbells: u64 = doorbells.iter().filter_map(|exits| exits.get("doorbell")).sum();
    if rung.0 > rung.1 {
        return Err(format!("{} rings of at most {}", rung.0, rung.1).into());
    }
    Ok(format!("{said}; {} rings of at most {}, {doorbells} doorbell exits", rung.0, rung.1))
}
