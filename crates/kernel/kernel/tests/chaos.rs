//! Hostile calls by the million; `make fuzz` makes more. After each one the capabilities are those that a record of its
//! own says. `SEED` and `SEEDS` say the first seed and the number of seeds. `CALLS` says how much happens with each,
//! and `AUDIT` after how much of that all of memory is looked at.

use bulkhead_kernel_fake::random::{Came, run};
use bulkhead_random::SplitMix64;

fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Adds up the results of some seeds.
fn total(seeds: impl Iterator<Item = u64>) -> Came {
    let (steps, audit) = (env("CALLS", 1_000), env("AUDIT", 100));
    let mut total = Came::default();
    for seed in seeds {
        let came = run(SplitMix64(seed), seed % 2 == 0, steps, audit)
            .unwrap_or_else(|why| panic!("of seed {seed}: {why}"));
        total.add(&came);
    }
    total
}

#[test]
fn whatever_programs_call_all_stays_as_it_has_to_be() {
    let (first, seeds) = (env("SEED", 0), env("SEEDS", 4_000));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut total_of_all = Came::default();
    std::thread::scope(|scope| {
        let shares = (0..workers).map(|n| (first..first + seeds).skip(n).step_by(workers));
        let running: Vec<_> = shares.map(|share| scope.spawn(|| total(share))).collect();
        for worker in running {
            total_of_all.add(&worker.join().expect("as it has to be"));
        }
    });
    let total = total_of_all;
    println!("{total:?}");
    assert!(total.calls > 2_000_000 || seeds < 4_000, "{total:?}");
    // The programs get somewhere: calls are accepted, and refused for many a reason.
    assert!(total.accepted > total.calls / 10, "{total:?}");
    assert!(total.errors.len() > 14, "{total:?}");
    // And capabilities come and go in each of the ways that there are.
    let ways = ["copied", "moved", "made", "sent", "deleted", "revoked", "deleted in part"];
    let often = |way: &&str| total.given.get(way).is_some_and(|count| *count > seeds / 4);
    assert!(ways.iter().all(often), "{total:?}");
    // A level-triggered line comes, is acknowledged, and comes again.
    let lines = ["line came", "line again"].map(|what| total.given.get(what).copied());
    assert!(lines.iter().all(|count| count.is_some_and(|count| count > seeds)), "{total:?}");
    // No call takes long: one object of memory, or one link of a list, is an access.
    assert!((100..400).contains(&total.most), "{total:?}");
}
