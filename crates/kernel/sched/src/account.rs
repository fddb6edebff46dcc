//! The time of a context under any policy: its amount, its start, and its used part. The part that is used next lies
//! in the account itself. The rest of a server's list lies behind the account, in storage of the owner's size. It is
//! only touched when a refill begins, is used up, or is split.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Invalid, Refill, Time, Utilization};

/// How a context gets its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Policy {
    /// A sporadic server: for threads.
    Sporadic,
    /// A strict server.
    Strict,
    /// For interrupt work.
    Pibs,
    /// As much as there is.
    Full,
}

pub(crate) const SPORADIC: u8 = Policy::Sporadic as u8;
pub(crate) const STRICT: u8 = Policy::Strict as u8;
pub(crate) const PIBS: u8 = Policy::Pibs as u8;
pub(crate) const FULL: u8 = Policy::Full as u8;

/// The denominator of utilizations in [`Account::of`].
const MILLION: u32 = 1_000_000;

/// An account. Its times must not fall from call to call. Each call gets the `refills` of the calls before it; their
/// content does not matter for a new account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Account {
    /// First refill of a server; otherwise the time of an activation or a slice.
    pub(crate) head: Refill,
    /// Used part of the head. It is less than the head unless the thread was stopped late.
    pub(crate) used: Time,
    pub(crate) budget: Time,
    pub(crate) period: Time,
    pub(crate) cost: Time,
    /// Time of the refill after the head, [`Time::MAX`] if there is none: so that waking need not look at the list.
    pub(crate) next: Time,
    /// Time of the list's last refill. If only the head is left, it is no later than the next refill to come.
    pub(crate) last: Time,
    /// U of a PIBS server.
    pub(crate) numerator: u32,
    pub(crate) denominator: u32,
    /// Place in the ring of the refill after the head.
    pub(crate) start: u16,
    /// Number of refills after the head.
    pub(crate) len: u16,
    /// Place in the ring of the next new refill.
    pub(crate) end: u16,
    pub(crate) policy: u8,
    /// For a PIBS server: an activation has begun and not ended. For others [`crate::limit`]'s state of a call.
    pub(crate) active: u8,
}

impl Account {
    const fn new(policy: u8, head: Refill, period: Time) -> Self {
        Self {
            head,
            used: 0,
            budget: head.amount,
            period,
            cost: 0,
            next: Time::MAX,
            last: 0,
            numerator: 0,
            denominator: 0,
            start: 0,
            len: 0,
            end: 0,
            policy,
            active: 0,
        }
    }

    /// Returns a sporadic server that has its whole budget from `from` on.
    ///
    /// # Errors
    /// [`Invalid::Budget`] unless 0 < budget <= period.
    #[inline(never)]
    pub const fn sporadic(budget: Time, period: Time, from: Time) -> Result<Self, Invalid> {
        match Self::check(budget, period, 0) {
            Ok(()) => (),
            Err(error) => return Err(error),
        }
        Ok(Self::new(SPORADIC, Refill { amount: budget, time: from }, period))
    }

    /// Checks that a server can have a budget and a period, if a beginning costs that much.
    pub(crate) const fn check(budget: Time, period: Time, cost: Time) -> Result<(), Invalid> {
        if budget == 0 || budget > period {
            return Err(Invalid::Budget { budget, period });
        }
        match budget > cost {
            true => Ok(()),
            false => Err(Invalid::TooShort { period, cost }),
        }
    }

    /// Returns a strict server.
    ///
    /// # Errors
    /// As [`Account::sporadic`].
    #[inline(never)]
    pub const fn strict(budget: Time, period: Time, from: Time) -> Result<Self, Invalid> {
        match Self::sporadic(budget, period, from) {
            Ok(server) => Ok(Self { policy: STRICT, ..server }),
            error => error,
        }
    }

    /// Returns this server with the kernel's cost of a beginning, in ticks.
    ///
    /// # Errors
    /// [`Invalid::TooShort`]: the budget is not above the cost.
    #[inline(never)]
    pub const fn with_cost(self, cost: Time) -> Result<Self, Invalid> {
        match Self::check(self.budget, self.period, cost) {
            Ok(()) => Ok(Self { cost, ..self }),
            Err(error) => Err(error),
        }
    }

    /// Makes the account of any policy, in place of the policy's own constructor. For [`Policy::Pibs`] `budget` is
    /// the utilization in millionths; for [`Policy::Full`] it is ignored.
    ///
    /// # Errors
    /// The errors of these constructors.
    #[inline(never)]
    pub fn of(policy: Policy, budget: Time, period: Time, cost: Time) -> Result<Self, Invalid> {
        let amount = if policy == Policy::Full { period } else { budget };
        let head = Refill { amount, time: 0 };
        let mut account = Self { cost, ..Self::new(policy as u8, head, period) };
        match policy {
            Policy::Sporadic | Policy::Strict => Self::check(budget, period, cost)?,
            Policy::Full if period == 0 => return Err(Invalid::Budget { budget, period }),
            Policy::Full => account.cost = 0,
            Policy::Pibs => {
                let numerator = u32::try_from(budget).unwrap_or(MILLION);
                (account.numerator, account.denominator) = (numerator, MILLION);
                account.fits(period)?;
                account.give(period);
            }
        }
        Ok(account)
    }

    /// Makes a PIBS server that can run from `from` on. `cost` is the kernel's time for an activation, in ticks.
    /// `period` is the requester's while none is named.
    ///
    /// # Errors
    /// [`Invalid::TooShort`].
    #[inline(never)]
    pub fn pibs(
        utilization: Utilization,
        cost: Time,
        period: Time,
        from: Time,
    ) -> Result<Self, Invalid> {
        let head = Refill { amount: utilization.of(period), time: from };
        let (numerator, denominator) = (utilization.numerator(), utilization.denominator());
        let pibs = Self { cost, numerator, denominator, ..Self::new(PIBS, head, period) };
        pibs.fits(period)?;
        Ok(pibs)
    }

    /// Makes an account with C = T. It has no limit, but other contexts of its priority have their turn after a
    /// slice.
    ///
    /// # Errors
    /// [`Invalid::Budget`]: a slice of 0.
    #[inline(never)]
    pub const fn full(slice: Time) -> Result<Self, Invalid> {
        match slice {
            0 => Err(Invalid::Budget { budget: slice, period: slice }),
            _ => Ok(Self::new(FULL, Refill { amount: slice, time: 0 }, slice)),
        }
    }

    /// Returns how it gets its time.
    pub const fn policy(&self) -> Policy {
        match self.policy {
            SPORADIC => Policy::Sporadic,
            STRICT => Policy::Strict,
            PIBS => Policy::Pibs,
            _ => Policy::Full,
        }
    }

    /// Tells if it has a list of refills.
    pub const fn is_server(&self) -> bool {
        self.policy <= STRICT
    }

    pub(crate) const fn is_strict(&self) -> bool {
        self.policy == STRICT
    }

    /// C, of PIBS U·T with its cost, of [`Policy::Full`] the slice; ticks.
    pub const fn budget(&self) -> Time {
        self.budget
    }

    /// T, of PIBS the requester's, of [`Policy::Full`] the slice; ticks.
    pub const fn period(&self) -> Time {
        self.period
    }

    /// Tells when it has budget, or had.
    #[inline(always)]
    pub const fn eligible(&self) -> Time {
        self.head.time
    }

    /// Tells when a server has budget after its head.
    #[inline(always)]
    pub(crate) const fn following_time(&self) -> Time {
        match self.len {
            0 => self.head.time.saturating_add(self.period),
            _ => self.next,
        }
    }

    /// Returns the unused part of the head, ticks.
    pub const fn left(&self) -> Time {
        self.head.amount.saturating_sub(self.used)
    }

    /// Returns the unused part of the head, for an account that is not [over](Account::is_over).
    #[inline(always)]
    pub(crate) const fn rest(&self) -> Time {
        self.head.amount.wrapping_sub(self.used)
    }

    /// Tells if the head is used up, so that [`Account::settle`] would do something.
    #[inline(always)]
    pub(crate) const fn is_over(&self) -> bool {
        self.used >= self.head.amount
    }

    /// Delays the head to `now` at the earliest.
    pub(crate) fn not_before(&mut self, now: Time) {
        self.head.time = self.head.time.max(now);
    }

    /// The thread ran for so long.
    #[inline(always)]
    pub fn charge(&mut self, ticks: Time) {
        self.used = self.used.wrapping_add(ticks);
    }

    /// Gives up the rest of the head, as if it had been used.
    #[inline]
    pub fn give_up(&mut self) {
        self.used = self.used.max(self.head.amount);
    }

    /// Takes away the used-up part. True if there was one, so that the turn is over.
    #[inline]
    pub fn settle(&mut self, refills: &mut [Refill], now: Time) -> bool {
        let over = self.is_over();
        if over {
            self.end_turn(refills, now);
        }
        over
    }

    #[inline]
    pub(crate) fn end_turn(&mut self, refills: &mut [Refill], now: Time) {
        match self.policy {
            SPORADIC | STRICT => self.use_up(refills, now),
            PIBS => self.go_on(),
            _ => self.end_slice(),
        }
    }

    /// The thread wants to run again.
    #[inline]
    pub fn wake(&mut self, refills: &mut [Refill], now: Time) {
        match self.policy {
            SPORADIC | STRICT => self.begin(refills, now),
            PIBS => self.activate(now),
            _ => (),
        }
    }

    /// Wakes a server with a head that can be used. True if its list stays as it is.
    #[inline]
    pub(crate) fn begin_alone(&mut self, now: Time) -> bool {
        self.head.time = now;
        now.wrapping_add(self.head.amount) < self.next
    }

    /// Wakes such a server at a time that may be before the head's.
    #[inline]
    pub(crate) fn begin_at(&mut self, time: Time) -> bool {
        self.head.time <= time && self.begin_alone(time)
    }

    /// Wakes an account that is not a server; true.
    #[inline(always)]
    pub(crate) fn wake_unlisted(&mut self, now: Time) -> bool {
        if self.policy == PIBS {
            self.activate(now);
        }
        true
    }

    /// An account that is no server's blocks. In a call with a limit a full context has no activation that would end.
    #[inline(always)]
    pub(crate) fn block_unlisted(&mut self) {
        if self.policy == PIBS {
            self.deactivate();
        }
    }

    /// The thread doesn't want to run any more.
    #[inline]
    pub fn block(&mut self, refills: &mut [Refill], now: Time) {
        match self.policy {
            SPORADIC | STRICT => self.stop(refills, now),
            PIBS => self.deactivate(),
            _ => (),
        }
    }

    /// The thread is put on the processor.
    #[inline]
    pub fn dispatch(&mut self, refills: &mut [Refill], now: Time) {
        if self.is_strict() && !self.is_limited() {
            self.begin_late(refills, now);
        }
        self.pay();
    }

    /// Begins a use and charges its cost, unless the use goes on and was charged before. A debt below the cost is
    /// included in it. A PIBS server's activation has been charged already.
    #[inline(always)]
    pub(crate) fn pay(&mut self) {
        if self.used < self.cost {
            self.used = self.cost;
        }
    }

    /// The thread is taken off the processor, and still wants to run.
    pub fn preempt(&mut self, refills: &mut [Refill], now: Time) {
        if self.is_server() {
            self.settle(refills, now);
        }
        // A call with a limit is not cut to pieces: each piece would cost a beginning, paid from the call's own time.
        if self.is_strict() && !self.is_limited() {
            self.split(refills);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For any arguments, right or wrong: the common constructor makes or refuses an account as the policy's own
    /// does.
    #[test]
    fn one_constructor_makes_what_each_policys_own_does() {
        let numbers = [0, 1, 7, 8, 100, 999_999, 1_000_000, 1 << 40, Time::MAX];
        let mut made = 0;
        for (budget, period) in numbers.iter().flat_map(|b| numbers.map(|p| (*b, p))) {
            for cost in [0, 7] {
                let share = u32::try_from(budget).unwrap_or(MILLION);
                let all = [
                    (Policy::Sporadic, Account::sporadic(budget, period, 0)),
                    (Policy::Strict, Account::strict(budget, period, 0)),
                ]
                .map(|(policy, server)| (policy, server.and_then(|server| server.with_cost(cost))));
                let pibs = Utilization::new(share, MILLION)
                    .and_then(|share| Account::pibs(share, cost, period, 0));
                let others = [(Policy::Pibs, pibs), (Policy::Full, Account::full(period))];
                for (policy, own) in all.into_iter().chain(others) {
                    let one = Account::of(policy, budget, period, cost);
                    assert_eq!(one.ok(), own.ok(), "{policy:?} {budget} {period} {cost}");
                    made += usize::from(own.is_ok());
                }
            }
        }
        assert!(made > 100, "{made}");
    }
}
