//! An admission that does not know of something admits sets that are late, and the oracle sees it: each test leaves one
//! thing out of what the analysis is told.

use bulkhead_oracle::{Campaign, Class, Counts, Rules, Set, TICK, judge};
use bulkhead_plan::kernel::{Kernel, Policy};

/// How many sets of a class are late if the admission is told something else.
fn late(class: Class, rules: Rules, change: impl Fn(&Set, &mut Kernel) + Sync) -> Counts {
    let campaign = Campaign { seed: 7, admitted: 400, patterns: 16, rules, threads: 1 };
    let told = |set: &Set| {
        let mut kernel = judge::kernel(set);
        change(set, &mut kernel);
        kernel
    };
    let counts = campaign.class_told(class, told);
    println!("{counts}");
    counts
}

fn budget(kernel: &mut Kernel, n: usize, with: impl Fn(u64, u64) -> (u64, u64)) {
    if let Policy::Sporadic(server) | Policy::Strict(server) = &mut kernel.contexts[n].policy {
        (server.budget, server.period) = with(server.budget, server.period);
    }
}

/// With nothing left out nothing is late, so what the other tests see comes from what they leave out.
#[test]
fn nothing_left_out() {
    for (class, _) in Class::ALL {
        assert_eq!(late(class, Rules::KERNEL, |_, _| ()).missed, 0);
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
    // Nobody whose priority is below another's calls.
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

/// The kernel's rules are needed: where a call begins without budget for all of it, or takes longer than it says, or a
/// driver works at the ceiling from which it is asked, sets are late that are admitted.
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
