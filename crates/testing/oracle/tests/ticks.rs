//! The oracle jumps from one change to the next. Played tick by tick it comes to equal results.

use bulkhead_oracle::{
    Class, Core, Op, Pattern, Policy, Promise, Random, Rules, Set, TICK, Time, set,
};

/// Turns a set into one with times of a few ticks, so that each tick can be played.
fn in_ticks(mut set: Set) -> Set {
    set.overhead /= TICK;
    set.entry /= TICK;
    set.doorbell = set.doorbell.map(|(every, length)| (every / TICK, length / TICK));
    for thread in &mut set.threads {
        thread.budget /= TICK;
        thread.period /= TICK;
        thread.interrupt /= TICK;
        thread.every /= TICK;
        // A share of the shortest period has to be a tick, and one for the kernel.
        if let Policy::Pibs(share) = &mut thread.policy {
            *share = (*share).max(300_000);
        }
        for op in &mut thread.job {
            if let Op::Run(time) | Op::Ask(_, time) | Op::Sleep(time) = op {
                *time /= TICK;
            }
        }
    }
    set.servers
        .iter_mut()
        .for_each(|server| server.longest = server.longest.map(|longest| longest / TICK));
    set
}

#[test]
fn jumps_see_what_ticks_see() {
    let mut jumping = Core::default();
    let mut ticking = Core::default();
    ticking.stride = 1;
    let mut moments = (0, 0);
    for (class, name) in Class::ALL {
        for number in 0..400 {
            let mut random = Random::new(number << 8 | class as u64);
            let set = in_ticks(set(class, &mut random));
            let offset = |period: Time| Pattern {
                offset: Random::new(number ^ period).below(period),
                gap: number % 3,
            };
            let patterns: Vec<_> = set.threads.iter().map(|thread| offset(thread.period)).collect();
            let promises = vec![Promise::NONE; set.threads.len()];
            let rules = if number % 2 == 0 { Rules::KERNEL } else { Rules::default() };
            (jumping.rules, ticking.rules) = (rules, rules);
            (jumping.slices, ticking.slices) = (Some(Vec::new()), Some(Vec::new()));
            let (a, b) = (
                jumping.play(&set, &promises, &patterns, 500).clone(),
                ticking.play(&set, &promises, &patterns, 500).clone(),
            );
            assert_eq!(jumping.slices, ticking.slices, "{name} {number}\n{set}");
            assert_eq!(
                (a.worst, a.pieces, &a.delicate),
                (b.worst, b.pieces, &b.delicate),
                "{name} {number}"
            );
            moments = (moments.0 + a.moments, moments.1 + b.moments);
        }
    }
    assert!(moments.1 > 3 * moments.0, "{moments:?}");
}
