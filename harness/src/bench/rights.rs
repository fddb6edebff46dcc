//! Abuse of rights: a flight controller's worst jitter beside a holder that uses one without a pause, a row for each.
//!
//! All runs have one system, in which the neighbour holds every right over the flight, and only what it does differs.
//! So the baseline is this holder doing nothing with them. `bells` and `networks` are rows of [`super::channel`]: a
//! kernel takes their interrupts on an account that the manifest bounds.

use super::Found;
use super::figure::{Figure, Must};
use super::flight::releases;
use super::system::{Ran, System};
use crate::Failure;
use crate::rows::Row;
use crate::selftest;
use bulkhead_layout::marker::id;
use bulkhead_plan::Plan;
use bulkhead_qemu::counts::Distribution;
use std::sync::{Mutex, PoisonError};

/// Rows of [`alive`] and of [`deadly`].
pub const ALIVE_ROWS: [&str; 6] = [
    "flight.jitter_right_none",
    "flight.jitter_right_start",
    "flight.jitter_right_observe",
    "flight.jitter_right_links",
    "flight.jitter_right_lines",
    "flight.jitter_right_channels",
];
pub const DEADLY_ROWS: [&str; 2] = ["flight.jitter_right_stop", "flight.jitter_right_restart"];

/// Seconds of flight, milliseconds of the abuse, and between two requests of a right.
const SECONDS: u64 = 1;
const ABUSE: u64 = 900;
const EVERY: u64 = 50;

/// Abuses that leave it alive: name, what the abuser does, and how many doorbells may come at a release. A start of
/// what runs and a read are none. An offer that was not accepted is none, and one that was is one.
const ALIVE: [(&str, &str, Rings); 5] = [
    ("start", "start", Rings::OfOtherStarters),
    ("observe", "observe", Rings::Exactly(0)),
    ("links", "links", Rings::Exactly(0)),
    ("lines", "lines", Rings::Exactly(0)),
    ("channels", "channels", Rings::Exactly(0)),
];
/// Abuses that end its lives: jitter is of the releases within them.
const DEADLY: [&str; 2] = ["stop", "restart"];

/// Doorbells that may come between two releases of a life.
#[derive(Clone, Copy)]
enum Rings {
    Exactly(usize),
    OfOtherStarters,
}

impl Rings {
    fn most(self, plan: &Plan) -> usize {
        match self {
            Self::Exactly(rings) => rings,
            Self::OfOtherStarters => plan.rings_of_a_life(0),
        }
    }
}

/// A flight beside a holder of all rights that does this.
fn system(what: &str, dir: &'static str, ends: &str) -> System {
    const OWN: &str = "cores = [1]\nmemory = \"16 MiB\"\n";
    let over = format!("[{{ sandbox = \"flight\", every = \"{EVERY} ms\" }}]");
    let rights = format!(
        "stop = {over}\nstart = {over}\nrestart = {over}\nobserve = [\"flight\"]\ndevices = [\"rtc\"]\nlinks = {{ to = [\"flight\"], count = 1, size = \"4 KiB\" }}\n"
    );
    let neighbour = format!(
        "{OWN}[[sandbox]]\nname = \"abuser\"\nguest = {{ kind = \"bare\", program = \"artifact:abuser\", args = \"do={what} ms={ABUSE}\" }}\ncores = [2]\nmemory = \"4 MiB\"\n{rights}[[channel]]\nname = \"telemetry\"\nfrom = \"flight\"\nto = [\"abuser\"]\nsize = \"64 KiB\"\n"
    );
    System::new("flight", dir)
        .changed(OWN, neighbour)
        .changed("ends_with = [\"flight\"]", format!("ends_with = [\"{ends}\"]"))
        .precise()
}

/// A run that it outlives.
fn lives(what: &str, dir: &'static str, more: &str) -> Result<Ran, Failure> {
    let args = format!("seconds={SECONDS}{more}");
    system(what, dir, "flight").with("flight", args).run()
}

/// Jitter beside the holder when it uses no right: measured once, whoever asks first.
fn idle() -> Result<(Distribution, String), Failure> {
    static NONE: Mutex<Option<(Distribution, String)>> = Mutex::new(None);
    let mut none = NONE.lock().unwrap_or_else(PoisonError::into_inner);
    if none.is_none() {
        let ran = lives("nothing", "rights-none", "")?;
        let (late, note, _) = releases(&ran, SECONDS)?;
        *none = Some((late, format!("{note}; {}", told(&ran)?)));
    }
    Ok(none.clone().ok_or("it was measured")?)
}

/// Measures abuse that ends no life.
pub fn alive() -> Found {
    let (late, note) = idle()?;
    let row = Row::new(ALIVE_ROWS[0], "ns", late.max as f64);
    let most = (selftest::IDLE + selftest::BUSY[0]) as f64;
    let mut figures = vec![Figure::new(row).must(Must::AtMost(most)).note(note)];
    for (right, what, rings) in ALIVE {
        figures.push(beside((right, what), &lives(what, "rights", "")?, rings)?);
    }
    Ok(figures)
}

/// Offers that the flight accepts, and the holder takes back around its releases: a doorbell each.
pub fn accepted() -> Found {
    let ran = lives("taken", "rights-accepted", " accept")?;
    Ok(vec![beside(("accepted", "taken"), &ran, Rings::Exactly(1))?])
}

fn beside((right, what): (&str, &str), ran: &Ran, rings: Rings) -> Result<Figure, Failure> {
    let (late, note, missed) = releases(ran, SECONDS)?;
    if missed > 0 {
        return Err(format!("{what}: {missed} releases missed").into());
    }
    let rings = rings.most(&ran.outcome.baked.plan);
    let note = format!("{note}; {}", told(ran)?);
    Ok(figure(right, ran, &late, (idle()?.0.max, rings), note))
}

/// Measures abuse that ends lives.
pub fn deadly() -> Found {
    let one = |right: &'static str| {
        let ran = system(right, right, "abuser").run()?;
        let late = ran.counts.value(id::FLIGHT_JITTER).ok_or("flight was not released")?;
        let restarts = ran.outcome.report.sandboxes[0].restarts;
        // As many as the right's rate lets, and not many fewer: else it was not abused.
        let most = ABUSE / EVERY + 1;
        if restarts > most || restarts + 3 < most {
            return Err(format!("{right}: {restarts} restarts, at most {most}").into());
        }
        let note = format!("{} releases in {restarts} lives more; {}", late.n, told(&ran)?);
        // The doorbell that ends a life is no release's.
        Ok(figure(right, &ran, &late, (idle()?.0.max, 0), note))
    };
    DEADLY.into_iter().map(one).collect()
}

/// A row, its baseline, and how many doorbells at a release the manifest allows.
fn figure(
    right: &str,
    ran: &Ran,
    late: &Distribution,
    (idle, rings): (u64, usize),
    note: String,
) -> Figure {
    let name = format!("flight.jitter_right_{right}");
    let doorbells = rings as u64 * ran.outcome.baked.plan.doorbell(0);
    // The clock's own besides: an instruction is a nanosecond.
    let bound = selftest::BUSY[0] + doorbells;
    Figure::new(Row::new(&name, "ns", late.max as f64).against(idle as f64))
        .must(Must::Above(bound as f64))
        .note(format!("{doorbells} ns for {rings} doorbells at a release; {note}"))
}

/// Tells the abuser's deeds, the victim's exits, and the rings of the abuser's monitor.
fn told(ran: &Ran) -> Result<String, Failure> {
    let all = ran.outcome.consoles.iter().map(ToString::to_string).collect::<String>();
    let said = all.lines().find_map(|line| line.split_once("abuser: "));
    let (_, said) = said.ok_or("the abuser does not say what it did")?;
    let flight = &ran.outcome.report.sandboxes[0];
    let rung = flight.doorbells.get("abuser").map_or((0, 0), |rung| (rung.rings, rung.most));
    let doorbells = [&flight.exits.boot, &flight.exits.steady];
    let doorbells: u64 = doorbells.iter().filter_map(|exits| exits.get("doorbell")).sum();
    if rung.0 > rung.1 {
        return Err(format!("{} rings of at most {}", rung.0, rung.1).into());
    }
    if said.contains(" 0 to some effect") && !said.starts_with("start") {
        return Err(format!("nothing was abused: {said}").into());
    }
    Ok(format!("{said}; {} rings of at most {}, {doorbells} doorbell exits", rung.0, rung.1))
}
