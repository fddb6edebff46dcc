//! The theorems of the crate's documentation in whole systems: threads of all policies compute, sleep, wait for and
//! signal each other in random programs.

use std::collections::BTreeMap;

use bulkhead_sched::admission::{Demand, Load, interference};
use bulkhead_sched::simulate::{Simulation, Slice, Step, Thread};
use bulkhead_sched::{Account, Context, Id, Refill, Time, Utilization};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

const END: Time = 1_500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sporadic,
    Strict,
    Full,
}

/// A context with budget and period, and its thread.
#[derive(Clone, Debug)]
struct Main {
    kind: Kind,
    budget: Time,
    period: Time,
    cost: Time,
    refills: usize,
    background: bool,
    start: Time,
    program: Vec<Step>,
}

/// A thread's step; it signals the others and the devices, by number.
fn step(ids: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u64..12).prop_map(Step::Run),
        2 => (1u64..60).prop_map(Step::Every),
        1 => Just(Step::Wait),
        2 => (0..ids).prop_map(|id| Step::Signal(Id::of(id))),
    ]
}

fn main_vcpu(ids: u32) -> impl Strategy<Value = Main> {
    let kind =
        prop_oneof![4 => Just(Kind::Sporadic), 3 => Just(Kind::Strict), 1 => Just(Kind::Full)];
    let size = (1u64..60).prop_flat_map(|period| (1..=period.min(20), Just(period)));
    let program = prop::collection::vec(step(ids), 1..8);
    let rest = (0u64..3, 1usize..6, any::<bool>(), 0u64..40);
    (kind, size, rest, program).prop_map(|(kind, (budget, period), rest, program)| {
        let (cost, refills, background, start) = rest;
        let (cost, program) = (cost.min(budget - 1), [&[Step::Run(1)], &program[..]].concat());
        Main { kind, budget, period, cost, refills, background, start, program }
    })
}

#[derive(Clone, Debug)]
struct Device {
    utilization: Utilization,
    work: Time,
    signals: Id,
}

fn device(ids: u32) -> impl Strategy<Value = Device> {
    (2u32..12).prop_flat_map(move |denominator| {
        (1..denominator, Just(denominator), 1u64..6, 0..ids).prop_map(|(n, d, work, id)| {
            let utilization = Utilization::new(n, d).unwrap();
            Device { utilization, work, signals: Id::of(id) }
        })
    })
}

/// Contexts by falling priority, then devices.
#[derive(Clone, Debug)]
struct System {
    mains: Vec<Main>,
    devices: Vec<Device>,
    /// Sleepers are woken by the scheduler's alarms.
    alarms: bool,
}

fn system() -> impl Strategy<Value = System> {
    (1u32..6, 0u32..3).prop_flat_map(|(mains, devices)| {
        let ids = mains + devices;
        let mains = prop::collection::vec(main_vcpu(ids), mains as usize);
        let devices = prop::collection::vec(device(ids), devices as usize);
        let system = (mains, devices, any::<bool>());
        system.prop_map(|(mains, devices, alarms)| System { mains, devices, alarms })
    })
}

/// The first has the highest; a device has no priority of its own, and is never below its requesters.
fn priority(n: usize) -> u8 {
    100 - n as u8
}

impl Main {
    fn thread(&self, n: usize) -> Thread {
        let server = |server: Result<Account, _>| server.and_then(|s| s.with_cost(self.cost));
        let account = match self.kind {
            Kind::Full => Account::full(self.budget),
            Kind::Sporadic => server(Account::sporadic(self.budget, self.period, 0)),
            Kind::Strict => server(Account::strict(self.budget, self.period, 0)),
        };
        let context = Context::new(account.unwrap(), priority(n));
        let context = if self.background { context.in_background() } else { context };
        // Up to so many, with the one in the account.
        let context = (context, vec![Refill::default(); self.refills - 1]);
        Thread { context, start: self.start, program: self.program.clone(), repeat: Some(0) }
    }
}

impl System {
    fn threads(&self) -> impl Iterator<Item = Thread> {
        let mains = self.mains.iter().enumerate().map(|(n, main)| main.thread(n));
        let devices = self.devices.iter().map(|device| {
            // Its own period: 15 leaves any of the shares a tick.
            let pibs = Account::pibs(device.utilization, 0, 15, 0).unwrap();
            let program = vec![Step::Wait, Step::Run(device.work), Step::Signal(device.signals)];
            let context = (Context::new(pibs, 0), vec![]);
            Thread { context, start: 0, program, repeat: Some(0) }
        });
        mains.chain(devices)
    }

    fn simulation(&self) -> Simulation {
        self.with_alarms_or_not(Simulation::new(self.threads()))
    }

    fn with_alarms_or_not(&self, simulation: Simulation) -> Simulation {
        if self.alarms { simulation.with_alarms() } else { simulation }
    }

    /// With a thread below all that always has something to do.
    fn with_observer(&self, work: Time) -> Simulation {
        let context = (Context::new(Account::full(1_000).unwrap(), 0), vec![]);
        let program = vec![Step::Run(work), Step::Every(1)];
        let observer = Thread { context, start: 0, program, repeat: Some(0) };
        self.with_alarms_or_not(Simulation::new(self.threads().chain([observer])))
    }
}

/// Which ticks were used at a priority or above, with budget.
fn busy(slices: &[Slice], priority: u8) -> Vec<bool> {
    let above = |s: &Slice| s.context.is_some() && !s.background && s.priority >= priority;
    ticks(slices, above)
}

fn ticks(slices: &[Slice], holds: impl Fn(&Slice) -> bool) -> Vec<bool> {
    let long = slices.iter().map(|s| (holds(s), s.end - s.begin));
    long.flat_map(|(holds, length)| (0..length).map(move |_| holds)).collect()
}

/// The first interval that begins when its level is idle and has more used than `most` of its
/// length.
fn first_excess(busy: &[bool], used: &[bool], most: impl Fn(Time) -> Time) -> Option<String> {
    let begins = (0..busy.len()).filter(|begin| *begin == 0 || !busy[begin - 1]);
    for begin in begins.filter(|begin| busy[*begin]) {
        let mut sum = 0;
        for (length, used) in (1..).zip(&used[begin..]) {
            sum += Time::from(*used);
            if sum > most(length) {
                return Some(format!("{sum} in {length} from {begin}, at most {}", most(length)));
            }
        }
    }
    None
}

/// The most used in a window of this length.
fn most_within(used: &[bool], length: Time) -> Time {
    let length = (length as usize).min(used.len());
    used.windows(length).map(|w| w.iter().filter(|used| **used).count() as Time).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// A sporadic server disturbs no more than a periodic task.
    #[test]
    fn a_sporadic_server_is_no_worse_than_a_periodic_task(system in system()) {
        let mut simulation = system.simulation();
        simulation.run(END);
        for (n, main) in system.mains.iter().enumerate() {
            if main.kind != Kind::Sporadic {
                continue;
            }
            let own = |s: &Slice| s.context == Some(Id::of(n as u32)) && !s.background;
            let busy = busy(simulation.slices(), priority(n));
            let used = ticks(simulation.slices(), own);
            // A decision takes no time here, so a charge comes before its time has passed.
            let most = |d: Time| main.budget * (d + main.cost).div_ceil(main.period);
            prop_assert_eq!(first_excess(&busy, &used, most), None, "context {}", n);
        }
    }

    /// A strict server has at most C in every window.
    #[test]
    fn a_strict_server_keeps_to_every_window(system in system()) {
        let mut simulation = system.simulation();
        simulation.run(END);
        for (n, main) in system.mains.iter().enumerate().filter(|(_, m)| m.kind == Kind::Strict) {
            let own = |s: &Slice| s.context == Some(Id::of(n as u32)) && !s.background;
            let most = most_within(&ticks(simulation.slices(), own), main.period);
            prop_assert!(most <= main.budget, "context {}: {} in {}", n, most, main.period);
        }
    }

    /// A device takes no more than the analysis says from those that its requesters are not below.
    #[test]
    fn a_device_keeps_to_its_bound(system in system()) {
        let mut simulation = system.simulation();
        simulation.run(END);
        let first = system.mains.len();
        for (n, device) in system.devices.iter().enumerate() {
            for level in (0..first).map(priority) {
                let id = Some(Id::of((first + n) as u32));
                let own = |s: &Slice| s.context == id && s.priority >= level;
                let busy = busy(simulation.slices(), level);
                let used = ticks(simulation.slices(), own);
                let requesters = system.mains.iter().enumerate();
                let requesters = requesters.filter(|(n, _)| priority(*n) >= level);
                // 15: its own, while it has no other; a full context's period is its slice.
                let longest = requesters.map(|(_, main)| main.period.max(main.budget)).max();
                let longest = longest.unwrap().max(15);
                let most = |d: Time| interference(device.utilization, longest, d);
                let excess = first_excess(&busy, &used, most);
                prop_assert_eq!(excess, None, "device {} at {}", n, level);
            }
        }
    }

    /// Nothing of a budget is lost or made, and its parts come in order.
    #[test]
    fn the_sum_of_refills_is_the_budget(system in system()) {
        let mut simulation = system.simulation();
        while simulation.now() < END {
            simulation.step(END);
            let servers = simulation.contexts().iter().filter(|(c, _)| c.account().is_server());
            for (context, refills) in servers {
                let list: Vec<Refill> = context.account().list(refills).collect();
                let sum: Time = list.iter().map(|refill| refill.amount).sum();
                prop_assert_eq!(sum, context.account().budget());
                prop_assert!(list.len() <= refills.len() + 1);
                prop_assert!(list.is_sorted_by_key(|refill| refill.time), "{:?}", list);
                prop_assert!(list.iter().all(|refill| refill.amount > 0), "{:?}", list);
            }
        }
    }

    /// The running context has the highest priority of those with budget, and the core is not idle if there is one.
    #[test]
    fn the_highest_with_budget_runs(system in system()) {
        let mut simulation = system.simulation();
        while simulation.now() < END {
            let now = simulation.now();
            simulation.step(now + 1);
            // The state at the end of the tick; a budget may have ended with it.
            let Some(slice) = simulation.slices().last().filter(|_| simulation.now() > now) else {
                continue;
            };
            let ready = simulation.contexts().iter().enumerate();
            let ready = ready.map(|(n, (context, _))| (n, context));
            let ready = ready.filter(|(_, c)| c.is_wanted() && c.account().eligible() <= now);
            for (n, context) in ready {
                let runs = slice.context == Some(Id::of(n as u32));
                let above = !slice.background && slice.priority >= context.priority();
                let other = slice.context.is_some() && above;
                prop_assert!(runs || other, "{} at {}: {:?}", n, now, slice);
            }
        }
    }

    /// The response of a thread below servers and devices of any behaviour is at most the analysis' for periodic
    /// tasks in their places.
    #[test]
    fn interference_is_at_most_a_periodic_tasks(system in system(), work in 1u64..30) {
        let mut system = system;
        // These have no bound.
        let kept: Vec<Main> = system.mains.iter().filter(|m| m.kind != Kind::Full).cloned().collect();
        system.mains = kept;
        let ids = (system.mains.len() + system.devices.len()) as u32;
        for main in &mut system.mains {
            // In the background it is as far below; and a decision takes no time here.
            (main.background, main.cost) = (false, 0);
            // Light enough that there is a bound, most times.
            main.budget = main.budget.div_ceil(4);
            for step in &mut main.program {
                if let Step::Signal(id) = step {
                    *id = Id::of(id.index() as u32 % ids);
                }
            }
        }
        for device in &mut system.devices {
            device.signals = Id::of(device.signals.index() as u32 % ids);
            device.utilization = Utilization::new(1, device.utilization.denominator() + 3).unwrap();
        }
        let demand = |priority, budget, period| Demand {
            budget, period, priority, activations: 0, guaranteed: true,
        };
        let mains = system.mains.iter().enumerate();
        let mut contexts: Vec<Demand> =
            mains.map(|(n, main)| demand(priority(n), main.budget, main.period)).collect();
        // Without devices its period only is the end of the analysis; with them, it may be the
        // longest of a requester.
        let period = if system.devices.is_empty() { 100_000 } else { 200 };
        contexts.push(demand(0, work, period));
        let devices: Vec<Utilization> = system.devices.iter().map(|d| d.utilization).collect();
        let load = Load { contexts: &contexts, devices: &devices, overhead: 0 };
        // Another one where there is no bound: 300 that have one are tried.
        let response = load.response(contexts.len() - 1);
        prop_assume!(response.is_ok());
        let bound = response.unwrap_or_default();
        let mut simulation = system.with_observer(work);
        simulation.run(END);
        let mut last = 0;
        for job in simulation.jobs().iter().filter(|job| job.context == Id::of(ids)) {
            // It begins when the one before is done, or is released.
            let released = job.released.max(last);
            prop_assert!(job.done - released <= bound, "{:?} > {}", job, bound);
            last = job.done;
        }
        prop_assert!(last > 0, "it never ran");
    }

    /// A context that sleeps by an alarm runs as if it were always woken in time, and gets as much, with fewer
    /// interrupts. This fails where priorities are equal, as a device's and its requester's are. An alarm that disturbs
    /// no context then comes behind contexts that were woken meanwhile.
    #[test]
    fn alarms_come_in_time(system in system()) {
        let mut system = System { devices: vec![], ..system };
        let ids = system.mains.len() as u32;
        for step in system.mains.iter_mut().flat_map(|main| &mut main.program) {
            if let Step::Signal(id) = step {
                *id = Id::of(id.index() as u32 % ids);
            }
        }
        let [mut by_alarm, mut in_time] =
            [true, false].map(|alarms| System { alarms, ..system.clone() }.simulation());
        by_alarm.run(END);
        in_time.run(END);
        prop_assert_eq!(by_alarm.slices(), in_time.slices());
        prop_assert_eq!(by_alarm.jobs(), in_time.jobs());
    }

    /// However late a thread is stopped: no budget is made or lost, and it pays later.
    #[test]
    fn who_is_stopped_late_pays_later(
        budget in 1u64..20, more in 0u64..40, refills in 1usize..5, strict: bool,
        uses in prop::collection::vec((1u64..90, 0u64..30, any::<bool>()), 1..60),
    ) {
        let (period, mut items) = (budget + more, vec![Refill::default(); refills - 1]);
        let server = match strict {
            true => Account::strict(budget, period, 0),
            false => Account::sporadic(budget, period, 0),
        };
        let (mut server, mut now, mut total) = (server.unwrap(), 0, 0);
        server.wake(&mut items, 0);
        for (ticks, pause, blocks) in uses {
            now = now.max(server.eligible());
            server.dispatch(&mut items, now);
            server.charge(ticks);
            (now, total) = (now + ticks, total + ticks);
            match blocks {
                true => server.block(&mut items, now),
                false => server.preempt(&mut items, now),
            }
            now += pause;
            if blocks {
                server.wake(&mut items, now);
            }
            let list: Vec<Refill> = server.list(&items).collect();
            prop_assert_eq!(list.iter().map(|refill| refill.amount).sum::<Time>(), budget);
            prop_assert!(list.is_sorted_by_key(|refill| refill.time), "{:?}", list);
            // One of the budget's ticks was used as often as the average, or more. It comes again that many periods
            // later, less the time used ahead.
            let open = server.head().amount - server.left();
            let often = (total - open).div_ceil(budget);
            let last = list.last().map(|refill| refill.time + refill.amount).unwrap();
            prop_assert!(last + budget > often * period, "{} used, last {}", total - open, last);
        }
    }
}

/// The programs do enough: all kinds of things happen in many of the systems.
#[test]
fn the_systems_are_lively() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..200 {
        let system = system().new_tree(&mut runner).unwrap().current();
        let mut simulation = system.simulation();
        simulation.run(END);
        let mains = system.mains.len();
        let slices = simulation.slices();
        let ran = |s: &Slice| s.context.map(Id::index);
        let mut count = |what, holds: bool| *seen.entry(what).or_default() += u32::from(holds);
        count("a device at work", slices.iter().any(|s| ran(s).is_some_and(|n| n >= mains)));
        count("background", slices.iter().any(|s| s.background));
        count("idle", slices.iter().any(|s| s.context.is_none()));
        count("busy to the end", slices.len() > 100);
        let lists = simulation.contexts().iter().map(|(c, refills)| c.account().list(refills));
        count("fragments", lists.map(Iterator::count).max() > Some(1));
    }
    assert!(seen.len() == 5 && seen.values().all(|count| *count > 40), "{seen:?}");
}
