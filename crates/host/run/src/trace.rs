//! Kernels' traces, out of the machine's memory.

use crate::{Error, live};
use bulkhead_audit::Memory as _;
use bulkhead_image::{Baked, Trace};
use bulkhead_plan::kernel::{Kernel, Policy};
use bulkhead_plan::{Guest, Plan};
use bulkhead_trace::{Budget, Names, Reader, Timeline};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// A kernel's trace.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Index of its sandbox.
    pub sandbox: usize,
    /// Events.
    pub timeline: Timeline,
    /// Names of threads and contexts.
    pub names: Names,
    /// Budgets of its contexts that have a budget in a period, by their offsets.
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

    /// Tells if there is no reader.
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

    /// Forgets what was read: from here on.
    fn forget(&mut self) {
        self.0.iter_mut().for_each(|(_, reader)| reader.timeline.items.clear());
    }

    /// Tells if each has read at least so many nanoseconds.
    #[must_use]
    pub fn have(&self, length: u64) -> bool {
        !self.is_empty() && self.0.iter().all(|(_, reader)| reader.timeline.length() >= length)
    }

    /// Returns the traces that were read, with names.
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

/// How often a running machine's rings are read: before a ring of the smallest size is written round.
const PAUSE: Duration = Duration::from_millis(2);

/// Reads the rings of a machine that another process runs in this folder, and that goes on meanwhile. With a `length`
/// it goes on reading until they hold so many nanoseconds, `limit` has passed or `stop` says so. `baked` is its image.
///
/// # Errors
/// No such machine; one of another image, or with kernels that don't trace.
pub fn attached(
    folder: &Path,
    baked: &Baked,
    length: Option<u64>,
    limit: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<Traced>, Error> {
    let mut readers = Readers::new(baked);
    if readers.is_empty() {
        return Err(Error::Other(
            "no kernel of this manifest traces: `trace` in its `guest`".into(),
        ));
    }
    let memory = live::memory(folder, baked)?;
    let begun = Instant::now();
    let read = |pa: u64, bytes: &mut [u8]| memory.read(pa, bytes);
    if length.is_some() {
        readers.read(&read);
        readers.forget();
    }
    loop {
        readers.read(&read);
        let enough = length.is_none_or(|length| readers.have(length));
        if enough || begun.elapsed() > limit || stop() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    let traces = readers.finish(baked);
    match traces.iter().all(|traced| traced.timeline.items.is_empty()) {
        true => Err(Error::Other(format!(
            "no kernel has told anything where this manifest's rings are: does {} run it?",
            folder.display()
        ))),
        false => Ok(traces),
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
