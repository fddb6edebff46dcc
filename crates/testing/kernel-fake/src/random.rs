//! Programs that want rights that they must not have: any call, with any arguments, by any running thread; and a
//! machine's events meanwhile. A source of numbers outside decides everything.

use crate::USER_END;
use crate::ghost::{Called, Ghost};
use crate::{Thread, World};
use bulkhead_arch::Entry;
use bulkhead_kernel::abi::{Address, Code, Info, Kind, Op, Policy, Rights, Status, at, label};
use bulkhead_kernel::host::Odd;
use bulkhead_kernel::{Exception, Machine as _, Ref, Registers, State, Time};
use bulkhead_random::SplitMix64;
use std::collections::{BTreeMap, HashMap};

/// A source of numbers below an end.
pub trait Source {
    /// A number below `end`; 0 for 0.
    fn below(&mut self, end: u64) -> u64;
}

impl Source for SplitMix64 {
    fn below(&mut self, end: u64) -> u64 {
        Self::below(self, end)
    }
}

/// Results of calls.
#[derive(Clone, Debug, Default)]
pub struct Came {
    /// Calls that were made.
    pub calls: u64,
    /// Calls that were accepted.
    pub accepted: u64,
    /// How often each error came back, by code.
    pub errors: HashMap<Option<Code>, u64>,
    /// How many capabilities came and went, by how; and how often a level-triggered line came and was acknowledged.
    pub given: BTreeMap<&'static str, u64>,
    /// Accesses to memory that one call made at most.
    pub most: u64,
    /// Which one.
    pub longest: Option<String>,
}

impl Came {
    /// Adds another run's results.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.accepted += other.accepted;
        if other.most > self.most {
            (self.most, self.longest) = (other.most, other.longest.clone());
        }
        for (code, count) in &other.errors {
            *self.errors.entry(*code).or_default() += count;
        }
        for (how, count) in &other.given {
            *self.given.entry(how).or_default() += count;
        }
    }
}

/// Threads with everything at hand: their common node has the capabilities of all objects.
pub struct Chaos<S> {
    /// The system.
    pub world: World,
    /// Results so far.
    pub came: Came,
    ghost: Ghost,
    source: S,
    threads: Vec<Thread>,
    last: Address,
    /// One call in so many hands capabilities about.
    hands: u64,
    log: Vec<String>,
}

/// Where small addresses end, and those that are beyond all tables' begin.
const PAGES: u64 = 12;

impl<S: Source> Chaos<S> {
    /// A system of a few threads, that may take the short ways or not.
    ///
    /// # Panics
    /// If its first capabilities are not as they have to be.
    pub fn new(mut source: S, fast: bool) -> Self {
        let mut world = World::of(18);
        world.fast = fast;
        // In half of them an activation costs something.
        world.core.cost = [0, 500][source.below(2) as usize];
        let endpoints = [world.make(Kind::Endpoint, 0), world.make(Kind::Endpoint, 0)];
        for endpoint in endpoints {
            // No limit, one that ends before most calls do, one that a budget has room for, one that it has not.
            let longest = [0, 2_000, 9_000, 30_000][source.below(4) as usize];
            world.limit(endpoint, longest);
        }
        let notifications = [world.make(Kind::Notification, 0), world.make(Kind::Notification, 0)];
        let mut threads = Vec::new();
        for (n, priority) in [20, 30].into_iter().enumerate() {
            threads.push(world.server(priority, endpoints[n]).0);
        }
        for (policy, priority) in
            [(Policy::Sporadic, 10), (Policy::Full, 20), (Policy::Strict, 20), (Policy::Pibs, 5)]
        {
            let share = if policy == Policy::Pibs { 100_000 } else { 20_000 };
            threads.push(world.thread_of(priority, policy, share, 100_000));
        }
        // One that lends its context, to a server that also receives it.
        let (lent, server) = (world.context(Policy::Sporadic, 10_000, 100_000), threads[0]);
        world.does(lent, label::BIND, [notifications[1].into(), 0, 0, 0]);
        world.does(server.cap, label::BIND_NOTIFICATION, [notifications[1].into(), 0, 0, 0]);
        for at in endpoints.into_iter().chain(notifications) {
            world.copy(at, Rights::ALL, 0x10 << at);
        }
        for (kind, bits, count) in [
            (Kind::Reply, 0, 2),
            (Kind::Node, 3, 2),
            (Kind::Untyped, 13, 2),
            (Kind::Space, 0, 1),
            (Kind::Table, 0, 4),
            (Kind::Frame, 12, 3),
        ] {
            (0..count).for_each(|_| _ = world.make(kind, bits));
        }
        for n in [0, 1, 2, 3] {
            world.buffer(threads[n]);
        }
        for (n, thread) in threads.iter().enumerate().skip(2) {
            let handlers = [u64::from(endpoints[n % 2]), 0, 0, 0];
            world.does(thread.cap, label::SET_TIMEOUT, handlers);
            world.does(thread.cap, label::SET_FAULT, handlers);
        }
        let line = world.line();
        let links = world.links();
        for link in links {
            world.copy(link, Rights::ALL, 0);
        }
        for (interrupt, notification) in [World::INTERRUPT, line].into_iter().zip(notifications) {
            world.does(interrupt, label::SET_NOTIFICATION, [notification.into(), 0, 0, 0]);
        }
        let last = world.free() + 16;
        let ghost = Ghost::of(&world).expect("capabilities");
        let hands = [6, 40][source.below(2) as usize];
        Self { world, came: Came::default(), ghost, source, threads, last, hands, log: Vec::new() }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.source.below(from.len() as u64) as usize]
    }

    fn chance(&mut self, of: u64) -> bool {
        self.source.below(of) == 1
    }

    /// An address, most times of something.
    fn address(&mut self) -> u64 {
        let slot = self.source.below(u64::from(self.last));
        match self.source.below(16) {
            0 => (self.source.below(u64::from(self.last)) << 16) | (slot % 10),
            1 if self.chance(4) => self.source.below(u64::MAX),
            _ => slot,
        }
    }

    /// The address of something of a kind, if such a thing is found soon.
    fn address_of(&mut self, kind: Kind) -> u64 {
        for _ in 0..24 {
            let address = self.address();
            if self.kind(address) == kind {
                return address;
            }
        }
        self.address()
    }

    fn kind(&self, address: u64) -> Kind {
        let slot = self.world.root().slot(&self.world.machine, u64::from(address as Address), 0);
        slot.map_or(Kind::Null, |slot| self.world.machine.get(slot).cap.kind())
    }

    fn word(&mut self) -> u64 {
        match self.source.below(8) {
            0..3 => self.address(),
            3..6 => self.source.below(40),
            6 => 0x1000 * self.source.below(PAGES),
            _ => self.source.below(u64::MAX),
        }
    }

    fn deadline(&mut self) -> Time {
        let soon = self.source.below(60_000);
        match self.source.below(4) {
            0 => 0,
            1 => self.world.machine.time + soon,
            _ => Time::MAX,
        }
    }

    /// Arguments that a method might take.
    fn arguments(&mut self, method: u64) -> [u64; 4] {
        let mut words = [self.word(), self.word(), self.word(), self.word()];
        match method {
            label::RETYPE => {
                let kind = 1 + self.source.below(10);
                let bits = match kind {
                    1 => 5 + self.source.below(9),
                    2 => 1 + self.source.below(4),
                    6 => 12,
                    10 => 9 + self.source.below(2),
                    _ => 0,
                };
                words[0] = kind | bits << 8 | (1 + self.source.below(3)) << 16;
                (words[1], words[2]) = (self.address_of(Kind::Node), self.address());
            }
            label::COPY => {
                let badge = if self.chance(2) { self.source.below(64) } else { 0 };
                words = [self.address(), self.address(), 0x1F & !self.source.below(32), badge];
            }
            label::MOVE => words = [self.address(), self.address(), 0, 0],
            label::DELETE | label::REVOKE => words[0] = self.address(),
            label::CONFIGURE => {
                let (node, space) = (self.address_of(Kind::Node), self.address_of(Kind::Space));
                let node = if self.chance(8) { node } else { World::NODE.into() };
                let frame = if self.chance(2) { self.address_of(Kind::Frame) } else { 0 };
                words = [node, space, frame, 512 * self.source.below(9)];
            }
            label::SET_PRIORITY => {
                let authority = self.address_of(Kind::Thread);
                words = [self.source.below(40), self.source.below(256), authority, 0];
            }
            label::SET_FAULT | label::SET_TIMEOUT => words[0] = self.address_of(Kind::Endpoint),
            label::WRITE_REGISTERS | label::START => words[..2].copy_from_slice(&[0x1000, 0x2000]),
            label::BIND_NOTIFICATION | label::SET_NOTIFICATION => {
                words[0] = if self.chance(6) { 0 } else { self.address_of(Kind::Notification) };
            }
            label::SET_FPU => words[0] = self.source.below(3),
            label::SET_POINTER => words[0] = self.source.below(4) << 12,
            label::MAP_TABLE | label::MAP => {
                let page = self.source.below(PAGES) << self.pick(&[12, 12, 12, 21, 30]);
                let page = if self.chance(8) { at::LINKS + page } else { page };
                words = [self.address_of(Kind::Space), page, self.source.below(32), 0];
            }
            label::BIND => {
                let kind = self.pick(&[Kind::Thread, Kind::Thread, Kind::Notification]);
                words[0] = self.address_of(kind);
                words[1] = self.source.below(3);
            }
            label::SERVE => words[0] = self.address_of(Kind::Context),
            label::SET_CONTEXT => {
                let policy = self.source.below(5) << 32 | self.source.below(2) << 40;
                let context = self.address_of(Kind::Context) | policy;
                let period = 10_000 + self.source.below(200_000);
                words = [context, 1 + self.source.below(period), period, self.word()];
            }
            label::LOOK | label::OFFER | label::ACCEPT => {
                words = [self.source.below(5), self.source.below(1 << 17), 0, 0];
            }
            label::IN | label::OUT => words = [0x5E + self.source.below(20), 1, 7, 0],
            _ => (),
        }
        words
    }

    fn methods(&mut self, kind: Kind) -> u64 {
        match kind {
            Kind::Untyped => label::RETYPE,
            Kind::Node if self.chance(4) => self.pick(&[label::DELETE, label::REVOKE]),
            Kind::Node => self.pick(&[label::COPY, label::MOVE]),
            Kind::Thread => 20 + self.source.below(10),
            Kind::Table | Kind::Frame => 40 + self.source.below(5),
            Kind::Context => 50 + self.source.below(5),
            Kind::Control => label::SET_CONTEXT,
            Kind::Interrupt => 70 + self.source.below(2),
            Kind::Ports => 80 + self.source.below(2),
            Kind::Sandbox => 90 + self.source.below(3),
            Kind::Link => 110 + self.source.below(4),
            _ => self.source.below(110),
        }
    }

    /// The address of a capability, most times one that does not end its object.
    fn address_to_lose(&mut self) -> u64 {
        let kept = |world: &World, address: u64| {
            let slot = world.root().slot(&world.machine, u64::from(address as Address), 0);
            slot.is_ok_and(|slot| world.machine.get(slot).cap.is_original())
        };
        let mut address = self.address();
        while kept(&self.world, address) && !self.chance(32) {
            address = self.address();
        }
        address
    }

    /// A call that changes the holder of a capability.
    fn hand_about(&mut self) -> (u64, u64, u64, [u64; 4]) {
        let method = self.pick(&[
            label::COPY,
            label::COPY,
            label::COPY,
            label::MOVE,
            label::RETYPE,
            label::DELETE,
            label::REVOKE,
        ]);
        let mut words = self.arguments(method);
        let node = if self.chance(3) { self.address_of(Kind::Node) } else { World::NODE.into() };
        let place = match method {
            label::DELETE | label::REVOKE => self.address_to_lose(),
            _ => self.address_of(Kind::Null),
        };
        let place = if node == u64::from(World::NODE) { place } else { self.source.below(9) };
        let to = if method == label::RETYPE { self.address_of(Kind::Untyped) } else { node };
        match method {
            label::RETYPE => (words[1], words[2]) = (node, place),
            label::MOVE => (words[0], words[1]) = (place, self.address_to_lose()),
            _ => words[0] = place,
        }
        (Op::Call as u64, to, Info::new(method, 4).0, words)
    }

    /// One call of the running thread: operation, names, description and words.
    fn imagine(&mut self) -> (u64, u64, u64, [u64; 4]) {
        if self.chance(self.hands) {
            return self.hand_about();
        }
        if self.chance(20) {
            let interrupt = self.address_of(Kind::Interrupt);
            return (Op::Call as u64, interrupt, Info::new(label::ACKNOWLEDGE, 4).0, [0; 4]);
        }
        let op = self.pick(&[0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 11]);
        let reply = self.address_of(Kind::Reply) << 32;
        let kind = self.pick(&[Kind::Endpoint, Kind::Endpoint, Kind::Notification]);
        let words = [self.word(), self.word(), self.word(), self.word()];
        let info = self.source.below(70) | self.source.below(2) << 7 | self.word() << 8;
        if op == Op::Call as u64 && !self.chance(3) {
            let address = self.address();
            let kind = self.kind(address);
            let method = if self.chance(40) { self.word() } else { self.methods(kind) };
            let info = Info::new(method, 4).0;
            return (op, address, info, self.arguments(method));
        }
        let first = self.address_of(kind) & 0xFFFF_FFFF;
        let second = self.address_of(Kind::Endpoint) << 32;
        let waits = op == Op::Recv as u64 || op == Op::Wait as u64;
        let info = if waits { self.deadline() } else { info };
        let info = if self.chance(2) || waits { info } else { Info::new(info >> 9, 2).0 };
        (op | reply, first | second, info, words)
    }

    /// Makes the next call, or an event of the machine.
    ///
    /// # Errors
    /// The statement that does not hold.
    pub fn step(&mut self, audit: bool) -> Result<(), String> {
        let entered = self.world.machine.entered;
        let mapped = audit.then(|| self.world.mapped());
        let ends = |at| {
            self.world.machine.get::<bulkhead_kernel::Thread>(at).flags
                & bulkhead_kernel::Thread::ENDS
                != 0
        };
        match self.world.core.current.some() {
            // It has no instruction there.
            Some(current) if ends(current) => {
                self.world.kernel().exception(Exception {
                    number: 14,
                    error: 0x14,
                    address: USER_END,
                });
            }
            Some(current) if !self.chance(24) => self.call(current, audit)?,
            Some(_) => {
                self.happen()?;
                self.ghost.compare(&self.world).map_err(|why| self.said(&why))?;
            }
            None => {
                self.revive();
                self.ghost.compare(&self.world).map_err(|why| self.said(&why))?;
            }
        }
        if let Some(mapped) = mapped {
            self.forgotten(&mapped, entered)?;
            self.world.check().map_err(|why| self.said(&why))?;
        }
        Ok(())
    }

    fn said(&self, why: &str) -> String {
        format!("{why}\nafter {:#?}", &self.log[self.log.len().saturating_sub(12)..])
    }

    fn call(&mut self, current: Ref<bulkhead_kernel::Thread>, audit: bool) -> Result<(), String> {
        let (op, named, info, words) = self.imagine();
        self.name_capabilities(current);
        let thread = Thread { cap: 0, at: current, context: 0 };
        self.note(format!("{current:?}: op {op:#x}, names {named:#x}, info {info:#x}, {words:x?}"));
        let before = audit.then(|| self.world.clone());
        let accesses = self.world.machine.accesses();
        let at = self.instruction(current);
        self.world.syscall(thread, op, named, info, words);
        let accesses = self.world.machine.accesses() - accesses;
        let over = self.instruction(current).filter(|after| Some(*after) != at);
        let came = over.map(|_| self.world.came(thread));
        let done = came.map(|came| came.status.code() == Some(Code::Ok));
        let answer = came.map_or(0, |came| came.words[0]);
        let registers = (op, named, info, words);
        let called = Called { by: current, registers, done, answer };
        self.ghost.call(&self.world, &called).map_err(|why| self.said(&why))?;
        if accesses > self.came.most {
            (self.came.most, self.came.longest) = (accesses, self.log.last().cloned());
        }
        self.has_time(current, op).map_err(|why| self.said(&why))?;
        if let Some(before) = before.clone().filter(|_| self.chance(16)) {
            let other = |world: &mut World| world.syscall(thread, op, named, info, words);
            self.the_other_way(before, other).map_err(|why| self.said(&why))?;
        }
        self.came.calls += 1;
        // A thread that came back at once can have been refused.
        let code = match self.world.runs(thread) {
            true => self.world.came(thread).status.code(),
            false => Some(Code::Ok),
        };
        self.came.accepted += u64::from(code == Some(Code::Ok));
        *self.came.errors.entry(code).or_default() += 1;
        // A wait may have sent others away before it came to nothing.
        let waits = [Op::Recv as u8, Op::Wait as u8].contains(&(op as u8));
        let came_to_nothing = waits && matches!(code, Some(Code::TimedOut | Code::NoContext));
        let refused = over.is_some() && code != Some(Code::Ok) && !came_to_nothing;
        if let Some(before) = before.filter(|_| refused && self.world.runs(thread)) {
            self.unchanged(current, before.machine.bytes()).map_err(|why| self.said(&why))?;
        }
        Ok(())
    }

    /// Where a thread is, if it still exists.
    fn instruction(&self, thread: Ref<bulkhead_kernel::Thread>) -> Option<u64> {
        let lives = self.world.machine.begins(thread.at(), Kind::Thread);
        lives.then(|| self.world.machine.get(thread).registers.ip::<Odd>())
    }

    /// Names the capability that goes along with a thread's messages, and the slot for one that comes.
    fn name_capabilities(&mut self, thread: Ref<bulkhead_kernel::Thread>) {
        let Some(buffer) = self.world.machine.get(thread).buffer.some() else { return };
        let (cap, receive) = (self.address(), self.address_of(Kind::Null));
        let buffer = self.world.machine.get_mut(buffer);
        (buffer.cap, buffer.receive) = (cap, receive);
    }

    /// Only others take a thread's time: no call but one of a method leaves it ready without a context.
    fn has_time(&self, thread: Ref<bulkhead_kernel::Thread>, op: u64) -> Result<(), String> {
        let is_there = self.world.machine.begins(thread.at(), Kind::Thread);
        if op as u8 == Op::Call as u8 || !is_there {
            return Ok(());
        }
        let thread = self.world.machine.get(thread);
        match thread.state == State::Running as u8 && thread.context.is_none() {
            true => Err("a thread has stranded itself".into()),
            false => Ok(()),
        }
    }

    /// Checks that short ways and long ones lead to one result.
    fn the_other_way(&self, mut other: World, call: impl FnOnce(&mut World)) -> Result<(), String> {
        other.fast = !other.fast;
        call(&mut other);
        let mut this = self.world.clone();
        // Work left for later, such as the charge for used time, is not compared.
        this.settle();
        other.settle();
        if this.machine.played != other.machine.played {
            return Err("the other way masks something else".into());
        }
        match this.differs(&other) {
            Some(at) => {
                let kind = self.world.machine.kind_at(at as u32);
                Err(format!("the other way leaves another byte at {at:#x}, in {kind:?}"))
            }
            None => Ok(()),
        }
    }

    /// Only the registers of the refused thread changed.
    fn unchanged(&self, thread: Ref<bulkhead_kernel::Thread>, before: &[u8]) -> Result<(), String> {
        let registers = thread.at() as usize..thread.at() as usize + size_of::<Registers>();
        let after = self.world.machine.bytes();
        let same = before[..registers.start] == after[..registers.start]
            && before[registers.end..after.len()] == after[registers.end..];
        let Some(at) = (0..after.len())
            .find(|at| !same && before[*at] != after[*at] && !registers.contains(at))
        else {
            return Ok(());
        };
        let Status(status) = self.world.came(Thread { cap: 0, at: thread, context: 0 }).status;
        let kind = self.world.machine.kind_at(at as u32);
        Err(format!("refused with {status:#x}, and {at:#x} changed, in {kind:?}"))
    }

    /// Checks that the processor remembers only the tables' entries of the space in use.
    fn forgotten(&self, before: &HashMap<u64, Entry>, entered: u64) -> Result<(), String> {
        let machine = &self.world.machine;
        if machine.entered != entered {
            return Ok(());
        }
        let now = self.world.mapped();
        let stale = |(at, entry): &(&u64, &Entry)| {
            now.get(at) != Some(entry) && !machine.forgotten.contains(at)
        };
        match before.iter().find(stale) {
            Some(stale) => Err(self.said(&format!("the processor remembers {stale:x?}"))),
            None => Ok(()),
        }
    }

    fn happen(&mut self) -> Result<(), String> {
        self.note("something happens".into());
        self.world.machine.busy = self.chance(8);
        match self.source.below(5) {
            n @ 0..2 => {
                let at = World::INTERRUPTS[n as usize];
                if !self.ghost.lines.can_come(at) {
                    return Ok(());
                }
                self.ghost.lines.comes(at);
                self.both_ways(|world| world.raise(at))
            }
            2 => {
                let exception = Exception { number: 14, error: 6, address: 0x123 };
                self.world.kernel().exception(exception);
                Ok(())
            }
            _ => {
                let until = self.world.machine.time + self.source.below(30_000);
                self.both_ways(|world| world.pass(until))
            }
        }
    }

    /// An event of the machine; now and then it checks if the short ways make a difference.
    fn both_ways(&mut self, happens: impl Fn(&mut World)) -> Result<(), String> {
        let before = self.chance(12).then(|| self.world.clone());
        happens(&mut self.world);
        match before {
            Some(before) => self.the_other_way(before, happens).map_err(|why| self.said(&why)),
            None => Ok(()),
        }
    }

    /// No thread runs: time passes, or an outside event helps.
    fn revive(&mut self) {
        self.note("nobody runs".into());
        if self.world.machine.timer < Time::MAX {
            return self.world.next();
        }
        let thread = self.pick(&self.threads.clone());
        match self.source.below(4) {
            0 => {
                self.ghost.lines.comes(World::INTERRUPTS[0]);
                self.world.interrupt();
            }
            1 => _ = self.world.invoke(thread.cap, label::RESUME, [0; 4]),
            2 => {
                let suspended = self.pick(&self.threads.clone());
                _ = self.world.invoke(suspended.cap, label::SUSPEND, [0; 4]);
                _ = self.world.invoke(suspended.cap, label::RESUME, [0; 4]);
            }
            _ => {
                let context = self.address_of(Kind::Context) as Address;
                _ = self.world.invoke(context, label::BIND, [thread.cap.into(), 0, 0, 0]);
            }
        }
    }

    fn note(&mut self, what: String) {
        if self.log.len() > 64 {
            self.log.drain(..32);
        }
        self.log.push(what);
    }

    /// The source of numbers.
    pub const fn source(&self) -> &S {
        &self.source
    }

    /// The last calls and events.
    pub fn log(&self) -> &[String] {
        &self.log
    }
}

impl<S> Drop for Chaos<S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("after {:#?}", &self.log[self.log.len().saturating_sub(12)..]);
        }
    }
}

/// Lets systems run for some calls each, checking everything after every `audit`th.
///
/// # Errors
/// The statement that does not hold.
pub fn run(source: impl Source, fast: bool, calls: u64, audit: u64) -> Result<Came, String> {
    let mut chaos = Chaos::new(source, fast);
    for n in 0..calls {
        chaos.step(n % audit == 0)?;
    }
    chaos.world.check().map_err(|why| chaos.said(&why))?;
    let mut given = chaos.ghost.seen.clone();
    given.extend(["line came", "line again"].into_iter().zip(chaos.ghost.lines.seen));
    Ok(Came { given, ..chaos.came.clone() })
}
