//! Sets by hand, at the edge of admission: the oracle sees the times that the admission promises, and one tick more
//! is refused.

use bulkhead_oracle::{
    Core, Found, Op, Policy, Random, Rules, Server, Set, TICK, Thread, Time, judge, search,
};
use bulkhead_plan::admission::{Analysis, Term};

/// Patterns of releases that are tried.
const PATTERNS: u64 = 400;

fn thread(priority: u8, budget: Time, period: Time, job: Vec<Op>) -> Thread {
    Thread {
        policy: Policy::Sporadic,
        budget: budget * TICK,
        period: period * TICK,
        refills: 8,
        guaranteed: true,
        background: false,
        activations: 1,
        priority,
        job,
        serves: false,
        interrupt: 0,
        every: period * TICK,
    }
}

fn runs(priority: u8, budget: Time, period: Time) -> Thread {
    thread(priority, budget, period, vec![Op::Run(budget * TICK)])
}

/// An I/O VCPU with so many percent.
fn driver(priority: u8, share: u32, period: Time, interrupt: Time) -> Thread {
    Thread {
        policy: Policy::Pibs(share * 10_000),
        serves: true,
        interrupt: interrupt * TICK,
        ..thread(priority, 0, period, Vec::new())
    }
}

fn server(priority: u8, longest: Time) -> Server {
    Server { priority, longest: Some(longest * TICK) }
}

/// Tries a set: its admission by response times, the verdict, and the oracle's finding. An admitted set is in time.
fn tried(set: &Set) -> (bool, judge::Verdict, Found) {
    let verdict = judge::Verdict::of(set, &judge::kernel(set));
    let mut core = Core::default();
    // Jobs that need all of a budget come nearest to its response time, if no budget pays for entries.
    core.rules = Rules { charges: false, ..Rules::KERNEL };
    let found = search(&mut core, set, &verdict.promises, &mut Random::new(1), PATTERNS);
    let admitted = verdict.by_response;
    assert!(!admitted || found.missed.is_none() && !found.stuck, "{set}\n{found:?}");
    println!("{admitted} {:?} {}", verdict.promises, found.worst);
    (admitted, verdict, found)
}

/// Periods that are multiples of each other, and nothing left of the core: the last one has all of its period.
#[test]
fn harmonic_periods_fill_the_core() {
    let set = |last| Set {
        threads: vec![runs(40, 4, 8), runs(30, 4, 16), runs(20, 4, 32), runs(10, last, 64)],
        ..Set::default()
    };
    let (admitted, verdict, found) = tried(&set(8));
    assert!(admitted && verdict.promises[3].job == 64 * TICK && found.worst == 1_000);
    assert!(!tried(&set(9)).0);
}

/// A server within another one, with limits that use all of a budget and the rest of another one's period.
fn nested(period: Time, budget: Time, overhead: Time) -> Set {
    let job = vec![
        Op::Call(0),
        Op::Run(2 * TICK),
        Op::Call(1),
        Op::Run(8 * TICK),
        Op::Answer,
        Op::Run(2 * TICK),
        Op::Answer,
    ];
    Set {
        threads: vec![runs(30, 10, period), thread(10, budget, 80, job)],
        servers: vec![server(30, 12), server(30, 8)],
        overhead: overhead * TICK,
        ..Set::default()
    }
}

#[test]
fn a_nested_call_takes_all_of_a_budget() {
    let (admitted, verdict, found) = tried(&nested(22, 12, 0));
    assert!(admitted && verdict.promises[0].job == 22 * TICK && found.worst == 1_000);
    assert!(!tried(&nested(21, 12, 0)).0, "22 are more than a period");
    assert!(!tried(&nested(22, 11, 0)).0, "the call never begins");
    // A beginning, and the way from there to the call: the budget has one of them by itself.
    assert!(tried(&nested(40, 13, 1)).0);
    assert!(!tried(&nested(40, 12, 1)).0);
}

/// The call of the budget that is refused would indeed wait for ever.
#[test]
fn a_call_without_room_for_the_way_to_it_never_begins() {
    let mut core = Core::default();
    core.rules = Rules::KERNEL;
    for (budget, stuck) in [(12, true), (13, false)] {
        let set = nested(40, budget, 1);
        let none = vec![bulkhead_oracle::Promise::NONE; 2];
        let found = search(&mut core, &set, &none, &mut Random::new(1), 1);
        assert_eq!(found.stuck, stuck, "{budget}");
    }
}

/// A driver that works above all others for the shortest period, and is interrupted as often.
#[test]
fn a_driver_above_all_with_the_shortest_period() {
    for (interrupt, overhead, entry) in [(0, 0, 0), (2, 1, 1), (4, 1, 2)] {
        let mut admitted = 0;
        for (share, budget) in (1..=5).flat_map(|n| (1..=80).map(move |budget| (10 * n, budget))) {
            let asks = vec![Op::Run(TICK), Op::Ask(2, TICK)];
            let set = Set {
                threads: vec![
                    thread(40, 1, 16, asks),
                    runs(10, budget, 100),
                    driver(50, share, 16, interrupt),
                ],
                overhead: overhead * TICK,
                entry: entry * TICK,
                ..Set::default()
            };
            admitted += u32::from(tried(&set).0);
        }
        assert!(admitted > 20, "{admitted}");
    }
}

/// Doorbells as often as their right has it.
#[test]
fn doorbells_at_their_rate() {
    let set = |budget| Set {
        threads: vec![runs(10, budget, 100)],
        doorbell: Some((10 * TICK, TICK)),
        ..Set::default()
    };
    let (admitted, verdict, found) = tried(&set(89));
    assert!(admitted && verdict.promises[0].job < 100 * TICK && found.worst == 1_000, "{found:?}");
    assert!(!tried(&set(90)).0);
}

/// Tries sets with the whole analysis, by which none is late, and without a term: so many are late then.
fn late_without(term: Term, sets: impl Iterator<Item = Set>) -> (u64, u64) {
    let (mut admitted, mut late, mut core) = (0, 0, Core::default());
    core.rules = Rules::KERNEL;
    for set in sets {
        let kernel = judge::kernel(&set);
        let whole = judge::Verdict::of(&set, &kernel);
        let part = judge::Verdict::by(&set, &Analysis::without(&kernel, term));
        for (verdict, whole) in [(whole, true), (part, false)] {
            if !verdict.by_response {
                continue;
            }
            let mut set = set.clone();
            verdict.shorten(&mut set);
            let found = search(&mut core, &set, &verdict.promises, &mut Random::new(1), 40);
            assert!(!whole || found.missed.is_none(), "{set}\n{found:?}");
            admitted += u64::from(whole);
            late += u64::from(!whole && found.missed.is_some());
        }
    }
    println!("{term:?}: {late} late, {admitted} admitted");
    (admitted, late)
}

/// A storm of interrupts for a driver above: two come while it pauses, and no acknowledgement takes it longer than one
/// of them takes others.
#[test]
fn a_storm_for_a_driver_above() {
    let sets = (10..=30).step_by(5).flat_map(|share| {
        let budgets = (100..=900).step_by(20);
        budgets.map(move |budget| (share, budget))
    });
    let sets = sets.flat_map(|(share, budget)| {
        [0, 1].map(|more| (share, budget, Time::from(350 / share) + more))
    });
    let set = |(share, budget, every): (u32, Time, Time)| Set {
        threads: vec![
            runs(10, budget, 1_000),
            Thread { every: every * TICK, ..driver(50, share, 40, 6) },
        ],
        overhead: TICK,
        entry: 6 * TICK,
        ..Set::default()
    };
    let (admitted, late) = late_without(Term::Interrupts, sets.map(set));
    assert!(admitted > 50 && late > 20);
}

/// The activations of an I/O VCPU end in its call, and each following one begins at the server's priority.
#[test]
fn activations_that_begin_in_a_call_from_below() {
    let calls = (3..=20).flat_map(|call| (1..=39).map(move |budget| (call, budget)));
    let set = |(call, budget): (Time, Time)| Set {
        threads: vec![
            runs(30, budget, 40),
            Thread {
                job: vec![Op::Call(0), Op::Run(call * TICK), Op::Answer],
                every: 200 * TICK,
                ..driver(1, 50, 8, 1)
            },
        ],
        servers: vec![server(31, call)],
        overhead: TICK,
        ..Set::default()
    };
    let (admitted, late) = late_without(Term::Beginnings, calls.map(set));
    assert!(admitted > 100 && late > 10);
}

/// A context that nothing is promised is kept in a server below, and comes back with several budgets.
#[test]
fn budgets_that_come_back_from_below() {
    let job = [1, 1, 88].map(|time| Op::Run(time * TICK));
    let job = vec![job[0], Op::Call(0), job[1], Op::Answer, job[2]];
    let set = |(between, budget): (Time, Time)| Set {
        threads: vec![
            Thread { guaranteed: false, ..thread(30, 30, 100, job.clone()) },
            runs(25, budget, 150),
            runs(20, between, 400),
        ],
        servers: vec![server(10, 1)],
        ..Set::default()
    };
    let sets = (60..=95).flat_map(|between| (5..=60).step_by(5).map(move |b| (between, b)));
    let (admitted, late) = late_without(Term::Arrears, sets.map(set));
    assert!(admitted == 0 && late > 20);
}
