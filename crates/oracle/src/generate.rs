//! Random sets by class. Shares are spread evenly among all that add up to a sum (UUniFast: Bini and Buttazzo,
//! *Measuring the performance of schedulability tests*, 2005), periods by their logarithm.

use crate::random::Random;
use crate::set::{Op, Policy, Server, Set, Thread, Time};

/// What a set has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Threads that have nothing to do with each other.
    Independent,
    /// Threads that ask a driver.
    Direct,
    /// Threads that call servers, some of which want more time than they have.
    Calls,
    /// Servers that call others.
    Nested,
    /// Servers that ask a driver.
    Inside,
    /// Strict budgets.
    Strict,
    /// Threads that wait often, with short lists of refills.
    Lists,
    /// The kernel's own work counts.
    Overhead,
}

impl Class {
    /// All, with what they are called.
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

    const fn has_drivers(self) -> bool {
        matches!(self, Self::Direct | Self::Inside)
    }
}

/// All times are multiples of this, but those in which a driver's share comes again.
pub const TICK: Time = 1_000;

/// A set of a class.
#[must_use]
pub fn set(class: Class, random: &mut Random) -> Set {
    Maker { class, random, set: Set::default() }.set()
}

struct Maker<'a> {
    class: Class,
    random: &'a mut Random,
    set: Set,
}

impl Maker<'_> {
    fn set(mut self) -> Set {
        if self.class == Class::Overhead {
            self.set.overhead = TICK;
        }
        self.threads();
        if self.class.has_servers() {
            let servers = self.random.between(if self.class == Class::Nested { 2 } else { 1 }, 3);
            let server = Server { priority: 0, longest: None };
            self.set.servers = vec![server; servers as usize];
        }
        if self.class.has_drivers() {
            self.drivers();
        }
        self.jobs();
        self.ceilings();
        self.set
    }

    fn threads(&mut self) {
        let count = self.random.between(2, 5);
        let sum = if self.class.has_servers() { 0.2 } else { 0.4 } + 0.55 * self.random.share();
        let mut periods: Vec<Time> =
            (0..count).map(|_| (8.0 * 20f64.powf(self.random.share())) as Time * TICK).collect();
        if self.random.percent(75) {
            periods.sort_unstable();
        }
        let mut rest = sum;
        for (n, period) in periods.into_iter().enumerate() {
            let left = count - n as u64;
            let after = if left == 1 {
                0.0
            } else {
                rest * self.random.share().powf(1.0 / (left - 1) as f64)
            };
            let budget = (period as f64 * (rest - after)) as Time / TICK * TICK;
            rest = after;
            self.thread(n, period, budget.clamp(TICK, period), 10 * left as u8);
        }
    }

    fn thread(&mut self, n: usize, period: Time, budget: Time, priority: u8) {
        let loose = if self.class.has_servers() { 45 } else { 15 };
        let guaranteed = n == 0 || !self.random.percent(loose);
        let strict = match self.class {
            Class::Strict => self.random.percent(50),
            _ => false,
        };
        let full = !guaranteed && self.random.percent(8) && n > 1;
        let refills = match self.class {
            Class::Lists => self.random.between(2, 4),
            _ => 8,
        };
        self.set.threads.push(Thread {
            policy: if full {
                Policy::Full
            } else if strict {
                Policy::Strict
            } else {
                Policy::Sporadic
            },
            budget,
            period,
            refills: refills as usize,
            guaranteed,
            background: !full && self.random.percent(5),
            activations: 1,
            priority,
            job: Vec::new(),
            interrupt: 0,
        });
    }

    fn drivers(&mut self) {
        for _ in 0..self.random.between(1, 2) {
            let share = self.random.between(1, 15) as u32 * 10_000;
            let longest = self.set.threads.iter().map(|t| t.period).max().unwrap_or(TICK);
            self.set.threads.push(Thread {
                policy: Policy::Pibs(share),
                budget: 0,
                period: longest,
                refills: 8,
                guaranteed: true,
                background: false,
                activations: 1,
                priority: 0,
                job: Vec::new(),
                interrupt: 0,
            });
        }
    }

    fn jobs(&mut self) {
        for n in 0..self.set.threads.len() {
            if self.set.threads[n].is_driver() {
                continue;
            }
            let thread = &self.set.threads[n];
            let (budget, period, guaranteed) = (thread.budget, thread.period, thread.guaranteed);
            let demand = if guaranteed { budget } else { budget * self.random.between(1, 6) };
            let job = self.job(demand, period);
            let waits = job.iter().filter(|op| matches!(op, Op::Sleep(_) | Op::Ask(..))).count();
            let thread = &mut self.set.threads[n];
            thread.activations = 1 + waits as u32;
            thread.refills = thread.refills.max(2 + waits);
            thread.job = job;
        }
    }

    /// What a thread does that uses so much time of its own.
    fn job(&mut self, demand: Time, period: Time) -> Vec<Op> {
        let mut job = Vec::new();
        let parts = match self.class {
            Class::Independent | Class::Strict if self.random.percent(80) => 1,
            _ => self.random.between(1, 3),
        };
        let mut left = demand / TICK;
        for part in (0..parts).rev() {
            let time = if part == 0 { left } else { self.random.between(0, left) };
            left -= time;
            self.part(&mut job, time * TICK, period, part == 0);
        }
        if job.is_empty() {
            job.push(Op::Run(demand));
        }
        job
    }

    fn part(&mut self, job: &mut Vec<Op>, time: Time, period: Time, last: bool) {
        if time == 0 {
            return;
        }
        let servers = self.set.servers.len() as u64;
        if servers > 0 && self.random.percent(60) {
            let first = self.random.below(servers);
            self.call(job, time, first, period);
        } else {
            job.push(Op::Run(time));
        }
        if self.class.has_drivers() && self.random.percent(35) {
            job.push(self.request(period));
        } else if !last && servers == 0 && !matches!(self.class, Class::Direct) {
            job.push(Op::Sleep(TICK * self.random.between(1, (period / TICK / 4).max(1))));
        }
    }

    fn request(&mut self, period: Time) -> Op {
        let drivers: Vec<usize> =
            (0..self.set.threads.len()).filter(|n| self.set.threads[*n].is_driver()).collect();
        let driver = drivers[self.random.below(drivers.len() as u64) as usize];
        let Policy::Pibs(share) = self.set.threads[driver].policy else { unreachable!() };
        let most = crate::account::part(share, period) * 2 / TICK;
        Op::Ask(driver as u8, TICK * self.random.between(1, most.max(1)))
    }

    fn call(&mut self, job: &mut Vec<Op>, time: Time, server: u64, period: Time) {
        job.push(Op::Call(server as u8));
        let before = TICK * self.random.between(0, time / TICK);
        let nested = server + 1 < self.set.servers.len() as u64
            && self.class == Class::Nested
            && self.random.percent(70);
        if before > 0 {
            job.push(Op::Run(before));
        }
        if self.class == Class::Inside && self.random.percent(60) {
            job.push(self.request(period));
        }
        let rest = time - before;
        if nested && rest > 0 {
            self.call(job, rest, server + 1, period);
        } else if rest > 0 {
            job.push(Op::Run(rest));
        }
        job.push(Op::Answer);
    }

    /// Each server is as high as the highest that calls it, directly or through others, and says how long it takes.
    fn ceilings(&mut self) {
        let say = self.random.percent(60);
        for thread in &self.set.threads {
            let (mut inside, mut used): (Vec<u8>, Vec<Time>) = (Vec::new(), Vec::new());
            for op in &thread.job {
                match *op {
                    Op::Call(server) => {
                        let of = &mut self.set.servers[usize::from(server)];
                        of.priority = of.priority.max(thread.priority);
                        inside.push(server);
                        used.push(0);
                    }
                    Op::Run(time) => used.iter_mut().for_each(|used| *used += time),
                    Op::Answer => {
                        let (Some(server), Some(used)) = (inside.pop(), used.pop()) else {
                            continue;
                        };
                        let of = &mut self.set.servers[usize::from(server)];
                        if say {
                            of.longest = Some(of.longest.unwrap_or(0).max(used));
                        }
                    }
                    Op::Ask(..) | Op::Sleep(_) => {}
                }
            }
        }
        // A nested server is not below the one that calls it.
        let ceilings: Vec<u8> = self.set.servers.iter().map(|s| s.priority).collect();
        for n in 0..ceilings.len() {
            self.set.servers[n].priority = ceilings[n].max(if self.class == Class::Nested {
                ceilings[..=n].iter().copied().max().unwrap_or(0)
            } else {
                0
            });
        }
    }
}
