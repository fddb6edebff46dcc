//! A budget C in a period T for a thread that may block at any time: the sporadic server of Sprunt, Sha and Lehoczky
//! (1989). Stanovich, Baker, Wang and Gonzalez Harbour corrected its accounting (*Defects of the POSIX sporadic server
//! and how to correct them*, RTAS 2010). Quest-V uses it so for its Main VCPUs (TOCS 2016, section 3.3).
//!
//! * While a thread runs, its use is added up; a preemption changes nothing else.
//! * When a refill is used up, it comes again T after its time.
//! * When the thread blocks, the used part of the head comes again T after the head's time,
//!   the rest stays.
//! * When it wakes, the head's time moves up to now, and the head takes in those after it
//!   that it reaches.
//!
//! **Why it disturbs no more than a periodic task** (C, T). Give each of the C ticks of the budget a release: for the
//! x-th tick of a refill (a, t), that is t+x. A tick is never used before its release, since those before it in its
//! refill take x. Every rule above moves a used tick to at least T after its release. It moves an unused tick to its
//! old release or a later one. Merging (a, t) with a next (b, s), s <= t+a, puts the next's x-th tick from s+x to
//! t+a+x. A full list moves it from t+x to s+x. And the server wants to run from the release until the use, because
//! waking moves all releases up to now. (Only this makes the rest of a split refill right again: its head's time is
//! past, and so is its used part.) Take an interval that begins when no context of this priority or above wants to run
//! with budget. Each tick used in it has its release in it, and the releases of one of the C ticks are T apart or more.
//! So at most C·⌈d/T⌉ are used in length d.
//!
//! **How often it begins** is up to the thread. A thread that hardly uses anything between two sleeps keeps a list
//! short by waking so early that the head reaches the rest. Each time costs the kernel an interrupt and two switches,
//! in the time of others. So each use of a refill that begins is charged that [cost](Account::with_cost), as if the
//! thread had run so long. The sum with the cost, too, is at most C·⌈d/T⌉. A refill that the cost alone would use up
//! waits for the one after it, which is merging as in a full list.
//!
//! The POSIX text instead keeps one time of activation for all time used until the next block, though some of it was
//! refilled in between. It can so give 46 of 100 to a budget of 20 in 50 (`tests/figures.rs`).
//!
//! **Strict**: the head's time also moves up to now whenever the thread is put on the processor. Its used time is split
//! off whenever it is taken off. Then a tick is used exactly at its release, and used again T later at the earliest. So
//! there are at most C in every window of length T. (A beginning that is late by no more than its cost counts as in
//! time: the ticks that pay for it are the missing ones.) The price: each preemption takes a place in the list. A
//! thread that is kept from running loses budget, which the sporadic server would give it later.

use crate::{Account, Invalid, Refill, Time};

/// Sporadic and strict servers.
impl Account {
    /// Does the work of [`Account::use_up`] for a sporadic server, if its list only turns by one. False if nothing
    /// was done.
    #[inline]
    pub(crate) fn use_up_head(&mut self, refills: &mut [Refill]) -> bool {
        let used = self.used.wrapping_sub(self.head.amount);
        if self.is_limited() {
            return false;
        }
        if self.len > 0 {
            return self.turn(refills, used);
        }
        if used >= self.head.amount {
            return false;
        }
        self.used = used;
        self.head.time = self.head.time.saturating_add(self.period);
        true
    }

    /// The head, all used up, comes again a period later.
    pub(crate) fn use_up(&mut self, refills: &mut [Refill], now: Time) {
        self.overrun();
        self.used = self.used.wrapping_sub(self.head.amount);
        self.rotate(refills);
        if self.is_over() || self.head.amount <= self.cost || self.is_strict() {
            self.use_up_more(refills, now);
        }
    }

    /// Handles use beyond the head. It takes at most about twice as many steps as the list is long, however late it
    /// comes.
    #[inline(never)]
    fn use_up_more(&mut self, refills: &mut [Refill], now: Time) {
        if self.used / 2 >= self.budget {
            self.catch_up(refills);
        }
        // The used time is less than twice the budget: twice through the list at most.
        for _ in 0..2 * refills.len() + 3 {
            if !self.is_over() {
                break;
            }
            self.used -= self.head.amount;
            self.rotate(refills);
        }
        self.gather(refills);
        if self.is_strict() {
            self.begin_late(refills, now.saturating_sub(self.used));
        }
    }

    /// Once through the whole list is every entry a period later.
    #[cold]
    fn catch_up(&mut self, refills: &mut [Refill]) {
        let times = self.used.checked_div(self.budget).unwrap_or(0);
        self.delay(refills, self.period.saturating_mul(times));
        self.used = self.used.checked_rem(self.budget).unwrap_or(0);
    }

    /// Checks that a server can have a budget and a period; other policies always pass.
    ///
    /// # Errors
    /// As [`Account::sporadic`] and [`Account::with_cost`].
    pub(crate) const fn can_be(&self, budget: Time, period: Time) -> Result<(), Invalid> {
        match self.is_server() {
            true => Self::check(budget, period, self.cost),
            false => Ok(()),
        }
    }

    /// Gives a server another budget and period, which it [can have](Self::can_be). Its used time comes again when it
    /// would have. The difference to a greater budget can be used at once; that to a smaller one is taken from the
    /// last refills. From then on the theorem holds for the new ones.
    pub(crate) fn change(&mut self, refills: &mut [Refill], budget: Time, period: Time, now: Time) {
        self.settle(refills, now);
        self.split(refills);
        match budget.checked_sub(self.budget) {
            Some(extra) => self.add(refills, extra, now),
            None => self.cut(refills, self.budget - budget),
        }
        (self.budget, self.period) = (budget, period);
        self.gather(refills);
    }

    /// Begins to use the head, not before `now`, and merges the refills that it reaches from there.
    #[inline(always)]
    pub(crate) fn begin(&mut self, refills: &[Refill], now: Time) {
        self.head.time = self.head.time.max(now);
        self.merge_now(refills);
    }

    /// A strict server begins as late as a timer comes: no later than its beginning costs. That much is charged
    /// without having been used, so the head stays where it was, and latencies do not add up.
    pub(crate) fn begin_late(&mut self, refills: &[Refill], now: Time) {
        let late = now.saturating_sub(self.head.time) <= self.cost;
        self.begin(refills, if late { self.head.time } else { now });
    }

    /// Puts off the used part of the head to a later refill. In a head that cannot be used yet this part is a debt,
    /// left by a stop that came late. It stays, as it would be used first, and is no refill of its own.
    #[inline]
    pub(crate) fn stop(&mut self, refills: &mut [Refill], now: Time) {
        if self.is_over() {
            self.stop_late(refills, now);
        } else if self.head.time <= now {
            self.split(refills);
        }
    }

    /// Stops an account with a thread that ran, so that its head could be used.
    #[inline]
    pub(crate) fn stop_running(&mut self, refills: &mut [Refill], now: Time) {
        match self.is_over() {
            true => self.stop_late(refills, now),
            false => self.split(refills),
        }
    }

    #[inline(never)]
    fn stop_late(&mut self, refills: &mut [Refill], now: Time) {
        self.use_up(refills, now);
        if self.head.time <= now {
            self.split(refills);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// With lists of three.
    struct Server(Account, [Refill; 2]);

    impl Server {
        fn new(budget: Time, period: Time) -> Self {
            Self(Account::sporadic(budget, period, 0).unwrap(), [Refill::default(); 2])
        }

        fn with_cost(self, cost: Time) -> Result<Self, Invalid> {
            Ok(Self(self.0.with_cost(cost)?, self.1))
        }

        fn wake(&mut self, now: Time) {
            self.0.wake(&mut self.1, now);
        }

        fn block(&mut self, now: Time) {
            self.0.block(&mut self.1, now);
        }

        fn dispatch(&mut self, now: Time) {
            self.0.dispatch(&mut self.1, now);
        }

        fn settle(&mut self, now: Time) -> bool {
            self.0.settle(&mut self.1, now)
        }

        fn set(&mut self, budget: Time, period: Time, now: Time) -> Result<(), Invalid> {
            self.0.can_be(budget, period)?;
            self.0.change(&mut self.1, budget, period, now);
            Ok(())
        }

        fn shown(&self) -> Vec<(Time, Time)> {
            let next = self.0.list(&self.1).nth(1);
            assert_eq!(self.0.next, next.map_or(Time::MAX, |next| next.time));
            let last = self.0.list(&self.1).skip(1).last();
            assert!(last.is_none_or(|last| last.time == self.0.last));
            self.0.list(&self.1).map(|r| (r.amount, r.time)).collect()
        }
    }

    #[test]
    fn impossible_budgets_are_refused() {
        for (budget, period) in [(0, 5), (6, 5)] {
            let refused = Some(Invalid::Budget { budget, period });
            assert_eq!(Account::sporadic(budget, period, 0).err(), refused);
            assert_eq!(Account::strict(budget, period, 0).err(), refused);
            let mut server = Server::new(3, 9);
            assert_eq!(server.set(budget, period, 0).err(), refused);
            assert_eq!(server.shown(), [(3, 0)]);
        }
        let refused = Some(Invalid::TooShort { period: 9, cost: 3 });
        assert_eq!(Server::new(3, 9).with_cost(3).err(), refused);
        assert_eq!(Server::new(4, 9).with_cost(3).unwrap().set(3, 9, 0).err(), refused);
    }

    #[test]
    fn each_beginning_is_charged() {
        let mut server = Server::new(10, 100).with_cost(2).unwrap();
        server.wake(0);
        server.dispatch(0);
        assert_eq!(server.0.left(), 8);
        server.0.charge(1);
        server.0.preempt(&mut server.1, 1);
        server.dispatch(5);
        assert_eq!(server.0.left(), 7, "it goes on");
        server.block(5);
        assert_eq!(server.shown(), [(7, 0), (3, 100)]);
        server.wake(6);
        server.dispatch(6);
        server.0.charge(3);
        server.block(9);
        // The rest would not even pay for its beginning.
        assert_eq!(server.shown(), [(5, 100), (5, 106)]);
    }

    #[test]
    fn a_late_timer_does_not_put_a_strict_server_off() {
        let account = Account::strict(5, 20, 0).unwrap().with_cost(2).unwrap();
        let mut server = Server(account, [Refill::default(); 2]);
        server.wake(0);
        for period in 0..10 {
            // It is put on the processor 2 late, and taken off another one late.
            let begin = 20 * period + 2;
            assert_eq!(server.0.eligible(), begin - 2);
            server.dispatch(begin);
            server.0.charge(if period == 0 { 4 } else { 3 });
            assert!(server.settle(begin + 4));
        }
        // A later end is late.
        server.dispatch(203);
        assert_eq!(server.0.eligible(), 203);
    }

    #[test]
    fn a_late_stop_is_paid_for() {
        let mut server = Server::new(4, 10);
        server.wake(0);
        // Twice the budget and one more.
        server.0.charge(9);
        assert!(server.settle(9));
        assert_eq!((server.shown(), server.0.left()), (Vec::from([(4, 20)]), 3));
        server.block(9);
        assert_eq!((server.shown(), server.0.left()), (Vec::from([(4, 20)]), 3));
        server.wake(25);
        server.block(25);
        assert_eq!(server.shown(), [(3, 25), (1, 35)]);
    }

    #[test]
    fn a_budget_can_be_set_on_the_way() {
        let mut server = Server::new(10, 100);
        server.wake(0);
        server.0.charge(10);
        server.settle(10);
        // Used up; the increase can be used at once.
        server.set(14, 50, 12).unwrap();
        assert_eq!(server.shown(), [(4, 12), (10, 100)]);
        server.wake(12);
        server.0.charge(4);
        server.set(5, 50, 16).unwrap();
        assert_eq!(server.shown(), [(5, 100)]);
        server.wake(100);
        server.0.charge(2);
        server.block(102);
        assert_eq!(server.shown(), [(3, 100), (2, 150)]);
    }

    #[test]
    fn what_is_given_up_counts_as_used() {
        let mut server = Server::new(10, 100);
        server.wake(0);
        server.0.charge(3);
        server.block(3);
        server.wake(5);
        server.0.charge(1);
        server.0.give_up();
        assert!(server.settle(6));
        assert_eq!(server.shown(), [(3, 100), (7, 105)]);
    }
}
