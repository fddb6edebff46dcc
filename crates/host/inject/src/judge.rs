//! Classes of faulted runs, by all that was seen of them. Nothing is harm because it came later or in another order: a
//! restart changes how cores take turns in the emulator. Harm to another sandbox is
//!
//! * other words of it, another end, another life, another record, or an exit of another cause;
//! * another byte in a page that is steady in the golden run: its guest's, its monitor's, the machine's.
//!
//! A guest that checks itself, as `guests/duty` does, so tells of pages that are not steady. Whole memories at the end
//! say nothing: most of what differs does so because of time.

use crate::System;
use crate::golden::Golden;
use crate::pages::{Owner, Page, Told};
use crate::watch::{Deeds, Record};
use std::collections::BTreeMap;
use std::fmt;

/// Class of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Nothing differs.
    NoEffect,
    /// The target does something else, and nothing has found it.
    Unnoticed,
    /// A record tells of it; the service was not right again at the end.
    Caught,
    /// It was caught, and the service is right again.
    Recovered,
    /// The target does not run any more.
    Stopped,
    /// Another sandbox, or the machine, has noticed.
    Harm,
}

/// All of them, with their names.
pub const CLASSES: [(Class, &str); 6] = [
    (Class::NoEffect, "no effect"),
    (Class::Unnoticed, "unnoticed"),
    (Class::Caught, "caught"),
    (Class::Recovered, "recovered"),
    (Class::Stopped, "stopped"),
    (Class::Harm, "harm"),
];

impl Class {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        CLASSES.iter().find(|(class, _)| *class == self).map_or("?", |(_, name)| name)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Things that the judge looks at. A test takes each away and sees that a breach goes unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judge {
    /// Words, ends, lives and records of other sandboxes.
    pub deeds: bool,
    /// Pages that are steady.
    pub pages: bool,
}

impl Default for Judge {
    fn default() -> Self {
        Self { deeds: true, pages: true }
    }
}

/// Everything that was seen of a run.
#[derive(Debug, Default)]
pub struct Seen {
    /// The fault was struck.
    pub struck: bool,
    /// The emulator has ended by itself.
    pub ended: bool,
    /// By sandbox.
    pub deeds: Vec<Deeds>,
    /// Steady pages that have other bytes.
    pub changed: Vec<Page>,
    /// The fault is in the target's own monitor.
    pub apart: bool,
    /// When the fault was struck, ns.
    pub at_ns: u64,
    /// The target's first record since, and its time, ns.
    pub record: Option<(Record, u64)>,
    /// The first word of a guard among the target's programs since, and when it was seen, ns.
    pub word: Option<(String, u64)>,
    /// When the target's service was right again, ns.
    pub right_ns: Option<u64>,
}

impl Seen {
    /// The first one that found the fault, a record or a guard, and when, ns.
    fn found(&self) -> Option<(&str, u64)> {
        let record = self.record.as_ref().map(|(record, ns)| (record.condition, *ns));
        let word = self.word.as_ref().map(|(guard, ns)| (guard.as_str(), *ns));
        record.into_iter().chain(word).min_by_key(|(_, ns)| *ns)
    }
}

/// The judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The class.
    pub class: Class,
    /// Condition of the record that tells of it.
    pub by: String,
    /// Nanoseconds from the fault to the record.
    pub after_ns: Option<u64>,
    /// Nanoseconds from the fault to the service being right again.
    pub right_ns: Option<u64>,
    /// The harm, in words.
    pub harm: String,
}

impl Judge {
    /// Judges a run.
    #[must_use]
    pub fn verdict(&self, system: &System, golden: &Golden, seen: &Seen) -> Verdict {
        let found = seen.found();
        let by = found.map_or(String::new(), |(by, _)| by.to_owned());
        let after_ns = found.map(|(_, ns)| ns.saturating_sub(seen.at_ns));
        let harm = self.harm(system, golden, seen);
        let right = seen.right_ns.map(|ns| ns.saturating_sub(seen.at_ns));
        let class = match harm {
            Some(_) => Class::Harm,
            None => target(
                &golden.deeds[system.target],
                seen.deeds.get(system.target),
                found.is_some(),
                right.is_some(),
            ),
        };
        let right_ns = right.filter(|_| class == Class::Recovered);
        Verdict { class, by, after_ns, right_ns, harm: harm.unwrap_or_default() }
    }

    fn harm(&self, system: &System, golden: &Golden, seen: &Seen) -> Option<String> {
        if seen.ended {
            return Some("the machine has ended".into());
        }
        let deeds = || {
            system.others().find_map(|index| {
                let what = differs(&golden.deeds[index], seen.deeds.get(index)?)?;
                Some(format!("{}: {what}", system.baked.plan.sandboxes[index].name))
            })
        };
        let own = |page: &&Page| {
            seen.apart && matches!(page.owner, Owner::Monitor(index, _) if index == system.target)
        };
        let pages = || {
            let page = seen.changed.iter().find(|page| !own(page))?;
            Some(Told(system, page).to_string())
        };
        let deeds = self.deeds.then(deeds).flatten();
        deeds.or_else(|| self.pages.then(pages).flatten())
    }
}

/// The first thing in which a sandbox that no fault strikes differs.
fn differs(golden: &Deeds, seen: &Deeds) -> Option<String> {
    let new = |all: &BTreeMap<&'static str, u64>| {
        all.iter().find(|(name, count)| golden.records.get(*name) != Some(count)).map(|all| *all.0)
    };
    if let Some(condition) = new(&seen.records) {
        return Some(format!("a record of {condition}"));
    }
    if seen.lives != golden.lives || seen.answers != golden.answers {
        return Some(format!("{} lives, not {}", seen.lives + 1, golden.lives + 1));
    }
    if seen.console != golden.console {
        let (is, was) = (seen.console.lines(), golden.console.lines());
        let said = is.zip(was).find(|(is, was)| is != was).map(|(is, _)| is);
        return Some(match said {
            Some(line) => format!("it says {line:?}"),
            None => "it says less or more".into(),
        });
    }
    if (seen.state, seen.exit_code) != (golden.state, golden.exit_code) {
        return Some(format!("{} {:?}", seen.state, seen.exit_code));
    }
    let cause = seen.causes.difference(&golden.causes).next()?;
    Some(format!("an exit of cause {cause}"))
}

/// Class of a run that has harmed nobody, by its target.
fn target(golden: &Deeds, seen: Option<&Deeds>, found: bool, right: bool) -> Class {
    let Some(seen) = seen else { return Class::Stopped };
    let over = ["stopped", "failed", "exited"];
    if over.contains(&seen.state) && !over.contains(&golden.state) {
        return Class::Stopped;
    }
    if seen.lives != golden.lives || seen.answers != golden.answers {
        return if right { Class::Recovered } else { Class::Caught };
    }
    match found {
        true if right => Class::Recovered,
        true => Class::Caught,
        false if alike(golden, seen) => Class::NoEffect,
        false => Class::Unnoticed,
    }
}

/// Lines that one run may have said at its end, and the other was about to.
const BEHIND: usize = 1;

/// Tells if two consoles say alike things, of which one may be a little ahead. Several programs share the console of a
/// kernel's sandbox. There each has to say alike things, in any order, until the run's end was seen. How long a machine
/// goes on behind it depends on which cores sleep.
fn alike(golden: &Deeds, seen: &Deeds) -> bool {
    let programs = by_speaker(&golden.console[..golden.said]);
    if programs.len() < 2 {
        let [golden, seen] = [golden, seen].map(|deeds| deeds.console.lines().collect::<Vec<_>>());
        return is_ahead(&golden, &seen);
    }
    let said = by_speaker(&seen.console[..seen.said]);
    let known = said.keys().all(|speaker| programs.contains_key(speaker));
    let of = |speaker| said.get(speaker).map_or(&[][..], Vec::as_slice);
    known && programs.iter().all(|(speaker, lines)| is_ahead(lines, of(speaker)))
}

fn is_ahead<T: PartialEq>(golden: &[T], seen: &[T]) -> bool {
    let both = golden.len().min(seen.len());
    golden[..both] == seen[..both] && golden.len().abs_diff(seen.len()) <= BEHIND
}

/// Lines by their first word.
fn by_speaker(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in text.lines() {
        all.entry(line.split([':', ' ']).next().unwrap_or_default()).or_default().push(line);
    }
    all
}

/// Tells if a line is a guard's word on what it has found: `guard: warning: …`.
pub fn is_word(line: &str, guards: &[&str]) -> bool {
    let said = guards.iter().find_map(|guard| line.strip_prefix(guard)?.strip_prefix(": "));
    said.is_some_and(|said| ["warning: ", "error: "].iter().any(|level| said.starts_with(level)))
}

/// A guest's service, by a golden run: lines that it says again and again, and the line that begins each life.
#[derive(Clone, Debug, Default)]
pub struct Service {
    first: String,
    again: Vec<String>,
}

impl Service {
    /// By the console of a golden run.
    #[must_use]
    pub fn of(console: &str) -> Self {
        let mut count = BTreeMap::new();
        console.lines().for_each(|line| *count.entry(line).or_insert(0) += 1);
        let again = count.iter().filter(|(_, n)| **n > 1).map(|(line, _)| (*line).to_owned());
        Self {
            first: console.lines().next().unwrap_or_default().to_owned(),
            again: again.collect(),
        }
    }

    /// Tells if a life serves that began in this part of a console.
    #[must_use]
    pub fn is_right(&self, console: &str) -> bool {
        let lines: Vec<&str> = console.lines().collect();
        let Some(begins) = lines.iter().rposition(|line| *line == self.first) else { return false };
        self.is_served(&lines[begins..])
    }

    /// Tells if all is served again behind the last word of a guard in this part of a console.
    #[must_use]
    pub fn goes_on(&self, console: &str, guards: &[&str]) -> bool {
        let lines: Vec<&str> = console.lines().collect();
        let last = lines.iter().rposition(|line| is_word(line, guards));
        last.is_some_and(|last| self.is_served(&lines[last..]))
    }

    fn is_served(&self, lines: &[&str]) -> bool {
        !self.again.is_empty() && self.again.iter().all(|again| lines.contains(&again.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duty() -> Deeds {
        Deeds { state: "running", console: "begins\nright\nright\n".into(), ..Deeds::default() }
    }

    #[test]
    fn a_sandbox_that_does_anything_else_is_harmed() {
        assert_eq!(differs(&duty(), &duty()), None);
        let others: [Deeds; 6] = [
            Deeds { console: "begins\nright\n".into(), ..duty() },
            Deeds { console: "begins\nright\nwrong\n".into(), ..duty() },
            Deeds { lives: 1, ..duty() },
            Deeds { records: [("hang", 1)].into(), ..duty() },
            Deeds { state: "stopped", ..duty() },
            Deeds { causes: ["nmi"].into(), ..duty() },
        ];
        for other in others {
            assert!(differs(&duty(), &other).is_some(), "{other:?}");
        }
    }

    #[test]
    fn the_target_decides_the_class_of_a_run_without_harm() {
        let restarted = Deeds { lives: 1, ..duty() };
        let class = |deeds: &Deeds, found, right| target(&duty(), Some(deeds), found, right);
        assert_eq!(class(&duty(), false, false), Class::NoEffect);
        assert_eq!(class(&duty(), true, false), Class::Caught);
        assert_eq!(class(&duty(), true, true), Class::Recovered);
        assert_eq!(class(&restarted, true, true), Class::Recovered);
        assert_eq!(class(&restarted, true, false), Class::Caught);
        assert_eq!(class(&Deeds { state: "failed", ..duty() }, true, false), Class::Stopped);
        let wrong = Deeds { console: "begins\nright\nwrong\n".into(), ..duty() };
        assert_eq!(class(&wrong, false, false), Class::Unnoticed);
        let behind = Deeds { console: "begins\nright\n".into(), ..duty() };
        assert_eq!(class(&behind, false, false), Class::NoEffect);
        let hangs = Deeds { console: "begins\n".into(), ..duty() };
        assert_eq!(class(&hangs, false, false), Class::Unnoticed);
    }

    #[test]
    fn programs_of_a_kernel_take_turns_as_they_like() {
        let deeds = |said: &str, more: &str| Deeds {
            console: said.to_owned() + more,
            said: said.len(),
            ..duty()
        };
        let golden = deeds("a: right\nb: right\na: right\nb: right\n", "");
        assert!(alike(&golden, &deeds("b: right\na: right\nb: right\na: right\n", "")));
        // Behind the end it goes on.
        assert!(alike(&golden, &deeds(&golden.console, "a: right\na: right\na: right\n")));
        for other in [
            "a: right\nb: wrong\na: right\nb: right\n",
            "a: right\na: right\n",
            "b: right\na: right\nb: right\na: right\nc: hello\n",
        ] {
            assert!(!alike(&golden, &deeds(other, "")), "{other}");
        }
    }

    #[test]
    fn a_guard_tells_and_all_of_the_service_goes_on() {
        let service = Service::of("a: right\nb: right\na: right\nb: right\n");
        let guards = ["guard"];
        let goes_on = |text: &str| service.goes_on(text, &guards);
        assert!(goes_on("guard: warning: a: it hangs\nb: right\na: right\n"));
        assert!(!goes_on("guard: warning: a: it hangs\nb: right\n"));
        assert!(!goes_on("a: right\nb: right\nguard: error: a: it hangs\n"));
        assert!(!goes_on("guard: info: begins\na: right\nb: right\n"));
        assert!(!is_word("a: warning: guard", &guards));
    }

    #[test]
    fn a_service_is_right_in_the_life_that_says_so() {
        let service = Service::of("begins\nright\nright\n");
        assert!(service.is_right("begins\nright\n"));
        assert!(!service.is_right("begins\nright\nwrong\nbegins\n"));
        assert!(service.is_right("begins\nwrong\nbegins\nright\n"));
        assert!(!service.is_right("right\nright\n"));
    }
}
