//! A share U of the processor for interrupt work, at the priority of the context that the work is for. It is Quest's
//! priority-inheritance bandwidth-preserving server (Danish, Li, West: *Virtual-CPU scheduling in the Quest operating
//! system*, RTAS 2011; TOCS 2016, section 3.3). Interrupt work is short and frequent; it would cut a list of refills to
//! pieces. This has one time instead.
//!
//! An activation at t for a requester with period T may run for C = U·T. When it has ended
//! after c, the next one can begin at t + c/U.
//!
//! **At most (2-U)·U·T in a window of length T**, at the highest priority. Activations that follow each other take
//! c/U each for c. So U·(d-y) fits before the last one, which has y ticks in the window; y is at most C. For d >= C
//! this is greatest with y = C: C + U·(d-C), which is (2-U)·U·T for d = T. In an interval that begins when no context
//! of its priority or above wants to run, this holds at any priority ([`crate::admission`] uses it).
//!
//! The paper leaves some points open; these choices keep the bound. C is rounded down, c/U up. A requester with a
//! higher priority that comes during an activation raises it. The activation then counts from that moment. Time in
//! which it waited at a low priority must not pay for two full budgets in a row at the high one. A requester with a
//! lower priority changes nothing until its work is taken up. The activation then goes on at the lower priority, and
//! its used time stays used. It uses nothing more at the higher priority unless it is raised again; then it counts
//! anew. The kernel's time for each activation is charged to it.

use crate::{Account, Invalid, Time};

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

    /// Returns the numerator of the share.
    pub const fn numerator(self) -> u32 {
        self.numerator
    }

    /// Returns the denominator of the share.
    pub const fn denominator(self) -> u32 {
        self.denominator
    }

    /// U·`time`, rounded down.
    pub fn of(self, time: Time) -> Time {
        let (n, d) = (Time::from(self.numerator), Time::from(self.denominator));
        let Some(whole) = time.checked_div(d) else { return 0 };
        // Two numbers of 32 bits; the sum is below `time`, since the share is below 1.
        whole.wrapping_mul(n).wrapping_add((time % d) * n / d)
    }

    /// `time`/U, rounded up.
    pub fn stretch(self, time: Time) -> Time {
        stretch(time, self.numerator, self.denominator)
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

/// PIBS servers.
impl Account {
    /// U of a PIBS server.
    pub fn utilization(&self) -> Option<Utilization> {
        Utilization::new(self.numerator, self.denominator).ok()
    }

    /// Tells if an activation of a PIBS server has begun and not ended.
    pub const fn is_active(&self) -> bool {
        self.active != 0
    }

    /// Checks that a requester's period leaves a PIBS server something beyond the cost.
    ///
    /// # Errors
    /// [`Invalid::TooShort`].
    pub fn fits(&self, period: Time) -> Result<(), Invalid> {
        match self.utilization().is_some_and(|u| u.of(period) > self.cost) {
            true => Ok(()),
            false => Err(Invalid::TooShort { period, cost: self.cost }),
        }
    }

    /// A requester's period, which has to fit; `higher` if its priority is higher than the present one's.
    pub(crate) fn request(&mut self, period: Time, now: Time, higher: bool) {
        if period != self.period {
            self.give(period);
        }
        if self.is_active() {
            if higher {
                self.head.time = self.head.time.max(now);
            }
            // It may have used more than a shorter period gives it.
            if self.is_over() {
                self.go_on();
            }
        }
    }

    /// Its share of a period is its budget.
    #[inline(never)]
    pub(crate) fn give(&mut self, period: Time) {
        let budget = self.utilization().map_or(0, |u| u.of(period));
        (self.period, self.budget, self.head.amount) = (period, budget, budget);
    }

    /// An activation is used up; the next one begins.
    pub(crate) fn go_on(&mut self) {
        self.end();
        self.used = self.cost;
    }

    /// There is work.
    #[inline(always)]
    pub(crate) fn activate(&mut self, now: Time) {
        if !self.is_active() {
            self.active = 1;
            self.head.time = self.head.time.max(now);
            self.used = self.cost;
        }
    }

    /// The work is done.
    #[inline]
    pub(crate) fn deactivate(&mut self) {
        if self.is_active() {
            self.end();
            self.active = 0;
        }
    }

    #[inline]
    fn end(&mut self) {
        let apart = stretch(self.used, self.numerator, self.denominator);
        self.head.time = self.head.time.saturating_add(apart);
    }
}

/// `time`·denominator/numerator, rounded up. Times of days fit the first way: its division is one
/// instruction.
#[inline]
fn stretch(time: Time, numerator: u32, denominator: u32) -> Time {
    match (time.checked_mul(denominator.into()), numerator) {
        (_, 0) => Time::MAX,
        (Some(ticks), _) => ticks.div_ceil(numerator.into()),
        (None, _) => stretch_long(time, numerator, denominator),
    }
}

#[inline(never)]
fn stretch_long(time: Time, numerator: u32, denominator: u32) -> Time {
    let (n, d) = (Time::from(numerator), Time::from(denominator));
    let Some(whole) = time.checked_div(n) else { return Time::MAX };
    // Two numbers of 32 bits.
    whole.saturating_mul(d).saturating_add(((time % n) * d).div_ceil(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_stretch_are_the_same() {
        for time in [0, 1, 7, 1 << 20, (1 << 40) - 1] {
            for (n, d) in [(1, 2), (3, 7), (999, 1000), (1 << 20, (1 << 20) + 1)] {
                assert_eq!(stretch(time, n, d), stretch_long(time, n, d), "{time} {n} {d}");
            }
        }
        assert_eq!(stretch(1 << 62, 3, 4), ((1u64 << 62) / 3 + 1) * 4 - 2, "beyond 64 bits");
        assert_eq!(stretch(1 << 62, 1, 5), Time::MAX);
        assert_eq!(stretch(1, 0, 0), Time::MAX);
    }

    #[test]
    fn a_shorter_period_can_end_an_activation() {
        let u = Utilization::new(1, 10).unwrap();
        let mut pibs = Account::pibs(u, 1, 100, 0).unwrap();
        pibs.wake(&mut [], 5);
        pibs.charge(6);
        // 7 with its cost, of 7: the next one can begin 70 after the request.
        pibs.request(70, 20, true);
        assert_eq!((pibs.eligible(), pibs.left(), pibs.budget()), (20 + 70, 6, 7));
        pibs.request(90, 30, true);
        assert_eq!((pibs.eligible(), pibs.left()), (90, 8));
    }

    #[test]
    fn a_period_that_leaves_nothing_is_refused() {
        let u = Utilization::new(1, 10).unwrap();
        let refused = Some(Invalid::TooShort { period: 39, cost: 3 });
        assert_eq!(Account::pibs(u, 3, 39, 0).err(), refused);
        let pibs = Account::pibs(u, 3, 40, 0).unwrap();
        assert_eq!(pibs.fits(39).err(), refused);
        assert_eq!((pibs.budget(), pibs.utilization()), (4, Some(u)));
    }
}
