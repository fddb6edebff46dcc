//! Random sets by class. Shares are spread evenly among all that add up to a sum (UUniFast: Bini and Buttazzo,
//! *Measuring the performance of schedulability tests*, 2005). Periods are spread by their logarithm.

use crate::account::part;
use crate::random::Random;
use crate::set::{Op, Policy, Server, Set, Thread, Time, Uses};

/// Kind of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Threads that have nothing to do with each other.
    Independent,
    /// Threads that ask drivers.
    Direct,
    /// Threads that call servers, some of which want more time than they have.
    Calls,
    /// Servers that call others.
    Nested,
    /// Servers that ask drivers, and drivers that call servers.
    Inside,
    /// Strict budgets.
    Strict,
    /// Threads that wait often, with short lists of refills.
    Lists,
    /// The kernel's own work counts; everything else may come, too.
    Overhead,
}

impl Class {
    /// All classes, with their names.
    pub const ALL: [(Self, &str); 8] = [
        (Self::Independent, "independent"),
        (Self::Direct, "direct"),
        (Self::Calls, "calls"),
        (Self::Nested, "nested"),
        (Self::Inside, "inside"),
        (Self::Strict, "strict"),
        (Self::Lists, "lists"),
        (Self::Overhead, "overhead"),
    ];

    const fn has_servers(self) -> bool {
        matches!(self, Self::Calls | Self::Nested | Self::Inside)
    }
}

/// All times are multiples of this, but those in which a driver's share comes again.
pub const TICK: Time = 10_000;

/// A set of a class.
#[must_use]
pub fn set(class: Class, random: &mut Random) -> Set {
    let mut features = Features::of(class, random);
    if class == Class::Overhead && random.percent(50) {
        // A class for each combination would be too many: the other features come here with the kernel's work.
        let other = Class::ALL[random.between(1, 6) as usize].0;
        features = Features { overhead: true, ..Features::of(other, random) };
    }
    Maker { features, random, set: Set::default() }.set()
}

#[derive(Clone, Copy, Debug)]
struct Features {
    servers: u64,
    drivers: u64,
    nested: bool,
    inside: bool,
    /// Percent of budgets.
    strict: u64,
    /// Percent of parts of jobs that are followed by a wait.
    sleeps: u64,
    short_lists: bool,
    overhead: bool,
}

impl Features {
    fn of(class: Class, random: &mut Random) -> Self {
        let nested = class == Class::Nested;
        Self {
            servers: if class.has_servers() { random.between(1 + u64::from(nested), 3) } else { 0 },
            drivers: if matches!(class, Class::Direct | Class::Inside) {
                random.between(1, 2)
            } else {
                0
            },
            nested,
            inside: class == Class::Inside,
            strict: if class == Class::Strict { 50 } else { 0 },
            sleeps: match class {
                Class::Lists | Class::Overhead => 80,
                Class::Direct => 0,
                _ => 15,
            },
            short_lists: class == Class::Lists,
            overhead: class == Class::Overhead,
        }
    }
}

struct Maker<'a> {
    features: Features,
    random: &'a mut Random,
    set: Set,
}

impl Maker<'_> {
    fn set(mut self) -> Set {
        if self.features.overhead {
            // An entry can be longer than an activation.
            (self.set.overhead, self.set.entry) = (TICK, self.random.between(1, 3) * TICK);
        }
        if self.features.overhead && self.random.percent(25) {
            // As often as it may be, and a little longer than the kernel's own work.
            let (every, length) = (self.random.between(20, 100), self.random.between(1, 3));
            self.set.doorbell = Some((every * TICK, length * TICK));
        }
        self.threads();
        for _ in 0..self.features.servers {
            // Most say how long they take; which are those is decided before jobs are made to fit.
            let longest = (!self.random.percent(20)).then_some(0);
            self.set.servers.push(Server { priority: 0, longest });
        }
        for _ in 0..self.features.drivers {
            self.driver();
        }
        for n in 0..self.set.threads.len() {
            if !self.set.threads[n].serves {
                self.job(n);
            }
        }
        self.ceilings();
        self.budgets();
        self.set
    }

    fn threads(&mut self) {
        let count = self.random.between(2, 5);
        let busy = self.features.servers + self.features.drivers > 0;
        let sum = if busy { 0.15 } else { 0.4 } + 0.55 * self.random.share();
        let mut periods: Vec<Time> =
            (0..count).map(|_| (8.0 * 20f64.powf(self.random.share())) as Time * TICK).collect();
        if self.random.percent(75) {
            periods.sort_unstable();
        }
        let mut rest = sum;
        for (n, period) in periods.into_iter().enumerate() {
            let left = count - n as u64;
            let share = self.random.share();
            let after = if left == 1 { 0.0 } else { rest * share.powf(1.0 / (left - 1) as f64) };
            let budget = (period as f64 * (rest - after)) as Time / TICK * TICK;
            rest = after;
            // Sometimes two of one priority.
            let priority = 10 * left as u8 + if self.random.percent(5) { 10 } else { 0 };
            self.thread(n, period, budget.clamp(TICK, period), priority);
        }
    }

    fn thread(&mut self, n: usize, period: Time, budget: Time, priority: u8) {
        let loose = if self.features.servers > 0 { 40 } else { 15 };
        let guaranteed = !self.random.percent(if n == 0 { loose / 4 } else { loose });
        let full = !guaranteed && n > 1 && self.random.percent(8);
        let refills = if self.features.short_lists { self.random.between(2, 4) } else { 8 };
        let policy = match () {
            () if full => Policy::Full,
            () if self.random.percent(self.features.strict) => Policy::Strict,
            () => Policy::Sporadic,
        };
        self.set.threads.push(Thread {
            policy,
            budget,
            period,
            refills: refills as usize,
            guaranteed,
            background: !full && self.random.percent(5),
            activations: 1,
            priority,
            job: Vec::new(),
            serves: false,
            interrupt: 0,
            every: period,
        });
    }

    fn driver(&mut self) {
        let own = self.features.inside && self.random.percent(15);
        let mut share = self.random.between(1, 15);
        let longest = self.set.threads.iter().map(|t| t.period).max().unwrap_or(TICK);
        let shortest = self.set.threads.iter().map(|t| t.period).min().unwrap_or(TICK);
        if self.features.overhead {
            // A driver gets more for the shortest period than the kernel's work for it.
            share = share.max((300 * TICK).div_ceil(shortest));
        }
        let period = TICK * self.random.between(shortest / TICK, longest / TICK);
        // A driver does at least as much for interrupts as an entry takes.
        let overhead = self.features.overhead;
        let interrupts = !own && self.random.percent(if overhead { 60 } else { 20 });
        let entry = self.set.entry / TICK;
        let (least, most) = if overhead { (entry, entry + 1) } else { (1, 3) };
        let interrupt = if interrupts { TICK * self.random.between(least, most) } else { 0 };
        // Some devices never stop. Those hurt most that send two interrupts while their driver pauses.
        let storms = overhead && self.random.percent(60);
        let least = interrupt / TICK + 2;
        let every = if storms { TICK * self.random.between(least, 8 * least) } else { period };
        // A driver with a thread's context is asked like any other, and works at its own priority.
        let policy = if own { Policy::Sporadic } else { Policy::Pibs(share as u32 * 10_000) };
        let calls = self.features.inside && !own && self.random.percent(10);
        let job = if calls { vec![Op::Call(0), Op::Run(TICK), Op::Answer] } else { Vec::new() };
        self.set.threads.push(Thread {
            policy,
            budget: if own { (period * share / 100).max(TICK) / TICK * TICK } else { 0 },
            period,
            refills: 8,
            guaranteed: self.random.percent(50),
            background: false,
            activations: 1,
            // An interrupted driver may be above others though nobody has asked it.
            priority: if own || interrupt > 0 && overhead && self.random.percent(25) {
                self.random.between(1, 5) as u8 * 10 + 5
            } else {
                self.random.below(3) as u8
            },
            job,
            serves: true,
            interrupt,
            every,
        });
    }

    fn job(&mut self, n: usize) {
        let thread = &self.set.threads[n];
        let (budget, period, guaranteed) = (thread.budget, thread.period, thread.guaranteed);
        let demand = if guaranteed { budget } else { budget * self.random.between(1, 6) };
        let overruns = !guaranteed && self.random.percent(15);
        let calls = self.random.percent(75);
        let mut job = Vec::new();
        let parts = if self.random.percent(40) { 1 } else { self.random.between(1, 3) };
        let mut left = demand / TICK;
        for part in (0..parts).rev() {
            let time = if part == 0 { left } else { self.random.between(0, left) };
            left -= time;
            let most = if overruns { Time::MAX } else { budget };
            self.part(&mut job, time * TICK, period, calls.then_some(most));
            if part > 0 && self.random.percent(self.features.sleeps) {
                job.push(Op::Sleep(TICK * self.random.between(1, (period / TICK / 4).max(1))));
            }
        }
        // A server may be occupied, where not all say how long they take, or some wait.
        let free =
            self.features.drivers == 0 && self.set.servers.iter().all(|s| s.longest.is_some());
        let waits = |op: &&Op| match op {
            Op::Sleep(_) | Op::Ask(..) => true,
            Op::Call(_) => !free,
            Op::Run(_) | Op::Answer => false,
        };
        let waits = job.iter().filter(waits).count();
        let thread = &mut self.set.threads[n];
        thread.activations = 1 + waits as u32;
        thread.refills = thread.refills.max(2 + waits).min(Thread::MOST_REFILLS);
        thread.job = job;
    }

    /// A part of a job, with a call that is no longer than `most`, if any.
    fn part(&mut self, job: &mut Vec<Op>, mut time: Time, period: Time, most: Option<Time>) {
        if time == 0 {
            return;
        }
        let servers = self.set.servers.len() as u64;
        if let (Some(most), 1.., true) = (most, servers, self.random.percent(70)) {
            let first = self.random.below(servers);
            let says = self.set.servers[first as usize..].iter().any(|s| s.longest.is_some());
            let call = if says { time.min(most) } else { time };
            self.call(job, call, first, period);
            time -= call;
        }
        if time > 0 {
            job.push(Op::Run(time));
        }
        if self.features.drivers > 0
            && self.random.percent(if self.features.inside { 10 } else { 40 })
        {
            job.push(self.request(period));
        }
    }

    fn request(&mut self, period: Time) -> Op {
        let first = self.set.threads.iter().position(|t| t.serves).unwrap_or(0);
        let driver = first + self.random.below((self.set.threads.len() - first) as u64) as usize;
        let most = match self.set.threads[driver].policy {
            Policy::Pibs(share) => part(share, period) * 2,
            _ => self.set.threads[driver].budget,
        };
        Op::Ask(driver as u8, TICK * self.random.between(1, (most / TICK).max(1)))
    }

    fn call(&mut self, job: &mut Vec<Op>, time: Time, server: u64, period: Time) {
        let last = server + 1 == self.set.servers.len() as u64;
        let nested = !last && self.features.nested && self.random.percent(70);
        let before = TICK * self.random.between(0, time / TICK);
        job.push(Op::Call(server as u8));
        if before > 0 {
            job.push(Op::Run(before));
        }
        if self.features.inside && self.random.percent(60) {
            job.push(self.request(period));
        }
        match time - before {
            0 => {}
            rest if nested => self.call(job, rest, server + 1, period),
            rest => job.push(Op::Run(rest)),
        }
        job.push(Op::Answer);
    }

    /// Makes each server as high as the highest thread that calls it, directly or through others. Its stated length
    /// is right for all threads that keep to their budgets.
    fn ceilings(&mut self) {
        let Set { threads, servers, .. } = &mut self.set;
        for thread in threads.iter() {
            // A driver comes at the priorities of all that may ask it, and their servers.
            let top = if thread.serves { u8::MAX } else { thread.priority };
            let mut inside: Vec<(usize, Time)> = Vec::new();
            for op in &thread.job {
                match *op {
                    Op::Call(server) => {
                        let of = &mut servers[usize::from(server)];
                        of.priority = of.priority.max(top);
                        inside.push((server.into(), 0));
                    }
                    Op::Run(time) => inside.iter_mut().for_each(|(_, used)| *used += time),
                    Op::Answer => {
                        let Some((server, used)) = inside.pop() else { continue };
                        let longest = &mut servers[server].longest;
                        let keeps = thread.serves || used <= thread.budget;
                        *longest = longest.map(|l| if keeps { l.max(used) } else { l });
                    }
                    Op::Ask(..) | Op::Sleep(_) => {}
                }
            }
        }
        let highest = threads.iter().map(|t| t.priority).max().unwrap_or(0);
        for server in servers.iter_mut() {
            server.priority = server.priority.min(highest);
            server.longest = server.longest.map(|l| l.max(TICK));
        }
        if self.features.nested {
            for n in 1..servers.len() {
                servers[n].priority = servers[n].priority.max(servers[n - 1].priority);
            }
        }
        // A few servers are below some of their callers.
        if !servers.is_empty() && self.random.percent(5) {
            let n = self.random.below(servers.len() as u64) as usize;
            servers[n].priority = self.random.below(highest.into()) as u8;
        }
    }

    /// A promised thread has budget for its calls as their servers say. Most others have it for one call.
    fn budgets(&mut self) {
        let servers = self.set.servers.clone();
        for thread in self.set.threads.iter_mut().filter(|t| !t.serves) {
            let Uses { counted, longest, .. } = Uses::of(thread, &servers);
            if thread.guaranteed {
                thread.budget = thread.budget.max(counted);
                thread.guaranteed = thread.budget <= thread.period;
            }
            if !thread.guaranteed && !self.random.percent(5) {
                thread.budget = thread.budget.max(longest);
            }
            thread.budget = thread.budget.min(thread.period);
        }
    }
}
