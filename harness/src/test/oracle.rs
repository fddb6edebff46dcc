//! The admission against the oracle (`crates/testing/oracle`), with random sets. No set that it admits may be late.
//! Among the sets in which nothing is late it may refuse only a few.

use super::driver::Job;
use bulkhead_oracle::{Campaign, Class, Counts, Rules};

/// Any other one is as good.
const SEED: u64 = 2026;

/// Patterns of releases for each set: the first one releases all at once, each other one is derived from the worst.
const PATTERNS: u64 = 16;

/// The kernel's rules beyond the papers.
const RULES: Rules = Rules::KERNEL;

/// So many times fewer sets than in `make soak`.
const PART: u64 = 10;

/// The demands on a class. Numbers of sets are those of `make soak`.
struct Asked {
    class: Class,
    admitted: u64,
    /// At least so many of them with the end of a budget inside a call.
    ended: u64,
    /// At least so many of them with requests from inside a server.
    inside: u64,
    /// Most refusals of sets in which nothing is late, in thousandths.
    refused: u64,
}

const fn asked(class: Class, admitted: u64, ended: u64, inside: u64, refused: u64) -> Asked {
    Asked { class, admitted, ended, inside, refused }
}

const ASKED: [Asked; 8] = [
    asked(Class::Calls, 200_000, 50_000, 0, 300),
    asked(Class::Nested, 100_000, 25_000, 0, 300),
    asked(Class::Inside, 200_000, 50_000, 100_000, 300),
    asked(Class::Independent, 100_000, 0, 0, 300),
    asked(Class::Direct, 100_000, 0, 0, 300),
    // Where anybody can keep a strict one waiting it is refused, though most of these waits do no harm.
    asked(Class::Strict, 100_000, 0, 0, 800),
    asked(Class::Lists, 100_000, 0, 0, 300),
    // Jobs leave room for entries, or have no promise, and drivers count three times.
    asked(Class::Overhead, 100_000, 0, 0, 420),
];

pub fn jobs() -> Vec<Job> {
    let job = |asked: &'static Asked| {
        let name =
            Class::ALL.iter().find(|(class, _)| *class == asked.class).map_or("", |(_, name)| name);
        let seconds = if super::soak::soaks() { 1_800 } else { 240 };
        Job::one(format!("sched/oracle-{name}"), seconds, move |_| asked.judge())
    };
    ASKED.iter().map(job).collect()
}

/// Judges as many sets as `make test` has.
pub fn all() -> Counts {
    let mut all = Counts::default();
    ASKED.iter().for_each(|asked| all.add(asked.counts(PART)));
    all
}

impl Asked {
    fn counts(&self, part: u64) -> Counts {
        let admitted = self.admitted / part;
        let rules = RULES;
        Campaign { seed: SEED, admitted, patterns: PATTERNS, rules, threads: 1 }.class(self.class)
    }

    fn judge(&self) -> Result<String, String> {
        let part = if super::soak::soaks() { 1 } else { PART };
        let counts = self.counts(part);
        if let Some(miss) = &counts.first {
            return Err(format!("{} of {} sets are late. {miss}", counts.missed, counts.admitted));
        }
        let short = |what: &str, seen: u64, least: u64| {
            (seen * part < least).then(|| format!("only {seen} sets {what}: {counts}"))
        };
        let complaint = short("are admitted", counts.admitted, self.admitted)
            .or_else(|| short("have a budget that ends inside a call", counts.ended, self.ended))
            .or_else(|| short("have a request from inside a server", counts.inside, self.inside))
            .or_else(|| self.refuses_too_many(&counts));
        complaint.map_or_else(|| Ok(counts.to_string()), Err)
    }

    fn refuses_too_many(&self, counts: &Counts) -> Option<String> {
        (counts.refused_share() > self.refused).then(|| format!("too many are refused: {counts}"))
    }
}
