//! Whether a kernel's contexts get their budgets in time: `bulkhead_sched`'s arithmetic on
//! what a manifest says, and what only the manifest knows: who can be kept waiting by a
//! passive server that runs for somebody below.
//!
//! A context's thread that calls a passive server runs there at the server's priority. What
//! it can so keep from the processor waits for at most one such call, as under the priority
//! ceiling protocol: it blocks for as long as its endpoint says that a call takes at most,
//! or, if it does not say, for all of the caller's budget. Faults are not counted.

mod contexts;

use crate::kernel::{Kernel, Policy, Test};
use bulkhead_sched::Utilization;
use bulkhead_sched::admission::{Demand, Load, Refused};
pub use bulkhead_sched::share::Share;

/// More than this of a core above a context is taken for all of it: the search for a
/// response time would take long, and find little. 1 - 2^-10.
const BUSY: Share = Share((1 << 40) - (1 << 30));

/// Somebody of a lower priority in a server of a higher one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocking {
    /// The context.
    pub by: usize,
    /// The endpoint that it calls.
    pub endpoint: usize,
    /// For so long, in nanoseconds; `None`: for ever.
    pub time: Option<u64>,
}

/// The sum of utilizations against its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Of the contexts of at least that priority and of all PIBS contexts, blocking included.
    pub sum: Share,
    /// What it may be at most: n·(2^(1/n) - 1).
    pub limit: Share,
    /// n.
    pub contexts: usize,
}

/// Why a context may not get its budget in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The sum is above its limit, for the contexts of at least the priority of this one.
    Above {
        /// The context.
        context: usize,
        /// The sum.
        sum: Sum,
    },
    /// The limit does not hold: a longer period has no lower priority than a shorter one.
    NotRateMonotonic {
        /// The context with the shorter period.
        shorter: usize,
        /// The one with the longer.
        longer: usize,
    },
    /// It can take longer than its period.
    Late {
        /// The context.
        context: usize,
        /// At least so long, in nanoseconds.
        response: u64,
    },
    /// A strict one does not get back what it loses by waiting, and somebody can keep it waiting.
    Delayed {
        /// The context.
        context: usize,
        /// By whom.
        by: usize,
    },
    /// Somebody below can keep it waiting for ever.
    Blocked {
        /// The context.
        context: usize,
        /// By whom.
        blocking: Blocking,
    },
}

/// A kernel's contexts with what follows for each from the whole: who runs on it, and at
/// which priorities.
pub struct Analysis<'a> {
    kernel: &'a Kernel,
    /// The lowest and the highest priority at which a context runs by itself.
    priorities: Vec<(u8, u8)>,
    /// Endpoints that may be called on a context.
    called: Vec<Vec<usize>>,
    /// Priorities of the passive threads that a call of an endpoint can reach.
    reach: Vec<Option<(u8, u8)>>,
    /// The lowest priority at which a context runs, in the servers that it calls, too.
    floors: Vec<u8>,
}

impl<'a> Analysis<'a> {
    /// Looks at a kernel.
    #[must_use]
    pub fn new(kernel: &'a Kernel) -> Self {
        let contexts = 0..kernel.contexts.len();
        let called = |context| {
            let programs = kernel.users(context).map(|n| kernel.threads[n].program);
            programs
                .flat_map(|n| kernel.programs[n].calls.iter().map(|call| call.endpoint))
                .collect()
        };
        let priorities = |context| {
            let all = kernel.users(context).map(|thread| kernel.threads[thread].priority);
            let (low, high) = all.fold((u8::MAX, 0), |(low, high), p| (low.min(p), high.max(p)));
            (low.min(high), high)
        };
        let priorities: Vec<(u8, u8)> = contexts.clone().map(priorities).collect();
        let called: Vec<Vec<usize>> = contexts.map(called).collect();
        let reach = kernel.reached();
        let floor = |(endpoints, (own, _)): (&Vec<usize>, &(u8, u8))| {
            let servers = endpoints.iter().filter_map(|endpoint| reach[*endpoint]);
            servers.map(|(low, _)| low).fold(*own, u8::min)
        };
        let floors = called.iter().zip(&priorities).map(floor).collect();
        Self { kernel, priorities, called, reach, floors }
    }

    /// The priorities at which a context runs, the lowest and the highest, but for what it runs
    /// when it calls passive servers. Of a notification's context: those of the passive
    /// threads that may take its signals. A PIBS context: as long as nobody asked.
    #[must_use]
    pub fn priorities(&self, context: usize) -> (u8, u8) {
        self.priorities[context]
    }

    /// The priorities of the passive threads that a call of an endpoint can reach, the lowest and
    /// the highest; nothing if only threads with contexts of their own serve it.
    #[must_use]
    pub fn reach(&self, endpoint: usize) -> Option<(u8, u8)> {
        self.reach[endpoint]
    }

    /// The lowest priority at which a context runs, in the passive servers that it calls, too.
    #[must_use]
    pub fn floor(&self, context: usize) -> u8 {
        self.floors[context]
    }

    /// Who below a context can keep it waiting longest.
    #[must_use]
    pub fn blocking(&self, context: usize) -> Option<Blocking> {
        let own = self.floor(context);
        let below = |other: &usize| *other != context && self.priorities(*other).1 < own;
        let others = (0..self.kernel.contexts.len()).filter(below);
        let others = others.filter(|other| !self.kernel.is_pibs(*other));
        let calls = others.flat_map(|by| self.called[by].iter().map(move |to| (by, *to)));
        let above = calls.filter(|(_, endpoint)| {
            self.reach(*endpoint).is_some_and(|(_, ceiling)| ceiling >= own)
        });
        let blocking = above.map(|(by, endpoint)| {
            let caller = &self.kernel.contexts[by];
            let budget = match caller.policy {
                Policy::Full { .. } => None,
                _ => Some(caller.gross(self.kernel.overhead)),
            };
            let longest = self.kernel.endpoints[endpoint].longest;
            Blocking { by, endpoint, time: [budget, longest].into_iter().flatten().min() }
        });
        blocking.max_by_key(|blocking| blocking.time.unwrap_or(u64::MAX))
    }

    /// For how long a context is blocked at most, in nanoseconds.
    fn blocked(&self, context: usize) -> Result<u64, Refusal> {
        match self.blocking(context) {
            None => Ok(0),
            Some(blocking) => blocking.time.ok_or(Refusal::Blocked { context, blocking }),
        }
    }

    /// A context's response time: from a refill until it is used up, in nanoseconds.
    ///
    /// # Errors
    /// [`Refusal::Late`], [`Refusal::Blocked`].
    pub fn response(&self, context: usize) -> Result<u64, Refusal> {
        let (kernel, own) = (self.kernel, self.floor(context));
        let blocked = self.blocked(context)?;
        let demand = |n: usize| match n == context {
            true => kernel.contexts[n].demand(own, blocked),
            false => kernel.contexts[n].demand(self.priorities(n).1, 0),
        };
        let demands: Vec<Demand> = (0..kernel.contexts.len()).map(demand).collect();
        let devices: Vec<Utilization> = kernel.devices().collect();
        let load = Load { contexts: &demands, devices: &devices, overhead: kernel.overhead };
        if self.above(context) > BUSY {
            let least = load.gross(&demands[context]);
            let response = least.max(kernel.contexts[context].period().saturating_add(1));
            return Err(Refusal::Late { context, response });
        }
        load.response(context).map_err(|refused| match refused {
            Refused::Late { response, .. } => Refusal::Late { context, response },
            _ => Refusal::Late { context, response: u64::MAX },
        })
    }

    /// The sum of utilizations for the contexts of at least a context's priority.
    ///
    /// # Errors
    /// [`Refusal::NotRateMonotonic`], [`Refusal::Blocked`].
    pub fn utilization(&self, context: usize) -> Result<Sum, Refusal> {
        let (kernel, own) = (self.kernel, self.floor(context));
        let counts = |n: &usize| !kernel.is_pibs(*n) && self.priorities(*n).1 >= own;
        let counted: Vec<usize> = (0..kernel.contexts.len()).filter(counts).collect();
        self.rate_monotonic(&counted)?;
        let blocked = Share::of(self.blocked(context)?, kernel.contexts[context].period());
        let all = counted.iter().map(|n| kernel.share(*n));
        let devices = kernel.devices().map(Share::of_pibs);
        let sum = all.chain(devices).fold(blocked, Share::plus);
        Ok(Sum { sum, limit: Share::bound(counted.len() as u64), contexts: counted.len() })
    }

    /// Whether each longer period has a lower priority than all shorter ones.
    fn rate_monotonic(&self, contexts: &[usize]) -> Result<(), Refusal> {
        let period = |n: &usize| self.kernel.contexts[*n].period();
        let mut order = contexts.to_vec();
        order.sort_by_key(period);
        // The lowest priority of those with shorter periods than this group of equal ones.
        let mut lowest: Option<usize> = None;
        for group in order.chunk_by(|a, b| period(a) == period(b)) {
            for longer in group {
                if let Some(shorter) = lowest
                    && self.priorities(shorter).0 <= self.priorities(*longer).1
                {
                    return Err(Refusal::NotRateMonotonic { shorter, longer: *longer });
                }
            }
            let all = group.iter().copied().chain(lowest);
            lowest = all.min_by_key(|n| self.priorities(*n).0);
        }
        Ok(())
    }

    /// Everything because of which a test does not admit the contexts.
    #[must_use]
    pub fn refusals(&self, test: Test) -> Vec<Refusal> {
        let refused = |context| match test {
            Test::None => None,
            Test::Response => self.response(context).err().or_else(|| self.delayed(context)),
            Test::Bound => match self.utilization(context) {
                Ok(sum) if sum.sum <= sum.limit => self.delayed(context),
                Ok(sum) => Some(Refusal::Above { context, sum }),
                Err(refusal) => Some(refusal),
            },
        };
        let mut all: Vec<Refusal> = Vec::new();
        for refusal in self.kernel.guaranteed().filter_map(refused) {
            // A pair of contexts is found again for each that is below both.
            if !all.contains(&refusal) {
                all.push(refusal);
            }
        }
        all
    }

    /// A strict server's refill comes T after its use began: each wait puts all that follows off, and the waits
    /// add up ([`bulkhead_sched::server`]). So it gets C in each T only if nobody can keep it waiting.
    #[must_use]
    pub fn delayed(&self, context: usize) -> Option<Refusal> {
        if !matches!(self.kernel.contexts[context].policy, Policy::Strict(_)) {
            return None;
        }
        let before = self.before(context).next();
        let by = before.or_else(|| self.blocking(context).map(|blocking| blocking.by))?;
        Some(Refusal::Delayed { context, by })
    }

    /// All others that come before a context.
    fn before(&self, context: usize) -> impl Iterator<Item = usize> {
        let own = self.floor(context);
        let others = (0..self.kernel.contexts.len()).filter(move |n| *n != context);
        others.filter(move |n| self.kernel.is_pibs(*n) || self.priorities(*n).1 >= own)
    }

    /// Their share.
    fn above(&self, context: usize) -> Share {
        self.before(context).map(|n| self.kernel.share(n)).fold(Share(0), Share::plus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use crate::kernel::{Budget, Call, Context, Endpoint, Notification, Program, Thread, User};

    /// Nothing yet; the kernel's own work is for nothing.
    fn kernel() -> Kernel {
        Kernel {
            file: "k".into(),
            admission: Test::Response,
            overhead: 0,
            trace: 0,
            programs: Vec::new(),
            threads: Vec::new(),
            contexts: Vec::new(),
            endpoints: Vec::new(),
            notifications: Vec::new(),
            shared: Vec::new(),
        }
    }

    impl Kernel {
        /// A program that calls and serves endpoints, with one thread.
        fn program(&mut self, priority: u8, calls: &[usize], serves: &[usize]) -> &mut Thread {
            let program = self.programs.len();
            let call = |endpoint: &usize| Call { endpoint: *endpoint, badge: 0, grant: false };
            self.programs.push(Program {
                name: format!("p{program}"),
                calls: calls.iter().map(call).collect(),
                serves: serves.to_vec(),
                ..Program::default()
            });
            self.threads.push(Thread {
                name: format!("t{program}"),
                place: Place::default(),
                program,
                entry: None,
                priority,
                max_priority: 0,
                context: None,
                stack: 4096,
                fpu: false,
                fault: None,
                timeout: None,
            });
            self.threads.last_mut().unwrap()
        }

        /// The same, with a context.
        fn active(&mut self, policy: Policy, priority: u8, calls: &[usize]) -> usize {
            let context = self.contexts.len();
            self.program(priority, calls, &[]).context = Some(context);
            self.contexts.push(Context {
                name: format!("c{context}"),
                place: Place::default(),
                policy,
                background: false,
                guaranteed: true,
                activations: 1,
                user: User::Thread(self.threads.len() - 1),
            });
            context
        }

        fn endpoint(&mut self, longest: Option<u64>) -> usize {
            let name = "e".into();
            self.endpoints.push(Endpoint { name, place: Place::default(), longest });
            self.endpoints.len() - 1
        }
    }

    fn look(kernel: &Kernel) -> Analysis<'_> {
        Analysis::new(kernel)
    }

    const fn server(budget: u64, period: u64) -> Policy {
        Policy::Sporadic(Budget { budget, period, refills: 8 })
    }

    /// The VCPUs of figure 7 of the Quest-V article.
    fn figure_7() -> Kernel {
        let mut kernel = kernel();
        kernel.active(server(10, 40), 2, &[]);
        kernel.active(server(20, 50), 1, &[]);
        let utilization = Utilization::new(1, 25).unwrap();
        kernel.active(Policy::Pibs { utilization, period: 50 }, 0, &[]);
        kernel
    }

    #[test]
    fn figure_7_is_admitted() {
        let kernel = figure_7();
        assert_eq!(kernel.sum().to_string(), "72.84000 %");
        assert_eq!([0, 1].map(|n| look(&kernel).response(n)), [Ok(11), Ok(33)]);
        let sum = look(&kernel).utilization(1).unwrap();
        assert_eq!((sum.sum, sum.limit, sum.contexts), (kernel.sum(), Share::bound(2), 2));
        for test in [Test::Bound, Test::Response, Test::None] {
            assert_eq!(look(&kernel).refusals(test), []);
        }
        // Above the first one it can work for its own period, in a budget that is counted once.
        let mut kernel = kernel;
        kernel.threads[2].priority = 3;
        assert_eq!([0, 1].map(|n| look(&kernel).response(n)), [Ok(12), Ok(33)]);
    }

    #[test]
    fn the_kernels_work_counts() {
        let mut kernel = figure_7();
        kernel.overhead = 2;
        kernel.contexts[0].activations = 2;
        // 14 + 1 + floor((15 - 1) / 25); 22 + 14 + 2 + floor((39 - 2) / 25).
        assert_eq!([0, 1].map(|n| look(&kernel).response(n)), [Ok(15), Ok(39)]);
        assert_eq!(kernel.sum().to_string(), "86.84000 %");
        let Refusal::Above { context: 1, sum } = look(&kernel).refusals(Test::Bound)[0] else {
            panic!()
        };
        assert_eq!(sum.sum.above(sum.limit).to_string(), "3.99729 %");
    }

    #[test]
    fn who_has_no_guarantee_is_not_refused() {
        let mut kernel = figure_7();
        kernel.active(server(90, 100), 0, &[]);
        let [Refusal::Late { context: 3, response }] = look(&kernel).refusals(Test::Response)[..]
        else {
            panic!()
        };
        assert!(response > 100);
        kernel.contexts[3].guaranteed = false;
        assert_eq!(look(&kernel).refusals(Test::Response), []);
        // Above them it disturbs all the same.
        kernel.threads[3].priority = 3;
        assert_eq!(look(&kernel).refusals(Test::Response).len(), 2);
    }

    #[test]
    fn a_strict_one_is_guaranteed_only_if_nobody_keeps_it_waiting() {
        let mut kernel = kernel();
        let strict = Policy::Strict(Budget { budget: 1, period: 10, refills: 8 });
        kernel.active(strict, 2, &[]);
        kernel.active(server(3, 7), 1, &[]);
        kernel.threads[0].priority = 3;
        kernel.contexts[1].guaranteed = false;
        assert_eq!(look(&kernel).refusals(Test::Response), []);
        // At the same priority, or above: its own response time is still below its period.
        let refused = vec![Refusal::Delayed { context: 0, by: 1 }];
        for priority in [3, 4] {
            kernel.threads[1].priority = priority;
            assert_eq!(look(&kernel).response(0), Ok(4));
            assert_eq!(look(&kernel).refusals(Test::Response), refused);
        }
        assert_eq!(look(&kernel).refusals(Test::Bound), refused);
        assert_eq!(look(&kernel).refusals(Test::None), []);
        kernel.contexts[0].guaranteed = false;
        assert_eq!(look(&kernel).refusals(Test::Response), []);
        assert_eq!(look(&kernel).refusals(Test::Bound), []);
        // Below, but in a server above.
        kernel.contexts[0].guaranteed = true;
        kernel.threads[1].priority = 1;
        let endpoint = kernel.endpoint(Some(1));
        kernel.program(5, &[], &[endpoint]);
        kernel.programs[1].calls.push(Call { endpoint, badge: 0, grant: false });
        // The analysis is made anew, with what it calls.
        assert_eq!(look(&kernel).refusals(Test::Response), refused);
    }

    #[test]
    fn a_passive_server_above_blocks() {
        let mut kernel = kernel();
        let endpoint = kernel.endpoint(None);
        kernel.active(server(10, 40), 5, &[]);
        kernel.active(server(8, 100), 1, &[endpoint]);
        kernel.program(4, &[], &[endpoint]);
        assert_eq!(look(&kernel).blocking(0), None, "the server is below");
        assert_eq!(look(&kernel).response(0), Ok(10));
        kernel.threads[2].priority = 5;
        kernel.threads[1].priority = 5;
        assert_eq!(look(&kernel).blocking(0), None, "equal ones disturb as such");
        kernel.threads[1].priority = 1;
        let blocking = |time| Some(Blocking { by: 1, endpoint, time });
        assert_eq!(look(&kernel).blocking(0), blocking(Some(8)));
        assert_eq!(look(&kernel).response(0), Ok(18));
        let sum = look(&kernel).utilization(0).unwrap();
        assert_eq!(sum.sum, Share::of(10, 40).plus(Share::of(8, 40)));
        kernel.endpoints[endpoint].longest = Some(3);
        assert_eq!(look(&kernel).blocking(0), blocking(Some(3)));
        kernel.contexts[1].policy = Policy::Full { slice: 8 };
        assert_eq!(look(&kernel).blocking(0), blocking(Some(3)));
        kernel.endpoints[endpoint].longest = None;
        let refused = Refusal::Blocked { context: 0, blocking: blocking(None).unwrap() };
        assert_eq!(look(&kernel).response(0), Err(refused));
        assert_eq!(look(&kernel).refusals(Test::Bound), [refused]);
    }

    #[test]
    fn servers_call_servers() {
        let mut kernel = kernel();
        let [near, far] = [kernel.endpoint(None), kernel.endpoint(None)];
        kernel.active(server(10, 40), 5, &[]);
        kernel.active(server(8, 100), 1, &[near]);
        kernel.program(2, &[far], &[near]);
        kernel.program(9, &[near], &[far]);
        assert_eq!(look(&kernel).reach(near), Some((2, 9)));
        assert_eq!(
            look(&kernel).blocking(0),
            Some(Blocking { by: 1, endpoint: near, time: Some(8) })
        );
        // A thread with a context of its own does not run on its callers'.
        kernel.threads[2].context = Some(0);
        assert_eq!(look(&kernel).reach(near), None);
    }

    #[test]
    fn a_server_below_its_caller_is_disturbed_by_those_between() {
        let mut kernel = kernel();
        let endpoint = kernel.endpoint(None);
        kernel.active(server(10, 100), 9, &[endpoint]);
        kernel.active(server(20, 100), 5, &[]);
        assert_eq!(look(&kernel).response(0), Ok(10));
        kernel.program(3, &[], &[endpoint]);
        assert_eq!(look(&kernel).floor(0), 3);
        assert_eq!(look(&kernel).response(0), Ok(30));
    }

    #[test]
    fn a_notifications_context_is_whoever_waits() {
        let mut kernel = kernel();
        kernel.notifications.push(Notification {
            name: "n".into(),
            place: Place::default(),
            context: Some(0),
        });
        kernel.active(server(10, 100), 9, &[]);
        kernel.contexts[0].user = User::Notification(0);
        kernel.threads[0].context = None;
        assert_eq!(kernel.users(0).count(), 0);
        kernel.programs[0].waits.push(0);
        kernel.program(2, &[], &[]);
        kernel.programs[1].waits.push(0);
        assert_eq!(look(&kernel).priorities(0), (2, 9));
        // Who has a context of its own does not need another one's.
        kernel.active(server(1, 1000), 1, &[]);
        kernel.programs[2].waits.push(0);
        assert_eq!(look(&kernel).priorities(0), (2, 9));
        kernel.active(server(20, 100), 5, &[]);
        assert_eq!([0, 2].map(|n| look(&kernel).response(n)), [Ok(30), Ok(30)]);
    }

    #[test]
    fn priorities_that_are_not_rate_monotonic_are_named_once() {
        let mut kernel = kernel();
        kernel.active(server(1, 40), 1, &[]);
        kernel.active(server(1, 50), 2, &[]);
        kernel.active(server(1, 60), 0, &[]);
        let refused = Refusal::NotRateMonotonic { shorter: 0, longer: 1 };
        assert_eq!(look(&kernel).refusals(Test::Bound), [refused]);
        assert_eq!(look(&kernel).refusals(Test::Response), []);
        // Of two with the same period the lower one counts.
        kernel.contexts[1].policy = server(1, 40);
        kernel.threads[2].priority = 1;
        let refused = Refusal::NotRateMonotonic { shorter: 0, longer: 2 };
        assert_eq!(look(&kernel).refusals(Test::Bound), [refused]);
    }

    /// A search tick by tick would take 2^60 steps.
    #[test]
    fn a_busy_core_is_refused_at_once() {
        let mut kernel = kernel();
        kernel.active(server(1, 1), 2, &[]);
        kernel.active(server(1, 1 << 60), 1, &[]);
        assert!(matches!(
            look(&kernel).refusals(Test::Response)[..],
            [Refusal::Late { context: 1, .. }]
        ));
        let mut kernel = self::kernel();
        kernel.active(server(u64::MAX, u64::MAX), 2, &[]);
        kernel.active(server(u64::MAX, u64::MAX), 1, &[]);
        kernel.overhead = 1;
        assert_eq!(look(&kernel).refusals(Test::Response).len(), 1);
    }
}
