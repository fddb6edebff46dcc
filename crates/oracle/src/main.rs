//! Asks the admission about random sets, and the oracle about those that it admits.

use bulkhead_oracle::{Class, Core, Random, Rules, judge, search, set};
use std::time::Instant;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let sets: u64 = arguments[0].parse().unwrap();
    let runs: u64 = arguments[1].parse().unwrap();
    let rules = match arguments.get(2).map(String::as_str) {
        Some("papers") => Rules::default(),
        _ => Rules { reserves: true, caps: true, own_priority: true },
    };
    let show: u64 = arguments.get(3).map_or(1, |a| a.parse().unwrap());
    for (class, name) in Class::ALL {
        if arguments.get(4).is_some_and(|only| only != name) {
            continue;
        }
        let mut core = Core::default();
        core.rules = rules;
        let (mut tried, mut admitted, mut missed, mut refused, mut silent) =
            (0u64, [0u64; 2], 0u64, 0u64, 0u64);
        let (mut ended, mut held, mut overran, mut inside, mut shown, mut plays) =
            (0u64, 0u64, 0u64, 0u64, 0, 0);
        let (mut tight, mut any) = (0u64, 0u64);
        let began = Instant::now();
        while tried < sets {
            tried += 1;
            let mut random = Random(tried.wrapping_mul(0x1234_5678_9abc) ^ class as u64);
            let set = set(class, &mut random);
            let verdict = judge::Verdict::of(&set, &judge::kernel(&set));
            let by = [verdict.by_response, verdict.by_bound];
            let found = search(&mut core, &set, &verdict.promises, &mut random, runs);
            plays += found.runs;
            if verdict.is_admitted() {
                (0..2).for_each(|n| admitted[n] += u64::from(by[n]));
                any += 1;
                ended += u64::from(found.ended_in_call);
                held += u64::from(found.held);
                overran += u64::from(found.overran);
                inside += u64::from(found.asked_in_call);
                tight += u64::from(found.worst >= 1000);
                if found.missed.is_some() {
                    missed += 1;
                    if shown < show {
                        shown += 1;
                        println!("{verdict:?}\n{set}\n  {found:?}");
                    }
                }
            } else {
                refused += 1;
                silent += u64::from(found.missed.is_none());
            }
        }
        println!(
            "{name:12} tried {tried} admitted {any} {admitted:?} missed {missed} ended {ended} held {held} overran {overran} inside {inside} tight {tight} refused {refused} without a miss {silent} plays {plays} {:?}",
            began.elapsed()
        );
    }
}
