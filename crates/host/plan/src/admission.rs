//! Tells if a kernel's contexts get their budgets in time. It applies `bulkhead_sched`'s arithmetic to a manifest,
//! and adds the effects of calls, which only the manifest knows.
//!
//! * **Passive servers.** A context's thread that calls one runs there at the server's priority. A thread that this
//!   keeps from the processor waits for one such call. The kernel begins a call of an endpoint with a `longest` only
//!   with budget for all of it, and ends a call that takes longer. A call without `longest` can last through any
//!   number of refills, and is refused where it blocks.
//! * **Calls that wait.** A server that calls a thread with a context of its own waits there without time. Meanwhile
//!   other threads run, and more calls can be half done when a context wants to run: then their times add up.
//! * **PIBS.** A PIBS context works at the priority and with the period of a context that can ask it. It never takes
//!   a server's priority, even if that context asks from within the server.
//! * **Interrupts** enter the kernel in the time of the running thread, at most twice for an acknowledgement. Neither
//!   entry takes longer than their driver uses for that, so a driver counts three times.
//!
//! The wait of a context for an answer by a thread with a context of its own is not analysed, and is reported so
//! ([`Analysis::unanalysed`]). Faults are not counted.

mod blocking;
mod bound;
mod calls;
mod contexts;
mod pibs;
mod refusal;
mod response;
#[cfg(test)]
mod tests;

use crate::kernel::Kernel;
pub use blocking::{Blocking, Unanalysed};
pub use bound::Sum;
pub use bulkhead_sched::share::Share;
use calls::Calls;
pub use refusal::Refusal;

/// A kernel's contexts, with the properties that follow from the whole: their threads and priorities.
pub struct Analysis<'a> {
    kernel: &'a Kernel,
    /// The lowest and the highest priority at which a context runs by itself.
    priorities: Vec<(u8, u8)>,
    /// Endpoints that may be called on a context.
    called: Vec<Vec<usize>>,
    calls: Calls,
    /// The lowest priority at which a context runs, in the servers that it calls, too.
    floors: Vec<u8>,
    /// [`Kernel::is_driver`] and [`Kernel::sources`] of each context: the sums ask for each pair of them.
    drivers: Vec<bool>,
    sources: Vec<u64>,
    /// Priorities and periods with which each PIBS context works.
    works: Vec<Vec<(u8, u64)>>,
    /// The term that is in no sum: a test's error.
    left_out: Option<Term>,
}

/// A term of the sums. A test leaves one out, and has to see that admitted sets are late.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// Calls of all but one of the contexts below that can stop in the middle.
    Stopped,
    /// The kernel's time for activations that begin in calls from below.
    Beginnings,
    /// Entries after the first two of each source of interrupts.
    Interrupts,
    /// The doorbell that comes at the beginning.
    Doorbell,
    /// The last activations of a job before.
    Activations,
    /// Budgets with which a context without a guarantee comes back from a server below.
    Arrears,
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
        let called: Vec<Vec<usize>> = contexts.clone().map(called).collect();
        let drivers = contexts.clone().map(|context| kernel.is_driver(context)).collect();
        let sources = contexts.map(|context| kernel.sources(context)).collect();
        let calls = Calls::new(kernel, &called);
        let floor = |(endpoints, (own, _)): (&Vec<usize>, &(u8, u8))| {
            let servers = endpoints.iter().filter_map(|endpoint| calls.reach(*endpoint));
            servers.map(|(low, _)| low).fold(*own, u8::min)
        };
        let floors = called.iter().zip(&priorities).map(floor).collect();
        let works = Vec::new();
        let left_out = None;
        let mut all =
            Self { kernel, priorities, called, calls, floors, drivers, sources, works, left_out };
        all.works = (0..kernel.contexts.len()).map(|context| all.work_of(context)).collect();
        all
    }

    /// Looks at a kernel with an error: a term is left out.
    #[doc(hidden)]
    #[must_use]
    pub fn without(kernel: &'a Kernel, term: Term) -> Self {
        Self { left_out: Some(term), ..Self::new(kernel) }
    }

    fn counts(&self, term: Term) -> bool {
        self.left_out != Some(term)
    }

    /// Returns the lowest and the highest priority at which a context runs outside of passive servers. For a
    /// notification's context they are those of the passive threads that may take its signals. For a PIBS context
    /// they hold while no thread asks for its work.
    #[must_use]
    pub fn priorities(&self, context: usize) -> (u8, u8) {
        self.priorities[context]
    }

    /// Returns the lowest and the highest priority of the passive threads that a call of an endpoint can reach.
    /// `None`: only threads with contexts of their own serve it.
    #[must_use]
    pub fn reach(&self, endpoint: usize) -> Option<(u8, u8)> {
        self.calls.reach(endpoint)
    }

    /// The lowest priority at which a context runs, in the passive servers that it calls, too.
    #[must_use]
    pub fn floor(&self, context: usize) -> u8 {
        self.floors[context]
    }
}
