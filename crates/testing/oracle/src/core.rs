//! A core, played from its first tick to a last one. The thread with the highest priority runs, among those that want
//! to run and have budget. Among equal ones the first to come runs. No other decision is made here.
//!
//! Time jumps to the next moment at which anything could change. [`Core::stride`] bounds the jump; with a stride of 1
//! the core is played tick by tick, and a test shows that both agree.

use crate::account::Account;
use crate::set::{Op, Pattern, Policy, Promise, Set, Time};

/// Most threads, and servers, that are played.
pub const MOST: usize = 12;

/// Most calls in each other.
const DEEP: usize = 6;

const NEVER: Time = Time::MAX;

/// State of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its job is done, or it is not asked.
    Idle,
    /// It wants to run.
    Ready,
    /// It waits for an answer, or for a server to be free.
    Waiting,
    /// It wakes by itself.
    Asleep(Time),
}

#[derive(Clone, Debug)]
struct Player {
    state: State,
    account: Account,
    /// The next step of its job.
    next: usize,
    /// Rest of a step in which it uses the processor.
    rest: Time,
    /// Rest of the kernel's work for it.
    cost: Time,
    /// Servers that it is in.
    servers: [u8; DEEP],
    depth: usize,
    /// Order of arrival among equals.
    turn: u64,
    /// The release of its job, and the next one.
    released: Time,
    release: Time,
    /// How far releases are apart.
    every: Time,
    /// Rest of the `longest` of the outermost call that has one; the depth of that call.
    cap: Time,
    capped: usize,
    /// It waits for budget before it calls.
    held: bool,
    /// It wanted to run, and had no budget.
    starved: bool,
    /// A driver: the client that it works for, if any, and the priority.
    client: Option<u8>,
    serves: u8,
    /// A driver: work for an interrupt that it has not taken up.
    pending: Time,
    /// Its device's interrupts since its last acknowledgement.
    source: Source,
    /// How often it has begun to run since then.
    begins: (Time, u32),
    /// Its queue: the server or driver, the priority, the time since when, and the amount of work.
    queue: Option<(Place, u8, u64, Time)>,
}

/// Interrupts of a device, as the kernel lets them in until its driver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// No interrupt came.
    Open,
    /// One came, and told the driver.
    Came,
    /// Another one came, and masked the device.
    Masked,
    /// The device waits to send one.
    Waits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Server(u8),
    Driver(u8),
}

/// Observations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The longest time from a job's release to its end, of each thread.
    pub worst: [Time; MOST],
    /// The longest time in which a usable refill was wanted and not used up, of each thread.
    pub pieces: [Time; MOST],
    /// The thread that took longer than was promised, and since when.
    pub missed: Option<(usize, Time)>,
    /// A budget ended inside a server, and its thread wanted to go on.
    pub ended_in_call: bool,
    /// A call waited for budget before it began.
    pub held: bool,
    /// A call took longer than it may.
    pub overran: bool,
    /// A driver was asked from inside a server.
    pub asked_in_call: bool,
    /// A job never ends: a call never begins, or several wait for each other.
    pub stuck: bool,
    /// An entry of the kernel used up some of the budget of a thread that it was not for.
    pub charged: bool,
    /// Jumps of time.
    pub moments: u64,
    /// Moments at which somebody entered a server or ran out of budget in one: where a release of somebody else may
    /// hurt.
    pub delicate: Vec<Time>,
}

/// Most moments that are kept.
const DELICATE: usize = 32;

impl Seen {
    fn clear(&mut self) {
        let mut delicate = std::mem::take(&mut self.delicate);
        delicate.clear();
        *self = Self { delicate, ..Self::default() };
    }

    fn keep(&mut self, now: Time) {
        if self.delicate.len() < DELICATE && self.delicate.last() != Some(&now) {
            self.delicate.push(now);
        }
    }
}

/// Rules of the kernel beyond the papers (`docs/time.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// A call begins with budget for all of it, or waits for that.
    pub reserves: bool,
    /// A call that takes longer than its `longest` is ended.
    pub caps: bool,
    /// A driver works at the base priority of its client, not at that of the server from which it was asked.
    pub own_priority: bool,
    /// Interrupts and doorbells use up the running account, and its call's limit. The timer of a thread that comes
    /// before the running one does so, too, as often in a period as that thread says.
    pub charges: bool,
}

impl Rules {
    /// All of them.
    pub const KERNEL: Self = Self { reserves: true, caps: true, own_priority: true, charges: true };
}

/// Plays sets, one after the other.
#[derive(Debug)]
pub struct Core {
    /// The longest jump.
    pub stride: Time,
    /// The kernel's rules.
    pub rules: Rules,
    /// Slices of the processor: thread, beginning, end. Kept only if there is a list.
    pub slices: Option<Vec<(usize, Time, Time)>>,
    players: Vec<Player>,
    holders: [Option<u8>; MOST],
    promises: [Promise; MOST],
    turns: u64,
    now: Time,
    running: Option<usize>,
    /// Time that interrupts have yet to take of the core.
    taken: Time,
    /// The next doorbell.
    bell: Time,
    seen: Seen,
}

impl Default for Core {
    fn default() -> Self {
        Self {
            stride: NEVER,
            rules: Rules::default(),
            slices: None,
            players: Vec::with_capacity(MOST),
            holders: [None; MOST],
            promises: [Promise::NONE; MOST],
            turns: 0,
            now: 0,
            running: None,
            taken: 0,
            bell: 0,
            seen: Seen::default(),
        }
    }
}

impl Core {
    /// Plays a set until `end`, or until a promised job is late; jobs come by these patterns.
    pub fn play(
        &mut self,
        set: &Set,
        promises: &[Promise],
        patterns: &[Pattern],
        end: Time,
    ) -> &Seen {
        self.begin(set, patterns);
        self.promises[..promises.len()].copy_from_slice(promises);
        while self.now < end && self.seen.missed.is_none() {
            self.seen.moments += 1;
            self.arrive(set);
            // Steps that take no time are done in the last tick before it.
            if let Some(n) = self.running {
                self.steps(n, set);
            }
            self.choose(set);
            self.pass(set, end);
        }
        self.judge_unfinished(set);
        self.seen.stuck |= (0..self.players.len()).any(|n| self.waits_for_itself(n));
        &self.seen
    }

    fn begin(&mut self, set: &Set, patterns: &[Pattern]) {
        self.players.clear();
        for (thread, pattern) in set.threads.iter().zip(patterns) {
            let comes = !thread.serves || thread.interrupt > 0;
            self.players.push(Player {
                state: State::Idle,
                account: Account::new(thread, set.overhead),
                next: 0,
                rest: 0,
                cost: 0,
                cap: NEVER,
                capped: 0,
                held: false,
                starved: false,
                servers: [0; DEEP],
                depth: 0,
                turn: 0,
                released: 0,
                release: if comes { pattern.offset } else { NEVER },
                every: if thread.serves { thread.every } else { thread.period } + pattern.gap,
                client: None,
                serves: thread.priority,
                pending: 0,
                source: Source::Open,
                begins: (0, 0),
                queue: None,
            });
        }
        self.holders = [None; MOST];
        (self.turns, self.now, self.running, self.taken) = (0, 0, None, 0);
        self.bell = if set.doorbell.is_some() { 0 } else { NEVER };
        self.seen.clear();
    }

    /// Releases, interrupts and ends of sleep that are due.
    fn arrive(&mut self, set: &Set) {
        if let Some((every, length)) = set.doorbell.filter(|_| self.bell <= self.now) {
            self.taken += length;
            self.bell += every;
        }
        for n in 0..self.players.len() {
            let thread = &set.threads[n];
            let player = &mut self.players[n];
            if player.release <= self.now && (thread.serves || player.state == State::Idle) {
                let released = player.release;
                player.release = released + player.every;
                if thread.serves {
                    self.interrupt(n, set);
                } else {
                    (player.released, player.next, player.rest) = (released, 0, 0);
                    self.wake(n);
                }
            } else if matches!(player.state, State::Asleep(until) if until <= self.now) {
                self.wake(n);
            }
            // A thread that had no budget comes as if it woke when it has: last of its priority.
            let player = &mut self.players[n];
            if player.starved && player.account.is_usable(self.now) {
                player.starved = false;
                self.turns += 1;
                player.turn = self.turns;
            }
        }
    }

    /// A driver's device sends an interrupt. Two are let in until the driver acknowledges them.
    fn interrupt(&mut self, n: usize, set: &Set) {
        let player = &mut self.players[n];
        let (next, enters) = match player.source {
            Source::Open => (Source::Came, true),
            Source::Came => (Source::Masked, true),
            Source::Masked | Source::Waits => (Source::Waits, false),
        };
        if player.source == Source::Open {
            player.pending = set.threads[n].interrupt;
        }
        player.source = next;
        self.taken += if enters { set.entry } else { 0 };
        if player.state == State::Idle {
            self.take_up(n, set);
        }
    }

    fn wake(&mut self, n: usize) {
        self.turns += 1;
        let player = &mut self.players[n];
        player.account.wake(self.now);
        player.starved = !player.account.is_usable(self.now);
        (player.state, player.turn) = (State::Ready, self.turns);
    }

    fn stop(&mut self, n: usize, state: State) {
        self.end_of_piece(n);
        let player = &mut self.players[n];
        player.account.block();
        (player.state, player.cost) = (state, 0);
    }

    /// Handles the end of a piece: the thread cannot use the rest, or is about to have used it up.
    fn end_of_piece(&mut self, n: usize) {
        let player = &self.players[n];
        let since = player.account.usable_at();
        if player.state == State::Ready && since <= self.now && !player.account.is_unlimited() {
            let took = self.now - since;
            self.seen.pieces[n] = self.seen.pieces[n].max(took);
            if took > self.promises[n].piece {
                self.seen.missed.get_or_insert((n, since));
            }
        }
    }

    /// At which priority a thread works now.
    fn priority(&self, n: usize, set: &Set) -> u8 {
        let player = &self.players[n];
        match player.depth {
            0 if matches!(set.threads[n].policy, Policy::Pibs(_)) => player.serves,
            0 => set.threads[n].priority,
            depth => set.servers[usize::from(player.servers[depth - 1])].priority,
        }
    }

    /// Puts the right thread on the processor, and lets it take the steps that take no time.
    fn choose(&mut self, set: &Set) {
        loop {
            let best = self.best(set);
            if best != self.running {
                let old = self.running;
                if let Some(old) = old {
                    let player = &mut self.players[old];
                    if player.state == State::Ready && player.account.preempt() {
                        player.cost = 0;
                    }
                }
                self.running = best;
                if let Some(new) = best {
                    if let Some(old) = old {
                        self.overtakes(new, old, set);
                    }
                    self.players[new].account.dispatch(self.now);
                    // A strict one may have found its refill merged with a later one.
                    if !self.can_run(new, set) {
                        self.running = None;
                        continue;
                    }
                }
            }
            let Some(n) = best else { return };
            let player = &mut self.players[n];
            if player.account.is_usable(self.now) {
                player.held = false;
                player.cost += player.account.begin();
            }
            if player.cost > 0 || player.rest > 0 {
                return;
            }
            self.steps(n, set);
        }
    }

    /// All of a thread's steps up to the next one that takes time, or needs budget first.
    fn steps(&mut self, n: usize, set: &Set) {
        loop {
            let player = &self.players[n];
            if player.state != State::Ready || player.cost > 0 || player.rest > 0 || player.held {
                return;
            }
            // The kernel's work for the next refill comes first, too.
            let begins = player.account.is_usable(self.now) && player.account.has_to_begin();
            if (begins || self.is_overtaken(n, set)) && !self.is_done(n, set) {
                return;
            }
            self.step(n, set);
        }
    }

    /// Tells if an answer or the end of a job is next. These come before all other events of this moment, since their
    /// work is in the time before.
    fn is_done(&self, n: usize, set: &Set) -> bool {
        let (job, next) = (&set.threads[n].job, self.players[n].next);
        next > 0 && job.get(next).is_none_or(|op| *op == Op::Answer)
    }

    /// True if another thread comes first now.
    fn is_overtaken(&self, n: usize, set: &Set) -> bool {
        let rank = |n: usize| (self.priority(n, set), NEVER - self.players[n].turn);
        let comes = |other: &usize| {
            let account = &self.players[*other].account;
            *other != n && account.is_usable(self.now) && self.can_run(*other, set)
        };
        (0..self.players.len()).filter(comes).any(|other| rank(other) > rank(n))
    }

    fn can_run(&self, n: usize, set: &Set) -> bool {
        let player = &self.players[n];
        let usable = player.account.is_usable(self.now);
        player.state == State::Ready && (usable || set.threads[n].background && !player.held)
    }

    fn best(&self, set: &Set) -> Option<usize> {
        let rank = |n: &usize| {
            let player = &self.players[*n];
            let level = if player.account.is_usable(self.now) {
                1 + u16::from(self.priority(*n, set))
            } else {
                0
            };
            (level, NEVER - player.turn)
        };
        (0..self.players.len()).filter(|n| self.can_run(*n, set)).max_by_key(rank)
    }

    /// One step of a thread's that takes no time.
    fn step(&mut self, n: usize, set: &Set) {
        let player = &mut self.players[n];
        let thread = &set.threads[n];
        let Some(op) = thread.job.get(player.next) else {
            return if thread.serves { self.finish_request(n, set) } else { self.finish_job(n) };
        };
        player.next += 1;
        match *op {
            Op::Run(_) if player.depth > 0 && player.cap == 0 => self.overruns(n, set),
            Op::Run(time) => player.rest = time,
            Op::Sleep(time) => self.stop(n, State::Asleep(self.now + time)),
            Op::Call(server) => self.call(n, server, set),
            Op::Answer => self.answer(n, set),
            Op::Ask(driver, work) => self.ask(n, driver, work, set),
        }
    }

    fn finish_job(&mut self, n: usize) {
        self.end_of_job(n);
        let player = &mut self.players[n];
        // A late one goes on with the next job at once, without a wait.
        if player.release <= self.now {
            (player.released, player.next) = (player.release, 0);
            player.release += player.every;
        } else {
            self.stop(n, State::Idle);
        }
    }

    fn call(&mut self, n: usize, server: u8, set: &Set) {
        let longest = set.servers[usize::from(server)].longest;
        let player = &mut self.players[n];
        // A call within a call is within that one's limit, if it has one.
        let counts = player.depth == 0 && !matches!(set.threads[n].policy, Policy::Pibs(_));
        if let Some(longest) = longest.filter(|_| counts) {
            self.seen.stuck |= self.rules.reserves && !player.account.can_ever(longest);
            if self.rules.reserves && !player.account.reserve(longest, self.now) {
                player.next -= 1;
                player.held = true;
                player.starved = !player.account.is_usable(self.now);
                self.seen.held = true;
                return;
            }
            if self.rules.caps {
                (player.cap, player.capped) = (longest, player.depth);
            }
        }
        if self.holders[usize::from(server)].is_none() {
            self.enter(n, server);
        } else {
            self.wait(n, Place::Server(server), 0, set);
        }
    }

    fn enter(&mut self, n: usize, server: u8) {
        let player = &mut self.players[n];
        player.servers[player.depth] = server;
        player.depth += 1;
        self.holders[usize::from(server)] = Some(n as u8);
        self.seen.keep(self.now);
    }

    fn answer(&mut self, n: usize, set: &Set) {
        let player = &mut self.players[n];
        player.depth -= 1;
        let server = player.servers[player.depth];
        if player.depth == player.capped {
            player.cap = NEVER;
        }
        self.holders[usize::from(server)] = None;
        while let Some(next) = self.first(Place::Server(server)) {
            self.players[next].queue = None;
            self.wake(next);
            if self.has_time_for(next, server, set) {
                return self.enter(next, server);
            }
        }
    }

    /// Tells if a call that waited for its server can begin. If not, it is made again when there is budget for it.
    fn has_time_for(&mut self, n: usize, server: u8, set: &Set) -> bool {
        let player = &mut self.players[n];
        let longest = set.servers[usize::from(server)].longest.filter(|_| self.rules.reserves);
        let own = player.cap < NEVER && player.capped == player.depth;
        let Some(longest) = longest.filter(|_| own || !self.rules.caps && player.depth == 0) else {
            return true;
        };
        if player.account.reserve(longest, self.now) {
            return true;
        }
        player.next -= 1;
        (player.held, player.cap) = (true, NEVER);
        player.starved = !player.account.is_usable(self.now);
        self.seen.held = true;
        false
    }

    fn wait(&mut self, n: usize, place: Place, work: Time, set: &Set) {
        let own = matches!(place, Place::Driver(_)) && self.rules.own_priority;
        let priority = if own { set.threads[n].priority } else { self.priority(n, set) };
        self.turns += 1;
        self.players[n].queue = Some((place, priority, self.turns, work));
        self.stop(n, State::Waiting);
    }

    /// The first one where several wait: by priority, then by age.
    fn first(&self, place: Place) -> Option<usize> {
        let key = |n: &usize| {
            let (at, priority, turn, _) = self.players[*n].queue?;
            (at == place).then_some((priority, NEVER - turn))
        };
        (0..self.players.len()).filter(|n| key(n).is_some()).max_by_key(|n| key(n))
    }

    fn ask(&mut self, n: usize, driver: u8, work: Time, set: &Set) {
        self.seen.asked_in_call |= self.players[n].depth > 0;
        self.wait(n, Place::Driver(driver), work, set);
        if self.players[usize::from(driver)].state == State::Idle {
            self.take_up(usize::from(driver), set);
        }
    }

    /// Lets a driver go on with its work.
    fn take_up(&mut self, driver: usize, set: &Set) {
        let was_idle = self.players[driver].state == State::Idle;
        if let Some(client) = self.first(Place::Driver(driver as u8)) {
            let Some((_, priority, _, work)) = self.players[client].queue.take() else { return };
            let player = &mut self.players[driver];
            let raised = priority > player.serves;
            (player.client, player.serves) = (Some(client as u8), priority);
            (player.rest, player.next) = (work, 0);
            player.account.serve(set.threads[client].period, self.now, raised && !was_idle);
        } else {
            let player = &mut self.players[driver];
            let work = std::mem::take(&mut player.pending);
            if work == 0 {
                return self.stop(driver, State::Idle);
            }
            (player.client, player.rest, player.next) = (None, work, 0);
        }
        if was_idle {
            self.wake(driver);
        }
    }

    fn finish_request(&mut self, n: usize, set: &Set) {
        match self.players[n].client.take() {
            Some(client) => self.wake(usize::from(client)),
            None => self.acknowledge(n, set),
        }
        self.take_up(n, set);
    }

    /// A driver has done its work for an interrupt.
    fn acknowledge(&mut self, n: usize, set: &Set) {
        let waits = self.players[n].source == Source::Waits;
        self.players[n].source = Source::Open;
        if waits {
            self.interrupt(n, set);
        }
    }

    /// Time passes until something happens.
    fn pass(&mut self, set: &Set, end: Time) {
        let mut until = end.min(self.now.saturating_add(self.stride)).min(self.bell);
        for (player, thread) in self.players.iter().zip(&set.threads) {
            let at = match player.state {
                State::Asleep(until) => until,
                State::Ready if !player.account.is_usable(self.now) => player.account.usable_at(),
                State::Idle => player.release,
                _ if thread.serves => player.release,
                _ => NEVER,
            };
            until = until.min(at);
            if thread.serves {
                until = until.min(player.release);
            }
        }
        let entry = self.taken > 0;
        if entry {
            until = until.min(self.now + self.taken);
        }
        let who = self.running.filter(|_| !entry || self.rules.charges);
        if let Some(n) = who {
            let player = &self.players[n];
            if !entry {
                let busy = if player.cost > 0 { player.cost } else { player.rest };
                until = until.min(self.now + busy);
            }
            if player.depth > 0 && player.cost == 0 {
                until = until.min(self.now.saturating_add(player.cap));
            }
            if player.account.is_usable(self.now) {
                until = until.min(self.now + player.account.left());
            }
        }
        let time = until - self.now;
        self.taken -= if entry { time } else { 0 };
        match who {
            Some(n) if entry => {
                self.seen.charged |= time > 0;
                self.now = until;
                self.charge(n, time, set);
            }
            Some(n) => self.work(n, time, set),
            None => self.now = until,
        }
    }

    /// A thread comes before the running one, by a timer: its entry is charged to that one. The overhead of its
    /// activation is the time of it.
    fn overtakes(&mut self, new: usize, old: usize, set: &Set) {
        let (now, thread) = (self.now, &set.threads[new]);
        let running = &self.players[old];
        let wants = running.state == State::Ready && running.account.is_usable(now);
        let new = &mut self.players[new];
        if !self.rules.charges || !new.account.is_usable(now) || !new.account.has_to_begin() {
            return;
        }
        if now >= new.begins.0 + thread.period {
            new.begins = (now, 0);
        }
        new.begins.1 += 1;
        let kept = new.begins.1 <= thread.activations;
        if !wants || !kept && !matches!(thread.policy, Policy::Pibs(_)) {
            return;
        }
        self.seen.charged = true;
        let mut rest = set.overhead;
        while rest > 0 && self.players[old].account.is_usable(self.now) {
            let time = rest.min(self.players[old].account.left());
            rest -= time;
            self.charge(old, time, set);
        }
    }

    fn work(&mut self, n: usize, time: Time, set: &Set) {
        if let Some(slices) = self.slices.as_mut().filter(|_| time > 0) {
            match slices.last_mut() {
                Some((who, _, end)) if *who == n && *end == self.now => *end += time,
                _ => slices.push((n, self.now, self.now + time)),
            }
        }
        let player = &mut self.players[n];
        // The time is used at its end.
        self.now += time;
        if player.cost > 0 {
            player.cost -= time;
            self.charge_account(n, time, set);
        } else {
            player.rest -= time;
            self.charge(n, time, set);
        }
    }

    /// Time up to now is used in a thread's name: of its budget, and of the limit of its call.
    fn charge(&mut self, n: usize, time: Time, set: &Set) {
        let player = &mut self.players[n];
        if player.depth > 0 && player.cost == 0 && player.cap < NEVER {
            player.cap = player.cap.saturating_sub(time);
        }
        self.charge_account(n, time, set);
    }

    fn charge_account(&mut self, n: usize, time: Time, set: &Set) {
        let player = &mut self.players[n];
        let charged = player.account.is_usable(self.now.saturating_sub(time));
        if charged && player.account.left() == time {
            self.end_of_piece(n);
        }
        let player = &mut self.players[n];
        let ended = charged && player.account.charge(time);
        let answers = || set.threads[n].job.get(player.next) == Some(&Op::Answer);
        if player.depth > 0 && player.cap == 0 && (player.rest > 0 || !answers()) {
            self.overruns(n, set);
        }
        let player = &mut self.players[n];
        // A full context has no turns in a call that has a limit.
        let limited = player.account.is_unlimited() && player.depth > 0 && player.cap < NEVER;
        if ended && !limited {
            self.turns += 1;
            player.turn = self.turns;
            player.starved = !player.account.is_usable(self.now);
            if player.depth > 0 && player.starved {
                self.seen.ended_in_call = true;
                self.seen.keep(self.now);
            }
        }
    }

    /// A call took longer than it may: its servers go back to before it, and answer.
    fn overruns(&mut self, n: usize, set: &Set) {
        self.seen.overran = true;
        let least = self.players[n].capped;
        let (mut inside, mut next) = (self.players[n].depth - least, self.players[n].next);
        while inside > 0 {
            match set.threads[n].job[next] {
                Op::Call(_) => inside += 1,
                Op::Answer => inside -= 1,
                _ => {}
            }
            next += 1;
        }
        while self.players[n].depth > least {
            self.answer(n, set);
        }
        (self.players[n].next, self.players[n].rest) = (next, 0);
    }

    /// The thread that another one waits for: it is in a server, or works for it.
    fn waits_for(&self, n: usize) -> Option<usize> {
        let player = &self.players[n];
        match player.queue {
            _ if player.state != State::Waiting => None,
            Some((Place::Server(server), ..)) => self.holders[usize::from(server)].map(usize::from),
            Some((Place::Driver(driver), ..)) => Some(driver.into()),
            None => self.players.iter().position(|other| other.client == Some(n as u8)),
        }
    }

    fn waits_for_itself(&self, n: usize) -> bool {
        let chain = std::iter::successors(self.waits_for(n), |next| self.waits_for(*next));
        chain.take(self.players.len()).any(|next| next == n)
    }

    fn end_of_job(&mut self, n: usize) {
        let released = self.players[n].released;
        let took = self.now - released;
        self.seen.worst[n] = self.seen.worst[n].max(took);
        if took > self.promises[n].job {
            self.seen.missed.get_or_insert((n, released));
        }
    }

    /// Judges jobs that are not done yet, and late already.
    fn judge_unfinished(&mut self, set: &Set) {
        for (n, thread) in set.threads.iter().enumerate() {
            if self.players[n].state != State::Idle {
                self.end_of_piece(n);
                if !thread.serves {
                    self.end_of_job(n);
                }
            }
        }
    }
}
