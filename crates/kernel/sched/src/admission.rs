//! Tells beforehand if a core's budgets can be had in time.
//!
//! * [`Test::Bound`]: the sum of C/T, and of (2-U)·U of the PIBS servers, is at most n·(2^(1/n) - 1). It is by Liu and
//!   Layland (1973), with PIBS by Quest-V (TOCS 2016, section 3.3). It is right only where a shorter period has a
//!   higher priority, which is checked. PIBS servers don't count in n. For a context with period T they block (2-U)·U·T
//!   at most, as in the condition of Sha, Rajkumar and Lehoczky (1990).
//! * [`Test::Response`]: the longest time from a refill until it is used up, for each context (Joseph and Pandya
//!   1986). Only contexts of at least its priority keep it from the processor. The test takes any priorities. It is
//!   exact without PIBS servers where no two are equal, on the safe side otherwise.
//! * [`Test::None`]: everything is admitted, and the sum is reported.
//!
//! A context that is [not to be guaranteed](Demand::guaranteed) only disturbs those that it is not
//! below.
//!
//! The kernel's own work is part of all sums. A context is charged `overhead` for each of its
//! activations; so that its thread gets a budget it has to be [given](Load::gross) that much more.
//! A thread that is activated more often than is said here pays itself. A PIBS server's activations
//! ([`crate::Account::pibs`]) are within U.

use core::fmt;

use crate::share::Share;
use crate::{Time, Utilization};

/// Demand of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// C: time that the thread needs in each period, ticks.
    pub budget: Time,
    /// T, ticks; not 0.
    pub period: Time,
    /// Priority; a higher number runs earlier.
    pub priority: u8,
    /// How often it is activated in a period: once, and once more for each time that it has to wait
    /// for something.
    pub activations: u32,
    /// True if it has to get C in each T; otherwise it may be late.
    pub guaranteed: bool,
}

/// All of a core.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Those with budget and period.
    pub contexts: &'a [Demand],
    /// The PIBS servers. Their requesters are among `contexts`.
    pub devices: &'a [Utilization],
    /// The kernel's time for an activation: its interrupt and two switches, ticks.
    pub overhead: Time,
}

/// Test for admission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Test {
    /// The sum of utilizations, for rate-monotonic priorities.
    Bound,
    /// Response times, for any priorities.
    #[default]
    Response,
    /// Nothing.
    None,
}

/// An admitted load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The sum over all contexts and devices, overhead included.
    pub sum: Share,
    /// Part of it beyond the whole processor: only with [`Test::None`], or where contexts are not guaranteed.
    pub overcommitted: Share,
}

/// Why a load is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The sum is above the bound.
    Bound {
        /// Sum of the contexts that count, and of the devices.
        sum: Share,
        /// Bound for that many.
        bound: Share,
        /// Contexts that count.
        contexts: usize,
    },
    /// The bound can't be used: a longer period has no lower priority than a shorter one.
    NotRateMonotonic {
        /// Index of the context with the shorter period.
        shorter: usize,
        /// Index of the one with the longer.
        longer: usize,
    },
    /// A context can be late.
    Late {
        /// Its index.
        context: usize,
        /// Ticks after its refill by which its budget may not be used up: more than its
        /// period. It may take longer.
        response: Time,
        /// Its period, ticks.
        period: Time,
    },
    /// A context has no period.
    NoPeriod {
        /// Its index.
        context: usize,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bound { sum, bound, contexts } => write!(
                f,
                "the sum is {sum}, the bound for {contexts} contexts {bound}: {} too much",
                sum.above(bound)
            ),
            Self::NotRateMonotonic { shorter, longer } => write!(
                f,
                "context {shorter} has a shorter period than context {longer} and no higher \
                 priority: the bound does not apply"
            ),
            Self::Late { context, response, period } => write!(
                f,
                "context {context} can need {response} ticks or more of its period of {period}: \
                 {} too many",
                response - period
            ),
            Self::NoPeriod { context } => write!(f, "context {context} has no period"),
        }
    }
}

impl core::error::Error for Refused {}

impl Load<'_> {
    /// Checks that every guaranteed context gets its budget in time.
    ///
    /// # Errors
    /// The first reason why not, with its numbers.
    pub fn admit(&self, test: Test) -> Result<Admitted, Refused> {
        self.have_periods()?;
        match test {
            Test::Bound => self.bound()?,
            Test::Response => self.responses()?,
            Test::None => (),
        }
        let sum = self.sum(0);
        Ok(Admitted { sum, overcommitted: sum.above(Share::bound(0)) })
    }

    /// Returns the longest time from a refill of a context until it is used up; an error where that can be
    /// longer than its period.
    ///
    /// # Errors
    /// [`Refused::Late`], [`Refused::NoPeriod`].
    ///
    /// # Panics
    /// If there is no such context.
    pub fn response(&self, context: usize) -> Result<Time, Refused> {
        self.have_periods()?;
        let own = self.contexts[context];
        let (mut response, period) = (self.gross(&own), own.period);
        loop {
            if response > period {
                return Err(Refused::Late { context, response, period });
            }
            let again = self.demand(context, response);
            if again == response {
                return Ok(response);
            }
            response = again;
        }
    }

    fn have_periods(&self) -> Result<(), Refused> {
        let without = self.contexts.iter().position(|demand| demand.period == 0);
        without.map_or(Ok(()), |context| Err(Refused::NoPeriod { context }))
    }

    fn responses(&self) -> Result<(), Refused> {
        (0..self.contexts.len())
            .filter(|n| self.contexts[*n].guaranteed)
            .try_for_each(|n| self.response(n).map(drop))
    }

    /// Returns the time that a context and those before it can use of the first `time` ticks.
    fn demand(&self, context: usize, time: Time) -> Time {
        let priority = self.contexts[context].priority;
        let others = self.contexts.iter().enumerate();
        let others = others.filter(|(n, other)| *n != context && other.priority >= priority);
        let longest = self.contexts.iter().filter(|other| other.priority >= priority);
        let longest = longest.map(|other| other.period).max().unwrap_or(0);
        let devices = self.devices.iter().map(|u| interference(*u, longest, time));
        others
            .map(|(_, other)| time.div_ceil(other.period).saturating_mul(self.gross(other)))
            .chain(devices)
            .fold(self.gross(&self.contexts[context]), Time::saturating_add)
    }

    /// Returns the C that a context's server needs, with the kernel's time, ticks.
    pub fn gross(&self, demand: &Demand) -> Time {
        let kernel = self.overhead.saturating_mul(demand.activations.into());
        demand.budget.saturating_add(kernel)
    }

    /// Sums the shares of the devices, and of the contexts of at least this priority.
    fn sum(&self, priority: u8) -> Share {
        let devices = self.devices.iter().map(|u| Share::of_pibs(*u));
        let contexts = self.contexts.iter().filter(|demand| demand.priority >= priority);
        let contexts = contexts.map(|demand| Share::of(self.gross(demand), demand.period));
        devices.chain(contexts).fold(Share(0), Share::plus)
    }

    fn bound(&self) -> Result<(), Refused> {
        let guaranteed = self.contexts.iter().filter(|demand| demand.guaranteed);
        let Some(lowest) = guaranteed.map(|demand| demand.priority).min() else { return Ok(()) };
        self.rate_monotonic(lowest)?;
        let contexts = self.contexts.iter().filter(|demand| demand.priority >= lowest).count();
        let (sum, bound) = (self.sum(lowest), Share::bound(contexts as u64));
        match sum <= bound {
            true => Ok(()),
            false => Err(Refused::Bound { sum, bound, contexts }),
        }
    }

    fn rate_monotonic(&self, lowest: u8) -> Result<(), Refused> {
        let counts = |n: &usize| self.contexts[*n].priority >= lowest;
        let all = || (0..self.contexts.len()).filter(counts);
        for (shorter, longer) in all().flat_map(|a| all().map(move |b| (a, b))) {
            let (a, b) = (self.contexts[shorter], self.contexts[longer]);
            if a.period < b.period && a.priority <= b.priority {
                return Err(Refused::NotRateMonotonic { shorter, longer });
            }
        }
        Ok(())
    }
}

/// Returns the time that a PIBS server can use of the first `time` ticks, for requesters with periods up to `period`.
/// That is a full budget at the end, and U of the time before ([`crate::pibs`]).
pub fn interference(utilization: Utilization, period: Time, time: Time) -> Time {
    let last = time.min(utilization.of(period));
    last + utilization.of(time - last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    const fn demand(budget: Time, period: Time, priority: u8) -> Demand {
        Demand { budget, period, priority, activations: 1, guaranteed: true }
    }

    const fn load<'a>(contexts: &'a [Demand], devices: &'a [Utilization]) -> Load<'a> {
        Load { contexts, devices, overhead: 0 }
    }

    const U: Utilization = match Utilization::new(1, 25) {
        Ok(u) => u,
        Err(_) => panic!(),
    };

    #[test]
    fn the_system_of_figure_7() {
        let contexts = [demand(10, 40, 2), demand(20, 50, 1)];
        let load = load(&contexts, &[U]);
        let admitted = load.admit(Test::Bound).unwrap();
        assert_eq!(admitted.sum.to_string(), "72.84000 %");
        assert_eq!(admitted.overcommitted, Share(0));
        // 10 + 1 + floor((11 - 1) / 25); 20 + 10 + 2 + floor((33 - 2) / 25).
        assert_eq!(load.response(0), Ok(11));
        assert_eq!(load.response(1), Ok(33));
    }

    #[test]
    fn the_bound_says_by_how_much() {
        let contexts = [demand(10, 40, 2), demand(29, 50, 1)];
        let refused = load(&contexts, &[]).admit(Test::Bound).unwrap_err();
        let says = "the sum is 83.00000 %, the bound for 2 contexts 82.84271 %: 0.15729 % too much";
        assert_eq!(refused.to_string(), says);
        assert!(load(&contexts, &[]).admit(Test::Response).is_ok());
        let fits = [demand(10, 40, 2), demand(28, 50, 1)];
        assert!(load(&fits, &[]).admit(Test::Bound).is_ok());
        let says = "the sum is 88.84000 %, the bound for 2 contexts 82.84271 %: 5.99729 % too much";
        assert_eq!(load(&fits, &[U]).admit(Test::Bound).unwrap_err().to_string(), says);
    }

    #[test]
    fn the_bound_is_for_rate_monotonic_priorities() {
        let contexts = [demand(1, 50, 2), demand(1, 40, 2)];
        let refused = load(&contexts, &[]).admit(Test::Bound).unwrap_err();
        assert_eq!(refused, Refused::NotRateMonotonic { shorter: 1, longer: 0 });
        assert!(load(&contexts, &[]).admit(Test::Response).is_ok());
    }

    #[test]
    fn a_response_beyond_the_period_is_late() {
        let contexts = [demand(10, 20, 2), demand(16, 35, 1)];
        let refused = load(&contexts, &[]).admit(Test::Response).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "context 1 can need 36 ticks or more of its period of 35: 1 too many"
        );
    }

    #[test]
    fn equal_priorities_disturb_each_other() {
        let contexts = [demand(2, 10, 1), demand(3, 10, 1), demand(9, 20, 0)];
        let load = load(&contexts, &[]);
        assert_eq!([0, 1].map(|n| load.response(n)), [Ok(5), Ok(5)]);
    }

    #[test]
    fn overhead_counts_for_each_activation() {
        let contexts = [Demand { activations: 4, ..demand(10, 40, 2) }, demand(28, 50, 1)];
        let load = Load { overhead: 1, ..load(&contexts, &[]) };
        assert_eq!(load.admit(Test::None).unwrap().sum.to_string(), "93.00000 %");
        assert!(load.admit(Test::Bound).is_err());
        assert_eq!(load.response(0), Ok(14));
        assert!(load.response(1).is_err(), "29 + 2 * 14 > 50");
    }

    #[test]
    fn who_is_below_and_not_guaranteed_is_left_out() {
        let best_effort = Demand { guaranteed: false, ..demand(100, 100, 0) };
        let contexts = [demand(10, 40, 2), best_effort];
        for test in [Test::Bound, Test::Response] {
            let admitted = load(&contexts, &[]).admit(test).unwrap();
            assert_eq!(admitted.overcommitted.to_string(), "25.00000 %");
        }
        let contexts = [demand(10, 40, 2), Demand { priority: 3, ..best_effort }];
        for test in [Test::Bound, Test::Response] {
            assert!(load(&contexts, &[]).admit(test).is_err(), "above it does disturb");
        }
    }

    #[test]
    fn everything_goes_without_a_test() {
        let contexts = [demand(40, 40, 1), demand(Time::MAX, 1, 1)];
        assert!(load(&contexts, &[]).admit(Test::None).unwrap().overcommitted > Share(0));
        let contexts = [demand(1, 0, 1)];
        let refused = load(&contexts, &[]).admit(Test::None);
        assert_eq!(refused, Err(Refused::NoPeriod { context: 0 }));
        let contexts = [demand(1, 9, 1), demand(1, 0, 1)];
        assert_eq!(load(&contexts, &[]).response(0), Err(Refused::NoPeriod { context: 1 }));
    }

    #[test]
    fn a_device_takes_at_most_its_bound() {
        // (2 - 1/25) / 25 of 50, rounded down.
        assert_eq!(interference(U, 50, 50), 3);
        assert_eq!(interference(U, 50, 1), 1);
        assert_eq!(interference(U, 50, 2), 2);
        assert_eq!(interference(U, 50, 27), 3);
    }
}
