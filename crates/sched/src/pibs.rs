//! A share U of the processor for interrupt work, at the priority of the context that the
//! work is for: Quest's priority-inheritance bandwidth-preserving server (Danish, Li, West:
//! *Virtual-CPU scheduling in the Quest operating system*, RTAS 2011; TOCS 2016, section 3.3).
//! Interrupt work is short and frequent; it would cut a list of refills to pieces. This has
//! one time instead.
//!
//! An activation at t for a requester with period T may run for C = U·T. When it has ended
//! after c, the next one can begin at t + c/U.
//!
//! **At most (2-U)·U·T in a window of length T**, at the highest priority: activations that
//! follow each other take c/U each for c, so that U·(d-y) fits before the last one, that has y
//! ticks in the window; y is at most C. For d >= C this is greatest with y = C: C + U·(d-C),
//! which is (2-U)·U·T for d = T. In an interval that begins with nothing of its priority or
//! above wanting to run, the same holds at any priority ([`crate::admission`] uses this).
//!
//! What the paper leaves open, decided here so that the bound stays: C is rounded down, c/U up. A
//! requester with a higher priority that comes during an activation raises it; the activation then
//! counts from that moment, because time in which it waited at a low priority must not pay for two
//! full budgets in a row at the high one. One with a lower priority changes nothing until the
//! activation has ended. What the kernel spends on each activation is charged to it.

use crate::{Invalid, Time};

/// A share of the processor, above 0 and below 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utilization {
    numerator: u32,
    denominator: u32,
}

impl Utilization {
    /// `numerator / denominator`.
    ///
    /// # Errors
    /// [`Invalid::Utilization`] unless it is above 0 and below 1.
    pub const fn new(numerator: u32, denominator: u32) -> Result<Self, Invalid> {
        if numerator == 0 || numerator >= denominator {
            return Err(Invalid::Utilization { numerator, denominator });
        }
        Ok(Self { numerator, denominator })
    }

    /// Of the share.
    pub const fn numerator(self) -> u32 {
        self.numerator
    }

    /// Of the share.
    pub const fn denominator(self) -> u32 {
        self.denominator
    }

    /// U·`time`, rounded down.
    pub fn of(self, time: Time) -> Time {
        // Below `time`, since the share is below 1.
        (u128::from(time) * u128::from(self.numerator) / u128::from(self.denominator)) as Time
    }

    /// `time`/U, rounded up.
    pub fn stretch(self, time: Time) -> Time {
        let ticks = u128::from(time) * u128::from(self.denominator);
        Time::try_from(ticks.div_ceil(self.numerator.into())).unwrap_or(Time::MAX)
    }
}

/// The context that interrupt work is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Its priority.
    pub priority: u8,
    /// Its period, ticks.
    pub period: Time,
}

/// A PIBS server. Its times must not fall from call to call.
#[derive(Clone, Debug)]
pub struct Pibs {
    utilization: Utilization,
    cost: Time,
    period: Time,
    /// Of this activation, or of the next one.
    begin: Time,
    used: Time,
    active: bool,
}

impl Pibs {
    /// A server that can run from `from` on. `cost` is what the kernel spends on an
    /// activation, in ticks; `period` the requester's as long as none is named.
    ///
    /// # Errors
    /// [`Invalid::TooShort`].
    pub fn new(
        utilization: Utilization,
        cost: Time,
        period: Time,
        from: Time,
    ) -> Result<Self, Invalid> {
        let pibs = Self { utilization, cost, period, begin: from, used: 0, active: false };
        pibs.fits(period)?;
        Ok(pibs)
    }

    /// U.
    pub fn utilization(&self) -> Utilization {
        self.utilization
    }

    /// What an activation has, its cost included: U·T, ticks.
    pub fn budget(&self) -> Time {
        self.utilization.of(self.period)
    }

    /// The requester's period, ticks.
    pub fn period(&self) -> Time {
        self.period
    }

    /// What this activation still has, ticks.
    pub fn left(&self) -> Time {
        self.budget().saturating_sub(self.used)
    }

    /// When this activation, or the next, can run.
    pub fn eligible(&self) -> Time {
        self.begin
    }

    /// Whether an activation has begun and not ended.
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Whether a requester's period leaves something beyond the cost.
    ///
    /// # Errors
    /// [`Invalid::TooShort`].
    pub fn fits(&self, period: Time) -> Result<(), Invalid> {
        match self.utilization.of(period) > self.cost {
            true => Ok(()),
            false => Err(Invalid::TooShort { period, cost: self.cost }),
        }
    }

    /// A requester's period, which has to fit. During an activation: only of one with a
    /// higher priority than the present one.
    pub fn request(&mut self, period: Time, now: Time) {
        self.period = period;
        if self.active {
            self.begin = self.begin.max(now);
        }
    }

    /// The thread ran for so long.
    pub fn charge(&mut self, ticks: Time) {
        self.used = self.used.saturating_add(ticks);
    }

    /// Ends an activation that is used up and begins the next; whether that was so.
    pub fn settle(&mut self) -> bool {
        if self.left() > 0 {
            return false;
        }
        self.end();
        self.used = self.cost;
        true
    }

    /// There is work.
    pub fn wake(&mut self, now: Time) {
        if !self.active {
            self.active = true;
            self.begin = self.begin.max(now);
            self.used = self.cost;
        }
    }

    /// The work is done.
    pub fn block(&mut self) {
        if self.active {
            self.end();
            self.active = false;
        }
    }

    fn end(&mut self) {
        self.begin = self.begin.saturating_add(self.utilization.stretch(self.used));
    }
}
