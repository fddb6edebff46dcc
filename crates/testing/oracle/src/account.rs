//! A thread's budget, as the papers have it.
//!
//! * A sporadic server has a list of refills (Quest-V, TOCS 2016, figure 7 and the text below it). A refill is an
//!   amount and the time from which it can be used. The server's use is added up, a preemption changes nothing. A
//!   refill that is used up comes again a period after its time. Where the thread blocks, the used part of the first
//!   refill is split off. That part comes again a period after that refill's time. Where the thread wakes, the first
//!   refill's time moves up to now, and the refill takes in those that begin before it would end. A list that would
//!   grow too long merges its first two at the later time.
//! * A strict server does so on each move to the processor, where a sporadic one wakes, and from it, where that one
//!   blocks.
//! * A PIBS server that works for a context with period T has U·T from the time that it has work. The used part, C',
//!   comes again C'/U after it began.

use crate::set::{Policy, Thread, Time};

const MOST: usize = Thread::MOST_REFILLS + 1;

/// An amount of budget and when it can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refill {
    pub amount: Time,
    pub time: Time,
}

/// The budget of one thread.
#[derive(Clone, Debug)]
pub struct Account {
    policy: Policy,
    period: Time,
    most: usize,
    /// Cost of a use of a refill when it begins.
    cost: Time,
    list: [Refill; MOST],
    len: usize,
    /// Used part of the first refill, or of a PIBS activation.
    used: Time,
    /// The use of the first refill has begun, and its cost is being paid.
    begun: bool,
}

impl Account {
    pub fn new(thread: &Thread, cost: Time) -> Self {
        let gross = match thread.policy {
            Policy::Pibs(share) => part(share, thread.period),
            Policy::Full => thread.period,
            _ => thread.budget + Time::from(thread.activations) * cost,
        };
        let mut list = [Refill::default(); MOST];
        list[0].amount = gross;
        let (policy, period, most) = (thread.policy, thread.period, thread.refills);
        // A full context's turns are not charged.
        let cost = if policy == Policy::Full { 0 } else { cost };
        Self { policy, period, most, cost, list, len: 1, used: 0, begun: false }
    }

    /// True if it can be used now.
    pub fn is_usable(&self, now: Time) -> bool {
        self.policy == Policy::Full || self.list[0].time <= now
    }

    /// From when on it can be used.
    pub fn usable_at(&self) -> Time {
        self.list[0].time
    }

    /// True if it never ends.
    pub fn is_unlimited(&self) -> bool {
        self.policy == Policy::Full
    }

    /// How long it lasts.
    pub fn left(&self) -> Time {
        self.list[0].amount - self.used
    }

    /// True if a cost has to be paid before its thread gets on.
    pub fn has_to_begin(&self) -> bool {
        !self.begun && self.cost > 0
    }

    /// Cost that has to be paid before its thread gets on, as its use begins.
    pub fn begin(&mut self) -> Time {
        if std::mem::replace(&mut self.begun, true) { 0 } else { self.cost }
    }

    /// Its thread ran, or the kernel for it. True: a refill, or a turn, is used up.
    pub fn charge(&mut self, time: Time) -> bool {
        self.used += time;
        if self.left() > 0 {
            return false;
        }
        self.begun = false;
        match self.policy {
            Policy::Full => self.used = 0,
            Policy::Pibs(share) => self.pause(share),
            _ => {
                let head = self.list[0];
                self.drop_first();
                self.used = 0;
                self.put(Refill { amount: head.amount, time: head.time + self.period });
                self.join_useless();
            }
        }
        true
    }

    /// Its thread has something to do from now on.
    pub fn wake(&mut self, now: Time) {
        let head = &mut self.list[0];
        head.time = head.time.max(now);
        if !matches!(self.policy, Policy::Sporadic | Policy::Strict) {
            return;
        }
        while self.len > 1 && self.list[1].time <= self.list[0].time + self.list[0].amount {
            let head = self.list[0];
            self.drop_first();
            self.list[0] = Refill { amount: head.amount + self.list[0].amount, time: head.time };
        }
        self.join_useless();
    }

    /// Its thread has nothing to do any more.
    pub fn block(&mut self) {
        self.begun = false;
        if self.used == 0 {
            return;
        }
        match self.policy {
            Policy::Full => {}
            Policy::Pibs(share) => self.pause(share),
            _ => {
                let used = Refill { amount: self.used, time: self.list[0].time + self.period };
                self.list[0].amount -= self.used;
                self.used = 0;
                self.put(used);
                self.join_useless();
            }
        }
    }

    /// Tells if that much can be used without a pause. If not, the rest of the first refill waits for the next ones
    /// until it can.
    pub fn reserve(&mut self, time: Time, now: Time) -> bool {
        if !matches!(self.policy, Policy::Sporadic | Policy::Strict)
            || self.is_usable(now) && self.left() >= time + if self.begun { 0 } else { self.cost }
            // A budget that is shorter than the call can't wait for more; the admission refuses that.
            || self.is_usable(now) && !self.can_ever(time)
        {
            return true;
        }
        self.block();
        while self.len > 1 && self.list[0].amount < time + 2 * self.cost {
            self.join_first();
        }
        false
    }

    /// Tells if that much can ever be used without a pause, after a beginning and a way to it that takes as much.
    pub fn can_ever(&self, time: Time) -> bool {
        !matches!(self.policy, Policy::Sporadic | Policy::Strict)
            || self.sum() >= time + 2 * self.cost
    }

    fn sum(&self) -> Time {
        self.list[..self.len].iter().map(|refill| refill.amount).sum()
    }

    /// Its thread comes to the processor.
    pub fn dispatch(&mut self, now: Time) {
        if self.policy == Policy::Strict {
            self.wake(now);
        }
    }

    /// Its thread is taken off the processor while it wants to run.
    /// True: the use of its refill is over with that.
    pub fn preempt(&mut self) -> bool {
        let strict = self.policy == Policy::Strict;
        if strict {
            self.block();
        }
        strict
    }

    /// A PIBS server works for somebody with such a period. A higher one raises it: then it counts from now on.
    pub fn serve(&mut self, period: Time, now: Time, raised: bool) {
        let Policy::Pibs(share) = self.policy else { return };
        self.period = period;
        self.list[0].amount = part(share, period);
        if self.used == 0 {
            return;
        }
        if raised {
            self.list[0].time = now;
        }
        if self.used >= self.list[0].amount {
            self.begun = false;
            self.pause(share);
        }
    }

    /// An activation of a PIBS server ends.
    fn pause(&mut self, share: u32) {
        let after = (u128::from(self.used) * 1_000_000).div_ceil(u128::from(share)) as Time;
        self.list[0].time += after;
        self.used = 0;
    }

    fn drop_first(&mut self) {
        self.list.copy_within(1..self.len, 0);
        self.len -= 1;
    }

    /// The first two refills become one, at the later time.
    fn join_first(&mut self) {
        let head = self.list[0];
        self.drop_first();
        self.list[0].amount += head.amount;
    }

    fn put(&mut self, refill: Refill) {
        if self.len == self.most {
            self.join_first();
        }
        self.list[self.len] = refill;
        self.len += 1;
    }

    /// A refill that its cost would use up waits for the next one.
    fn join_useless(&mut self) {
        while self.len > 1 && self.list[0].amount <= self.cost {
            self.join_first();
        }
    }
}

/// So many millionths of a time, rounded down.
pub fn part(share: u32, time: Time) -> Time {
    (u128::from(share) * u128::from(time) / 1_000_000) as Time
}
