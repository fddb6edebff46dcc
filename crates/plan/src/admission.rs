//! Whether a kernel's contexts get their budgets in time: `bulkhead_sched`'s arithmetic on
//! what a manifest says, and what only the manifest knows: who can be kept waiting by a
//! passive server that runs for somebody below.
//!
//! A context's thread that calls a passive server runs there at the server's priority. What
//! it can so keep from the processor waits for at most one such call, as under the priority
//! ceiling protocol: it blocks for as long as its endpoint says that a call takes at most,
//! or, if it does not say, for all of the caller's budget. Faults are not counted.

use crate::kernel::{Context, Kernel, Policy, Test, Thread, User};
use bulkhead_sched::Utilization;
use bulkhead_sched::admission::{Demand, Load, Refused};
pub use bulkhead_sched::share::Share;

/// More than this of a core above a context is taken for all of it: the search for a
/// response time would take long, and find little. 1 - 2^-13.
const BUSY: Share = Share((1 << 40) - (1 << 27));

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
    /// Somebody below can keep it waiting for ever.
    Blocked {
        /// The context.
        context: usize,
        /// By whom.
        blocking: Blocking,
    },
}

impl Kernel {
    /// The priorities at which a context runs, the lowest and the highest, but for what it runs
    /// when it calls passive servers. Of a notification's context: those of the passive
    /// threads that may take its signals. A PIBS context: as long as nobody asked.
    #[must_use]
    pub fn priorities(&self, context: usize) -> (u8, u8) {
        let all = self.users(context).map(|thread| self.threads[thread].priority);
        let (low, high) = all.fold((u8::MAX, 0), |(low, high), p| (low.min(p), high.max(p)));
        (low.min(high), high)
    }

    /// The threads that may run on a context without a call.
    pub fn users(&self, context: usize) -> impl Iterator<Item = usize> {
        let user = self.contexts[context].user;
        let waits = move |thread: &usize| {
            let thread = &self.threads[*thread];
            match user {
                User::Thread(_) => false,
                User::Notification(notification) => {
                    let waits = &self.programs[thread.program].waits;
                    thread.context.is_none() && waits.contains(&notification)
                }
            }
        };
        let chosen = move |thread: &usize| user == User::Thread(*thread) || waits(thread);
        (0..self.threads.len()).filter(chosen)
    }

    /// The priorities of the passive threads that a call of an endpoint can reach, the lowest and
    /// the highest; nothing if only threads with contexts of their own serve it.
    #[must_use]
    pub fn reach(&self, endpoint: usize) -> Option<(u8, u8)> {
        let mut seen = vec![false; self.endpoints.len()];
        let (mut open, mut reach) = (vec![endpoint], None);
        while let Some(endpoint) = open.pop() {
            if std::mem::replace(&mut seen[endpoint], true) {
                continue;
            }
            let serves = |thread: &&Thread| {
                let program = &self.programs[thread.program];
                thread.context.is_none() && program.serves.contains(&endpoint)
            };
            for thread in self.threads.iter().filter(serves) {
                let (low, high) = reach.unwrap_or((u8::MAX, 0));
                reach = Some((low.min(thread.priority), high.max(thread.priority)));
                open.extend(self.calls(thread.program));
            }
        }
        reach
    }

    /// Endpoints that a program may call.
    fn calls(&self, program: usize) -> impl Iterator<Item = usize> {
        self.programs[program].calls.iter().map(|call| call.endpoint)
    }

    /// Endpoints that may be called on a context.
    fn called(&self, context: usize) -> impl Iterator<Item = usize> {
        self.users(context).flat_map(|thread| self.calls(self.threads[thread].program))
    }

    /// The lowest priority at which a context runs, in the passive servers that it calls, too.
    #[must_use]
    pub fn floor(&self, context: usize) -> u8 {
        let servers = self.called(context).filter_map(|endpoint| self.reach(endpoint));
        let (own, _) = self.priorities(context);
        servers.map(|(low, _)| low).fold(own, u8::min)
    }

    /// Who below a context can keep it waiting longest.
    #[must_use]
    pub fn blocking(&self, context: usize) -> Option<Blocking> {
        let own = self.floor(context);
        let below = |other: &usize| *other != context && self.priorities(*other).1 < own;
        let pibs = |other: &usize| matches!(self.contexts[*other].policy, Policy::Pibs { .. });
        let others = (0..self.contexts.len()).filter(below).filter(|other| !pibs(other));
        let calls = others.flat_map(|by| self.called(by).map(move |endpoint| (by, endpoint)));
        let above = calls.filter(|(_, endpoint)| {
            self.reach(*endpoint).is_some_and(|(_, ceiling)| ceiling >= own)
        });
        let blocking = above.map(|(by, endpoint)| {
            let budget = match self.contexts[by].policy {
                Policy::Full { .. } => None,
                _ => Some(self.contexts[by].gross(self.overhead)),
            };
            let longest = self.endpoints[endpoint].longest;
            let time = [budget, longest].into_iter().flatten().min();
            Blocking { by, endpoint, time }
        });
        blocking.max_by_key(|blocking| blocking.time.unwrap_or(u64::MAX))
    }

    /// The share of the core that a context can take, with what the kernel spends on it.
    #[must_use]
    pub fn share(&self, context: usize) -> Share {
        let context = &self.contexts[context];
        match context.policy {
            Policy::Pibs { utilization, .. } => Share::of_pibs(utilization),
            _ => Share::of(context.gross(self.overhead), context.period()),
        }
    }

    /// The sum of all contexts' shares but the full ones', which take what is left.
    #[must_use]
    pub fn sum(&self) -> Share {
        let counts = |n: &usize| !matches!(self.contexts[*n].policy, Policy::Full { .. });
        let all = (0..self.contexts.len()).filter(counts);
        all.map(|context| self.share(context)).fold(Share(0), Share::plus)
    }

    /// A context's response time: from a refill until it is used up, in nanoseconds.
    ///
    /// # Errors
    /// [`Refusal::Late`], [`Refusal::Blocked`].
    pub fn response(&self, context: usize) -> Result<u64, Refusal> {
        let blocking = self.blocking(context);
        let blocked = match blocking {
            None => 0,
            Some(blocking) => blocking.time.ok_or(Refusal::Blocked { context, blocking })?,
        };
        let own = self.floor(context);
        let demand = |n: usize| match n == context {
            true => self.contexts[n].demand(own, blocked),
            false => self.contexts[n].demand(self.priorities(n).1, 0),
        };
        let demands: Vec<Demand> = (0..self.contexts.len()).map(demand).collect();
        let devices: Vec<Utilization> = self.devices().collect();
        let load = Load { contexts: &demands, devices: &devices, overhead: self.overhead };
        let least = load.gross(&demands[context]);
        if self.above(context, own) > BUSY {
            let response = least.max(self.contexts[context].period().saturating_add(1));
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
        let own = self.floor(context);
        let counts = |n: &usize| {
            let pibs = matches!(self.contexts[*n].policy, Policy::Pibs { .. });
            !pibs && self.priorities(*n).1 >= own
        };
        let counted: Vec<usize> = (0..self.contexts.len()).filter(counts).collect();
        for (shorter, longer) in counted.iter().flat_map(|a| counted.iter().map(move |b| (*a, *b)))
        {
            let periods = [shorter, longer].map(|n| self.contexts[n].period());
            if periods[0] < periods[1] && self.priorities(shorter).0 <= self.priorities(longer).1 {
                return Err(Refusal::NotRateMonotonic { shorter, longer });
            }
        }
        let blocked = match self.blocking(context) {
            None => Share(0),
            Some(blocking) => {
                let time = blocking.time.ok_or(Refusal::Blocked { context, blocking })?;
                Share::of(time, self.contexts[context].period())
            }
        };
        let all = counted.iter().map(|n| self.share(*n));
        let devices = self.devices().map(Share::of_pibs);
        let sum = all.chain(devices).fold(blocked, Share::plus);
        let limit = Share::bound(counted.len() as u64);
        Ok(Sum { sum, limit, contexts: counted.len() })
    }

    /// Contexts that admission sees to.
    pub fn guaranteed(&self) -> impl Iterator<Item = usize> {
        let guaranteed = |n: &usize| {
            let context = &self.contexts[*n];
            let server = matches!(context.policy, Policy::Sporadic(_) | Policy::Strict(_));
            context.guaranteed && server
        };
        (0..self.contexts.len()).filter(guaranteed)
    }

    /// Everything because of which a test does not admit the contexts.
    #[must_use]
    pub fn refusals(&self, test: Test) -> Vec<Refusal> {
        let mut refused: Vec<Refusal> = match test {
            Test::None => Vec::new(),
            Test::Response => {
                self.guaranteed().filter_map(|context| self.response(context).err()).collect()
            }
            Test::Bound => {
                let above = |context| match self.utilization(context) {
                    Ok(sum) if sum.sum <= sum.limit => None,
                    Ok(sum) => Some(Refusal::Above { context, sum }),
                    Err(refusal) => Some(refusal),
                };
                self.guaranteed().filter_map(above).collect()
            }
        };
        // A pair of contexts is found again for each that is below both.
        let mut known = Vec::new();
        refused.retain(|refusal| {
            let new = !known.contains(refusal);
            known.push(*refusal);
            new
        });
        refused
    }

    /// Utilizations of PIBS contexts.
    fn devices(&self) -> impl Iterator<Item = Utilization> {
        self.contexts.iter().filter_map(|context| match context.policy {
            Policy::Pibs { utilization, .. } => Some(utilization),
            _ => None,
        })
    }

    /// The share of all others that come before a context.
    fn above(&self, context: usize, own: u8) -> Share {
        let pibs = |n: usize| matches!(self.contexts[n].policy, Policy::Pibs { .. });
        let others = (0..self.contexts.len()).filter(|n| *n != context);
        let before = others.filter(|n| pibs(*n) || self.priorities(*n).1 >= own);
        before.map(|n| self.share(n)).fold(Share(0), Share::plus)
    }
}

impl Context {
    /// What it asks for at a priority, with so many nanoseconds more. A PIBS context asks for
    /// nothing here, but its period counts among those that it can work for.
    fn demand(&self, priority: u8, extra: u64) -> Demand {
        let (budget, activations) = match self.policy {
            Policy::Sporadic(server) | Policy::Strict(server) => (server.budget, self.activations),
            Policy::Pibs { .. } => (0, 0),
            Policy::Full { slice } => (slice, 0),
        };
        let budget = budget.saturating_add(extra);
        Demand { budget, period: self.period(), priority, activations, guaranteed: self.guaranteed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use crate::kernel::{Budget, Call, Endpoint, Notification, Program};

    /// Nothing yet; the kernel's own work is for nothing.
    fn kernel() -> Kernel {
        Kernel {
            file: "k".into(),
            admission: Test::Response,
            overhead: 0,
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
                place: Place::default(),
                file: "p".into(),
                args: String::new(),
                heap: 0,
                memory: 0,
                slots: 64,
                sched_control: false,
                ends: false,
                calls: calls.iter().map(call).collect(),
                serves: serves.to_vec(),
                signals: Vec::new(),
                waits: Vec::new(),
                maps: Vec::new(),
                devices: Vec::new(),
                channels: Vec::new(),
                manages: Vec::new(),
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
        assert_eq!([0, 1].map(|n| kernel.response(n)), [Ok(11), Ok(33)]);
        let sum = kernel.utilization(1).unwrap();
        assert_eq!((sum.sum, sum.limit, sum.contexts), (kernel.sum(), Share::bound(2), 2));
        for test in [Test::Bound, Test::Response, Test::None] {
            assert_eq!(kernel.refusals(test), []);
        }
    }

    #[test]
    fn the_kernels_work_counts() {
        let mut kernel = figure_7();
        kernel.overhead = 2;
        kernel.contexts[0].activations = 2;
        // 14 + 1 + floor((15 - 1) / 25); 22 + 14 + 2 + floor((39 - 2) / 25).
        assert_eq!([0, 1].map(|n| kernel.response(n)), [Ok(15), Ok(39)]);
        assert_eq!(kernel.sum().to_string(), "86.84000 %");
        let Refusal::Above { context: 1, sum } = kernel.refusals(Test::Bound)[0] else { panic!() };
        assert_eq!(sum.sum.above(sum.limit).to_string(), "3.99729 %");
    }

    #[test]
    fn who_has_no_guarantee_is_not_refused() {
        let mut kernel = figure_7();
        kernel.active(server(90, 100), 0, &[]);
        let [Refusal::Late { context: 3, response }] = kernel.refusals(Test::Response)[..] else {
            panic!()
        };
        assert!(response > 100);
        kernel.contexts[3].guaranteed = false;
        assert_eq!(kernel.refusals(Test::Response), []);
        // Above them it disturbs all the same.
        kernel.threads[3].priority = 3;
        assert_eq!(kernel.refusals(Test::Response).len(), 2);
    }

    #[test]
    fn a_passive_server_above_blocks() {
        let mut kernel = kernel();
        let endpoint = kernel.endpoint(None);
        kernel.active(server(10, 40), 5, &[]);
        kernel.active(server(8, 100), 1, &[endpoint]);
        kernel.program(4, &[], &[endpoint]);
        assert_eq!(kernel.blocking(0), None, "the server is below");
        assert_eq!(kernel.response(0), Ok(10));
        kernel.threads[2].priority = 5;
        let blocking = |time| Some(Blocking { by: 1, endpoint, time });
        assert_eq!(kernel.blocking(0), blocking(Some(8)));
        assert_eq!(kernel.response(0), Ok(18));
        let sum = kernel.utilization(0).unwrap();
        assert_eq!(sum.sum, Share::of(10, 40).plus(Share::of(8, 40)));
        kernel.endpoints[endpoint].longest = Some(3);
        assert_eq!(kernel.blocking(0), blocking(Some(3)));
        kernel.contexts[1].policy = Policy::Full { slice: 8 };
        assert_eq!(kernel.blocking(0), blocking(Some(3)));
        kernel.endpoints[endpoint].longest = None;
        let refused = Refusal::Blocked { context: 0, blocking: blocking(None).unwrap() };
        assert_eq!(kernel.response(0), Err(refused));
        assert_eq!(kernel.refusals(Test::Bound), [refused]);
    }

    #[test]
    fn servers_call_servers() {
        let mut kernel = kernel();
        let [near, far] = [kernel.endpoint(None), kernel.endpoint(None)];
        kernel.active(server(10, 40), 5, &[]);
        kernel.active(server(8, 100), 1, &[near]);
        kernel.program(2, &[far], &[near]);
        kernel.program(9, &[near], &[far]);
        assert_eq!(kernel.reach(near), Some((2, 9)));
        assert_eq!(kernel.blocking(0), Some(Blocking { by: 1, endpoint: near, time: Some(8) }));
        // A thread with a context of its own does not run on its callers'.
        kernel.threads[2].context = Some(0);
        assert_eq!(kernel.reach(near), None);
    }

    #[test]
    fn a_server_below_its_caller_is_disturbed_by_those_between() {
        let mut kernel = kernel();
        let endpoint = kernel.endpoint(None);
        kernel.active(server(10, 100), 9, &[endpoint]);
        kernel.active(server(20, 100), 5, &[]);
        assert_eq!(kernel.response(0), Ok(10));
        kernel.program(3, &[], &[endpoint]);
        assert_eq!(kernel.floor(0), 3);
        assert_eq!(kernel.response(0), Ok(30));
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
        assert_eq!(kernel.priorities(0), (2, 9));
        kernel.active(server(20, 100), 5, &[]);
        assert_eq!([0, 1].map(|n| kernel.response(n)), [Ok(30), Ok(30)]);
    }

    #[test]
    fn priorities_that_are_not_rate_monotonic_are_named_once() {
        let mut kernel = kernel();
        kernel.active(server(1, 40), 1, &[]);
        kernel.active(server(1, 50), 2, &[]);
        kernel.active(server(1, 60), 0, &[]);
        let refused = Refusal::NotRateMonotonic { shorter: 0, longer: 1 };
        assert_eq!(kernel.refusals(Test::Bound), [refused]);
        assert_eq!(kernel.refusals(Test::Response), []);
    }

    /// A search tick by tick would take 2^60 steps.
    #[test]
    fn a_busy_core_is_refused_at_once() {
        let mut kernel = kernel();
        kernel.active(server(1, 1), 2, &[]);
        kernel.active(server(1, 1 << 60), 1, &[]);
        assert!(matches!(kernel.refusals(Test::Response)[..], [Refusal::Late { context: 1, .. }]));
        let mut kernel = self::kernel();
        kernel.active(server(u64::MAX, u64::MAX), 2, &[]);
        kernel.active(server(u64::MAX, u64::MAX), 1, &[]);
        kernel.overhead = 1;
        assert_eq!(kernel.refusals(Test::Response).len(), 1);
    }
}
