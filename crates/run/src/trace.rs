//! What kernels tell of what they do, out of the machine's memory.

use bulkhead_image::{Baked, Trace};
use bulkhead_plan::kernel::{Kernel, Policy};
use bulkhead_plan::{Guest, Plan};
use bulkhead_trace::{Budget, Names, Reader, Timeline};
use std::collections::BTreeMap;

/// A kernel's trace.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Index of its sandbox.
    pub sandbox: usize,
    /// What happened.
    pub timeline: Timeline,
    /// Who is who.
    pub names: Names,
    /// What those of its contexts may use that have a budget in a period, by their offsets.
    pub budgets: BTreeMap<u32, Budget>,
}

/// The readers of all rings of a system.
#[derive(Clone, Debug, Default)]
pub struct Readers(Vec<(usize, Reader)>);

impl Readers {
    /// For a system, before anything was read.
    #[must_use]
    pub fn new(baked: &Baked) -> Self {
        let rings = baked.map.traces.iter().enumerate();
        let readers = rings
            .filter_map(|(n, ring)| ring.as_ref().map(|(at, t)| (n, Reader::new(*at, t.records))));
        Self(readers.collect())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads what is new. `ram` fills a buffer from an address of the machine's.
    pub fn read(&mut self, ram: &dyn Fn(u64, &mut [u8]) -> bool) {
        for (_, reader) in &mut self.0 {
            // One that can't be read yet can be read later, or its timeline stays empty.
            reader.read(ram);
        }
    }

    /// Whether each tells of at least so many nanoseconds.
    #[must_use]
    pub fn have(&self, length: u64) -> bool {
        !self.is_empty() && self.0.iter().all(|(_, reader)| reader.timeline.length() >= length)
    }

    /// What was read, with names.
    #[must_use]
    pub fn finish(self, baked: &Baked) -> Vec<Traced> {
        let of = |(sandbox, reader): (usize, Reader)| {
            let (_, trace) = baked.map.traces[sandbox].as_ref()?;
            let kernel = kernel(&baked.plan, sandbox)?;
            let (names, budgets) = (names(kernel, trace), budgets(kernel, trace));
            Some(Traced { sandbox, timeline: reader.timeline, names, budgets })
        };
        self.0.into_iter().filter_map(of).collect()
    }
}

fn kernel(plan: &Plan, sandbox: usize) -> Option<&Kernel> {
    match &plan.sandboxes.get(sandbox)?.guest {
        Guest::Kernel(kernel) => Some(kernel),
        _ => None,
    }
}

fn names(kernel: &Kernel, trace: &Trace) -> Names {
    let thread = |n: usize| {
        let thread = &kernel.threads[n];
        let program = &kernel.programs[thread.program].name;
        match *program == thread.name {
            true => thread.name.clone(),
            false => format!("{program}: {}", thread.name),
        }
    };
    let of = |offsets: &[u32], name: &dyn Fn(usize) -> String| {
        offsets.iter().enumerate().map(|(n, at)| (*at, name(n))).collect::<BTreeMap<_, _>>()
    };
    let mut contexts = of(&trace.contexts, &|n| kernel.contexts[n].name.clone());
    let starts = trace.starts.iter().map(|(at, n)| (*at, format!("start of {}", thread(*n))));
    contexts.extend(starts);
    Names {
        threads: of(&trace.threads, &thread),
        contexts,
        notifications: of(&trace.notifications, &|n| kernel.notifications[n].name.clone()),
    }
}

fn budgets(kernel: &Kernel, trace: &Trace) -> BTreeMap<u32, Budget> {
    let of = |(at, context): (&u32, &bulkhead_plan::kernel::Context)| match context.policy {
        // In the background it runs without budget, too.
        Policy::Sporadic(b) | Policy::Strict(b) if !context.background => {
            let budget = context.gross(kernel.overhead);
            let strict = matches!(context.policy, Policy::Strict(_));
            Some((*at, Budget { budget, period: b.period, strict }))
        }
        _ => None,
    };
    trace.contexts.iter().zip(&kernel.contexts).filter_map(of).collect()
}
