//! The scheduler against a look at all contexts. After any calls in any order, the right context runs and the timer
//! is right, also where a call said that no decision is needed.

use bulkhead_sched::{
    Account, Context, Contexts, Decision, Id, Overtake, Policy, Refill, Requester, Scheduler, Time,
    Utilization,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::ops::{Deref, DerefMut};

/// All contexts, and those that were reported as refilled since the last decision.
struct All {
    list: Vec<(Context, [Refill; 2])>,
    refilled: Vec<usize>,
}

impl Contexts for All {
    fn context(&mut self, id: Id) -> &mut Context {
        self.list[..].context(id)
    }

    fn refills(&mut self, id: Id) -> (&mut Context, &mut [Refill]) {
        self.list[..].refills(id)
    }

    fn refilled(&mut self, id: Id) {
        self.refilled.push(id.index());
    }
}

impl Deref for All {
    type Target = [(Context, [Refill; 2])];

    fn deref(&self) -> &Self::Target {
        &self.list
    }
}

impl DerefMut for All {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.list
    }
}

#[derive(Clone, Debug)]
enum Call {
    Wake(usize),
    /// At once, if that is seen.
    Overtake(usize),
    /// The timer's time comes. At once, if that is seen, a context that waits for a refill goes on the processor. With
    /// the flag, so does a handler because of the end of a budget.
    Short(bool),
    Block(usize),
    /// Until that many ticks later.
    BlockUntil(usize, Time),
    Priority(usize, u8),
    /// After so many ticks, in which nothing is decided.
    Donate(u8, Time),
    Request(usize, u8, Time),
    TakeUp(usize, u8, Time),
    Budget(usize, Time, Time),
    YieldNow,
    YieldTo(usize),
    /// Only time passes, at most up to the timer.
    Pass(Time),
    /// Time passes, up to the timer.
    Timer,
    /// And so long beyond it.
    Late(Time),
}

/// Few priorities, so that they are shared; at both ends of the words of a bitmap.
fn priority() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![0, 1, 63, 64, 65, 127, 128, 200, 255])
}

fn call() -> impl Strategy<Value = Call> {
    let id = 0usize..64;
    prop_oneof![
        6 => id.clone().prop_map(Call::Wake),
        3 => id.clone().prop_map(Call::Overtake),
        6 => any::<bool>().prop_map(Call::Short),
        2 => id.clone().prop_map(Call::Block),
        2 => (id.clone(), 0u64..60).prop_map(|(id, ticks)| Call::BlockUntil(id, ticks)),
        1 => (id.clone(), priority()).prop_map(|(id, to)| Call::Priority(id, to)),
        2 => (priority(), 0u64..9).prop_map(|(to, ticks)| Call::Donate(to, ticks)),
        1 => (id.clone(), priority(), 1u64..50).prop_map(|(id, to, t)| Call::Request(id, to, t)),
        1 => (id.clone(), priority(), 1u64..50).prop_map(|(id, to, t)| Call::TakeUp(id, to, t)),
        1 => (id.clone(), 0u64..20, 1u64..40).prop_map(|(id, c, t)| Call::Budget(id, c, t)),
        1 => Just(Call::YieldNow),
        1 => id.prop_map(Call::YieldTo),
        3 => (0u64..9).prop_map(Call::Pass),
        5 => Just(Call::Timer),
        1 => (0u64..40).prop_map(Call::Late),
    ]
}

fn context() -> impl Strategy<Value = Context> {
    let account = (0u8..6, 1u64..12, 0u64..40, 0u64..3).prop_map(|(kind, budget, more, cost)| {
        let (period, cost) = (budget + more, cost.min(budget - 1));
        let utilization = Utilization::new(budget as u32, 13).unwrap();
        let account = match kind {
            0 => Account::full(period),
            1 => Account::pibs(utilization, 0, 13 + more, 0),
            2 => Account::strict(budget, period, 0).and_then(|server| server.with_cost(cost)),
            _ => Account::sporadic(budget, period, 0).and_then(|server| server.with_cost(cost)),
        };
        account.unwrap()
    });
    (account, priority()).prop_map(|(account, priority)| Context::new(account, priority))
}

/// The caller's knowledge of a context.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    in_background: bool,
    /// Time until which it sleeps.
    alarm: Option<Time>,
    /// It has overslept, and was not told.
    late: bool,
    /// True if it waited for a refill at the last decision, and only time has passed since.
    waits: Option<bool>,
}

/// A core, and the result of a look at all its contexts.
struct Core {
    all: All,
    known: Vec<Known>,
    core: Scheduler,
    now: Time,
    /// The last decision, when it was made, and whether nothing was said since.
    last: Decision,
    at: Time,
    fresh: bool,
    /// How often somebody went on the processor at once, in each of the ways.
    taken: [usize; 3],
}

impl Core {
    fn new(contexts: Vec<(Context, bool)>) -> Self {
        let known = |in_background| Known { in_background, ..Known::default() };
        let known = contexts.iter().map(|(_, background)| known(*background)).collect();
        let context = |(context, background): (Context, bool)| {
            let context = if background { context.in_background() } else { context };
            (context, [Refill::default(); 2])
        };
        let mut all = All { list: contexts.into_iter().map(context).collect(), refilled: vec![] };
        let mut core = Scheduler::new(0);
        all.iter().for_each(|_| core.reserve().unwrap());
        let last = core.schedule(&mut all, 0);
        Self { all, known, core, now: 0, last, at: 0, fresh: true, taken: [0; 3] }
    }

    /// Returns a context's level: with budget at its priority, in the background, or none.
    fn level(&self, n: usize) -> Option<u16> {
        let (context, known) = (&self.all[n].0, &self.known[n]);
        let priority = u16::from(context.priority());
        let wanted = context.is_wanted() || known.alarm.is_some_and(|time| time <= self.now);
        match context.account().eligible() <= self.now {
            true => Some(256 + priority),
            false => known.in_background.then_some(priority),
        }
        .filter(|_| wanted)
    }

    /// When a context has to be looked at again.
    fn waits_until(&self, n: usize) -> Option<Time> {
        let context = &self.all[n].0;
        let refill = context.is_wanted().then_some(context.account().eligible());
        refill.or(self.known[n].alarm).filter(|until| *until > self.now)
    }

    /// Checks the last decision against the state now.
    fn check(&self) -> Result<(), TestCaseError> {
        let running = self.last.run.map(Id::index);
        let own = running.and_then(|n| self.level(n));
        let count = self.all.len();
        prop_assert_eq!(own, (0..count).filter_map(|n| self.level(n)).max());
        prop_assert_eq!(self.core.is_in_background(), own.is_some_and(|level| level < 256));
        prop_assert_eq!(self.core.running(), self.last.run);
        for (context, refills) in self.all.iter().filter(|(c, _)| c.account().is_server()) {
            let list: Vec<Refill> = context.account().list(refills).collect();
            let sum: Time = list.iter().map(|refill| refill.amount).sum();
            prop_assert_eq!(sum, context.account().budget());
            prop_assert!(list.is_sorted_by_key(|refill| refill.time));
        }
        let above = |n: usize| Some(256 + u16::from(self.all[n].0.priority())) > own;
        let matters = (0..count).filter(|n| above(*n)).filter_map(|n| self.waits_until(n)).min();
        let timer = self.last.timer;
        prop_assert!(timer > self.now || own.is_some());
        prop_assert!(timer <= matters.unwrap_or(Time::MAX), "{} after {:?}", timer, matters);
        let account = |n: usize| self.all[n].0.account();
        let full = |n: usize| account(n).policy() == Policy::Full;
        let Some(n) = running.filter(|n| !full(*n) && own >= Some(256)) else { return Ok(()) };
        let end = self.at + account(n).left();
        prop_assert!(timer <= end, "{} after the budget's end", timer);
        // Due ones that do not matter may still be queued behind.
        let waits = |n: &usize| self.all[*n].0.is_wanted() || self.known[*n].alarm.is_some();
        if self.fresh && (0..count).filter(waits).count() <= 15 {
            prop_assert_eq!(timer, matters.map_or(end, |time| time.min(end)));
        }
        Ok(())
    }

    /// Makes a call; true if a decision is needed then.
    fn call(&mut self, call: Call) -> Result<bool, TestCaseError> {
        let (count, now, all, core) = (self.all.len(), self.now, &mut self.all, &mut self.core);
        let id = |n: usize| Id::of((n % count) as u32);
        self.fresh = false;
        match call {
            Call::Wake(n) => {
                let known = &mut self.known[n % count];
                *known = Known { alarm: None, late: false, waits: None, ..*known };
                return Ok(core.wake(all, id(n), now));
            }
            Call::Overtake(n) => {
                self.known[n % count].waits = None;
                if self.overtakes(n % count, Overtake::Wakes)? {
                    return Ok(false);
                }
                return self.call(Call::Wake(n));
            }
            Call::Short(handles) => return self.timer(handles),
            Call::Block(n) => {
                let known = &mut self.known[n % count];
                *known = Known { alarm: None, late: false, waits: None, ..*known };
                core.block(all, id(n), now);
            }
            Call::BlockUntil(n, ticks) => {
                let alarm = Some(now + ticks);
                let known = &mut self.known[n % count];
                *known = Known { alarm, late: false, waits: None, ..*known };
                return Ok(core.block_until(all, id(n), now, now + ticks));
            }
            Call::Priority(n, priority) => {
                self.known[n % count].waits = None;
                return Ok(core.set_priority(all, id(n), priority, now));
            }
            Call::Donate(priority, ticks) => {
                self.now = now.max((now + ticks).min(self.last.timer.saturating_sub(1)));
                return Ok(!core.donate(all, priority));
            }
            Call::Request(n, priority, period) => {
                self.known[n % count].waits = None;
                // Refused where the period is too short: then nothing may have changed.
                let _ = core.request(all, id(n), Requester { priority, period }, now);
            }
            Call::TakeUp(n, priority, period) => {
                self.known[n % count].waits = None;
                let (of, before) = (Requester { priority, period }, all[n % count].0);
                let taken = core.take_up(all, id(n), of, now);
                let pibs = before.policy() == Policy::Pibs;
                let served = if pibs && taken.is_ok() { of } else { before.requester() };
                prop_assert_eq!(all[n % count].0.requester(), served);
            }
            Call::Budget(n, budget, period) => {
                self.known[n % count].waits = None;
                let account = *all[n % count].0.account();
                let set = core.set_budget(all, id(n), (budget, period), now);
                let expected = match set.is_ok() && account.is_server() {
                    true => budget,
                    false => account.budget(),
                };
                prop_assert_eq!(all[n % count].0.account().budget(), expected);
                return Ok(set.unwrap_or(false));
            }
            Call::YieldNow => core.yield_now(all, now),
            Call::YieldTo(n) => core.yield_to(all, id(n)),
            Call::Pass(ticks) => self.now = self.last.timer.min(now + ticks),
            Call::Timer if self.last.timer < Time::MAX => self.now = self.last.timer,
            Call::Late(ticks) if self.last.timer < Time::MAX => self.now = self.last.timer + ticks,
            Call::Timer | Call::Late(_) => (),
        }
        Ok(true)
    }

    /// As a kernel puts somebody on the processor at once.
    fn overtakes(&mut self, n: usize, how: Overtake) -> Result<bool, TestCaseError> {
        let (before, id) = (self.core.running(), Id::of(n as u32));
        let Some(timer) = self.core.overtake(&mut self.all, id, self.now, how) else {
            prop_assert_eq!(self.core.running(), before);
            return Ok(false);
        };
        self.last = Decision { run: Some(id), timer, switched: true, alarm: false };
        (self.at, self.fresh) = (self.now, true);
        prop_assert!(before != Some(id) && self.all[n].0.is_wanted());
        match (how, before) {
            (Overtake::Ends, Some(before)) => {
                prop_assert!(!self.all[before.index()].0.is_wanted(), "it waits for the handler");
            }
            (Overtake::Ends, None) => prop_assert!(false, "nobody's budget ended"),
            _ => (),
        }
        let ways = [Overtake::Wakes, Overtake::Ends, Overtake::Refilled];
        self.taken.iter_mut().zip(ways).filter(|(_, way)| *way == how).for_each(|(n, _)| *n += 1);
        self.told(before)?;
        Ok(true)
    }

    /// The timer's time comes; with `handles`, the highest context with an otherwise idle thread handles ends of
    /// budgets.
    fn timer(&mut self, handles: bool) -> Result<bool, TestCaseError> {
        if self.last.timer == Time::MAX {
            return Ok(false);
        }
        self.now = self.last.timer;
        let waits = |n: &usize| !self.all[*n].0.is_wanted() && self.known[*n].alarm.is_none();
        let waits = (0..self.all.len()).filter(waits);
        let handler = waits.max_by_key(|n| self.all[*n].0.priority()).filter(|_| handles);
        let overtakes = match (handler, self.core.due(self.now)) {
            (Some(n), _) => self.overtakes(n, Overtake::Ends)?,
            (None, Some(due)) => self.overtakes(due.index(), Overtake::Refilled)?,
            _ => false,
        };
        Ok(!overtakes)
    }

    /// Checks the reports of refills: all contexts that waited for one, and one that used a refill up and had the
    /// next.
    fn told(&mut self, before: Option<Id>) -> Result<(), TestCaseError> {
        let mut told = std::mem::take(&mut self.all.refilled);
        told.sort_unstable();
        prop_assert!(told.iter().all(|n| self.all[*n].0.is_wanted()), "{:?}", told);
        for (n, known) in self.known.iter_mut().enumerate() {
            let context = &self.all.list[n].0;
            let has = context.is_wanted() && context.account().eligible() <= self.now;
            let count = told.iter().filter(|told| **told == n).count();
            let due = known.waits == Some(true) && has;
            prop_assert!(!due || count == 1, "{} has a refill, and was told {} times", n, count);
            let own = before == Some(Id::of(n as u32)) && count == 1;
            let nothing = known.waits == Some(false) && !own;
            prop_assert!(count == 0 || !nothing, "{} told for nothing", n);
            known.waits = Some(context.is_wanted() && !has);
        }
        Ok(())
    }

    fn decide(&mut self) -> Result<(), TestCaseError> {
        let before = self.core.running();
        self.last = self.core.schedule(&mut self.all, self.now);
        self.told(before)?;
        (self.at, self.fresh) = (self.now, true);
        prop_assert_eq!(self.last.switched, self.last.run != before);
        prop_assert!(self.last.timer > self.now, "nothing is left: {:?}", self.last);
        for ((context, _), known) in self.all.list.iter().zip(&mut self.known) {
            let due = known.alarm.is_some_and(|time| time <= self.now);
            prop_assert_eq!(context.has_alarm(), known.alarm.is_some() && !due);
            if due {
                prop_assert!(context.is_wanted(), "overslept: {:?}", context);
                *known = Known { alarm: None, late: true, ..*known };
            }
        }
        let late = self.last.run.map(|id| std::mem::take(&mut self.known[id.index()].late));
        prop_assert_eq!(self.last.alarm, late == Some(true));
        Ok(())
    }

    /// Takes turns as it was told to.
    fn check_turn(&self, call: &Call, before: Option<Id>) -> Result<(), TestCaseError> {
        let own = self.last.run.and_then(|id| self.level(id.index()));
        let others = |n: &usize| Some(Id::of(*n as u32)) != before && self.level(*n) == own;
        match call {
            Call::YieldNow if before.is_some() && before == self.last.run => {
                prop_assert_eq!((0..self.all.len()).find(others), None, "not the last");
            }
            Call::YieldTo(n) => {
                let to = n % self.all.len();
                let first = own.is_none() || self.level(to) != own;
                prop_assert!(first || self.last.run == Some(Id::of(to as u32)), "not the first");
            }
            _ => (),
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn the_right_one_runs_until_the_right_time((contexts, calls) in history()) {
        run(contexts, calls)?;
    }
}

fn history() -> impl Strategy<Value = (Vec<(Context, bool)>, Vec<Call>)> {
    // Few, so that somebody is above all others; or many.
    let count = prop_oneof![1usize..6, 1usize..64];
    let contexts = |count| prop::collection::vec((context(), any::<bool>()), count);
    (count.prop_flat_map(contexts), prop::collection::vec(call(), 1..200))
}

/// Looks at everything after each call.
fn run(contexts: Vec<(Context, bool)>, calls: Vec<Call>) -> Result<Core, TestCaseError> {
    let mut core = Core::new(contexts);
    for call in calls {
        let (before, settled) = (core.core.running(), core.at == core.now);
        if core.call(call.clone())? {
            core.decide()?;
            if settled {
                core.check_turn(&call, before)?;
            }
        }
        core.check()?;
    }
    Ok(core)
}

/// Contexts that go on the processor at once do so in all of the ways.
#[test]
fn the_shortest_ways_are_taken() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut taken = [0; 3];
    for _ in 0..200 {
        let (contexts, calls) = history().new_tree(&mut runner).unwrap().current();
        let core = run(contexts, calls).unwrap();
        taken = [0, 1, 2].map(|n| taken[n] + core.taken[n]);
    }
    assert!(taken.iter().all(|count| *count > 15), "{taken:?}");
}

fn full(priority: u8) -> (Context, [Refill; 0]) {
    (Context::new(Account::full(100).unwrap(), priority), [])
}

/// The usual way of a call and its reply, and the cases that need a decision.
#[test]
fn donation_decides_nothing_unless_it_must() {
    let mut all = [full(10), full(15)];
    let (client, other) = (Id::of(0), Id::of(1));
    let mut core = Scheduler::new(0);
    assert!(!core.donate(&mut all[..], 9), "nobody runs");
    assert!(core.wake(&mut all[..], client, 0));
    assert_eq!(core.schedule(&mut all[..], 0).run, Some(client));
    // Up to a server and back.
    assert!(core.donate(&mut all[..], 20) && core.donate(&mut all[..], 10));
    // Somebody in between does not disturb the server, but the client.
    assert!(core.donate(&mut all[..], 20));
    assert!(!core.wake(&mut all[..], other, 1));
    assert_eq!(all[0].0.priority(), 20);
    assert!(!core.donate(&mut all[..], 10));
    let decision = core.schedule(&mut all[..], 1);
    assert_eq!((decision.run, decision.switched), (Some(other), true));
    core.block(&mut all[..], other, 2);
    assert_eq!(core.schedule(&mut all[..], 2).run, Some(client));
    // A decision at the server's priority: the timer is not right for the client.
    assert!(core.donate(&mut all[..], 20));
    core.block_until(&mut all[..], other, 3, 50);
    assert_eq!(core.schedule(&mut all[..], 3).timer, 101);
    assert!(!core.donate(&mut all[..], 10));
    assert_eq!(core.schedule(&mut all[..], 4).timer, 50);
}

#[test]
fn an_alarm_disturbs_only_who_is_below() {
    let mut all = [full(10), full(9), full(11)];
    let [who, low, high] = [0, 1, 2].map(Id::of);
    let mut core = Scheduler::new(0);
    core.wake(&mut all[..], who, 0);
    core.block_until(&mut all[..], low, 0, 20);
    core.block_until(&mut all[..], high, 0, 30);
    assert_eq!(core.schedule(&mut all[..], 0).timer, 30);
    let decision = core.schedule(&mut all[..], 30);
    assert_eq!((decision.run, decision.alarm), (Some(high), true));
    assert!(all[1].0.is_wanted() && !all[1].0.has_alarm());
    // Woken by another, after its alarm was due: that is no alarm any more.
    assert!(!core.wake(&mut all[..], low, 31));
    core.block(&mut all[..], who, 31);
    core.block_until(&mut all[..], high, 31, Time::MAX);
    let decision = core.schedule(&mut all[..], 31);
    assert_eq!((decision.run, decision.alarm), (Some(low), false));
    // Woken before its alarm.
    core.block_until(&mut all[..], low, 32, 40);
    assert_eq!(core.schedule(&mut all[..], 32).timer, 40);
    assert!(core.wake(&mut all[..], low, 33));
    let decision = core.schedule(&mut all[..], 33);
    assert_eq!(
        (decision.run, decision.alarm, decision.timer),
        (Some(low), false, 40 - 33 + 1 + 124)
    );
    // Past at once.
    core.block_until(&mut all[..], low, 34, 20);
    let decision = core.schedule(&mut all[..], 34);
    assert_eq!((decision.run, decision.alarm, decision.switched), (Some(low), true, true));
}

/// A context that oversleeps because others ran has wanted to run since its alarm.
#[test]
fn a_late_alarm_delays_no_refill() {
    let server = Context::new(Account::sporadic(4, 100, 0).unwrap(), 1);
    let mut all = [(server, [Refill::default(); 1]), (full(2).0, [Refill::default(); 1])];
    let (sleeper, other) = (Id::of(0), Id::of(1));
    let mut core = Scheduler::new(0);
    core.wake(&mut all[..], other, 0);
    core.block_until(&mut all[..], sleeper, 0, 10);
    let _ = core.schedule(&mut all[..], 0);
    core.block(&mut all[..], other, 50);
    assert_eq!(core.schedule(&mut all[..], 50).run, Some(sleeper));
    core.block(&mut all[..], sleeper, 54);
    let (context, refills) = &all[0];
    let list: Vec<Refill> = context.account().list(refills).collect();
    assert_eq!(list, [Refill { amount: 4, time: 110 }]);
}

#[test]
fn there_is_room_for_so_many() {
    let mut core = Scheduler::new(0);
    let reserved = std::iter::from_fn(|| core.reserve().ok()).count();
    assert_eq!(reserved, bulkhead_sched::PLACES);
    core.unreserve();
    assert_eq!(core.reserve(), Ok(()));
    assert!(core.reserve().is_err());
}
