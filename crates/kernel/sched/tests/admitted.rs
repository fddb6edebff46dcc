//! Admission against the scheduler, with random sets of threads (UUniFast: Bini and Buttazzo, *Measuring the
//! performance of schedulability tests*, 2005). All are released at once, which is their worst case (Liu and Layland
//! 1973). Response times are exact, so the simulation has to show them to the tick.

use bulkhead_sched::admission::{Demand, Load, Test};
use bulkhead_sched::simulate::{Simulation, Step, Thread};
use bulkhead_sched::{Account, Context, Refill, Time};

const SETS: u64 = 100_000;

/// Random numbers that repeat in each run.
struct Random(bulkhead_oracle::Random);

impl Random {
    const fn new(seed: u64) -> Self {
        Self(bulkhead_oracle::Random::new(seed))
    }

    /// Shares that add up to `sum`, each such set as likely as any other.
    fn shares(&mut self, count: u64, sum: f64) -> Vec<f64> {
        let mut rest = sum;
        let mut shares: Vec<f64> = (1..count)
            .rev()
            .map(|left| {
                let next = rest * self.0.share().powf(1.0 / left as f64);
                let share = rest - next;
                rest = next;
                share
            })
            .collect();
        shares.push(rest);
        shares
    }

    /// Periods from 5 to 200, budgets by share, priorities by period or at random, no two equal.
    fn set(&mut self) -> Vec<Demand> {
        let count = 1 + self.0.below(7);
        let sum = 0.3 + 0.75 * self.0.share();
        let shares = self.shares(count, sum);
        let mut periods: Vec<Time> =
            shares.iter().map(|_| (5.0 * 40f64.powf(self.0.share())) as Time).collect();
        if self.0.below(2) == 0 {
            periods.sort_unstable();
        }
        let demands = periods.into_iter().zip(shares).zip((1..=count as u8).rev());
        demands
            .map(|((period, share), priority)| Demand {
                budget: ((period as f64 * share) as Time).clamp(1, period),
                period,
                priority,
                activations: 1,
                guaranteed: true,
            })
            .collect()
    }
}

/// Threads that use up their budgets in each period, the first one from `start` on.
fn simulate(set: &[Demand], start: impl Fn(usize) -> Time, end: Time) -> Simulation {
    let threads = set.iter().enumerate().map(|(n, demand)| {
        let account = Account::sporadic(demand.budget, demand.period, 0).unwrap();
        let context = (Context::new(account, demand.priority), vec![Refill::default()]);
        let program = vec![Step::Run(demand.budget), Step::Every(demand.period)];
        Thread { context, start: start(n), program, repeat: Some(0) }
    });
    let mut simulation = Simulation::new(threads).with_alarms();
    // One tick more: a job that is done at the end is seen there.
    simulation.run(end + 1);
    simulation
}

/// When each one's first job is done.
fn first_responses(simulation: &Simulation, count: usize) -> Vec<Option<Time>> {
    let mut responses = vec![None; count];
    for job in simulation.jobs().iter().filter(|job| job.released == 0) {
        responses[job.context.index()] = Some(job.done);
    }
    responses
}

#[test]
fn response_times_are_exact_and_the_bound_is_safe() {
    let (mut by_bound, mut by_response, mut late) = (0, 0, 0);
    for seed in 0..SETS {
        let set = Random::new(seed).set();
        let load = Load { contexts: &set, devices: &[], overhead: 0 };
        let longest = set.iter().map(|demand| demand.period).max().unwrap();
        let simulation = simulate(&set, |_| 0, longest);
        let seen = first_responses(&simulation, set.len());
        for (n, demand) in set.iter().enumerate() {
            let response = load.response(n).ok();
            let seen = seen[n].filter(|done| *done <= demand.period);
            assert_eq!(response, seen, "seed {seed}, context {n}: {set:?}");
        }
        let admitted = load.admit(Test::Response).is_ok();
        by_response += u64::from(admitted);
        late += u64::from(!admitted);
        if load.admit(Test::Bound).is_ok() {
            by_bound += 1;
            assert!(admitted, "seed {seed}: by the bound, but late: {set:?}");
        }
        if admitted {
            let mut jobs = simulation.jobs().iter();
            let in_time = |done: Time, n: usize| done <= set[n].period;
            assert!(
                jobs.all(|job| in_time(job.done - job.released, job.context.index())),
                "{set:?}"
            );
        }
    }
    println!("{SETS} sets: {by_bound} by the bound, {by_response} by response, {late} refused");
    assert!(by_bound > SETS / 10 && by_response > by_bound + SETS / 10 && late > SETS / 10);
}

/// Released at any times: no admitted set misses, of as many as are said.
#[test]
fn an_admitted_set_never_misses() {
    let (mut jobs, mut admitted, mut seed) = (0, 0, 0);
    while admitted < SETS {
        let set = Random::new(seed).set();
        seed += 1;
        let load = Load { contexts: &set, devices: &[], overhead: 0 };
        if load.admit(Test::Response).is_err() {
            continue;
        }
        admitted += 1;
        let start = |n: usize| bulkhead_oracle::Random::new(seed ^ n as u64).below(set[n].period);
        // Some of the longest periods that there are.
        let end = 800;
        let simulation = simulate(&set, start, end);
        jobs += simulation.jobs().len();
        for job in simulation.jobs() {
            let period = set[job.context.index()].period;
            assert!(job.done - job.released <= period, "seed {seed}: {job:?}, {set:?}");
        }
        let released: Time = set.iter().map(|demand| end / demand.period - 1).sum();
        assert!(simulation.jobs().len() as Time >= released, "seed {seed}: jobs are missing");
    }
    println!("{admitted} admitted sets of {seed}: {jobs} jobs");
    assert!(jobs as u64 > 10 * SETS, "{jobs}");
}
