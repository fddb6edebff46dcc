//! Hostile calls by the hundred thousand; `make fuzz` makes more. `SEED`, `SEEDS`, `CALLS` and
//! `AUDIT` say from which seed on, how many of them, how many calls each, and after how many
//! everything is checked.

use bulkhead_kernel_fake::random::{Came, Seed, run};

fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn whatever_programs_call_all_stays_as_it_has_to_be() {
    let (first, seeds) = (env("SEED", 0), env("SEEDS", 400));
    let (calls, audit) = (env("CALLS", 1_000), env("AUDIT", 10));
    let mut total = Came::default();
    for seed in first..first + seeds {
        let came = run(Seed(seed), seed % 2 == 0, calls, audit)
            .unwrap_or_else(|why| panic!("of seed {seed}: {why}"));
        total.add(&came);
    }
    println!("{total:?}");
    // The programs get somewhere: calls are accepted, and refused for many a reason.
    assert!(total.accepted > total.calls / 10, "{total:?}");
    assert!(total.errors.len() > 14, "{total:?}");
    // No call takes long: one object of memory, or one link of a list, is an access.
    assert!((100..400).contains(&total.most), "{total:?}");
}
