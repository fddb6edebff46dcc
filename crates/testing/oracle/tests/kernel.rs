//! The kernel itself plays the oracle's sets on a machine of bytes. Each answer comes when the oracle says, and as
//! early as the admission promises. Programs take the steps of their jobs; the kernel's own code decides the rest.

use bulkhead_kernel_fake::kernel::abi::{Kind, Policy as Given, label};
use bulkhead_kernel_fake::kernel::host::Odd;
use bulkhead_kernel_fake::kernel::{self, Context, Machine as _, Ref};
use bulkhead_kernel_fake::{Thread as Made, World};
use bulkhead_oracle::{
    Campaign, Class, Core, Op, Pattern, Policy, Promise, Rules, Set, Time, judge, search, set,
};

/// Rules of the kernel beyond the papers, where no endpoint is told its `longest`.
const WITHOUT_LONGEST: Rules = Rules { reserves: false, caps: false, ..Rules::KERNEL };

/// When everything is set up.
const START: Time = 1_000_000;

/// So many steps that take no time are too many.
const STUCK: u32 = 1_000;

/// A thread that may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Thread(usize),
    Server(usize),
}

/// Place in a thread's job, whether it or a server works at it.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    next: usize,
    rest: Time,
    released: Time,
    release: Time,
    every: Time,
    /// It is in a job, or in a request.
    busy: bool,
}

/// State of a thread before its last call: it goes on from there if the kernel has it call again, at once or later.
#[derive(Clone, Copy, Debug)]
struct Before {
    ip: u64,
    client: usize,
    place: Place,
    works: Option<usize>,
}

struct System<'a> {
    set: &'a Set,
    world: World,
    threads: Vec<Made>,
    servers: Vec<(Made, u32)>,
    replies: Vec<u32>,
    /// Endpoints of servers, and of drivers by their threads' numbers.
    endpoints: Vec<u32>,
    drivers: Vec<u32>,
    /// Threads that the servers work for.
    clients: Vec<Option<usize>>,
    places: Vec<Place>,
    /// One for each thread, and for each server behind them.
    before: Vec<Option<Before>>,
    pause: u32,
    worst: Vec<Time>,
    slices: Vec<(usize, Time, Time)>,
}

impl<'a> System<'a> {
    fn new(set: &'a Set, patterns: &[Pattern], rules: Rules) -> Self {
        let mut world = World::new();
        let pause = world.make(Kind::Notification, 0);
        let endpoints: Vec<_> = set.servers.iter().map(|_| world.make(Kind::Endpoint, 0)).collect();
        for (endpoint, server) in endpoints.iter().zip(&set.servers).filter(|_| rules.reserves) {
            world.limit(*endpoint, server.longest.unwrap_or(0));
        }
        let servers = set
            .servers
            .iter()
            .zip(&endpoints)
            .map(|(s, at)| world.server(s.priority, *at))
            .collect();
        let drivers: Vec<_> = set.threads.iter().map(|_| world.make(Kind::Endpoint, 0)).collect();
        let replies = set.threads.iter().map(|_| world.make(Kind::Reply, 0)).collect();
        let places = set.threads.iter().zip(patterns).map(|(thread, pattern)| Place {
            release: START + pattern.offset,
            every: thread.period + pattern.gap,
            ..Place::default()
        });
        let places = places.collect();
        let mut system = Self {
            set,
            world,
            threads: Vec::new(),
            servers,
            replies,
            endpoints,
            drivers,
            clients: vec![None; set.servers.len()],
            places,
            before: vec![None; set.threads.len() + set.servers.len()],
            pause,
            worst: vec![0; set.threads.len()],
            slices: Vec::new(),
        };
        for n in 0..set.threads.len() {
            system.thread(n);
        }
        system.world.core.cost = set.overhead as u32;
        system
    }

    /// Makes a thread, which goes to its first wait.
    fn thread(&mut self, n: usize) {
        let thread = &self.set.threads[n];
        let made = self.world.passive(255);
        let context = self.context(n);
        self.world.does(context, label::BIND, [made.cap.into(), 0, 0, 0]);
        self.world.resume(made);
        let made = Made { context, ..made };
        self.threads.push(made);
        if thread.serves {
            self.world.recv(made, self.drivers[n], self.replies[n], Time::MAX);
        } else {
            self.world.wait(made, self.pause, self.places[n].release);
        }
        let priority = thread.priority.into();
        self.world.does(made.cap, label::SET_PRIORITY, [priority, 255, made.cap.into(), 0]);
    }

    fn context(&mut self, n: usize) -> u32 {
        let thread = &self.set.threads[n];
        let at = self.world.make(Kind::Context, 9);
        let object: Ref<Context> = self.world.cap(at).at();
        self.world.machine.get_mut(object).refills = thread.refills as u32 - 1;
        let gross = thread.budget + Time::from(thread.activations) * self.set.overhead;
        let (policy, budget) = match thread.policy {
            Policy::Sporadic => (Given::Sporadic, gross),
            Policy::Strict => (Given::Strict, gross),
            Policy::Pibs(share) => (Given::Pibs, share.into()),
            Policy::Full => (Given::Full, 0),
        };
        let what = u64::from(at) | (policy as u64) << 32 | u64::from(thread.background) << 40;
        self.world.does(
            World::CONTROL,
            label::SET_CONTEXT,
            [what, budget, thread.period, at.into()],
        );
        at
    }

    fn role(&self, current: Ref<kernel::Thread>) -> Role {
        let thread = self.threads.iter().position(|made| made.at == current).map(Role::Thread);
        let server =
            || self.servers.iter().position(|(made, _)| made.at == current).map(Role::Server);
        thread.or_else(server).expect("nobody else runs")
    }

    fn play(&mut self, end: Time) {
        let (mut last, mut steps, mut asked) = (0, 0, None);
        while self.world.machine.time < START + end {
            let now = self.world.machine.time;
            steps = if now == last { steps + 1 } else { 0 };
            last = now;
            assert!(steps < STUCK, "no time passes any more at {}:\n{}", now - START, self.set);
            let current = self.world.core.current;
            let Some(current) = current.some() else {
                let next = self.world.machine.timer.min(START + end);
                self.world.pass(next);
                continue;
            };
            let role = self.role(current);
            // In the background, below all others, somebody asks again and again until it has budget: that is no work.
            if self.again(role) && asked.replace((current, now)) == Some((current, now)) {
                let next = self.world.machine.timer.min(START + end);
                self.world.pass(next);
                continue;
            }
            let client = self.client(role);
            let rest = self.places[client].rest;
            if rest == 0 {
                self.step(role, client);
                continue;
            }
            let until = (now + rest).min(self.world.machine.timer).min(START + end);
            self.places[client].rest -= until - now;
            if until > now {
                match self.slices.last_mut() {
                    Some((who, _, to)) if *who == client && *to == now - START => {
                        *to = until - START
                    }
                    _ => self.slices.push((client, now - START, until - START)),
                }
            }
            // Work that takes no time is done in the last tick before it.
            if self.places[client].rest == 0 {
                self.world.machine.time = until;
            } else {
                self.world.pass(until);
            }
        }
    }

    /// Returns the thread with the job that this role works at, and takes the message that began the work.
    fn client(&mut self, role: Role) -> usize {
        match role {
            Role::Server(s) => {
                let came = self.world.came(self.servers[s].0);
                *self.clients[s].get_or_insert(came.words[0] as usize)
            }
            Role::Thread(n) => {
                let serves = self.set.threads[n].serves;
                let came = self.world.came(self.threads[n]);
                let place = &mut self.places[n];
                if !place.busy {
                    (place.busy, place.next) = (true, 0);
                    if serves {
                        place.rest = came.words[1];
                    } else {
                        place.released = place.release;
                        place.release += place.every;
                    }
                }
                n
            }
        }
    }

    fn made(&self, role: Role) -> (usize, Made) {
        match role {
            Role::Thread(n) => (n, self.threads[n]),
            Role::Server(s) => (self.threads.len() + s, self.servers[s].0),
        }
    }

    fn ip(&self, made: Made) -> u64 {
        self.world.machine.get(made.at).registers.ip::<Odd>()
    }

    /// True if the running thread has to make its last call again.
    fn again(&mut self, role: Role) -> bool {
        let (n, made) = self.made(role);
        let ip = self.ip(made);
        let Some(before) = self.before[n].take_if(|before| before.ip == ip) else { return false };
        self.places[before.client] = before.place;
        if let Role::Server(s) = role {
            self.clients[s] = before.works;
        }
        true
    }

    /// A step that takes no time.
    fn step(&mut self, role: Role, client: usize) {
        let (n, made) = self.made(role);
        let works = match role {
            Role::Thread(_) => None,
            Role::Server(s) => self.clients[s],
        };
        let before = Before { ip: self.ip(made), client, place: self.places[client], works };
        self.before[n] = self.does(role, made, client).then_some(before);
    }

    /// True: it was a call.
    fn does(&mut self, role: Role, made: Made, client: usize) -> bool {
        let next = self.places[client].next;
        self.places[client].next += 1;
        let now = self.world.machine.time;
        let words = |work: Time| [client as u64, work, 0, 0];
        match self.set.threads[client].job.get(next) {
            Some(Op::Run(time)) => {
                self.places[client].rest = *time;
                return false;
            }
            Some(Op::Sleep(time)) => self.world.wait(made, self.pause, now + time),
            Some(Op::Call(server)) => {
                self.world.call(made, self.endpoints[usize::from(*server)], 0, words(0));
            }
            Some(Op::Ask(driver, work)) => {
                self.world.call(made, self.drivers[usize::from(*driver)], 0, words(*work));
            }
            Some(Op::Answer) => {
                let Role::Server(s) = role else { panic!("{role:?} answers") };
                self.clients[s] = None;
                self.world.reply_recv(made, self.endpoints[s], self.servers[s].1, 0, words(0));
            }
            None if self.set.threads[client].serves => {
                self.places[client].busy = false;
                self.world.reply_recv(
                    made,
                    self.drivers[client],
                    self.replies[client],
                    0,
                    words(0),
                );
            }
            None => return self.end_of_job(client, made, now),
        }
        true
    }

    fn end_of_job(&mut self, n: usize, made: Made, now: Time) -> bool {
        let place = &mut self.places[n];
        self.worst[n] = self.worst[n].max(now - place.released);
        place.busy = false;
        let waits = place.release > now;
        if waits {
            let release = place.release;
            self.world.wait(made, self.pause, release);
        }
        waits
    }
}

/// Moves events apart: the order of two events at one moment is undefined.
fn apart(set: &mut Set) {
    for (n, thread) in set.threads.iter_mut().enumerate() {
        for (at, op) in thread.job.iter_mut().enumerate() {
            if let Op::Run(time) | Op::Ask(_, time) | Op::Sleep(time) = op {
                *time -= 7 * n as Time + 31 * at as Time + 3;
            }
        }
    }
}

/// Plays sets of a class on the kernel; returns how many agree with the oracle, and how many were played.
fn compare(class: Class, sets: u64, rules: Rules) -> (u64, u64) {
    let campaign = Campaign { seed: 16, admitted: sets, patterns: 8, rules, threads: 1 };
    let mut core = Core::default();
    core.rules = rules;
    let (mut played, mut same, mut number) = (0, 0, 0);
    while played < sets {
        number += 1;
        let mut random = campaign.random(class, number);
        let mut set = set(class, &mut random);
        // Interrupts are another test's.
        set.threads.iter_mut().for_each(|thread| thread.interrupt = 0);
        let verdict = judge::Verdict::of(&set, &judge::kernel(&set));
        // The order of two threads that come at one moment at one priority is undefined.
        let levels: Vec<u8> = set
            .threads
            .iter()
            .filter(|thread| !thread.serves)
            .map(|thread| thread.priority)
            .collect();
        let ties = levels.iter().enumerate().any(|(n, level)| levels[..n].contains(level));
        if !verdict.is_admitted() || ties {
            continue;
        }
        core.slices = None;
        let mut found = search(&mut core, &set, &verdict.promises, &mut random, 8);
        // The kernel stops a call that takes too long, the oracle ends it: a handler's work.
        if found.overran {
            continue;
        }
        apart(&mut set);
        let patterns = &mut found.patterns;
        patterns.iter_mut().enumerate().for_each(|(n, pattern)| pattern.offset += 101 * n as Time);
        let end = 3 * set.threads.iter().map(|thread| thread.period).max().unwrap_or(0);
        core.slices = Some(Vec::new());
        let none = vec![Promise::NONE; set.threads.len()];
        if core.play(&set, &none, &found.patterns, end).overran {
            continue;
        }
        let slices = core.slices.take().unwrap_or_default();
        let mut system = System::new(&set, &found.patterns, rules);
        system.play(end);
        played += 1;
        if system.slices == slices {
            same += 1;
        } else if played - same < 3 {
            let at = slices.iter().zip(&system.slices).take_while(|(a, b)| a == b).count();
            let from = at.saturating_sub(3);
            println!("{class:?} {number}\n{set}\n{:?}", found.patterns);
            println!("oracle {:?}", &slices[from..slices.len().min(at + 4)]);
            println!("kernel {:?}", &system.slices[from..system.slices.len().min(at + 4)]);
        }
    }
    println!("{class:?}: {same} of {played} the same");
    (same, played)
}

/// Plays sets of each class: at most five in a thousand differ.
fn all(rules: Rules) {
    let (mut same, mut played) = (0, 0);
    for (class, _) in Class::ALL.into_iter().filter(|(class, _)| *class != Class::Overhead) {
        let (a, b) = compare(class, 200, rules);
        (same, played) = (same + a, played + b);
    }
    assert!(same * 1_000 >= played * 995, "{same} of {played}");
}

/// Tick for tick, but where a thread that is answered overtakes one of its priority.
#[test]
fn the_kernel_does_what_the_oracle_says() {
    all(WITHOUT_LONGEST);
}

/// Endpoints have their `longest`: calls begin with budget for all of them, and wait for it.
#[test]
fn the_kernel_begins_calls_when_the_oracle_says() {
    all(Rules::KERNEL);
}
