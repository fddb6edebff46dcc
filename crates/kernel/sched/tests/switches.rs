//! The number of switches, which are paid for by the cost of a beginning only. A context with one tick left is put on
//! the processor, there is no margin, and this is why that does not matter (decision 19).
//!
//! A context that is put on the processor begins to use a refill, and is charged its cost. Or it goes on, because a
//! context that kept it waiting has stopped, and each of those had begun. So there are at most two switches for each
//! beginning, and no more beginnings than costs that fit into all budgets.

use bulkhead_sched::simulate::{Simulation, Slice, Step, Thread};
use bulkhead_sched::{Account, Context, Id, Refill, Time};
use proptest::prelude::*;

const END: Time = 2_000;

/// A thread that does as it likes, on a budget in a period of which a beginning costs some.
#[derive(Clone, Debug)]
struct Server {
    budget: Time,
    period: Time,
    cost: Time,
    refills: usize,
    strict: bool,
    program: Vec<Step>,
}

impl Server {
    fn thread(&self, priority: u8) -> Thread {
        let account = match self.strict {
            true => Account::strict(self.budget, self.period, 0),
            false => Account::sporadic(self.budget, self.period, 0),
        };
        let account = account.and_then(|account| account.with_cost(self.cost)).unwrap();
        let refills = vec![Refill::default(); self.refills - 1];
        let context = (Context::new(account, priority), refills);
        Thread { context, start: 0, program: self.program.clone(), repeat: Some(0) }
    }

    /// Returns how often it can begin up to a time: it is charged as much as a periodic task would use. A decision
    /// takes no time here, so that the last cost comes before it has passed.
    fn beginnings(&self, end: Time) -> Time {
        self.budget * (end + self.cost).div_ceil(self.period) / self.cost
    }
}

/// Returns the slices of all servers, with falling priorities.
fn slices(servers: &[Server], alarms: bool) -> Vec<Slice> {
    let threads = (1..=100).rev().zip(servers).map(|(priority, server)| server.thread(priority));
    let mut simulation = Simulation::new(threads);
    if alarms {
        simulation = simulation.with_alarms();
    }
    simulation.run(END);
    simulation.slices().to_vec()
}

/// How often somebody was put on the processor, before a time.
fn switches(slices: &[Slice], end: Time) -> Time {
    slices.iter().filter(|slice| slice.context.is_some() && slice.begin < end).count() as Time
}

fn server(ids: u32) -> impl Strategy<Value = Server> {
    let step = prop_oneof![
        3 => Just(Step::Run(1)),
        1 => (2u64..40).prop_map(Step::Run),
        1 => (1u64..9).prop_map(Step::Every),
        2 => Just(Step::Wait),
        3 => (0..ids).prop_map(|id| Step::Signal(Id::of(id))),
    ];
    let program = prop::collection::vec(step, 1..6);
    let sizes = (6u64..30, 1u64..30, 0u64..20, 1usize..40, any::<bool>());
    (sizes, program).prop_map(|((cost, more, rest, refills, strict), program)| {
        let budget = cost + more;
        let program = [&[Step::Run(1)], &program[..]].concat();
        Server { budget, period: budget + rest, cost, refills, strict, program }
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn there_are_two_for_each_beginning_that_is_paid(
        servers in (1u32..6).prop_flat_map(|ids| prop::collection::vec(server(ids), ids as usize)),
        alarms: bool,
    ) {
        let slices = slices(&servers, alarms);
        for end in (50..=END).step_by(50) {
            let beginnings: Time = servers.iter().map(|server| server.beginnings(end)).sum();
            let seen = switches(&slices, end);
            prop_assert!(seen <= 2 * beginnings, "{} of {} up to {}", seen, 2 * beginnings, end);
        }
    }
}

/// The worst case: a server is signalled all the time and sleeps again after a tick, and a context below it goes on
/// each time. Only the cost bounds them.
#[test]
fn the_bound_is_what_the_cost_makes_it() {
    for cost in [1, 4, 9, 24] {
        let program = vec![Step::Wait, Step::Run(1)];
        let above = Server { budget: 50, period: 100, cost, refills: 64, strict: false, program };
        let below = Thread {
            context: (Context::new(Account::full(1_000).unwrap(), 1), vec![]),
            start: 0,
            program: vec![Step::Run(1), Step::Signal(Id::of(0))],
            repeat: Some(0),
        };
        let mut simulation = Simulation::new([above.thread(2), below]);
        simulation.run(END);
        let (seen, bound) = (switches(simulation.slices(), END), 2 * above.beginnings(END));
        assert!(seen <= bound + 1, "{seen} of {bound} with a cost of {cost}");
        // Each use takes a tick beside its cost.
        let most = 2 * (50 / (cost + 1)) * (END / 100);
        assert!(seen + 2 * (END / 100) >= most, "{seen} of {most} with a cost of {cost}");
    }
}

/// The smallest rest: it is put on the processor for one tick, once, and has no more until its refill.
#[test]
fn one_tick_that_is_left_is_used_once() {
    let low = Server {
        budget: 10,
        period: 100,
        cost: 3,
        refills: 4,
        strict: false,
        program: vec![Step::Run(1_000)],
    };
    let high = Server { program: vec![Step::Wait, Step::Run(4)], ..low.clone() };
    let program = vec![Step::Run(1), Step::Signal(Id::of(1)), Step::Wait];
    let clock = Server { program, ..low.clone() };
    let mut simulation =
        Simulation::new([Thread { start: 6, ..clock.thread(30) }, high.thread(20), low.thread(10)]);
    simulation.run(200);
    let own = simulation.slices().iter().filter(|slice| slice.context == Some(Id::of(2)));
    // 3 are charged at the beginning, and 6 are used before the two above come.
    let ran: Vec<_> = own.map(|slice| (slice.begin, slice.end)).collect();
    assert_eq!(ran, [(0, 6), (11, 12), (100, 107)]);
}
