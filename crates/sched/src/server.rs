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
//! **Why it disturbs no more than a periodic task** (C, T). Give each of the C ticks of the
//! budget a release: for the x-th tick of a refill (a, t), that is t+x. A tick is never used
//! before its release, since those before it in its refill take x. Every rule above moves a
//! tick that was used to at least T after its release, and one that was not used to the same
//! release or a later one: merging (a, t) with a next (b, s), s <= t+a, puts the next's x-th
//! tick from s+x to t+a+x; a full list moves it from t+x to s+x. And the server wants to run
//! from the release until the use, because waking moves all releases up to now. So in an
//! interval that begins when nothing of this priority or above wants to run with budget, each tick
//! used has its release in the interval, and the releases of one of the C ticks are T apart or more:
//! at most C·⌈d/T⌉ are used in length d.
//!
//! **How often it begins** is up to the thread: one that hardly uses anything between a sleep and the
//! next keeps a list short by waking so early that the head reaches the rest. Each time costs the
//! kernel an interrupt and two switches, in the time of others. So each use of a refill that begins
//! is charged that [cost](Server::with_cost), as if the thread had run so long: with it, too, all is at most
//! C·⌈d/T⌉. A refill that the cost alone would use up waits for the one after it, which is
//! merging as in a full list.
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
