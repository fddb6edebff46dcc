//! Why contexts are not admitted.

use super::calls::circles;
use super::{Analysis, Blocking, Sum};
use crate::kernel::{Policy, Test};
use bulkhead_sched::call_needs;

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
    /// A strict context does not get back the time that it loses by waiting, and another context can keep it waiting.
    Delayed {
        /// The context.
        context: usize,
        /// The one that can.
        by: usize,
    },
    /// Somebody below can keep it waiting for ever.
    Blocked {
        /// The context.
        context: usize,
        /// The contexts that can, and where.
        blocking: Blocking,
    },
    /// Somebody above works in a server below, late by any time, and comes back with all that it has missed.
    Arrears {
        /// The context.
        context: usize,
        /// The context that comes back.
        by: usize,
    },
    /// Its budget is too short for a call that it may make: the kernel never begins the call.
    Short {
        /// The context.
        context: usize,
        /// The endpoint that it may call.
        endpoint: usize,
        /// Its budget would have to be so much, in nanoseconds.
        needed: u64,
    },
    /// A call waits for ever: no other thread serves it, or its server calls back.
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

impl Analysis<'_> {
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
            let short = self.called[context].iter().find_map(|n| self.short(context, *n));
            all.extend(short);
            let circle = self.kernel.users(context).find_map(|thread| circles[thread]);
            let servers = self.called[context].iter().flat_map(|n| self.servers(*n));
            let circle = circle.or_else(|| servers.filter_map(|thread| circles[thread]).next());
            all.extend(circle.map(|endpoint| Refusal::Circle { context, endpoint }));
        }
        all
    }

    /// Tells if a context's whole budget is too short for a call of an endpoint: the kernel makes this check, too.
    fn short(&self, context: usize, endpoint: usize) -> Option<Refusal> {
        let kernel = self.kernel;
        let (Policy::Sporadic(server) | Policy::Strict(server)) = kernel.contexts[context].policy
        else {
            return None;
        };
        let longest = kernel.endpoints[endpoint].longest.filter(|_| self.reach(endpoint).is_some());
        let given = kernel.contexts[context].gross(kernel.overhead);
        let missing = call_needs(longest?, kernel.overhead).saturating_sub(given);
        if missing == 0 {
            return None;
        }
        let needed = server.budget.saturating_add(missing);
        Some(Refusal::Short { context, endpoint, needed })
    }

    /// Threads that a call can reach.
    fn servers(&self, endpoint: usize) -> impl Iterator<Item = usize> {
        let serves = move |thread: &usize| {
            let program = &self.kernel.programs[self.kernel.threads[*thread].program];
            program.serves.iter().any(|inside| self.calls.reaches(endpoint, *inside))
        };
        (0..self.kernel.threads.len()).filter(serves)
    }

    /// Finds a context that can keep a strict server waiting. A strict server's refill comes T after its use began:
    /// each wait delays all later refills, and the waits add up ([`bulkhead_sched::server`]). So it gets C in each T
    /// only if no context can keep it waiting.
    #[must_use]
    pub fn delayed(&self, context: usize) -> Option<Refusal> {
        if !matches!(self.kernel.contexts[context].policy, Policy::Strict(_)) {
            return None;
        }
        let before = self.before(context).next();
        let by = before.or_else(|| self.blocking(context).map(|blocking| blocking.by))?;
        Some(Refusal::Delayed { context, by })
    }
}
