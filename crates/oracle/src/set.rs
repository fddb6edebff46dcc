//! Work of a core, in words that neither the manifest nor the scheduler knows. It consists of threads with budgets,
//! passive servers that they call, and drivers that they ask. [`crate::generate`] makes it, [`crate::Core`] plays it,
//! and [`crate::judge`] turns it into a manifest's plan.

/// Nanoseconds, one of them being a tick.
pub type Time = u64;

/// How a thread's budget comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Sporadic server, a Main VCPU.
    Sporadic,
    /// At most its budget in every window of a period.
    Strict,
    /// Share of the processor for a driver's work, in millionths: an I/O VCPU.
    Pibs(u32),
    /// As much as is left, in turns of `period`.
    Full,
}

/// A step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Use the processor for so long.
    Run(Time),
    /// Call a passive server. All up to the matching [`Op::Answer`] is its work.
    Call(u8),
    /// The innermost server answers.
    Answer,
    /// Ask a driver (index of its thread) for so much work, and wait for the answer.
    Ask(u8, Time),
    /// Wait for something else for so long.
    Sleep(Time),
}

/// A thread with a context of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// How its budget comes back.
    pub policy: Policy,
    /// C: time that it gets in each period, without the kernel's work for it.
    pub budget: Time,
    /// T. Its jobs are at least so far apart.
    pub period: Time,
    /// Most refills in its list, 2 to [`Thread::MOST_REFILLS`].
    pub refills: usize,
    /// It is promised its budget in each period.
    pub guaranteed: bool,
    /// Runs below all others when its budget has ended.
    pub background: bool,
    /// How often it begins to run in a period, as its manifest says.
    pub activations: u32,
    /// The higher, the earlier.
    pub priority: u8,
    /// Steps of each period; a driver's for each request, after the work that was asked for.
    pub job: Vec<Op>,
    /// It is a driver: it works for those that ask it.
    pub serves: bool,
    /// A driver's work for an interrupt, at most once in a period; 0: its device sends no interrupts.
    pub interrupt: Time,
}

impl Thread {
    /// Longest list of refills that is played.
    pub const MOST_REFILLS: usize = 16;

    /// True if it waits for a driver, or for anything else but servers, in its job.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.job.iter().any(|op| matches!(op, Op::Ask(..) | Op::Sleep(_)))
    }
}

/// A passive server: it runs on its callers' budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its ceiling.
    pub priority: u8,
    /// The longest time that a call uses, as its manifest says.
    pub longest: Option<Time>,
}

/// Work of a core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Threads with contexts, drivers among them.
    pub threads: Vec<Thread>,
    /// Passive servers.
    pub servers: Vec<Server>,
    /// Time of the kernel when a thread begins to use a refill, charged to it.
    pub overhead: Time,
    /// Time of the kernel for an interrupt, which no account pays: the running thread is delayed by it.
    pub entry: Time,
    /// Doorbells of another sandbox's right over the core's life: the time between them, and the time that each
    /// takes.
    pub doorbell: Option<(Time, Time)>,
}

impl std::fmt::Display for Set {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, t) in self.threads.iter().enumerate() {
            let promised = if t.guaranteed { "" } else { " not guaranteed" };
            let background = if t.background { " background" } else { "" };
            writeln!(
                f,
                "  thread {n}: {:?} {}/{} priority {}, {} refills, {} activations{promised}{background}: {:?} {}",
                t.policy,
                t.budget,
                t.period,
                t.priority,
                t.refills,
                t.activations,
                t.job,
                t.interrupt
            )?;
        }
        for (n, s) in self.servers.iter().enumerate() {
            writeln!(f, "  server {n}: priority {}, longest {:?}", s.priority, s.longest)?;
        }
        write!(
            f,
            "  overhead {}, entry {}, doorbells {:?}",
            self.overhead, self.entry, self.doorbell
        )
    }
}

/// How long a thread may take, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// From a job's release to its end.
    pub job: Time,
    /// From when a refill can be used, and its thread wants to run, until it is used up or the thread stops wanting to.
    pub piece: Time,
}

impl Promise {
    /// Nothing is promised.
    pub const NONE: Self = Self { job: Time::MAX, piece: Time::MAX };
}

/// When the jobs of a thread, or interrupts of a driver's device, come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    /// The first one.
    pub offset: Time,
    /// How much later than a period each following one comes.
    pub gap: Time,
}
