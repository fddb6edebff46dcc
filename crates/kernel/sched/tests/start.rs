//! A scheduler that was set up by another clock: contexts that were woken then have no budgets to make up for.

use bulkhead_sched::{Account, Context, Id, Refill, Scheduler, Time};

const BUDGET: Time = 30;
const PERIOD: Time = 100;
/// When the clock in use begins: some periods later.
const START: Time = 1_234;

/// Time that a hog gets in its first period.
fn first_period(starts: bool) -> Time {
    let account = Account::sporadic(BUDGET, PERIOD, 0).unwrap();
    let mut contexts: [(Context, [Refill; 2]); 1] =
        [(Context::new(account, 7), [Refill::default(); 2])];
    let mut scheduler = Scheduler::new(0);
    scheduler.reserve().unwrap();
    scheduler.wake(&mut contexts[..], Id::of(0), 0);
    if starts {
        scheduler.start(&mut contexts[..], START);
    }
    let (mut now, mut ran) = (START, 0);
    while now < START + PERIOD {
        let decision = scheduler.schedule(&mut contexts[..], now);
        let next = decision.timer.min(START + PERIOD);
        ran += if decision.run.is_some() { next - now } else { 0 };
        now = next;
    }
    ran
}

#[test]
fn who_was_woken_before_the_start_gets_one_budget_a_period() {
    assert_eq!(first_period(true), BUDGET);
}

/// The test above could fail.
#[test]
fn without_a_start_it_would_make_up_for_the_time_before() {
    assert_eq!(first_period(false), PERIOD);
}
