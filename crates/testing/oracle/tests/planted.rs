//! An admission with a gap admits sets that are late, and the oracle sees it. Each test leaves one thing out of the
//! analysis' input.

use bulkhead_oracle::{
    Campaign, Class, Core, Counts, Policy as Given, Promise, Rules, Set, TICK, Time, judge, search,
    set,
};
use bulkhead_plan::admission::{Analysis, Term};
use bulkhead_plan::kernel::{Kernel, Policy};

fn campaign(rules: Rules) -> Campaign {
    Campaign { seed: 7, admitted: 400, patterns: 16, rules, threads: 1 }
}

/// How many sets of a class are late if the admission is told something else.
fn late(class: Class, rules: Rules, change: impl Fn(&Set, &mut Kernel) + Sync) -> Counts {
    let told = |set: &Set| {
        let mut kernel = judge::kernel(set);
        change(set, &mut kernel);
        kernel
    };
    let counts = campaign(rules).class_told(class, told);
    println!("{counts}");
    counts
}

fn budget(kernel: &mut Kernel, n: usize, with: impl Fn(u64, u64) -> (u64, u64)) {
    if let Policy::Sporadic(server) | Policy::Strict(server) = &mut kernel.contexts[n].policy {
        (server.budget, server.period) = with(server.budget, server.period);
    }
}

/// With nothing left out no set is late, so the findings of the other tests come from their gaps.
#[test]
fn nothing_left_out() {
    for (class, _) in Class::ALL {
        let counts = late(class, Rules::KERNEL, |_, _| ());
        assert!(
            counts.missed == 0,
            "{}",
            counts.first.map_or_else(String::new, |miss| miss.to_string())
        );
    }
}

#[test]
fn interference() {
    // The one with the highest priority hardly runs.
    assert!(
        late(Class::Independent, Rules::KERNEL, |_, k| budget(k, 0, |_, period| (1, period)))
            .missed
            > 10
    );
}

#[test]
fn how_often_interference_comes() {
    // One activation in a longest period.
    let longest = |set: &Set| set.threads.iter().map(|thread| thread.period).max().unwrap_or(TICK);
    let change = |set: &Set, k: &mut Kernel| {
        let most = longest(set);
        budget(k, 0, |budget, _| (budget, most));
    };
    assert!(late(Class::Independent, Rules::KERNEL, change).missed > 10);
}

#[test]
fn a_tick_of_a_budget() {
    let change = |_: &Set, k: &mut Kernel| {
        budget(k, 0, |budget, period| (budget.saturating_sub(TICK).max(1), period))
    };
    assert!(late(Class::Independent, Rules::KERNEL, change).missed > 10);
}

#[test]
fn the_share_of_drivers() {
    let change = |_: &Set, k: &mut Kernel| {
        for context in &mut k.contexts {
            if let Policy::Pibs { utilization, .. } = &mut context.policy {
                *utilization = bulkhead_plan::kernel::Utilization::new(1, 1_000_000).unwrap();
            }
        }
    };
    assert!(late(Class::Direct, Rules::KERNEL, change).missed > 10);
}

#[test]
fn what_the_kernel_costs() {
    assert!(late(Class::Overhead, Rules::KERNEL, |_, k| k.overhead = 0).missed > 10);
}

#[test]
fn how_often_a_thread_begins() {
    let change =
        |_: &Set, k: &mut Kernel| k.contexts.iter_mut().for_each(|context| context.activations = 1);
    assert!(late(Class::Overhead, Rules::KERNEL, change).missed > 10);
}

#[test]
fn that_a_budget_is_strict() {
    let change = |_: &Set, k: &mut Kernel| {
        for context in &mut k.contexts {
            if let Policy::Strict(server) = context.policy {
                context.policy = Policy::Sporadic(server);
            }
        }
    };
    assert!(late(Class::Strict, Rules::KERNEL, change).missed > 10);
}

#[test]
fn who_calls() {
    // No thread with a priority below another's makes calls.
    let change = |set: &Set, k: &mut Kernel| {
        for n in 0..set.threads.len() {
            if !set.threads[n].guaranteed {
                k.programs[n].calls.clear();
            }
        }
    };
    for class in [Class::Calls, Class::Nested] {
        assert!(late(class, Rules::KERNEL, change).missed > 10);
    }
}

#[test]
fn how_long_a_call_takes() {
    let change = |_: &Set, k: &mut Kernel| k.endpoints.iter_mut().for_each(|e| e.longest = Some(1));
    for class in [Class::Calls, Class::Nested] {
        assert!(late(class, Rules::KERNEL, change).missed > 10);
    }
}

#[test]
fn what_servers_call() {
    let change = |set: &Set, k: &mut Kernel| {
        for n in set.threads.len()..k.programs.len() {
            k.programs[n].calls.clear();
        }
    };
    assert!(late(Class::Nested, Rules::KERNEL, change).missed > 5);
}

/// The kernel's rules are needed: without each, admitted sets are late. There are three. A call begins only with budget
/// for all of it. It ends at its limit. A driver does not work at the ceiling from which it is asked.
#[test]
fn what_the_kernel_does() {
    let without: [(Rules, Class); 3] = [
        (Rules { reserves: false, ..Rules::KERNEL }, Class::Calls),
        (Rules { caps: false, ..Rules::KERNEL }, Class::Calls),
        (Rules { own_priority: false, ..Rules::KERNEL }, Class::Inside),
    ];
    for (rules, class) in without {
        assert!(late(class, rules, |_, _| ()).missed > 0, "{rules:?}");
    }
}

/// A response time as the textbook has it, ⌈R/T⌉ being rounded in some way: nothing but interference.
fn textbook(set: &Set, n: usize, rounded: fn(Time, Time) -> Time) -> Option<Time> {
    let own = &set.threads[n];
    let above = |other: &usize| *other != n && set.threads[*other].priority >= own.priority;
    let others: Vec<usize> = (0..set.threads.len()).filter(above).collect();
    if others.iter().any(|other| set.threads[*other].policy == Given::Full) {
        return None;
    }
    let mut response = own.budget;
    while response <= own.period {
        let of = |other: &usize| {
            let other = &set.threads[*other];
            rounded(response, other.period) * other.budget
        };
        let again = own.budget + others.iter().map(of).sum::<Time>();
        if again == response {
            return Some(response);
        }
        response = again;
    }
    None
}

/// An admission of threads that have nothing to do with each other, by the textbook.
fn by_textbook(set: &Set, rounded: fn(Time, Time) -> Time) -> judge::Verdict {
    let promise = |n: usize| match (set.threads[n].guaranteed, set.threads[n].waits()) {
        (false, _) => Some(Promise::NONE),
        (true, waits) => textbook(set, n, rounded)
            .map(|piece| Promise { job: if waits { Time::MAX } else { piece }, piece }),
    };
    let promises: Option<Vec<_>> = (0..set.threads.len()).map(promise).collect();
    let by_response = promises.is_some();
    let promises = promises.unwrap_or_else(|| vec![Promise::NONE; set.threads.len()]);
    let rooms = vec![0; promises.len()];
    judge::Verdict { by_response, by_bound: false, promises, rooms }
}

/// A part of a period is a whole activation. Rounded up, the textbook is as good as the analysis.
#[test]
fn how_activations_are_rounded() {
    let late = |rounded: fn(Time, Time) -> Time| {
        let judged = |set: &Set| by_textbook(set, rounded);
        campaign(Rules::KERNEL).class_judged(Class::Independent, judged).missed
    };
    assert_eq!(late(Time::div_ceil), 0);
    assert!(late(|response, period| (response / period).max(1)) > 10);
}

/// Equals come before, too. The admission is told of two such threads that one is above.
#[test]
fn that_equals_come_before() {
    let change = |set: &Set, k: &mut Kernel| {
        for (n, thread) in set.threads.iter().enumerate() {
            let mut behind = set.threads[n + 1..].iter();
            k.threads[n].priority +=
                u8::from(behind.any(|other| other.priority == thread.priority));
        }
    };
    assert!(late(Class::Independent, Rules::KERNEL, change).missed > 5);
}

/// A driver works for the longest period of all that ask it: the admission is told of the shortest only.
#[test]
fn for_which_period_a_driver_works() {
    let change = |set: &Set, k: &mut Kernel| {
        let drivers = set.servers.len();
        let asks = |k: &Kernel, n: usize| k.programs[n].calls.iter().any(|c| c.endpoint >= drivers);
        let askers = (0..set.threads.len()).filter(|n| asks(k, *n));
        let Some(shortest) = askers.min_by_key(|n| set.threads[*n].period) else { return };
        for n in (0..set.threads.len()).filter(|n| *n != shortest) {
            k.programs[n].calls.retain(|call| call.endpoint < drivers);
        }
    };
    assert!(late(Class::Direct, Rules::KERNEL, change).missed > 5);
}

/// Doorbells of others' rights come in the time of whoever runs.
#[test]
fn doorbells() {
    let campaign = Campaign { admitted: 2_000, ..campaign(Rules::KERNEL) };
    let counts = campaign.class_told(Class::Overhead, |set: &Set| {
        let mut kernel = judge::kernel(set);
        kernel.doorbells.clear();
        kernel
    });
    println!("{counts}");
    assert!(counts.missed > 5);
}

/// An entry is no activation: its time is another one.
#[test]
fn how_long_an_entry_takes() {
    let campaign = Campaign { admitted: 4_000, ..campaign(Rules::KERNEL) };
    let counts = campaign.class_told(Class::Overhead, |set: &Set| {
        let kernel = judge::kernel(set);
        Kernel { entry: 0, ..kernel }
    });
    println!("{counts}");
    assert!(counts.missed > 0);
}

/// Interrupts enter the kernel in others' time.
#[test]
fn entries_of_interrupts() {
    // Few sets of the class have interrupts.
    let campaign = Campaign { admitted: 4_000, ..campaign(Rules::KERNEL) };
    let counts = campaign.class_told(Class::Overhead, |set: &Set| {
        let mut kernel = judge::kernel(set);
        kernel.programs.iter_mut().for_each(|program| program.devices.clear());
        kernel
    });
    println!("{counts}");
    assert!(counts.missed > 0);
}

/// Entries of the kernel are charged to the running thread: a job that needs all of its budget, and leaves nothing for
/// them, is late.
#[test]
fn the_room_for_entries() {
    let without = |set: &Set| {
        let mut verdict = judge::Verdict::of(set, &judge::kernel(set));
        verdict.rooms.fill(0);
        verdict
    };
    let counts = campaign(Rules::KERNEL).class_judged(Class::Overhead, without);
    println!("{counts}");
    assert!(counts.missed > 10);
    // If nobody paid for them, no job would be.
    let counts =
        campaign(Rules { charges: false, ..Rules::KERNEL }).class_judged(Class::Overhead, without);
    assert_eq!(counts.missed, 0);
}

/// How often the others above begin, as their manifest says, counts in that room.
#[test]
fn the_room_for_timers() {
    let without = |set: &Set| {
        let kernel = Kernel { overhead: 0, ..judge::kernel(set) };
        let mut verdict = judge::Verdict::of(set, &judge::kernel(set));
        let analysis = Analysis::new(&kernel);
        for (n, room) in verdict.rooms.iter_mut().enumerate().filter(|(_, room)| **room > 0) {
            *room = analysis.entered_within(n, set.threads[n].period).unwrap_or(0).min(*room);
        }
        verdict
    };
    let counts = campaign(Rules::KERNEL).class_judged(Class::Overhead, without);
    println!("{counts}");
    assert!(counts.missed > 10);
}

/// How many sets of a class are late if the analysis leaves a term out.
fn without(term: Term, class: Class, admitted: u64) -> u64 {
    let judged = |set: &Set| judge::Verdict::by(set, &Analysis::without(&judge::kernel(set), term));
    let counts = Campaign { admitted, ..campaign(Rules::KERNEL) }.class_judged(class, judged);
    println!("{term:?} {class:?}: {counts}");
    counts.missed
}

/// Several contexts below can be in the middle of calls.
#[test]
fn calls_that_stop_in_the_middle() {
    assert!(without(Term::Stopped, Class::Inside, 4_000) > 0);
}

/// A doorbell more than fits in comes at the beginning.
#[test]
fn the_doorbell_at_the_beginning() {
    assert!(without(Term::Doorbell, Class::Overhead, 400) > 10);
}

/// The last activations of a job before come in a budget that leaves no room for them.
#[test]
fn activations_of_a_job_before() {
    assert!(without(Term::Activations, Class::Overhead, 4_000) > 0);
}

/// How many sets with a server below some of its callers are late, and how many are admitted.
fn late_below(class: Class, judged: impl Fn(&Set) -> judge::Verdict) -> (u64, u64) {
    let (campaign, mut core) = (campaign(Rules::KERNEL), Core::default());
    core.rules = Rules::KERNEL;
    let (mut late, mut admitted) = (0, 0);
    for number in 0..8_000 {
        let mut random = campaign.random(class, number);
        let mut set = set(class, &mut random);
        let highest = set.threads.iter().map(|thread| thread.priority).max().unwrap_or(0);
        let server = random.below(set.servers.len() as u64) as usize;
        set.servers[server].priority = random.below(highest.into()) as u8;
        let verdict = judged(&set);
        if verdict.is_admitted() {
            verdict.shorten(&mut set);
            admitted += 1;
            let found = search(&mut core, &set, &verdict.promises, &mut random, 16);
            late += u64::from(found.missed.is_some());
        }
    }
    println!("{class:?}: {late} of {admitted}");
    (late, admitted)
}

/// Servers below their callers, or below other servers on the way. The waits for them are named. A context that is in
/// time itself comes back from there with one budget.
#[test]
fn servers_below_their_callers() {
    for class in [Class::Calls, Class::Nested, Class::Inside] {
        let whole = |set: &Set| judge::Verdict::of(set, &judge::kernel(set));
        let (late, admitted) = late_below(class, whole);
        assert!(late == 0 && admitted > 1_000, "{late} of {admitted}");
    }
}
