//! A kernel's schedule in simulated time, by the scheduler that the kernel runs. All contexts begin at once and use
//! their whole budget in each period, with the kernel's charges for it. The last part of a budget is spent on calls of
//! passive servers, at the server's priority. There is one call of each server that has an endpoint with a longest
//! time. A PIBS context works for the contexts that may call or signal its program, once for each of their jobs.
//! Without such requesters it works for itself.

use bulkhead_plan::admission::Analysis;
use bulkhead_plan::kernel::{Kernel, Policy, Program};
use bulkhead_sched::simulate::{Job, Simulation, Slice, Step, Thread};
use bulkhead_sched::{Account, Context, Id, PLACES, Refill};

/// More slices than these are more than a picture shows.
const MOST_SLICES: usize = 20_000;

/// A server's refills from a time on.
#[derive(Debug, PartialEq, Eq)]
pub struct List {
    /// When it came to be so, in nanoseconds.
    pub since: u64,
    /// The context.
    pub context: usize,
    /// Budget, and the time from which it can be used, in nanoseconds; the first one is in use.
    pub refills: Vec<(u64, u64)>,
}

/// A schedule.
pub struct Simulated {
    /// Running contexts, without gaps; numbers are those of the kernel's contexts.
    pub slices: Vec<Slice>,
    /// Jobs that ended.
    pub jobs: Vec<Job>,
    /// The lists of servers, each time that one is another.
    pub lists: Vec<List>,
    /// Up to when, in nanoseconds.
    pub end: u64,
    /// Up to when was asked, in nanoseconds: not reached if there are too many slices.
    pub asked: u64,
}

impl Simulated {
    /// The longest from release to end of a context's jobs, in nanoseconds.
    #[must_use]
    pub fn longest(&self, context: usize) -> Option<u64> {
        self.jobs(context).map(|job| job.done - job.released).max()
    }

    /// A context's jobs.
    pub fn jobs(&self, context: usize) -> impl Iterator<Item = &Job> {
        self.jobs.iter().filter(move |job| job.context.index() == context)
    }
}

/// Runs a kernel's contexts for `duration` nanoseconds; without one for twice their longest
/// period.
///
/// # Errors
/// The reason why it cannot be simulated.
pub fn run(kernel: &Kernel, duration: Option<u64>) -> Result<Simulated, String> {
    let count = kernel.contexts.len();
    if count > PLACES {
        return Err(format!("{count} contexts are more than the {PLACES} of a core"));
    }
    let analysis = Analysis::new(kernel);
    let thread = |n| thread(kernel, n, analysis.priorities(n).1);
    let threads: Result<Vec<Thread>, String> = (0..count).map(thread).collect();
    let longest = kernel.contexts.iter().map(|context| context.period()).max().unwrap_or(0);
    let asked = duration.unwrap_or(longest.saturating_mul(2));
    let mut simulation = Simulation::new(threads?);
    let mut lists = Vec::new();
    while simulation.now() < asked && simulation.slices().len() < MOST_SLICES {
        let now = simulation.now();
        simulation.step(asked);
        note(kernel, &simulation, now, &mut lists);
    }
    let (slices, jobs) = (simulation.slices().to_vec(), simulation.jobs().to_vec());
    Ok(Simulated { slices, jobs, lists, end: simulation.now(), asked })
}

/// Notes the lists that are others than before.
fn note(kernel: &Kernel, simulation: &Simulation, since: u64, lists: &mut Vec<List>) {
    for context in (0..kernel.contexts.len()).filter(|n| kernel.is_server(*n)) {
        let (state, behind) = &simulation.contexts()[context];
        let refills: Vec<_> = state.account().list(behind).map(|r| (r.amount, r.time)).collect();
        let last = lists.iter().rev().find(|list: &&List| list.context == context);
        if last.is_none_or(|last| last.refills != refills) {
            lists.push(List { since, context, refills });
        }
    }
}

/// The thread that runs on a context, on an account of its own.
fn thread(kernel: &Kernel, index: usize, priority: u8) -> Result<Thread, String> {
    let context = &kernel.contexts[index];
    let gross = context.gross(kernel.overhead);
    let wrong = |why| format!("context `{}` cannot be: {why:?}", context.name);
    let (account, refills) = match context.policy {
        Policy::Sporadic(server) => (Account::sporadic(gross, server.period, 0), server.refills),
        Policy::Strict(server) => (Account::strict(gross, server.period, 0), server.refills),
        Policy::Pibs { utilization, period } => (Account::pibs(utilization, 0, period, 0), 1),
        Policy::Full { slice } => (Account::full(slice), 1),
    };
    let state = Context::new(account.map_err(wrong)?, priority);
    let state = if context.background { state.in_background() } else { state };
    // One refill lies in the context itself.
    let refills = vec![Refill::default(); refills.saturating_sub(1) as usize];
    let (context, program) = ((state, refills), program(kernel, index));
    Ok(Thread { context, start: 0, program, repeat: Some(0) })
}

/// The steps that it repeats.
fn program(kernel: &Kernel, index: usize) -> Vec<Step> {
    let context = &kernel.contexts[index];
    let run = Step::Run(context.gross(kernel.overhead));
    match context.policy {
        Policy::Full { .. } => vec![run],
        Policy::Pibs { utilization, period } => {
            let periods = requesters(kernel, index).map(|by| kernel.contexts[by].period());
            match periods.min() {
                None => vec![run, Step::Every(period)],
                Some(shortest) => vec![Step::Wait, Step::Run(utilization.of(shortest).max(1))],
            }
        }
        Policy::Sporadic(_) | Policy::Strict(_) => {
            let asked = (0..kernel.contexts.len()).filter(|pibs| {
                is_pibs(kernel, *pibs) && requesters(kernel, *pibs).any(|by| by == index)
            });
            let signals = asked.map(|pibs| Step::Signal(Id::of(pibs as u32)));
            let job = job(kernel, index).into_iter().chain([Step::Every(context.period())]);
            signals.chain(job).collect()
        }
    }
}

/// A whole budget, calls last.
fn job(kernel: &Kernel, index: usize) -> Vec<Step> {
    let mut alone = kernel.contexts[index].gross(kernel.overhead);
    let own = kernel.users(index).map(|n| kernel.threads[n].priority).max().unwrap_or(0);
    let mut served = Vec::new();
    for (ceiling, longest) in requests(kernel, index) {
        let time = longest.min(alone);
        alone -= time;
        served.extend([Step::Call(ceiling), Step::Run(time), Step::Answer(own)]);
    }
    [vec![Step::Run(alone)], served].concat()
}

/// Priorities of the passive servers that may be called on a context, and how long a call takes at most, where the
/// manifest says so.
fn requests(kernel: &Kernel, context: usize) -> impl Iterator<Item = (u8, u64)> {
    let request = move |endpoint: usize| {
        let mut programs = kernel.users(context).map(|n| kernel.threads[n].program);
        let calls =
            |n: usize| kernel.programs[n].calls.iter().any(|call| call.endpoint == endpoint);
        let serves = |n: usize| kernel.programs[n].serves.contains(&endpoint);
        let servers = kernel.threads.iter().filter(|t| t.context.is_none() && serves(t.program));
        let ceiling = servers.map(|thread| thread.priority).max();
        ceiling.zip(kernel.endpoints[endpoint].longest).filter(|_| programs.any(calls))
    };
    (0..kernel.endpoints.len()).filter_map(request)
}

fn is_pibs(kernel: &Kernel, context: usize) -> bool {
    matches!(kernel.contexts[context].policy, Policy::Pibs { .. })
}

/// The servers' contexts on which a PIBS context's program may be called or signalled.
fn requesters(kernel: &Kernel, pibs: usize) -> impl Iterator<Item = usize> {
    let programs = |context: usize| {
        kernel.users(context).map(|thread| &kernel.programs[kernel.threads[thread].program])
    };
    (0..kernel.contexts.len()).filter(move |by| {
        kernel.is_server(*by) && programs(*by).any(|from| programs(pibs).any(|to| asks(from, to)))
    })
}

/// Tells if a program may call or signal another one.
fn asks(from: &Program, to: &Program) -> bool {
    from.name != to.name
        && (from.calls.iter().any(|call| to.serves.contains(&call.endpoint))
            || from.signals.iter().any(|signal| to.waits.contains(&signal.notification)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_manifest::{Options, load};
    use bulkhead_plan::Guest;
    use std::path::Path;

    const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/manifests/sched.toml");
    const MS: u64 = 1_000_000;

    /// The kernel of a sandbox of the manifest for these tests.
    fn kernel(sandbox: usize) -> Kernel {
        let options = Options { skip_files: true, ..Options::default() };
        let checked = load(Path::new(MANIFEST), &options).unwrap();
        match &checked.system.sandboxes[sandbox].sandbox.guest {
            Guest::Kernel(kernel) => (**kernel).clone(),
            _ => panic!("no kernel"),
        }
    }

    fn who(simulated: &Simulated) -> Vec<(u64, u64, usize)> {
        let slices = simulated.slices.iter();
        slices.filter_map(|s| s.context.map(|id| (s.begin, s.end, id.index()))).collect()
    }

    #[test]
    fn everybody_uses_all_of_its_time() {
        let simulated = run(&kernel(0), Some(60 * MS)).unwrap();
        let expected = [
            (0, 10_001_000, 0),
            (10_001_000, 30_002_000, 1),
            // The second one's request, at its priority: 4 % of 50 ms.
            (30_002_000, 32_002_000, 2),
            (40 * MS, 50_001_000, 0),
            (50_001_000, 60 * MS, 1),
        ];
        assert_eq!(who(&simulated), expected);
        assert_eq!((simulated.longest(1), simulated.longest(2)), (Some(30_002_000), None));
    }

    /// Used budget comes again a period after its thread could have begun: higher ones are no delay.
    #[test]
    fn lists_are_noted_where_they_change() {
        let simulated = run(&kernel(0), Some(60 * MS)).unwrap();
        let second = simulated.lists.iter().filter(|list| list.context == 1);
        let seen: Vec<_> = second.map(|list| (list.since, list.refills.clone())).collect();
        let budget = 20_001_000;
        assert_eq!(seen, [(0, vec![(budget, 0)]), (30_002_000, vec![(budget, 50 * MS)])]);
    }

    #[test]
    fn a_request_is_served_once() {
        let mut kernel = kernel(0);
        let slow = bulkhead_plan::kernel::Budget { budget: MS, period: 400 * MS, refills: 8 };
        kernel.contexts[1].policy = Policy::Sporadic(slow);
        // It must not go on without a request, even where its share would let it.
        assert_eq!(program(&kernel, 2), [Step::Wait, Step::Run(16 * MS)]);
        let simulated = run(&kernel, Some(800 * MS)).unwrap();
        let served: Vec<_> = who(&simulated).into_iter().filter(|(.., who)| *who == 2).collect();
        // 4 % of 400 ms in one go, after both servers.
        let expected = [11_002_000, 411_002_000].map(|begin| (begin, begin + 16 * MS, 2));
        assert_eq!(served, expected);
    }

    #[test]
    fn who_is_asked_by_nobody_works_for_itself() {
        let mut kernel = kernel(0);
        kernel.programs[1].signals.clear();
        let simulated = run(&kernel, Some(110 * MS)).unwrap();
        assert_eq!(simulated.longest(2), Some(32_002_000));
        assert_eq!(simulated.jobs(2).count(), 2);
    }

    #[test]
    fn the_full_one_has_what_is_left() {
        let mut kernel = kernel(1);
        kernel.contexts[1].policy = Policy::Full { slice: MS };
        let simulated = run(&kernel, Some(10 * MS)).unwrap();
        // The first one's call of the log comes last.
        let call = 1_953_000;
        let expected = [(0, call, 0), (call, 2_003_000, 0), (2_003_000, 10 * MS, 1)];
        assert_eq!(who(&simulated), expected);
        let calls: Vec<u64> =
            simulated.slices.iter().filter(|s| s.served).map(|s| s.begin).collect();
        assert_eq!(calls, [call]);
    }

    #[test]
    fn a_call_takes_no_more_than_the_budget() {
        let mut kernel = kernel(1);
        kernel.contexts[0].policy = Policy::Sporadic(bulkhead_plan::kernel::Budget {
            budget: 20_000,
            period: MS,
            refills: 8,
        });
        let gross = kernel.contexts[0].gross(kernel.overhead);
        let log = kernel.threads.iter().find(|thread| thread.context.is_none()).unwrap().priority;
        let own = kernel.threads[kernel.users(0).next().unwrap()].priority;
        let steps =
            [Step::Run(0), Step::Call(log), Step::Run(gross), Step::Answer(own), Step::Every(MS)];
        assert_eq!(program(&kernel, 0), steps);
        kernel.endpoints[0].longest = None;
        assert_eq!(program(&kernel, 0), [Step::Run(gross), Step::Every(MS)], "nobody knows");
    }

    #[test]
    fn it_lasts_two_periods_and_not_too_many_slices() {
        let mut kernel = kernel(0);
        let simulated = run(&kernel, None).unwrap();
        assert_eq!((simulated.end, simulated.asked), (100 * MS, 100 * MS));
        kernel.overhead = 0;
        kernel.contexts[0].policy =
            Policy::Sporadic(bulkhead_plan::kernel::Budget { budget: 1, period: 2, refills: 8 });
        let simulated = run(&kernel, None).unwrap();
        assert!(simulated.end < simulated.asked);
        assert_eq!(simulated.slices.len(), MOST_SLICES);
    }

    #[test]
    fn too_many_are_refused() {
        let mut kernel = kernel(0);
        kernel.contexts = vec![kernel.contexts[0].clone(); PLACES + 1];
        assert!(run(&kernel, None).is_err());
    }
}
