//! A budget C in a period T for a thread that may block at any time: the sporadic server
//! of Sprunt, Sha and Lehoczky (1989), with the accounting that Stanovich, Baker, Wang and
//! Gonzalez Harbour corrected (*Defects of the POSIX sporadic server and how to correct
//! them*, RTAS 2010), as Quest-V uses it for its Main VCPUs (TOCS 2016, section 3.3).
//!
//! * While a thread runs, its use is added up; a preemption changes nothing else.
//! * When a refill is used up, it comes again T after its time.
//! * When the thread blocks, the used part of the head comes again T after the head's time,
//!   the rest stays.
//! * When it wakes, the head's time moves up to now, and the head takes in those after it
//!   that it reaches.
//!
//! **Why it disturbs no more than a periodic task** (C, T). Give each of the C ticks of the budget
//! a release: for the x-th tick of a refill (a, t), that is t+x. A tick is never used before its
//! release, since those before it in its refill take x. Every rule above moves a tick that was used
//! to at least T after its release, and one that was not used to the same release or a later one:
//! merging (a, t) with a next (b, s), s <= t+a, puts the next's x-th tick from s+x to t+a+x; a full
//! list moves it from t+x to s+x. And the server wants to run from the release until the use,
//! because waking moves all releases up to now (only this makes the rest of a split refill right
//! again: its head's time is past, and so is what was used of it). So in an interval that begins
//! when nothing of this priority or above wants to run with budget, each tick used has its release
//! in the interval, and the releases of one of the C ticks are T apart or more: at most C·⌈d/T⌉ are
//! used in length d.
//!
//! **How often it begins** is up to the thread: one that hardly uses anything between a sleep and
//! the next keeps a list short by waking so early that the head reaches the rest. Each time costs
//! the kernel an interrupt and two switches, in the time of others. So each use of a refill that
//! begins is charged that [cost](Server::with_cost), as if the thread had run so long: with it,
//! too, all is at most C·⌈d/T⌉. A refill that the cost alone would use up waits for the one after
//! it, which is merging as in a full list.
//!
//! The POSIX text instead keeps one time of activation for all that is used until the next
//! block, though some of it was refilled in between; it can so give 46 of 100 to a budget of
//! 20 in 50 (`tests/figures.rs`).
//!
//! **Strict**: the head's time also moves up to now whenever the thread is put on the
//! processor, and what was used is split off whenever it is taken off. Then a tick is used
//! exactly at its release, and used again T later at the earliest: at most C in every window
//! of length T. The price: each preemption takes a place in the list, and a thread that is
//! kept from running loses budget, which the sporadic server would give it later.

use crate::{Invalid, Refill, Refills, Time};

/// A sporadic or strict server. Its times must not fall from call to call.
#[derive(Clone, Debug)]
pub struct Server<R> {
    refills: Refills<R>,
    budget: Time,
    period: Time,
    /// Of the head, less than it has unless the thread was stopped late.
    used: Time,
    cost: Time,
    strict: bool,
}

impl<R: AsRef<[Refill]> + AsMut<[Refill]>> Server<R> {
    /// A sporadic server that has its whole budget from `from` on.
    ///
    /// # Errors
    /// [`Invalid::Budget`] unless 0 < budget <= period; [`Invalid::NoRefills`].
    pub fn sporadic(budget: Time, period: Time, from: Time, items: R) -> Result<Self, Invalid> {
        if budget == 0 || budget > period {
            return Err(Invalid::Budget { budget, period });
        }
        let refills = Refills::new(items, Refill { amount: budget, time: from })?;
        Ok(Self { refills, budget, period, used: 0, cost: 0, strict: false })
    }

    /// A strict server.
    ///
    /// # Errors
    /// As [`Server::sporadic`].
    pub fn strict(budget: Time, period: Time, from: Time, items: R) -> Result<Self, Invalid> {
        Ok(Self { strict: true, ..Self::sporadic(budget, period, from, items)? })
    }

    /// The same, with what the kernel spends when it begins to use a refill, in ticks.
    ///
    /// # Errors
    /// [`Invalid::TooShort`]: the budget is not above the cost.
    pub fn with_cost(self, cost: Time) -> Result<Self, Invalid> {
        match self.budget > cost {
            true => Ok(Self { cost, ..self }),
            false => Err(Invalid::TooShort { period: self.period, cost }),
        }
    }

    /// C, ticks.
    pub fn budget(&self) -> Time {
        self.budget
    }

    /// T, ticks.
    pub fn period(&self) -> Time {
        self.period
    }

    /// The list as it is: what was used of the head since the last split is still in it.
    pub fn refills(&self) -> &Refills<R> {
        &self.refills
    }

    /// What can be used until the head is used up, ticks.
    pub fn left(&self) -> Time {
        self.refills.head().amount.saturating_sub(self.used)
    }

    /// When the head can be used.
    pub fn eligible(&self) -> Time {
        self.refills.head().time
    }

    /// The thread ran for so long.
    pub fn charge(&mut self, ticks: Time) {
        self.used = self.used.saturating_add(ticks);
    }

    /// Takes away what is used up; whether that was anything. At most as many steps as
    /// the list is long, however late it comes.
    pub fn settle(&mut self, now: Time) -> bool {
        if self.left() > 0 {
            return false;
        }
        // Once through the whole list is every entry a period later.
        self.refills.delay(self.period.saturating_mul(self.used / self.budget));
        self.used %= self.budget;
        while self.left() == 0 {
            self.used -= self.refills.head().amount;
            self.refills.rotate(self.period);
        }
        self.refills.gather(self.cost);
        if self.strict {
            self.begin(now.saturating_sub(self.used));
        }
        true
    }

    /// The thread wants to run again.
    pub fn wake(&mut self, now: Time) {
        self.begin(now);
    }

    /// The thread is put on the processor.
    pub fn dispatch(&mut self, now: Time) {
        if self.strict {
            self.begin(now);
        }
        if self.used == 0 {
            self.used = self.cost;
        }
    }

    /// The thread is taken off the processor, and still wants to run.
    pub fn preempt(&mut self, now: Time) {
        self.settle(now);
        if self.strict {
            self.split();
        }
    }

    /// The thread doesn't want to run any more.
    pub fn block(&mut self, now: Time) {
        self.settle(now);
        self.split();
    }

    /// Another budget and period. What was used so far comes again when it would have; of a
    /// greater budget the difference can be used at once, of a smaller one it is taken from the
    /// last refills. From then on the theorem holds for the new ones.
    ///
    /// # Errors
    /// As [`Server::sporadic`] and [`Server::with_cost`]: nothing is changed.
    pub fn set(&mut self, budget: Time, period: Time, now: Time) -> Result<(), Invalid> {
        if budget == 0 || budget > period {
            return Err(Invalid::Budget { budget, period });
        }
        if budget <= self.cost {
            return Err(Invalid::TooShort { period, cost: self.cost });
        }
        self.block(now);
        match budget.checked_sub(self.budget) {
            Some(extra) => self.refills.add(extra, now),
            None => self.refills.cut(self.budget - budget),
        }
        (self.budget, self.period) = (budget, period);
        self.refills.gather(self.cost);
        Ok(())
    }

    fn begin(&mut self, now: Time) {
        self.refills.hold(now);
        self.refills.merge_now();
    }

    fn split(&mut self) {
        if self.used > 0 {
            self.refills.split(self.used, self.period);
            self.used = 0;
            self.refills.gather(self.cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn server(budget: Time, period: Time) -> Server<[Refill; 3]> {
        Server::sporadic(budget, period, 0, [Refill::default(); 3]).unwrap()
    }

    fn shown(server: &Server<[Refill; 3]>) -> Vec<(Time, Time)> {
        server.refills().iter().map(|r| (r.amount, r.time)).collect()
    }

    #[test]
    fn impossible_budgets_are_refused() {
        for (budget, period) in [(0, 5), (6, 5)] {
            let refused = Some(Invalid::Budget { budget, period });
            assert_eq!(Server::sporadic(budget, period, 0, [Refill::default()]).err(), refused);
            let mut server = server(3, 9);
            assert_eq!(server.set(budget, period, 0).err(), refused);
            assert_eq!(shown(&server), [(3, 0)]);
        }
        let refused = Some(Invalid::TooShort { period: 9, cost: 3 });
        assert_eq!(server(3, 9).with_cost(3).err(), refused);
        assert_eq!(server(4, 9).with_cost(3).unwrap().set(3, 9, 0).err(), refused);
    }

    #[test]
    fn each_beginning_is_charged() {
        let mut server = server(10, 100).with_cost(2).unwrap();
        server.wake(0);
        server.dispatch(0);
        assert_eq!(server.left(), 8);
        server.charge(1);
        server.preempt(1);
        server.dispatch(5);
        assert_eq!(server.left(), 7, "it goes on");
        server.block(5);
        assert_eq!(shown(&server), [(7, 0), (3, 100)]);
        server.wake(6);
        server.dispatch(6);
        server.charge(3);
        server.block(9);
        // What is left would not even pay for its beginning.
        assert_eq!(shown(&server), [(5, 100), (5, 106)]);
    }

    #[test]
    fn a_late_stop_is_paid_for() {
        let mut server = server(4, 10);
        server.wake(0);
        // Twice the budget and one more.
        server.charge(9);
        assert!(server.settle(9));
        assert_eq!((shown(&server), server.left()), (Vec::from([(4, 20)]), 3));
        server.block(9);
        assert_eq!(shown(&server), [(3, 20), (1, 30)]);
    }

    #[test]
    fn a_budget_can_be_set_on_the_way() {
        let mut server = server(10, 100);
        server.wake(0);
        server.charge(10);
        server.settle(10);
        // Used up; what it gets more it has at once.
        server.set(14, 50, 12).unwrap();
        assert_eq!(shown(&server), [(4, 12), (10, 100)]);
        server.wake(12);
        server.charge(4);
        server.set(5, 50, 16).unwrap();
        assert_eq!(shown(&server), [(5, 100)]);
        server.wake(100);
        server.charge(2);
        server.block(102);
        assert_eq!(shown(&server), [(3, 100), (2, 150)]);
    }
}
