//! One run with a fault, from the machine's start to the verdict.

use crate::judge::{Class, Judge, Seen, Service, Verdict, is_word};
use crate::stand::{Came, Stop};
use crate::strike::{self, Place};
use crate::{Fault, Golden, Result, Row, Stand, System, pages};
use std::path::Path;
use std::time::Instant;

/// Longest run, in times of the golden one.
const LONGEST: u64 = 2;
/// Looks in the time of the golden run, at least and at most.
const LOOKS: (u64, u64) = (48, 192);

/// Strikes in place of a fault: for tests.
pub type Plant<'a> = &'a dyn Fn(&System, &mut Stand) -> Result<()>;

/// Strikes a fault and judges what comes of it.
///
/// # Errors
/// The emulator, before it ran; a fault without a place.
pub fn run(
    system: &System,
    golden: &Golden,
    fault: &Fault,
    judge: Judge,
    dir: &Path,
) -> Result<Row> {
    let begun = Instant::now();
    let mut stand = Stand::start(system, dir)?;
    let (came, place) = strike::strike(system, &mut stand, fault, golden.end - golden.begin)?;
    let seen = watch(system, golden, &mut stand, came, place.is_some(), fault.at)?;
    let seen = Seen { apart: fault.kind.is_apart(), ..seen };
    let verdict = judge.verdict(system, golden, &seen);
    let wall_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(row(system, fault, came, place, verdict, wall_ms))
}

/// Does what a test wants at an instant, and judges what comes of it as a fault in the target.
///
/// # Errors
/// The emulator.
pub fn planted(
    system: &System,
    golden: &Golden,
    stop: Stop,
    plant: Plant,
    judges: &[Judge],
    dir: &Path,
) -> Result<Vec<Verdict>> {
    let mut stand = Stand::start(system, dir)?;
    let came = stand.go(stop)?;
    plant(system, &mut stand)?;
    let seen = watch(system, golden, &mut stand, came, true, stop.at)?;
    Ok(judges.iter().map(|judge| judge.verdict(system, golden, &seen)).collect())
}

fn row(
    system: &System,
    fault: &Fault,
    came: Came,
    place: Option<Place>,
    verdict: Verdict,
    wall_ms: u64,
) -> Row {
    let place = place.unwrap_or_else(|| Place {
        what: "not reached".into(),
        detail: "the core did not come there".into(),
    });
    Row {
        id: fault.id,
        kind: fault.kind.name().into(),
        place: place.what,
        apart: fault.kind.is_apart(),
        sandbox: system.struck().name.clone(),
        core: system.struck().cores[fault.core] as u64,
        instant: came.at().map_or(fault.at, |at| at.number),
        detail: place.detail,
        class: verdict.class.name().into(),
        caught_by: verdict.by,
        after_ns: verdict.after_ns,
        right_ns: verdict.right_ns,
        harm: verdict.harm,
        wall_ms,
    }
}

/// The last life of the target that has begun since the fault, or what its guard has said since.
#[derive(Default)]
struct Life {
    /// Lives at the last look.
    lives: Option<u64>,
    /// Bytes of the console at that look.
    read: usize,
    /// Where the line begins that was not whole then.
    line: usize,
    /// Where the part of the console begins in which this life did.
    from: Option<usize>,
    /// Where that part begins in which a guard has spoken, and what it is called. It is later than `from`.
    word: Option<usize>,
    /// The first one, and when it was seen, ns.
    first: Option<(String, u64)>,
    /// When it was seen to serve, ns.
    right_ns: Option<u64>,
}

impl Life {
    fn look(&mut self, service: &Service, guards: &[&str], lives: u64, console: &str, now: u64) {
        if self.lives.is_some_and(|before| lives > before) {
            (self.from, self.word, self.right_ns) = (Some(self.read), None, None);
        }
        let whole = console.rfind('\n').map_or(0, |end| end + 1).max(self.line);
        let mut new = console[self.line..whole].lines();
        let word = new.find(|line| self.lives.is_some() && is_word(line, guards));
        if let Some(guard) = word.and_then(|line| line.split(':').next()) {
            (self.word, self.right_ns) = (Some(self.line), None);
            self.first.get_or_insert_with(|| (guard.to_owned(), now));
        }
        (self.lives, self.read, self.line) = (Some(lives), console.len(), whole);
        let serves = match (self.word, self.from) {
            (Some(word), _) => service.goes_on(&console[word..], guards),
            (None, from) => from.is_some_and(|from| service.is_right(&console[from..])),
        };
        if serves && self.right_ns.is_none() {
            self.right_ns = Some(now);
        }
    }
}

/// Instructions from a look to the next. A core that spins has many in a short time.
struct Pace {
    step: u64,
    /// Time of the golden run, ns.
    span: u64,
}

impl Pace {
    /// Changes the step if so many nanoseconds are too few, or too many.
    fn keep(&mut self, ns: u64) {
        if ns * LOOKS.1 < self.span {
            self.step *= 2;
        } else if ns * LOOKS.0 > self.span {
            self.step = (self.step / 2).max(1);
        }
    }
}

/// Watches a machine behind its fault, to its end.
fn watch(
    system: &System,
    golden: &Golden,
    stand: &mut Stand,
    mut came: Came,
    struck: bool,
    drawn: u64,
) -> Result<Seen> {
    // A strike may take instructions: up to the one that was drawn this run is as the golden one.
    let mut watch = golden.resumed(system, drawn);
    let service = Service::of(&golden.deeds[system.target].console);
    let (ends, guards) = (system.ends(), system.guards());
    let (began, ended) = golden.span();
    let span = ended - began;
    let mut pace = Pace { step: golden.step, span };
    let mut seen = Seen { struck, ..Seen::default() };
    let mut life = Life::default();
    if matches!(came, Came::At(_)) {
        seen.at_ns = golden.clock.now(stand, golden.before(drawn))?;
    }
    let mut before_ns = seen.at_ns;
    while let Came::At(at) = came {
        watch.look(stand)?;
        let now = golden.clock.now(stand, before_ns)?;
        let (lives, console) = (watch.lives(system.target), watch.console(system.target));
        life.look(&service, &guards, lives, console, now);
        let over = match ends[..] {
            [] => now >= ended,
            _ => watch.have_ended(&ends),
        };
        if over || now >= began + LONGEST * span {
            break;
        }
        pace.keep(now - before_ns);
        before_ns = now;
        came = stand.go(Stop::any(at.number + pace.step))?;
    }
    seen.ended = came == Came::Ended;
    if !seen.ended {
        watch.look(stand)?;
        seen.changed = pages::changed(&golden.steady, stand.ram())?;
    }
    (seen.right_ns, seen.word) = (life.right_ns, life.first);
    let clock = &golden.clock;
    // A strike takes time, and what a sweep finds of one that is half done is a finding.
    let like_golden = golden.before(drawn).min(seen.at_ns);
    let since = |ticks: u64| clock.of_ticks(ticks) >= like_golden;
    seen.record = watch.record_since(since).map(|record| (record, clock.of_ticks(record.ticks)));
    seen.deeds = watch.deeds();
    Ok(seen)
}

/// Tells if a class is one of a sound run: the service was right to the end, or is again.
#[must_use]
pub const fn is_sound(class: Class) -> bool {
    matches!(class, Class::NoEffect | Class::Recovered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_right_when_it_serves_and_not_by_words_of_the_one_before() {
        let service = Service::of("begins\nright\nright\n");
        let mut life = Life::default();
        let mut console = String::from("begins\nright\n");
        life.look(&service, &[], 0, &console, 1);
        life.look(&service, &[], 1, &console, 2);
        assert_eq!(life.right_ns, None);
        console += "begins\n";
        life.look(&service, &[], 1, &console, 3);
        console += "right\n";
        life.look(&service, &[], 1, &console, 4);
        assert_eq!(life.right_ns, Some(4));
        life.look(&service, &[], 2, &console, 5);
        assert_eq!(life.right_ns, None);
    }

    #[test]
    fn a_guards_word_is_kept_until_all_is_right_again() {
        let service = Service::of("a: right\na: right\n");
        let (mut life, guards) = (Life::default(), ["guard"]);
        let mut console = String::from("guard: warning: of a time before\na: right\n");
        life.look(&service, &guards, 0, &console, 1);
        assert_eq!((life.first.clone(), life.right_ns), (None, None));
        console += "guard: warning: a hangs\n";
        life.look(&service, &guards, 0, &console, 2);
        assert_eq!((life.first.clone(), life.right_ns), (Some(("guard".to_owned(), 2)), None));
        console += "a: right\n";
        life.look(&service, &guards, 0, &console, 3);
        assert_eq!(life.right_ns, Some(3));
    }

    #[test]
    fn looks_keep_pace_with_time() {
        let mut pace = Pace { step: 100, span: 48_000 };
        pace.keep(10);
        assert_eq!(pace.step, 200);
        pace.keep(1_001);
        assert_eq!(pace.step, 100);
        pace.keep(500);
        assert_eq!(pace.step, 100);
    }
}
