//! The set in a plan's words, for the tests of the admission. This is all that the oracle knows of the plan.

use crate::set::{Op, Policy, Promise, Set, Thread, Time};
use bulkhead_plan::Place;
use bulkhead_plan::admission::Analysis;
use bulkhead_plan::kernel::{
    Budget, Call, Context, DeviceUse, Driven, Endpoint, Interrupt, Kernel, Policy as Planned,
    Program, Test, Thread as PlanThread, User, Utilization,
};

/// Words of the admission about a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// It is admitted by response times.
    pub by_response: bool,
    /// It is admitted by the bound.
    pub by_bound: bool,
    /// Promise to each thread: its response time, if it is admitted by these; else a period.
    pub promises: Vec<Promise>,
    /// The part of each thread's budget that entries of the kernel can use up within its promise. A job has to leave
    /// it.
    pub rooms: Vec<Time>,
}

impl Verdict {
    /// Asks both tests.
    #[must_use]
    pub fn of(set: &Set, kernel: &Kernel) -> Self {
        Self::by(set, &Analysis::new(kernel))
    }

    /// Asks both tests of an analysis.
    #[must_use]
    pub fn by(set: &Set, analysis: &Analysis<'_>) -> Self {
        let [by_response, by_bound] =
            [Test::Response, Test::Bound].map(|test| analysis.refusals(test).is_empty());
        let promise = |(n, thread): (usize, &Thread)| {
            if !thread.guaranteed || !matches!(thread.policy, Policy::Sporadic | Policy::Strict) {
                return (Promise::NONE, 0);
            }
            let response = analysis.response(n).ok().filter(|_| by_response);
            let piece = response.unwrap_or(thread.period);
            let room = analysis.entered_within(n, piece).ok();
            // A wait that is named is in no promise.
            let waits = thread.waits() || !analysis.unanalysed(n).is_empty();
            let whole = !thread.serves && !waits && room.is_some_and(|room| set.leaves(n, room));
            let job = if whole { piece } else { Time::MAX };
            (Promise { job, piece }, room.filter(|_| whole).unwrap_or(0))
        };
        let (promises, rooms) = set.threads.iter().enumerate().map(promise).unzip();
        Self { by_response, by_bound, promises, rooms }
    }

    /// Makes the jobs of a set so much shorter that they leave the rooms.
    pub fn shorten(&self, set: &mut Set) {
        for (n, room) in self.rooms.iter().enumerate().filter(|(_, room)| **room > 0) {
            set.leave(n, *room);
        }
    }

    /// True if a test admits it.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        self.by_response || self.by_bound
    }
}

/// A set as a manifest would describe it: a program for each thread, with the rights that its jobs use.
#[must_use]
pub fn kernel(set: &Set) -> Kernel {
    let mut kernel = Kernel { overhead: set.overhead, entry: set.entry, ..Kernel::default() };
    if let Some((every, length)) = set.doorbell {
        (kernel.doorbells, kernel.doorbell) = (vec![every], length);
    }
    let rights = Rights::of(set);
    for (n, thread) in set.threads.iter().enumerate() {
        let serves = rights.drivers[n].into_iter().collect();
        program(
            &mut kernel,
            &format!("t{n}"),
            thread.priority,
            &rights.threads[n],
            serves,
            Some(n),
        );
        kernel.contexts.push(context(n, thread));
        // Where an entry takes no time, interrupts take no time of others.
        if thread.interrupt > 0 && set.entry > 0 {
            let interrupts = vec![Interrupt { number: 0, notification: 0, bits: 1 }];
            let device = Driven::Device(0);
            kernel.programs[n].devices.push(DeviceUse { device, interrupts, dma: Vec::new() });
        }
    }
    for (n, server) in set.servers.iter().enumerate() {
        program(&mut kernel, &format!("s{n}"), server.priority, &rights.servers[n], vec![n], None);
        kernel.endpoints.push(Endpoint {
            name: format!("s{n}"),
            place: Place::default(),
            longest: server.longest,
        });
    }
    for (n, driver) in rights.drivers.iter().enumerate() {
        if driver.is_some() {
            kernel.endpoints.push(Endpoint {
                name: format!("d{n}"),
                place: Place::default(),
                longest: None,
            });
        }
    }
    kernel
}

/// Which endpoints each one may call. Those of servers come first.
struct Rights {
    threads: Vec<Vec<usize>>,
    servers: Vec<Vec<usize>>,
    drivers: Vec<Option<usize>>,
}

impl Rights {
    fn of(set: &Set) -> Self {
        let mut endpoints = set.servers.len();
        let mut number = |thread: &Thread| {
            thread.serves.then(|| {
                endpoints += 1;
                endpoints - 1
            })
        };
        let drivers: Vec<_> = set.threads.iter().map(&mut number).collect();
        let mut rights = Self {
            threads: vec![Vec::new(); set.threads.len()],
            servers: vec![Vec::new(); set.servers.len()],
            drivers,
        };
        for (n, thread) in set.threads.iter().enumerate() {
            rights.add(n, &thread.job);
        }
        rights
    }

    fn add(&mut self, thread: usize, job: &[Op]) {
        let mut inside: Vec<u8> = Vec::new();
        for op in job {
            let endpoint = match *op {
                Op::Call(server) => usize::from(server),
                Op::Ask(driver, _) => self.drivers[usize::from(driver)].unwrap_or_default(),
                Op::Answer => {
                    inside.pop();
                    continue;
                }
                Op::Run(_) | Op::Sleep(_) => continue,
            };
            let list = match inside.last() {
                None => &mut self.threads[thread],
                Some(server) => &mut self.servers[usize::from(*server)],
            };
            if !list.contains(&endpoint) {
                list.push(endpoint);
            }
            if let Op::Call(server) = *op {
                inside.push(server);
            }
        }
    }
}

fn program(
    kernel: &mut Kernel,
    name: &str,
    priority: u8,
    calls: &[usize],
    serves: Vec<usize>,
    context: Option<usize>,
) {
    let call = |endpoint: &usize| Call { endpoint: *endpoint, badge: 0, grant: false };
    kernel.threads.push(PlanThread {
        name: name.into(),
        program: kernel.programs.len(),
        priority,
        context,
        ..PlanThread::default()
    });
    kernel.programs.push(Program {
        name: name.into(),
        calls: calls.iter().map(call).collect(),
        serves,
        ..Program::default()
    });
}

fn context(n: usize, thread: &Thread) -> Context {
    let (budget, period, refills) = (thread.budget, thread.period, thread.refills as u32);
    let server = Budget { budget, period, refills };
    Context {
        name: format!("c{n}"),
        place: Place::default(),
        policy: match thread.policy {
            Policy::Sporadic => Planned::Sporadic(server),
            Policy::Strict => Planned::Strict(server),
            Policy::Pibs(share) => Planned::Pibs {
                utilization: Utilization::new(share, 1_000_000)
                    .unwrap_or_else(|e| panic!("a share of {share} millionths: {e:?}")),
                period,
            },
            Policy::Full => Planned::Full { slice: period },
        },
        background: thread.background,
        guaranteed: thread.guaranteed && !matches!(thread.policy, Policy::Full),
        activations: thread.activations,
        user: User::Thread(n),
    }
}
