//! Schedules from the Quest-V article (TOCS 2016, section 3.3) and ones worked out by hand.

use bulkhead_sched::simulate::{Simulated, Simulation, Step, Thread};
use bulkhead_sched::{Account, Context, Id, Refill, Requester, Scheduler, Time, Utilization};

type List = Vec<(Time, Time)>;

/// An account, and room for refills behind it.
type Policy = (Account, usize);

/// With a list of up to `refills`.
fn server(budget: Time, period: Time, refills: usize) -> Policy {
    (Account::sporadic(budget, period, 0).unwrap(), refills - 1)
}

fn full(slice: Time) -> Policy {
    (Account::full(slice).unwrap(), 0)
}

fn context((account, room): Policy, priority: u8) -> Simulated {
    (Context::new(account, priority), vec![Refill::default(); room])
}

fn in_background((context, refills): Simulated) -> Simulated {
    (context.in_background(), refills)
}

fn thread(policy: Policy, priority: u8, start: Time, program: &[Step]) -> Thread {
    let (context, program) = (context(policy, priority), program.to_vec());
    Thread { context, start, program, repeat: Some(0) }
}

fn list((context, refills): &Simulated) -> List {
    context.account().list(refills).map(|r| (r.amount, r.time)).collect()
}

/// Lists the contexts that ran: begin, end, index.
fn who_ran(simulation: &Simulation) -> Vec<(Time, Time, usize)> {
    let slices = simulation.slices().iter();
    slices.filter_map(|s| s.context.map(|id| (s.begin, s.end, id.index()))).collect()
}

const VCPU0: usize = 0;
const VCPU1: usize = 1;
const IO: usize = 2;
const OTHERS: usize = 3;

/// The system of figure 7. In [30, 40) the other VCPUs of the article take up the I/O VCPU's first result and pass it
/// on. The second result goes to VCPU1 itself.
fn figure_7() -> Simulation {
    use Step::{Every, Run, Signal, Wait};
    let io = Account::pibs(Utilization::new(4, 100).unwrap(), 0, 50, 0).unwrap();
    let to = |id| Signal(Id::of(id as u32));
    Simulation::new([
        thread(server(10, 40, 3), 10, 1, &[Run(10), Every(40)]),
        thread(server(20, 50, 3), 5, 0, &[Run(18), to(IO), Wait]),
        thread((io, 0), 0, 0, &[Wait, Run(2), to(OTHERS), Wait, Run(2), to(VCPU1)]),
        thread(full(100), 9, 0, &[Wait, Run(10), to(VCPU1)]),
    ])
}

/// Runs it; the lists of a server, each time that one is another.
fn lists(simulation: &mut Simulation, contexts: &[usize], end: Time) -> Vec<(Time, usize, List)> {
    let mut lists: Vec<(Time, usize, List)> = vec![];
    while simulation.now() < end {
        let now = simulation.now();
        simulation.step(end);
        for context in contexts {
            let list = list(&simulation.contexts()[*context]);
            let last = lists.iter().rev().find(|(_, of, _)| of == context);
            if last.is_none_or(|(.., last)| *last != list) {
                lists.push((now, *context, list));
            }
        }
    }
    lists
}

#[test]
fn figure_7_a() {
    let mut simulation = figure_7();
    let lists = lists(&mut simulation, &[VCPU1], 115);
    assert_eq!(
        who_ran(&simulation),
        [
            (0, 1, VCPU1),
            (1, 11, VCPU0),
            (11, 28, VCPU1),
            (28, 30, IO),
            (30, 40, OTHERS),
            (40, 41, VCPU1),
            (41, 51, VCPU0),
            (51, 68, VCPU1),
            (78, 80, IO),
            (80, 81, VCPU1),
            (81, 91, VCPU0),
            (91, 94, VCPU1),
            (100, 114, VCPU1),
        ]
    );
    let expected: [(Time, &[(Time, Time)]); 9] = [
        (0, &[(20, 0)]),
        (28, &[(2, 0), (18, 50)]),
        (40, &[(2, 40), (18, 50)]),
        (52, &[(18, 50), (2, 90)]),
        (68, &[(2, 50), (2, 90), (16, 100)]),
        (80, &[(2, 80), (2, 90), (16, 100)]),
        (92, &[(2, 90), (16, 100), (2, 130)]),
        (94, &[(16, 100), (2, 130), (2, 140)]),
        (114, &[(4, 130), (2, 140), (14, 150)]),
    ];
    assert_eq!(lists, expected.map(|(time, list)| (time, VCPU1, list.to_vec())));
}

/// At 114 VCPU1 blocks. The I/O VCPU may then run from 78 + 50 on, VCPU0 keeps it until 131, and the next time is 50
/// after 128.
#[test]
fn figure_7_a_serves_at_most_four_percent() {
    let mut simulation = figure_7();
    simulation.run(200);
    let io = who_ran(&simulation).into_iter().filter(|(_, _, who)| *who == IO);
    assert_eq!(
        io.collect::<Vec<_>>(),
        [(28, 30, IO), (78, 80, IO), (131, 133, IO), (178, 180, IO)]
    );
}

/// The two things that a server of figure 7 does, for both accountings.
trait Budget {
    fn wake(&mut self, now: Time);
    fn can_run(&mut self, now: Time) -> bool;
    fn ran(&mut self);
    fn block(&mut self, now: Time);
}

impl Budget for (Account, [Refill; 2]) {
    fn wake(&mut self, now: Time) {
        self.0.wake(&mut self.1, now);
    }

    fn can_run(&mut self, now: Time) -> bool {
        self.0.settle(&mut self.1, now);
        self.0.eligible() <= now
    }

    fn ran(&mut self) {
        self.0.charge(1);
    }

    fn block(&mut self, now: Time) {
        self.0.block(&mut self.1, now);
    }
}

/// POSIX's SCHED_SPORADIC: all that is used between a wake-up and the next block comes again at
/// once, a period after the wake-up.
struct Posix {
    available: Time,
    activated: Time,
    used: Time,
    later: List,
    period: Time,
}

impl Posix {
    fn schedule(&mut self) {
        let used = std::mem::take(&mut self.used);
        self.later.push((used, self.activated + self.period));
    }
}

impl Budget for Posix {
    fn wake(&mut self, now: Time) {
        self.activated = now;
    }

    fn can_run(&mut self, now: Time) -> bool {
        let due = |refill: &(Time, Time)| refill.1 <= now;
        if self.available == 0 && self.used > 0 {
            self.schedule();
        }
        let refilled: Time = self.later.iter().filter(|r| due(r)).map(|r| r.0).sum();
        self.later.retain(|refill| !due(refill));
        if self.available == 0 && refilled > 0 {
            self.activated = now;
        }
        self.available += refilled;
        self.available > 0
    }

    fn ran(&mut self) {
        self.available -= 1;
        self.used += 1;
    }

    fn block(&mut self, _: Time) {
        self.schedule();
    }
}

/// VCPU1 in figure 7, tick by tick: its time in the first 100.
fn first_hundred(budget: &mut impl Budget) -> Time {
    let (mut got, mut burst, mut awake) = (0, 0, true);
    budget.wake(0);
    for now in 0..100 {
        if !awake && (now == 40 || now == 80) {
            awake = true;
            budget.wake(now);
        }
        let vcpu0 = (now + 39) % 40 < 10;
        if awake && budget.can_run(now) && !vcpu0 {
            budget.ran();
            (got, burst) = (got + 1, burst + 1);
        }
        if burst == 18 {
            (burst, awake) = (0, false);
            budget.block(now + 1);
        }
    }
    got
}

#[test]
fn posix_gives_46_of_100_to_20_of_50_and_this_40() {
    let mut posix = Posix { available: 20, activated: 0, used: 0, later: vec![], period: 50 };
    assert_eq!(first_hundred(&mut posix), 46);
    let mut server = (Account::sporadic(20, 50, 0).unwrap(), [Refill::default(); 2]);
    assert_eq!(first_hundred(&mut server), 40);
    let mut simulation = figure_7();
    simulation.run(50);
    assert_eq!(simulation.used(Id::of(VCPU1 as u32)), 19);
    simulation.run(100);
    assert_eq!(simulation.used(Id::of(VCPU1 as u32)), 19 + 21);
}

/// Figure 6 according to the text: three Main VCPUs with used-up budgets, priorities inverse to periods. The figure's
/// own numbers are only in its picture, which is not at hand. These are worked out by hand: V0 2 of 8, V1 3 of 12, V2
/// 6 of 24, all from 0. No thread blocks, so that no list is split: a used-up budget comes again a period after it
/// could be used.
#[test]
fn three_main_vcpus_as_in_figure_6() {
    let always = [Step::Run(1000)];
    let mut simulation = Simulation::new([
        thread(server(2, 8, 2), 3, 0, &always),
        thread(server(3, 12, 2), 2, 0, &always),
        thread(server(6, 24, 2), 1, 0, &always),
    ]);
    let lists = lists(&mut simulation, &[0, 1, 2], 48);
    let round = [
        (0, 2, 0),
        (2, 5, 1),
        (5, 8, 2),
        (8, 10, 0),
        (10, 12, 2),
        (12, 15, 1),
        (15, 16, 2),
        (16, 18, 0),
    ];
    let again = round.map(|(begin, end, who)| (begin + 24, end + 24, who));
    assert_eq!(who_ran(&simulation), [round, again].concat());
    assert_eq!([0, 1, 2].map(|n| simulation.used(Id::of(n))), [12, 12, 12]);
    let start = [(0, 0, (2, 0)), (0, 1, (3, 0)), (0, 2, (6, 0))];
    // Time at which a budget is used up, its context, and the time of its refill: in the first 24, and again in the
    // next.
    let used_up = [
        (2, 0, (2, 8)),
        (5, 1, (3, 12)),
        (10, 0, (2, 16)),
        (15, 1, (3, 24)),
        (16, 2, (6, 24)),
        (18, 0, (2, 24)),
    ];
    let later = used_up.map(|(at, who, (amount, time))| (at + 24, who, (amount, time + 24)));
    let expected = start.into_iter().chain(used_up).chain(later);
    let expected: Vec<_> = expected.map(|(at, who, refill)| (at, who, vec![refill])).collect();
    assert_eq!(lists, expected);
}

/// One with more of a budget in the list has its turn after the others of its priority.
#[test]
fn equal_priorities_take_turns() {
    let mut simulation = Simulation::new([
        thread(full(5), 1, 0, &[Step::Run(1000)]),
        thread(full(3), 1, 0, &[Step::Run(1000)]),
        // Preempts, after which the preempted one goes on.
        thread(server(2, 100, 1), 2, 6, &[Step::Run(2), Step::Every(100)]),
    ]);
    simulation.run(20);
    let expected = [(0, 5, 0), (5, 6, 1), (6, 8, 2), (8, 10, 1), (10, 15, 0), (15, 18, 1)];
    assert_eq!(who_ran(&simulation), [&expected[..], &[(18, 20, 0)]].concat());
}

/// Without budget below all priorities, and uncharged there.
#[test]
fn an_expired_budget_runs_in_the_background() {
    let context = in_background(context(server(2, 10, 2), 9));
    let program = vec![Step::Run(1000)];
    let mut simulation = Simulation::new([
        Thread { context, start: 0, program, repeat: None },
        thread(server(3, 10, 2), 0, 4, &[Step::Run(3), Step::Every(10)]),
    ]);
    simulation.run(21);
    let slices = simulation.slices().iter();
    let shown: Vec<_> =
        slices.map(|s| (s.begin, s.end, s.context.unwrap().index(), s.background)).collect();
    assert_eq!(
        shown,
        [
            (0, 2, 0, false),
            (2, 4, 0, true),
            (4, 7, 1, false),
            (7, 10, 0, true),
            (10, 12, 0, false),
            (12, 14, 0, true),
            (14, 17, 1, false),
            (17, 20, 0, true),
            (20, 21, 0, false),
        ]
    );
    assert_eq!(list(&simulation.contexts()[0]), [(2, 20)]);
}

/// Out of the background, too, the kernel's cost is charged.
#[test]
fn a_refill_in_the_background_is_a_beginning() {
    let account = Account::sporadic(4, 10, 0).unwrap().with_cost(1).unwrap();
    let context = in_background(context((account, 1), 9));
    let program = vec![Step::Run(1000)];
    let mut simulation = Simulation::new([Thread { context, start: 0, program, repeat: None }]);
    simulation.run(20);
    let slices = simulation.slices().iter();
    let shown: Vec<_> = slices.map(|s| (s.begin, s.end, s.background)).collect();
    assert_eq!(shown, [(0, 3, false), (3, 10, true), (10, 13, false), (13, 20, true)]);
}

/// In the background turns go by budget as well.
#[test]
fn the_background_takes_turns() {
    let context = |budget| in_background(context(server(budget, 100, 2), 9));
    let thread = |budget| Thread {
        context: context(budget),
        start: 0,
        program: vec![Step::Run(1000)],
        repeat: None,
    };
    let mut simulation = Simulation::new([thread(2), thread(3)]);
    simulation.run(16);
    let expected = [(0, 2, 0), (2, 5, 1), (5, 7, 0), (7, 10, 1), (10, 12, 0), (12, 15, 1)];
    let ran = who_ran(&simulation);
    // The first turn in the background follows the budget's last without a gap.
    assert_eq!(ran, [&expected[..], &[(15, 16, 0)]].concat());
}

/// In the simulation a signal that came before the wait ends one wait, not two.
#[test]
fn a_signal_counts_once() {
    let signaller = vec![Step::Run(2), Step::Signal(Id::of(0)), Step::Run(100)];
    let waiter = vec![Step::Wait, Step::Run(1), Step::Wait, Step::Run(1)];
    let thread = |priority, start, program| Thread {
        context: context(full(100), priority),
        start,
        program,
        repeat: None,
    };
    let mut simulation = Simulation::new([thread(2, 5, waiter), thread(1, 0, signaller)]);
    simulation.run(50);
    assert_eq!(who_ran(&simulation), [(0, 5, 1), (5, 6, 0), (6, 50, 1)]);
}

/// A refill of a lower priority does not interrupt a higher one.
#[test]
fn only_what_matters_sets_the_timer() {
    let always = [Step::Run(1000)];
    let mut simulation = Simulation::new([
        thread(full(1000), 5, 20, &always),
        thread(server(1, 30, 1), 4, 0, &always),
    ]);
    simulation.run(500);
    // Its budget's end at 1; the other one is never interrupted.
    assert_eq!(simulation.timers(), 1);
    let higher = thread(server(1, 30, 1), 6, 0, &always);
    let lower = thread(full(1000), 5, 20, &always);
    let mut simulation = Simulation::new([lower, higher]);
    simulation.run(500);
    // Each refill at 30, 60, …, 480 and each end.
    assert_eq!(simulation.timers(), 1 + 2 * 16);
}

/// A request of higher priority raises an activation; it counts from then on.
#[test]
fn a_higher_request_raises_an_activation() {
    let u = Utilization::new(1, 10).unwrap();
    let pibs = Account::pibs(u, 0, 100, 0).unwrap();
    let mut contexts = [context((pibs, 0), 1), context(full(1000), 5)];
    let mut core = Scheduler::new(0);
    let (io, hog) = (Id::of(0), Id::of(1));
    core.wake(&mut contexts[..], io, 0);
    assert_eq!(core.schedule(&mut contexts[..], 0).timer, 10);
    // 4 used, then kept from running until 50.
    core.wake(&mut contexts[..], hog, 4);
    assert_eq!(core.schedule(&mut contexts[..], 4).run, Some(hog));
    let low = Requester { priority: 0, period: 1000 };
    core.request(&mut contexts[..], io, low, 49).unwrap();
    assert_eq!(contexts[0].0.priority(), 1, "not now");
    let high = Requester { priority: 6, period: 70 };
    core.request(&mut contexts[..], io, high, 50).unwrap();
    let decision = core.schedule(&mut contexts[..], 50);
    assert_eq!((decision.run, decision.timer), (Some(io), 53), "7 less 4");
    let decision = core.schedule(&mut contexts[..], 53);
    assert_eq!((decision.run, decision.timer), (Some(hog), 50 + 70));
    let short = Requester { priority: 7, period: 9 };
    assert!(core.request(&mut contexts[..], io, short, 60).is_err());
    assert_eq!([0, 1].map(|n| contexts[n].0.take_consumed()), [4 + 3, 46 + 7]);
    assert_eq!(contexts[0].0.take_consumed(), 0);
    assert_eq!(contexts[0].0.priority(), 6);
}

/// A context that calls a passive server at the highest priority of its callers is not disturbed by those between. It
/// disturbs the highest for the length of one request: docs/figures/ceiling.toml in small.
#[test]
fn a_request_runs_at_its_servers_ceiling() {
    use Step::{Answer, Call, Every, Run};
    let calls = |own, alone, served, period| {
        [Run(alone), Call(30), Run(served), Answer(own), Every(period)]
    };
    let mut simulation = Simulation::new([
        thread(server(4, 11, 2), 30, 0, &calls(30, 2, 2, 11)),
        thread(server(3, 12, 2), 20, 0, &[Run(3), Every(12)]),
        thread(server(7, 48, 2), 10, 0, &calls(10, 2, 5, 48)),
    ]);
    simulation.run(30);
    let slices = simulation.slices().iter().map(|s| (s.begin, s.end, s.context, s.served));
    let expected = [
        (0, 2, 0, false),
        (2, 4, 0, true),
        (4, 7, 1, false),
        (7, 9, 2, false),
        // The lowest one's request. The others are released at 11 and at 12, and come after the answer.
        (9, 14, 2, true),
        (14, 16, 0, false),
        (16, 18, 0, true),
        (18, 21, 1, false),
    ];
    let expected =
        expected.map(|(begin, end, who, served)| (begin, end, Some(Id::of(who)), served));
    assert_eq!(slices.take(expected.len()).collect::<Vec<_>>(), expected);
}
