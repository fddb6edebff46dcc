//! All histories of three small contexts, run once by the short ways and once by the general ways alone. After each
//! event both states agree to the byte. So any property that is explored and argued for the general ways holds for
//! the short ones.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::vec;
use std::vec::Vec;

use zerocopy::IntoBytes;

use crate::{Account, Context, Decision, Id, Overtake, Refill, Scheduler, Time, Utilization};

const COUNT: usize = 3;

/// An event, which a decision follows.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A tick passes, and the timer has not been looked at yet.
    Pass,
    /// A tick passes; the timer, if it is due.
    Tick,
    /// The timer fires, due or not. If a thread waits for the end of budgets, and one ends, its context is woken and
    /// the context that ran waits for it.
    End(usize),
    Wake(usize),
    Block(usize),
    BlockUntil(usize, Time),
    Donate(u8),
}

/// A context with a list of two.
type Held = (Context, [Refill; 1]);

#[derive(Clone)]
struct Core {
    all: [Held; COUNT],
    core: Scheduler,
    now: Time,
    timer: Time,
}

/// By which ways, and how often the shortest ones were taken.
enum Ways<'a> {
    Short(&'a mut [usize; 3]),
    General,
}

impl Core {
    fn new(contexts: [Context; COUNT]) -> Self {
        let all = contexts.map(|context| (context, [Refill::default()]));
        Self { all, core: Scheduler::new(0), now: 0, timer: Time::MAX }
    }

    fn is_wanted(&self, n: usize) -> bool {
        self.all[n].0.is_wanted()
    }

    fn schedule(&mut self, ways: &Ways<'_>) {
        let (all, now) = (&mut self.all[..], self.now);
        let decision = match ways {
            Ways::Short(_) => self.core.schedule(all, now),
            Ways::General => self.core.schedule_generally(all, now),
        };
        self.timer = decision.timer;
    }

    fn wake(&mut self, n: usize, ways: &Ways<'_>) {
        let (all, id, now) = (&mut self.all[..], Id::of(n as u32), self.now);
        let decides = match ways {
            Ways::Short(_) => self.core.wake(all, id, now),
            Ways::General => self.core.wake_odd(all, id, now),
        };
        if decides {
            self.schedule(ways);
        }
    }

    fn block(&mut self, n: usize, until: Time, ways: &mut Ways<'_>) {
        let (all, id, now) = (&mut self.all[..], Id::of(n as u32), self.now);
        let decides = match ways {
            Ways::Short(_) => self.core.block_until(all, id, now, until),
            Ways::General => {
                self.core.block_odd(all, id, now);
                // The steps after that have one way only.
                _ = self.core.block_until(all, id, now, until);
                true
            }
        };
        match decides {
            true => self.schedule(ways),
            // The caller looks for due contexts only at the timer's time, which is at once.
            false if self.timer <= self.now => self.timer(None, ways),
            false => (),
        }
    }

    /// One that is to run goes on the processor, if that is seen at once.
    fn overtakes(&mut self, n: usize, how: Overtake, ways: &mut Ways<'_>) -> bool {
        let Ways::Short(taken) = ways else { return false };
        let (all, id) = (&mut self.all[..], Id::of(n as u32));
        let timer = self.core.overtake(all, id, self.now, how).or_else(|| {
            // Takes the alarm away and tries again, as in the kernel.
            let until =
                self.all[n].0.has_alarm().then(|| self.core.take_alarm(&mut self.all[..], id))?;
            let timer = self.core.overtake(&mut self.all[..], id, self.now, how);
            if timer.is_none() {
                self.core.set_alarm(&mut self.all[..], id, until);
            }
            timer
        });
        let Some(timer) = timer else { return false };
        taken[match how {
            Overtake::Wakes => 0,
            Overtake::Ends => 1,
            Overtake::Refilled => 2,
        }] += 1;
        self.timer = timer;
        true
    }

    /// The timer fires, and a thread may wait for the end of a budget.
    fn timer(&mut self, handler: Option<usize>, ways: &mut Ways<'_>) {
        self.timer = Time::MAX;
        if let Some(handler) = handler {
            if self.overtakes(handler, Overtake::Ends, ways) {
                return;
            }
        } else if let Some(due) = self.core.due(self.now)
            && self.overtakes(due.index(), Overtake::Refilled, ways)
        {
            return;
        }
        let (all, now) = (&mut self.all[..], self.now);
        if let Some((handler, before)) = handler.zip(self.core.running()) {
            // The next context is not put on the processor before the handler is.
            self.core.follow_all(all, now);
            let ended = self.all[before.index()].0;
            let waits = ended.is_wanted() && ended.account().eligible() > now;
            if waits && self.core.running() != Some(before) {
                self.core.block_odd(&mut self.all[..], before, now);
                self.core.wake_odd(&mut self.all[..], Id::of(handler as u32), now);
            }
        }
        self.schedule(ways);
    }

    fn does(&mut self, event: Event, mut ways: Ways<'_>) {
        match event {
            Event::Pass => self.now += 1,
            Event::Tick => {
                self.now += 1;
                if self.timer <= self.now {
                    self.timer(None, &mut ways);
                }
            }
            Event::End(handler) => self.timer(Some(handler), &mut ways),
            Event::Wake(n) if self.overtakes(n, Overtake::Wakes, &mut ways) => (),
            Event::Wake(n) => self.wake(n, &ways),
            Event::Block(n) => self.block(n, Time::MAX, &mut ways),
            Event::BlockUntil(n, ticks) => self.block(n, self.now + ticks, &mut ways),
            Event::Donate(priority) => {
                if !self.core.donate(&mut self.all[..], priority) {
                    self.schedule(&ways);
                }
            }
        }
    }

    /// Lists the events that can happen now.
    fn events(&self, ceiling: Option<u8>) -> Vec<Event> {
        let mut events = vec![Event::Tick];
        if self.now <= self.timer {
            events.push(Event::Pass);
        }
        for n in 0..COUNT {
            let plain = |n: usize| !self.is_wanted(n) && !self.all[n].0.has_alarm();
            match self.is_wanted(n) {
                true => events.extend([Event::Block(n), Event::BlockUntil(n, 2)]),
                false => events.push(Event::Wake(n)),
            }
            if plain(n) {
                events.push(Event::End(n));
            }
        }
        let running = self.core.running().map(|id| self.all[id.index()].0.priority());
        let ceiling = ceiling.filter(|ceiling| running.is_some_and(|own| own != *ceiling));
        events.extend(ceiling.map(Event::Donate));
        events
    }

    /// Decides, then clears hints and places in queues that only serve speed.
    fn settled(mut self) -> (Self, Decision) {
        let decision = self.core.schedule_generally(&mut self.all[..], self.now);
        self.core.release.forget_hints();
        self.all.iter_mut().for_each(|(context, _)| context.forget_place());
        (self, decision)
    }

    /// Tells if both states are equal. Entries behind the end of a list don't count.
    fn is(&self, other: &Self) -> bool {
        let same = |(one, other): (&Held, &Held)| {
            one.0.as_bytes() == other.0.as_bytes()
                && one.0.account.list(&one.1).eq(other.0.account.list(&other.1))
        };
        self.core.as_bytes() == other.core.as_bytes() && self.all.iter().zip(&other.all).all(same)
    }

    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let Scheduler { charged, running, effective, level, release, .. } = &self.core;
        (self.now, self.timer, charged, running, effective, level).hash(&mut hasher);
        // Waiting contexts and their times: the queues of ready contexts are in the contexts themselves.
        (0..COUNT).for_each(|place| release.at(place).as_bytes().hash(&mut hasher));
        for (context, refills) in &self.all {
            (context.as_bytes(), refills.as_bytes()).hash(&mut hasher);
        }
        hasher.finish()
    }
}

impl Scheduler {
    /// [`Scheduler::schedule`] without its short ways.
    fn schedule_generally(&mut self, all: &mut [Held], now: Time) -> Decision {
        let (before, now) = (self.running, now.max(self.charged));
        self.follow_all(all, now);
        match self.ready.first(self.ready.highest()) {
            first if first.is_some() && first == self.running() => self.stay_odd(all, now, before),
            _ => self.enter_odd(all, now, before),
        }
    }
}

/// All histories of so many events; how many, and which of the shortest ways were taken.
fn explore(contexts: [Context; COUNT], ceiling: Option<u8>, depth: usize) -> (usize, [usize; 3]) {
    let (mut known, mut taken) = (HashSet::new(), [0; 3]);
    let mut open = vec![(Core::new(contexts), depth)];
    let mut count = 0;
    while let Some((core, depth)) = open.pop() {
        for event in core.events(ceiling) {
            let (mut short, mut general) = (core.clone(), core.clone());
            short.does(event, Ways::Short(&mut taken));
            general.does(event, Ways::General);
            let ((one, first), (other, second)) = (short.clone().settled(), general.settled());
            assert!(
                one.is(&other) && (first.run, first.timer) == (second.run, second.timer),
                "{event:?} at {}: {:?} and {:?}, {first:?} and {second:?}",
                core.now,
                one.all,
                other.all,
            );
            count += 1;
            if depth > 1 && known.insert((depth, short.key())) {
                open.push((short, depth - 1));
            }
        }
    }
    (count, taken)
}

fn sporadic(budget: Time, period: Time, cost: Time, priority: u8) -> Context {
    let account = Account::sporadic(budget, period, 0).and_then(|account| account.with_cost(cost));
    Context::new(account.unwrap(), priority)
}

#[test]
fn the_short_ways_come_to_the_same_in_all_histories() {
    let full = |priority| Context::new(Account::full(2).unwrap(), priority);
    let strict = |priority| Context::new(Account::strict(2, 4, 0).unwrap(), priority);
    let half = Utilization::new(1, 2).unwrap();
    let pibs = |priority| Context::new(Account::pibs(half, 0, 4, 0).unwrap(), priority);
    let systems = [
        ([sporadic(2, 4, 0, 30), sporadic(1, 3, 0, 20), full(10)], None),
        ([sporadic(2, 4, 1, 30), sporadic(3, 5, 1, 20), full(10)], Some(30)),
        ([sporadic(2, 4, 0, 20), sporadic(2, 3, 0, 20), full(20)], None),
        ([full(30), sporadic(3, 4, 1, 20), sporadic(1, 2, 0, 10)], Some(25)),
        ([strict(30), sporadic(2, 4, 0, 20), sporadic(2, 5, 1, 10)], None),
        ([pibs(30), sporadic(2, 4, 0, 20), full(10).in_background()], None),
        ([sporadic(1, 4, 0, 30).in_background(), sporadic(2, 4, 0, 20), pibs(10)], Some(20)),
    ];
    let mut sum = [0; 3];
    for (contexts, ceiling) in systems {
        let (count, taken) = explore(contexts, ceiling, 9);
        std::println!("{count} events, short: {taken:?}");
        assert!(count > 10_000, "{count}");
        sum = [0, 1, 2].map(|n| sum[n] + taken[n]);
    }
    assert!(sum.iter().all(|count| *count > 1_000), "{sum:?}");
}
