//! Whether a kernel's contexts get their budgets in time: `bulkhead_sched`'s arithmetic on
//! what a manifest says, and what only the manifest knows: who can call whom, and what comes of that.
//!
//! * **Passive servers.** A context's thread that calls one runs there at the server's priority. What
//!   it can so keep from the processor waits for one such call: the kernel begins a call of an endpoint that
//!   has a `longest` only with budget for all of it, and ends what takes longer. A call without
//!   `longest` can last through any number of refills, and is refused where it blocks.
//! * **Calls that wait.** A server that calls a thread with a context of its own waits there without time.
//!   Meanwhile others
//!   run, and more calls can be half done when a context wants to run: then their times add up.
//! * **PIBS.** A PIBS context works at the priority and with the period of a context that can ask it: never at
//!   that of a
//!   server in which it is asked.
//! * **Interrupts** enter the kernel in the time of whoever runs, at most twice for an acknowledgement. That is less
//!   than their driver uses for it, so a driver counts twice.
//!
//! What a context waits for beyond its own budget, an answer by a thread with a context of its own, is not
//! analysed, and
//! said to be so ([`Analysis::unanalysed`]). Faults are not counted.

mod calls;
mod contexts;

use crate::kernel::{Kernel, Policy, Test, Utilization};
use bulkhead_sched::admission::interference;
pub use bulkhead_sched::share::Share;
use calls::{Calls, circles, keeps};

/// More than this of a core above a context is taken for all of it: the search for a
/// response time would take long, and find little. 1 - 2^-10.
const BUSY: Share = Share((1 << 40) - (1 << 30));

/// Those of a lower priority in servers of a higher one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocking {
    /// The context that is there longest.
    pub by: usize,
    /// The endpoint that it calls.
    pub endpoint: usize,
    /// How many others can be in the middle of calls at the same time, which wait there for somebody.
    pub others: usize,
    /// For so long, in nanoseconds, all together; `None`: for ever.
    pub time: Option<u64>,
}

/// Why a wait of a context is in no sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanalysed {
    /// A call, of itself or of a server that it calls, is answered by a thread with a context of its own.
    Answer {
        /// Of which endpoint.
        endpoint: usize,
    },
    /// A passive server that it calls can be in another's call that waits without time.
    Occupied {
        /// The server's endpoint.
        endpoint: usize,
    },
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
    /// Somebody above works in a server below, late by any time, and comes back with all that it has missed.
    Arrears {
        /// The context.
        context: usize,
        /// Who comes back.
        by: usize,
    },
    /// Its budget is shorter than a call that it may make: the kernel never begins it.
    Short {
        /// The context.
        context: usize,
        /// The endpoint that it may call.
        endpoint: usize,
    },
    /// A call waits for ever: nobody else serves it, or who does calls back.
    Circle {
        /// The context.
        context: usize,
        /// The endpoint.
        endpoint: usize,
    },
}

impl Refusal {
    /// The context that is refused.
    #[must_use]
    pub const fn context(&self) -> usize {
        match *self {
            Self::NotRateMonotonic { shorter: context, .. }
            | Self::Above { context, .. }
            | Self::Late { context, .. }
            | Self::Delayed { context, .. }
            | Self::Blocked { context, .. }
            | Self::Arrears { context, .. }
            | Self::Short { context, .. }
            | Self::Circle { context, .. } => context,
        }
    }
}

/// A kernel's contexts with what follows for each from the whole: who runs on it, and at
/// which priorities.
pub struct Analysis<'a> {
    kernel: &'a Kernel,
    /// The lowest and the highest priority at which a context runs by itself.
    priorities: Vec<(u8, u8)>,
    /// Endpoints that may be called on a context.
    called: Vec<Vec<usize>>,
    calls: Calls,
    /// The lowest priority at which a context runs, in the servers that it calls, too.
    floors: Vec<u8>,
    /// Of a PIBS context the priorities and periods at which it works.
    works: Vec<Vec<(u8, u64)>>,
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
        let calls = Calls::new(kernel, &called);
        let floor = |(endpoints, (own, _)): (&Vec<usize>, &(u8, u8))| {
            let servers = endpoints.iter().filter_map(|endpoint| calls.reach(*endpoint));
            servers.map(|(low, _)| low).fold(*own, u8::min)
        };
        let floors = called.iter().zip(&priorities).map(floor).collect();
        let mut all = Self { kernel, priorities, called, calls, floors, works: Vec::new() };
        all.works = (0..kernel.contexts.len()).map(|context| all.work_of(context)).collect();
        all
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
        self.calls.reach(endpoint)
    }

    /// The lowest priority at which a context runs, in the passive servers that it calls, too.
    #[must_use]
    pub fn floor(&self, context: usize) -> u8 {
        self.floors[context]
    }

    /// The priorities and periods, in nanoseconds, at which a PIBS context works: its own, and those of all who can
    /// ask it, themselves or in a server. Of another context nothing.
    #[must_use]
    pub fn works(&self, context: usize) -> &[(u8, u64)] {
        &self.works[context]
    }

    fn work_of(&self, pibs: usize) -> Vec<(u8, u64)> {
        if !self.kernel.is_pibs(pibs) {
            return Vec::new();
        }
        let mut seen = vec![false; self.kernel.contexts.len()];
        let (mut open, mut works) = (vec![pibs], Vec::new());
        seen[pibs] = true;
        while let Some(context) = open.pop() {
            let ((low, high), period) =
                (self.priorities(context), self.kernel.contexts[context].period());
            works.extend([(low, period), (high, period)]);
            if self.kernel.is_pibs(context) {
                let asks = |by: &usize| !seen[*by] && self.asks(*by, context);
                let found: Vec<usize> = (0..seen.len()).filter(asks).collect();
                found.iter().for_each(|by| seen[*by] = true);
                open.extend(found);
            }
        }
        works.sort_unstable();
        works.dedup();
        works
    }

    /// Whether a context's thread may call or signal what runs on a PIBS context, itself or in a server.
    fn asks(&self, by: usize, pibs: usize) -> bool {
        let kernel = self.kernel;
        let mut programs = kernel.users(pibs).map(|n| &kernel.programs[kernel.threads[n].program]);
        let signals = |notification: usize| {
            let mut from = kernel.users(by).map(|n| &kernel.programs[kernel.threads[n].program]);
            from.any(|program| program.signals.iter().any(|s| s.notification == notification))
        };
        programs.any(|program| {
            let serves = |called: &usize| {
                program.serves.iter().any(|endpoint| self.calls.reaches(*called, *endpoint))
            };
            self.called[by].iter().any(serves) || program.waits.iter().any(|n| signals(*n))
        })
    }

    /// The lowest priority at which a context's own threads run.
    fn lowest(&self, context: usize) -> u8 {
        let works = self.works(context).iter().map(|(priority, _)| *priority);
        works.min().unwrap_or(self.priorities(context).0)
    }

    /// What a context waits for that is in no sum.
    #[must_use]
    pub fn unanalysed(&self, context: usize) -> Vec<Unanalysed> {
        let mut all = Vec::new();
        for endpoint in &self.called[context] {
            if let Some(endpoint) = self.calls.waits_for(*endpoint) {
                all.push(Unanalysed::Answer { endpoint });
            }
            let mut occupied = self.calls.occupied(*endpoint);
            if let Some(endpoint) = occupied.find(|endpoint| self.others(context, *endpoint)) {
                all.push(Unanalysed::Occupied { endpoint });
            }
        }
        all
    }

    /// Whether somebody else calls an endpoint, too.
    fn others(&self, context: usize, endpoint: usize) -> bool {
        let calls =
            |by: usize| self.called[by].iter().any(|called| self.calls.reaches(*called, endpoint));
        (0..self.called.len()).any(|by| by != context && calls(by))
    }

    /// The longest call by a context that keeps a priority waiting: its endpoint, and for how long; `None`: for ever.
    fn longest(&self, by: usize, own: u8) -> Option<(usize, Option<u64>)> {
        let endpoints = self.called[by].iter().copied();
        let above = endpoints.filter(|n| self.reach(*n).is_some_and(|(_, high)| high >= own));
        let calls = above.map(|n| (n, self.kernel.endpoints[n].longest));
        calls.max_by_key(|(_, time)| time.unwrap_or(u64::MAX))
    }

    /// Whether a call by a context that keeps a priority waiting can itself be without time in the middle.
    fn stops(&self, by: usize, own: u8) -> bool {
        let above = |n: &&usize| self.reach(**n).is_some_and(|(_, high)| high >= own);
        let mut endpoints = self.called[by].iter().filter(above);
        endpoints.any(|n| !keeps(self.kernel, by, *n) || self.calls.occupied(*n).next().is_some())
    }

    /// The time of a call, with what the kernel spends where the call goes on with another activation: that of a PIBS
    /// context can end in it, and the next one begins at the server's priority.
    fn with_beginnings(&self, by: usize, time: u64) -> u64 {
        let Policy::Pibs { utilization, .. } = self.kernel.contexts[by].policy else { return time };
        let overhead = self.kernel.overhead;
        let budgets = self.works(by).iter().map(|(_, period)| utilization.of(*period));
        let left = budgets.min().unwrap_or(0).saturating_sub(overhead);
        match (overhead, left) {
            (0, _) => time,
            (_, 0) => u64::MAX,
            _ => time.saturating_add(time.div_ceil(left).saturating_mul(overhead)),
        }
    }

    /// Who below a context can keep it waiting, and how long all of them can: the longest of the calls that run to
    /// their ends, of which there is one at a time, and all of those that can wait in the middle.
    #[must_use]
    pub fn blocking(&self, context: usize) -> Option<Blocking> {
        let own = self.floor(context);
        let below = |other: &usize| *other != context && self.lowest(*other) < own;
        let (mut longest, mut alone, mut stopped, mut others) = (None, 0, 0, 0);
        for by in (0..self.kernel.contexts.len()).filter(below) {
            let Some((endpoint, time)) = self.longest(by, own) else { continue };
            let time = self.with_beginnings(by, time.unwrap_or(u64::MAX));
            longest = longest.max(Some((time, std::cmp::Reverse(by), endpoint)));
            match self.stops(by, own) {
                true => {
                    // After each wait in the middle it begins anew, at the server's priority.
                    let begins = self.kernel.contexts[by].activations.into();
                    let time = time.saturating_add(self.kernel.overhead.saturating_mul(begins));
                    (stopped, others) = (time.saturating_add(stopped), others + 1);
                }
                false => alone = time.max(alone),
            }
        }
        let (most, std::cmp::Reverse(by), endpoint) = longest?;
        let time = alone.saturating_add(stopped);
        let others = others - usize::from(others > 0 && self.stops(by, own));
        Some(Blocking { by, endpoint, others, time: (most < u64::MAX).then_some(time) })
    }

    /// For how long a context is blocked at most, in nanoseconds.
    fn blocked(&self, context: usize) -> Result<u64, Refusal> {
        match self.blocking(context) {
            None => Ok(0),
            Some(blocking) => blocking.time.ok_or(Refusal::Blocked { context, blocking }),
        }
    }

    /// What a context with a budget takes in a period, with the entries of the interrupts that it serves.
    fn demand(&self, context: usize) -> u64 {
        let gross = self.kernel.contexts[context].gross(self.kernel.overhead);
        gross.saturating_mul(if self.kernel.is_driver(context) { 2 } else { 1 })
    }

    /// What a PIBS context takes of a time, in nanoseconds, at a priority or above.
    fn device(&self, pibs: usize, own: u8, time: u64) -> u64 {
        let work = self.device_at(pibs, own).map(|(u, longest)| interference(u, longest, time));
        work.unwrap_or(0).saturating_mul(if self.kernel.is_driver(pibs) { 2 } else { 1 })
    }

    /// The share that a PIBS context takes of a period at a priority or above.
    fn device_share(&self, pibs: usize, own: u8, period: u64) -> Share {
        let share = self.device_at(pibs, own).map(|(u, longest)| match longest <= period {
            true => Share::of_pibs(u),
            false => Share::of(interference(u, longest, period), period),
        });
        let share = share.unwrap_or(Share(0));
        if self.kernel.is_driver(pibs) { share.plus(share) } else { share }
    }

    /// U of a PIBS context, and the longest of the periods for which it works at a priority or above.
    fn device_at(&self, pibs: usize, own: u8) -> Option<(Utilization, u64)> {
        let Policy::Pibs { utilization, .. } = self.kernel.contexts[pibs].policy else {
            return None;
        };
        let at = self.works(pibs).iter().filter(|(priority, _)| *priority >= own);
        Some((utilization, at.map(|(_, period)| *period).max()?))
    }

    /// Whether a context calls a server below itself.
    fn descends(&self, context: usize) -> bool {
        self.floor(context) < self.priorities(context).0
    }

    /// By how much the budget of another one can be late when it begins to disturb a context: only of one that
    /// works in a
    /// server below.
    fn arrears(&self, context: usize, other: usize) -> Result<u64, Refusal> {
        if !self.descends(other) || self.floor(other) >= self.floor(context) {
            return Ok(0);
        }
        match self.kernel.contexts[other].guaranteed && self.kernel.is_server(other) {
            true => self.response(other),
            false => Err(Refusal::Arrears { context, by: other }),
        }
    }

    /// The servers, and full contexts, of at least a context's priority, without itself.
    fn above(&self, context: usize) -> impl Iterator<Item = usize> {
        let own = self.floor(context);
        let others = (0..self.kernel.contexts.len()).filter(move |n| *n != context);
        others.filter(move |n| !self.kernel.is_pibs(*n) && self.priorities(*n).1 >= own)
    }

    /// A context's response time: from a refill until it is used up, in nanoseconds.
    ///
    /// # Errors
    /// [`Refusal::Late`], [`Refusal::Blocked`], [`Refusal::Arrears`].
    pub fn response(&self, context: usize) -> Result<u64, Refusal> {
        let (kernel, own) = (self.kernel, self.floor(context));
        let (period, gross) = (kernel.contexts[context].period(), self.demand(context));
        let alone = gross.saturating_add(self.blocked(context)?);
        let others: Result<Vec<(u64, u64, u64)>, Refusal> = { self.above(context) }
            .map(|n| Ok((kernel.contexts[n].period(), self.demand(n), self.arrears(context, n)?)))
            .collect();
        let others = others?;
        let late = |response: u64| Err(Refusal::Late { context, response });
        if self.share_above(context) > BUSY {
            return late(alone.max(period.saturating_add(1)));
        }
        let mut response = alone;
        while response <= period {
            let servers = others.iter().map(|(period, gross, arrears)| {
                response.saturating_add(*arrears).div_ceil(*period).saturating_mul(*gross)
            });
            let devices = (0..kernel.contexts.len()).map(|n| self.device(n, own, response));
            let again = servers.chain(devices).fold(alone, u64::saturating_add);
            if again == response {
                // Who waits for a server that it has preempted has its budget later by that wait.
                let waits = if self.descends(context) { response - gross } else { 0 };
                let whole = response.saturating_add(waits);
                return if whole > period { late(whole) } else { Ok(whole) };
            }
            response = again;
        }
        late(response)
    }

    /// The sum of utilizations for the contexts of at least a context's priority.
    ///
    /// # Errors
    /// [`Refusal::NotRateMonotonic`], [`Refusal::Blocked`], [`Refusal::Arrears`].
    pub fn utilization(&self, context: usize) -> Result<Sum, Refusal> {
        let (kernel, own) = (self.kernel, self.floor(context));
        let mut counted: Vec<usize> = self.above(context).chain([context]).collect();
        counted.sort_unstable();
        self.rate_monotonic(&counted)?;
        let arrears = |n: &usize| self.descends(*n) && (*n == context || self.floor(*n) < own);
        if let Some(by) = counted.iter().copied().find(arrears) {
            return Err(Refusal::Arrears { context, by });
        }
        let period = kernel.contexts[context].period();
        let blocked = Share::of(self.blocked(context)?, period);
        let all = counted.iter().map(|n| self.share(*n));
        let devices = (0..kernel.contexts.len()).map(|n| self.device_share(n, own, period));
        let sum = all.chain(devices).fold(blocked, Share::plus);
        Ok(Sum { sum, limit: Share::bound(counted.len() as u64), contexts: counted.len() })
    }

    /// The share of a context with the entries of its interrupts.
    fn share(&self, context: usize) -> Share {
        let share = self.kernel.share(context);
        if self.kernel.is_driver(context) { share.plus(share) } else { share }
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

    /// Everything because of which a test does not admit the contexts. Calls that never come about are refused
    /// by each.
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
        let mut all = self.never();
        for refusal in self.kernel.guaranteed().filter_map(refused) {
            // A pair of contexts is found again for each that is below both.
            if !all.contains(&refusal) {
                all.push(refusal);
            }
        }
        all
    }

    /// Calls that never begin or never end.
    fn never(&self) -> Vec<Refusal> {
        let circles = circles(self.kernel);
        let mut all = Vec::new();
        for context in 0..self.kernel.contexts.len() {
            let budget = match self.kernel.contexts[context].policy {
                Policy::Sporadic(server) | Policy::Strict(server) => server.budget,
                _ => u64::MAX,
            };
            let long = |endpoint: &usize| {
                let longest = self.kernel.endpoints[*endpoint].longest;
                self.reach(*endpoint).is_some() && longest.is_some_and(|longest| longest > budget)
            };
            let short = self.called[context].iter().copied().find(long);
            all.extend(short.map(|endpoint| Refusal::Short { context, endpoint }));
            let circle = self.kernel.users(context).find_map(|thread| circles[thread]);
            let servers = self.called[context].iter().flat_map(|n| self.servers(*n));
            let circle = circle.or_else(|| servers.filter_map(|thread| circles[thread]).next());
            all.extend(circle.map(|endpoint| Refusal::Circle { context, endpoint }));
        }
        all
    }

    /// Threads that a call can reach.
    fn servers(&self, endpoint: usize) -> impl Iterator<Item = usize> {
        let serves = move |thread: &usize| {
            let program = &self.kernel.programs[self.kernel.threads[*thread].program];
            program.serves.iter().any(|inside| self.calls.reaches(endpoint, *inside))
        };
        (0..self.kernel.threads.len()).filter(serves)
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
        others.filter(move |n| match self.kernel.is_pibs(*n) {
            true => self.works(*n).iter().any(|(priority, _)| *priority >= own),
            false => self.priorities(*n).1 >= own,
        })
    }

    /// Their share.
    fn share_above(&self, context: usize) -> Share {
        self.before(context).map(|n| self.share(n)).fold(Share(0), Share::plus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use crate::kernel::{
        Budget, Call, Context, DeviceUse, Driven, Endpoint, Interrupt, Notification, Program,
        Thread, User, Utilization,
    };

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

        fn calls(&mut self, program: usize, endpoint: usize) {
            self.programs[program].calls.push(Call { endpoint, badge: 0, grant: false });
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
        // The second one asks.
        let endpoint = kernel.endpoint(None);
        kernel.calls(1, endpoint);
        kernel.programs[2].serves.push(endpoint);
        kernel
    }

    #[test]
    fn figure_7_is_admitted() {
        let kernel = figure_7();
        assert_eq!(kernel.sum().to_string(), "72.84000 %");
        assert_eq!([0, 1].map(|n| look(&kernel).response(n)), [Ok(10), Ok(33)]);
        assert_eq!(look(&kernel).unanalysed(0), []);
        assert_eq!(look(&kernel).unanalysed(1), [Unanalysed::Answer { endpoint: 0 }]);
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
        // 22 + 14 + 2 + floor((39 - 2) / 25).
        assert_eq!([0, 1].map(|n| look(&kernel).response(n)), [Ok(14), Ok(39)]);
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
        kernel.calls(1, endpoint);
        // The analysis is made anew, with what it calls.
        assert_eq!(look(&kernel).refusals(Test::Response), refused);
    }

    #[test]
    fn a_passive_server_above_blocks() {
        let mut kernel = kernel();
        let endpoint = kernel.endpoint(Some(3));
        kernel.active(server(10, 40), 5, &[]);
        kernel.active(server(8, 100), 1, &[endpoint]);
        kernel.program(4, &[], &[endpoint]);
        assert_eq!(look(&kernel).blocking(0), None, "the server is below");
        assert_eq!(look(&kernel).response(0), Ok(10));
        kernel.threads[2].priority = 5;
        kernel.threads[1].priority = 5;
        assert_eq!(look(&kernel).blocking(0), None, "equal ones disturb as such");
        kernel.threads[1].priority = 1;
        let blocking = |time| Some(Blocking { by: 1, endpoint, others: 0, time });
        assert_eq!(look(&kernel).blocking(0), blocking(Some(3)));
        assert_eq!(look(&kernel).response(0), Ok(13));
        let sum = look(&kernel).utilization(0).unwrap();
        assert_eq!(sum.sum, Share::of(10, 40).plus(Share::of(3, 40)));
        kernel.contexts[1].policy = Policy::Full { slice: 8 };
        assert_eq!(look(&kernel).blocking(0), blocking(Some(3)));
        kernel.endpoints[endpoint].longest = None;
        let refused = Refusal::Blocked { context: 0, blocking: blocking(None).unwrap() };
        assert_eq!(look(&kernel).response(0), Err(refused));
        assert_eq!(look(&kernel).refusals(Test::Bound), [refused]);
    }

    /// 8 of 10 ms in a call whose work takes 1 s were said to keep 30 of 60 ms waiting for 8 ms, and kept it for 116.
    #[test]
    fn a_call_through_many_refills_is_no_call_of_one_budget() {
        let mut kernel = kernel();
        let endpoint = kernel.endpoint(Some(1_000));
        kernel.active(server(30, 60), 5, &[]);
        kernel.active(server(8, 10), 1, &[endpoint]);
        kernel.contexts[1].guaranteed = false;
        kernel.program(9, &[], &[endpoint]);
        // The kernel never begins it.
        let refused = look(&kernel).refusals(Test::Response);
        assert_eq!(refused[0], Refusal::Short { context: 1, endpoint });
        assert!(matches!(refused[1], Refusal::Late { context: 0, .. }));
        assert_eq!(look(&kernel).refusals(Test::None), refused[..1]);
        // Nobody ends it.
        kernel.endpoints[endpoint].longest = None;
        let refused = look(&kernel).refusals(Test::Response);
        assert!(matches!(refused[..], [Refusal::Blocked { context: 0, .. }]), "{refused:?}");
        // It begins with budget for all of it, and ends.
        kernel.endpoints[endpoint].longest = Some(8);
        assert_eq!(look(&kernel).refusals(Test::Response), []);
        assert_eq!(look(&kernel).response(0), Ok(38));
    }

    /// One call at a time runs to its end; of those that wait in the middle all can.
    #[test]
    fn calls_that_wait_in_the_middle_add_up() {
        let mut kernel = kernel();
        let [one, two, disk] = [Some(3), Some(2), None].map(|longest| kernel.endpoint(longest));
        kernel.active(server(10, 40), 5, &[]);
        kernel.active(server(8, 100), 1, &[one]);
        kernel.active(server(8, 100), 2, &[two]);
        kernel.program(9, &[], &[one]);
        kernel.program(9, &[], &[two]);
        let blocking = |others, time| Some(Blocking { by: 1, endpoint: one, others, time });
        assert_eq!(look(&kernel).blocking(0), blocking(0, Some(3)));
        kernel.calls(4, disk);
        let utilization = Utilization::new(1, 25).unwrap();
        kernel.active(Policy::Pibs { utilization, period: 100 }, 0, &[]);
        kernel.programs[5].serves.push(disk);
        assert_eq!(look(&kernel).blocking(0), blocking(1, Some(5)));
        kernel.calls(3, disk);
        assert_eq!(look(&kernel).blocking(0), blocking(1, Some(5)));
        assert_eq!(look(&kernel).response(0), Ok(15), "the driver is below");
        assert_eq!(look(&kernel).unanalysed(0), []);
        assert_eq!(look(&kernel).unanalysed(1), [Unanalysed::Answer { endpoint: disk }]);
        // Who calls such a server waits for whoever is in it.
        kernel.calls(0, one);
        let expected =
            [Unanalysed::Answer { endpoint: disk }, Unanalysed::Occupied { endpoint: one }];
        assert_eq!(look(&kernel).unanalysed(0), expected);
    }

    /// A driver that is asked from within a server works at the priority of who is in there, not of the server.
    #[test]
    fn a_driver_works_with_priorities_and_periods_of_those_who_ask() {
        let mut kernel = kernel();
        let [files, disk] = [Some(3), None].map(|longest| kernel.endpoint(longest));
        kernel.active(server(5, 20), 5, &[files]);
        kernel.active(server(8, 1_000), 1, &[files]);
        kernel.program(9, &[disk], &[files]);
        let utilization = Utilization::new(1, 10).unwrap();
        kernel.active(Policy::Pibs { utilization, period: 50 }, 0, &[]);
        kernel.programs[3].serves.push(disk);
        let work = look(&kernel).works(2).to_vec();
        assert_eq!(work, [(0, 50), (1, 1_000), (5, 20)]);
        // 5, blocked for 3, and 2 of 20.
        assert_eq!(look(&kernel).response(0), Ok(10));
        kernel.programs[0].calls.clear();
        assert_eq!(look(&kernel).works(2), [(0, 50), (1, 1_000)]);
        assert_eq!(look(&kernel).response(0), Ok(8));
        // By a signal from a server nobody is named.
        kernel.programs[2].calls.clear();
        assert_eq!(look(&kernel).works(2), [(0, 50)]);
        // Interrupts enter the kernel in the time of others.
        kernel.threads[3].priority = 7;
        assert_eq!(look(&kernel).response(0), Ok(5 + 3 + 5));
        let interrupts = vec![Interrupt { number: 0, notification: 0, bits: 1 }];
        let device = Driven::Device(0);
        kernel.programs[3].devices.push(DeviceUse { device, interrupts, dma: Vec::new() });
        assert_eq!(look(&kernel).response(0), Ok(5 + 3 + 2 * 6));
    }

    #[test]
    fn servers_call_servers() {
        let mut kernel = kernel();
        let [near, far] = [kernel.endpoint(Some(8)), kernel.endpoint(None)];
        kernel.active(server(10, 40), 5, &[]);
        kernel.active(server(8, 100), 1, &[near]);
        kernel.program(2, &[far], &[near]);
        kernel.program(9, &[], &[far]);
        assert_eq!(look(&kernel).reach(near), Some((2, 9)));
        assert_eq!(
            look(&kernel).blocking(0),
            Some(Blocking { by: 1, endpoint: near, others: 0, time: Some(8) })
        );
        // A thread with a context of its own does not run on its callers'.
        kernel.threads[2].context = Some(0);
        assert_eq!(look(&kernel).reach(near), None);
    }

    #[test]
    fn calls_in_a_circle_are_refused() {
        let mut kernel = kernel();
        let [there, back] = [kernel.endpoint(None), kernel.endpoint(None)];
        kernel.active(server(10, 40), 5, &[there]);
        kernel.programs[0].serves.push(there);
        let circle = |endpoint| vec![Refusal::Circle { context: 0, endpoint }];
        assert_eq!(look(&kernel).refusals(Test::Response), circle(there), "it alone serves it");
        kernel.programs[0].serves.clear();
        kernel.program(6, &[], &[there]);
        assert_eq!(look(&kernel).refusals(Test::Response), []);
        kernel.calls(1, back);
        kernel.programs[1].serves.push(back);
        assert_eq!(look(&kernel).refusals(Test::None), circle(back), "of the server's");
        kernel.programs[1].serves.pop();
        kernel.program(7, &[there], &[back]);
        assert_eq!(look(&kernel).refusals(Test::Bound), circle(back), "of two servers");
        // Another one may answer.
        kernel.threads.push(kernel.threads[2].clone());
        assert_eq!(look(&kernel).refusals(Test::Response), []);
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
        // 30, and what it waited for comes again so much later.
        assert_eq!(look(&kernel).response(0), Ok(50));
        // It may come back late by that.
        assert_eq!(look(&kernel).response(1), Ok(30));
        kernel.contexts[0].policy = server(40, 61);
        assert!(matches!(look(&kernel).response(0), Err(Refusal::Late { .. })));
        kernel.contexts[0].policy = server(30, 70);
        kernel.contexts[1].policy = server(20, 200);
        // 50, and 20 of waiting; 20, with what comes at once, late by 70, at 0 and at 70.
        assert_eq!(look(&kernel).response(0), Ok(70));
        assert_eq!(look(&kernel).response(1), Ok(110));
        kernel.contexts[0].guaranteed = false;
        let arrears = Refusal::Arrears { context: 1, by: 0 };
        assert_eq!(look(&kernel).refusals(Test::Response), [arrears]);
        assert_eq!(look(&kernel).refusals(Test::Bound), [arrears]);
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
