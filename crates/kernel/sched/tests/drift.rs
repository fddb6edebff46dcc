//! A strict context keeps its period if its timer comes late by no more than the cost of its beginning: latencies do
//! not add up. All histories of some periods are tried, late or not at each beginning and at each end.

use bulkhead_sched::{Account, Refill, Time};

const PERIOD: Time = 20;
const PERIODS: u64 = 5;

/// Plays a history: in each period a latency of the beginning, and whether the end comes a tick late. Answers when the
/// refills began to be usable.
fn refills(cost: Time, budget: Time, mut history: u64) -> Vec<Time> {
    let account = Account::strict(budget, PERIOD, 0).and_then(|strict| strict.with_cost(cost));
    let (mut account, mut list) = (account.expect("a budget"), [Refill::default(); 7]);
    let mut usable = Vec::new();
    account.wake(&mut list, 0);
    for _ in 0..PERIODS {
        usable.push(account.eligible());
        let late = history % (cost + 1);
        history /= cost + 1;
        let overruns = history % 2;
        history /= 2;
        let begin = account.eligible() + late;
        account.dispatch(&mut list, begin);
        let used = account.left() + overruns;
        account.charge(used);
        assert!(account.settle(&mut list, begin + used));
    }
    usable
}

#[test]
fn a_strict_context_does_not_drift_by_the_latency_of_its_timer() {
    let whole: Vec<Time> = (0..PERIODS).map(|n| n * PERIOD).collect();
    let mut tried = 0;
    for cost in 1..=3_u64 {
        for history in 0..(2 * (cost + 1)).pow(PERIODS as u32) {
            for budget in [cost + 3, 2 * cost + 6] {
                let usable = refills(cost, budget, history);
                assert_eq!(usable, whole, "cost {cost}, budget {budget}, history {history}");
                tried += 1;
            }
        }
    }
    assert!(tried > 80_000, "{tried}");
}
