//! Many sets of each class: the admission's verdicts on them, and the oracle's findings.

use crate::core::{Core, Rules};
use crate::generate::{self, Class};
use crate::judge::{self, Verdict};
use crate::random::Random;
use crate::search::{Found, search};
use crate::set::{Pattern, Set};
use crate::shrink::shrink;
use bulkhead_plan::kernel::Kernel;
use std::fmt::{self, Display, Formatter};

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// Another one has other sets.
    pub seed: u64,
    /// How many admitted sets of each class.
    pub admitted: u64,
    /// Patterns of releases for each.
    pub patterns: u64,
    /// Rules of the kernel.
    pub rules: Rules,
    /// Threads of the host.
    pub threads: u64,
}

/// Outcome of a class.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Sets that a test admits.
    pub admitted: u64,
    /// Those admitted by response times.
    pub by_response: u64,
    /// Those admitted by the bound.
    pub by_bound: u64,
    /// Admitted ones in which something promised was late.
    pub missed: u64,
    /// Admitted ones in which a budget ended inside a call: its caller's, or the call's own limit.
    pub ended: u64,
    /// Admitted ones in which a call waited for budget.
    pub held: u64,
    /// Admitted ones with requests from inside of a server.
    pub inside: u64,
    /// Admitted ones in which something took all the time that it was promised.
    pub tight: u64,
    /// Admitted ones in which a job leaves room for entries of the kernel, and some were charged to a thread.
    pub charged: u64,
    /// Sets that no test admits.
    pub refused: u64,
    /// Those of them in which nothing was late, and every job ends.
    pub silent: u64,
    /// Those counts of sets with calls.
    pub calls: Calls,
    /// Runs of a core.
    pub plays: u64,
    /// The first miss.
    pub first: Option<Box<Miss>>,
}

/// Sets in which a thread calls a server, of whatever class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Sets that a test admits, and in which nothing was late.
    pub admitted: u64,
    /// Sets that no test admits though nothing was late.
    pub silent: u64,
}

/// An admitted set in which something was late.
#[derive(Clone, Debug)]
pub struct Miss {
    /// Its class.
    pub class: Class,
    /// Its number in its class.
    pub number: u64,
    /// The set, as small as it could be made.
    pub set: Set,
    /// When it is late.
    pub patterns: Vec<Pattern>,
    /// Words of the admission.
    pub verdict: Verdict,
    /// Observations.
    pub found: Found,
}

impl Campaign {
    /// Random numbers for a set of a class.
    #[must_use]
    pub fn random(&self, class: Class, number: u64) -> Random {
        let seed = self.seed.wrapping_mul(0x9e37_79b9).wrapping_add(number);
        Random::new(seed.wrapping_mul(0x1234_5678_9abd) ^ ((class as u64) << 56))
    }

    /// Tries a class.
    #[must_use]
    pub fn class(&self, class: Class) -> Counts {
        self.class_told(class, judge::kernel)
    }

    /// Tries a class with an error of the analysis: `told` gives the admission something else than the set.
    #[must_use]
    pub fn class_told(&self, class: Class, told: impl Fn(&Set) -> Kernel + Sync) -> Counts {
        self.class_judged(class, |set| Verdict::of(set, &told(set)))
    }

    /// Tries a class with other words of the admission: those of an analysis that is wrong.
    #[must_use]
    pub fn class_judged(&self, class: Class, judged: impl Fn(&Set) -> Verdict + Sync) -> Counts {
        let part = |nth: u64| self.part(class, nth, &judged);
        std::thread::scope(|scope| {
            let others: Vec<_> =
                (1..self.threads).map(|nth| scope.spawn(move || part(nth))).collect();
            let mut all = part(0);
            for other in others {
                all.add(other.join().unwrap_or_default());
            }
            all
        })
    }

    /// Every n-th set, from the `nth` on.
    fn part(&self, class: Class, nth: u64, judged: &impl Fn(&Set) -> Verdict) -> Counts {
        let mut core = Core::default();
        core.rules = self.rules;
        let mut counts = Counts::default();
        let quota = self.admitted / self.threads + u64::from(nth < self.admitted % self.threads);
        let most = quota * 20;
        for number in (nth..).step_by(self.threads as usize).take(most as usize) {
            if counts.admitted == quota {
                break;
            }
            self.one(&mut core, class, number, judged, &mut counts);
        }
        counts
    }

    fn one(
        &self,
        core: &mut Core,
        class: Class,
        number: u64,
        judged: &impl Fn(&Set) -> Verdict,
        counts: &mut Counts,
    ) {
        let mut random = self.random(class, number);
        let mut set = generate::set(class, &mut random);
        let verdict = judged(&set);
        verdict.shorten(&mut set);
        let found = search(core, &set, &verdict.promises, &mut random, self.patterns);
        counts.count(&set, &verdict, &found);
        if verdict.is_admitted() && found.missed.is_some() && counts.first.is_none() {
            let (set, verdict, found) = shrink(core, set, verdict, found, judged);
            let patterns = found.patterns.clone();
            counts.first = Some(Box::new(Miss { class, number, set, patterns, verdict, found }));
        }
    }
}

impl Counts {
    fn count(&mut self, set: &Set, verdict: &Verdict, found: &Found) {
        self.plays += found.runs;
        let missed = found.missed.is_some();
        let calls = u64::from(set.calls());
        if !verdict.is_admitted() {
            let silent = u64::from(!missed && !found.stuck);
            self.refused += 1;
            self.silent += silent;
            self.calls.silent += calls * silent;
            return;
        }
        self.calls.admitted += calls * u64::from(!missed);
        self.admitted += 1;
        self.by_response += u64::from(verdict.by_response);
        self.by_bound += u64::from(verdict.by_bound);
        self.missed += u64::from(missed);
        self.ended += u64::from(found.ended_in_call || found.overran);
        self.held += u64::from(found.held);
        self.inside += u64::from(found.asked_in_call);
        self.tight += u64::from(found.worst >= 1_000);
        let leaves = verdict.rooms.iter().any(|room| *room > 0);
        self.charged += u64::from(found.charged && leaves);
    }

    /// Adds the counts of others.
    pub fn add(&mut self, other: Self) {
        self.admitted += other.admitted;
        self.by_response += other.by_response;
        self.by_bound += other.by_bound;
        self.missed += other.missed;
        self.ended += other.ended;
        self.held += other.held;
        self.inside += other.inside;
        self.tight += other.tight;
        self.charged += other.charged;
        self.refused += other.refused;
        self.silent += other.silent;
        self.calls.admitted += other.calls.admitted;
        self.calls.silent += other.calls.silent;
        self.plays += other.plays;
        self.first = self.first.take().or(other.first);
    }

    /// Refused share of the sets in which nothing was late, in thousandths.
    #[must_use]
    pub const fn refused_share(&self) -> u64 {
        Calls { admitted: self.admitted - self.missed, silent: self.silent }.refused_share()
    }
}

impl Calls {
    /// Refused share of them, in thousandths.
    #[must_use]
    pub const fn refused_share(&self) -> u64 {
        let all = self.silent + self.admitted;
        self.silent * 1_000 / if all == 0 { 1 } else { all }
    }
}

impl Display for Counts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let share = self.refused_share();
        write!(
            f,
            "{} admitted ({} by response, {} by the bound), {} missed; {} tight, {} with an end in a call, {} held, {} \
             asked inside, {} charged; {} refused, {} of these without a miss, {}.{} %; {} plays",
            self.admitted,
            self.by_response,
            self.by_bound,
            self.missed,
            self.tight,
            self.ended,
            self.held,
            self.inside,
            self.charged,
            self.refused,
            self.silent,
            share / 10,
            share % 10,
            self.plays
        )
    }
}
