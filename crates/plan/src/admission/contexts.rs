//! What follows for a kernel's contexts from what the manifest says of each: who runs on it, which servers its threads
//! can call, and how much of the core it takes.

use super::Share;
use crate::kernel::{Context, Kernel, Policy, Thread, User};
use bulkhead_sched::Utilization;
use bulkhead_sched::admission::Demand;

impl Kernel {
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

    /// Contexts that admission sees to.
    pub fn guaranteed(&self) -> impl Iterator<Item = usize> {
        let guaranteed = |n: &usize| self.contexts[*n].guaranteed && self.is_server(*n);
        (0..self.contexts.len()).filter(guaranteed)
    }

    /// Whether a context has a budget and a period.
    #[must_use]
    pub fn is_server(&self, context: usize) -> bool {
        matches!(self.contexts[context].policy, Policy::Sporadic(_) | Policy::Strict(_))
    }

    pub(super) fn is_pibs(&self, context: usize) -> bool {
        matches!(self.contexts[context].policy, Policy::Pibs { .. })
    }

    /// Utilizations of PIBS contexts.
    pub(super) fn devices(&self) -> impl Iterator<Item = Utilization> {
        self.contexts.iter().filter_map(|context| match context.policy {
            Policy::Pibs { utilization, .. } => Some(utilization),
            _ => None,
        })
    }

    /// For each endpoint the priorities of the passive threads that a call can reach.
    pub(super) fn reached(&self) -> Vec<Option<(u8, u8)>> {
        let mut servers = vec![Vec::new(); self.endpoints.len()];
        for thread in self.threads.iter().filter(|thread| thread.context.is_none()) {
            for endpoint in &self.programs[thread.program].serves {
                servers[*endpoint].push(thread);
            }
        }
        (0..self.endpoints.len()).map(|endpoint| self.reach(endpoint, &servers)).collect()
    }

    fn reach(&self, endpoint: usize, servers: &[Vec<&Thread>]) -> Option<(u8, u8)> {
        let mut seen = vec![false; servers.len()];
        let (mut open, mut reach) = (vec![endpoint], None);
        while let Some(endpoint) = open.pop() {
            if std::mem::replace(&mut seen[endpoint], true) {
                continue;
            }
            for thread in &servers[endpoint] {
                let (low, high) = reach.unwrap_or((u8::MAX, 0));
                reach = Some((low.min(thread.priority), high.max(thread.priority)));
                open.extend(self.programs[thread.program].calls.iter().map(|call| call.endpoint));
            }
        }
        reach
    }
}

impl Context {
    /// What it asks for at a priority, with so many nanoseconds more. A PIBS context asks for
    /// nothing here, but its period counts among those that it can work for.
    pub(super) fn demand(&self, priority: u8, extra: u64) -> Demand {
        let (budget, activations) = match self.policy {
            Policy::Sporadic(server) | Policy::Strict(server) => (server.budget, self.activations),
            Policy::Pibs { .. } => (0, 0),
            Policy::Full { slice } => (slice, 0),
        };
        let budget = budget.saturating_add(extra);
        Demand { budget, period: self.period(), priority, activations, guaranteed: self.guaranteed }
    }
}
