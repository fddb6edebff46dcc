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
    /// A driver's work for an interrupt, up to its acknowledgement; 0: its device sends no interrupts.
    pub interrupt: Time,
    /// Its device's interrupts are at least so far apart.
    pub every: Time,
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

/// Use of a budget by a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uses {
    /// The most that a job uses, its calls as long as their servers say.
    pub counted: Time,
    /// The longest of those calls.
    pub longest: Time,
    /// Steps outside of those calls.
    outside: Vec<usize>,
}

impl Uses {
    pub fn of(thread: &Thread, servers: &[Server]) -> Self {
        let (mut uses, mut depth) = (Self::default(), 0);
        // The outermost call that says how long it takes counts as that.
        let mut counted: Option<(usize, Time)> = None;
        for (at, op) in thread.job.iter().enumerate() {
            match *op {
                Op::Call(server) => {
                    let says = servers[usize::from(server)].longest;
                    counted = counted.or(says.map(|says| (depth, says)));
                    depth += 1;
                }
                Op::Run(time) if counted.is_none() => {
                    uses.counted += time;
                    uses.outside.push(at);
                }
                Op::Answer => {
                    depth -= 1;
                    if let Some((_, says)) = counted.take_if(|(at, _)| *at == depth) {
                        uses.counted += says;
                        uses.longest = uses.longest.max(says);
                    }
                }
                Op::Run(_) | Op::Ask(..) | Op::Sleep(_) => {}
            }
        }
        uses
    }
}

impl Set {
    /// True if a thread calls a server.
    #[must_use]
    pub fn calls(&self) -> bool {
        self.threads.iter().flat_map(|thread| &thread.job).any(|op| matches!(op, Op::Call(_)))
    }

    /// True if a thread's job can leave so much of its budget. Its calls do not need more than the rest, and
    /// something is left to do.
    pub(crate) fn leaves(&self, n: usize, room: Time) -> bool {
        let (thread, uses) = (&self.threads[n], Uses::of(&self.threads[n], &self.servers));
        let run = |at: &usize| if let Op::Run(time) = thread.job[*at] { time } else { 0 };
        let calls = uses.counted - uses.outside.iter().map(run).sum::<Time>();
        calls + room < thread.budget + Time::from(calls > 0)
    }

    /// Makes a thread's job so much shorter that it leaves so much of its budget. Its calls stay.
    pub(crate) fn leave(&mut self, n: usize, room: Time) {
        let uses = Uses::of(&self.threads[n], &self.servers);
        let thread = &mut self.threads[n];
        let mut more = (uses.counted + room).saturating_sub(thread.budget);
        for at in uses.outside.into_iter().rev() {
            if let Op::Run(time) = &mut thread.job[at] {
                let less = more.min(*time);
                (*time, more) = (*time - less, more - less);
            }
        }
        thread.job.retain(|op| *op != Op::Run(0));
    }
}

impl std::fmt::Display for Set {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, t) in self.threads.iter().enumerate() {
            let promised = if t.guaranteed { "" } else { " not guaranteed" };
            let background = if t.background { " background" } else { "" };
            writeln!(
                f,
                "  thread {n}: {:?} {}/{} priority {}, {} refills, {} activations{promised}{background}: {:?} {}/{}",
                t.policy,
                t.budget,
                t.period,
                t.priority,
                t.refills,
                t.activations,
                t.job,
                t.interrupt,
                t.every
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
