//! Asks the admission about random sets, and the oracle about those that it admits.
//! `bulkhead-oracle ADMITTED [PATTERNS [SEED [CLASS [papers]]]]`

use bulkhead_oracle::{Campaign, Class, Rules};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |n: usize, default: u64| {
        arguments.get(n).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let papers = arguments.get(4).is_some_and(|word| word == "papers");
    let campaign = Campaign {
        seed: number(2, 1),
        admitted: number(0, 1_000),
        patterns: number(1, 16),
        rules: if papers { Rules::default() } else { Rules::KERNEL },
        threads: 1,
    };
    let mut missed = 0;
    for (class, name) in Class::ALL {
        if arguments.get(3).is_some_and(|only| only != "all" && only != name) {
            continue;
        }
        let began = Instant::now();
        let counts = campaign.class(class);
        println!("{name}: {counts}; {:.1} s", began.elapsed().as_secs_f32());
        if let Some(miss) = &counts.first {
            println!("{miss}");
        }
        missed += counts.missed;
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
