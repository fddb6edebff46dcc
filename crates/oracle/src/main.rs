//! Asks the admission about random sets, and the oracle about those that it admits.

use bulkhead_oracle::{Class, Core, Random, judge, search, set};
use std::time::Instant;

fn main() {
    let arguments: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let (sets, runs) = (arguments[0], arguments.get(1).copied().unwrap_or(16));
    for (class, name) in Class::ALL {
        let mut core = Core::default();
        let (mut tried, mut admitted, mut missed, mut refused, mut silent) =
            (0u64, [0u64; 2], 0u64, 0u64, 0u64);
        let (mut ended, mut inside, mut shown, mut plays) = (0u64, 0u64, 0, 0);
        let began = Instant::now();
        while tried < sets {
            tried += 1;
            let mut random = Random(tried.wrapping_mul(0x1234_5678_9abc) ^ class as u64);
            let set = set(class, &mut random);
            let by = judge::admitted(&judge::kernel(&set));
            let is_in = by[0] || by[1];
            let found = search(&mut core, &set, &mut random, runs);
            plays += found.runs;
            if is_in {
                (0..2).for_each(|n| admitted[n] += u64::from(by[n]));
                ended += u64::from(found.ended_in_call);
                inside += u64::from(found.asked_in_call);
                if found.missed.is_some() {
                    missed += 1;
                    if shown < 1 {
                        shown += 1;
                        println!("{by:?} {set}\n  {found:?}");
                    }
                }
            } else {
                refused += 1;
                silent += u64::from(found.missed.is_none());
            }
        }
        println!(
            "{name:12} tried {tried} admitted {admitted:?} missed {missed} ended {ended} inside {inside} refused {refused} without a miss {silent} plays {plays} {:?}",
            began.elapsed()
        );
    }
}
