//! A client of a disk that means harm, for tests. It lies in its rings, its headers and its registers, and takes all
//! that it can get. It begins anew in the middle of its requests, and lets its own sandbox begin anew.
//!
//! Arguments:
//!
//! * `channel=NAME` (default `disk`): the channel, to a disk that it may write;
//! * `ms=N` (default 1000): length of each of its lives;
//! * `lives=N` (default 1): its sandbox begins anew after each life but the last one, with requests under way;
//! * `complains=1`: it also says that the store's answers cannot be. From the store's first second on that ends the
//!   driver, once a second (docs/store.md).
//!
//! It sleeps at the notification `answers`. Its counts lie in its own section, in a place that the protocol does not
//! use. That memory outlives the sandbox's restart.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::bell::Port;
use bulkhead_program::channel::bell::Caller;
use bulkhead_program::channel::page::{Hello, Phase};
use bulkhead_program::channel::{Bytes, Memory, Word};
use bulkhead_program::typed::Mapping;
use bulkhead_program::{Guest, Notification, Program, now, println, ready, restart, sleep_until};
use bulkhead_store::DEVICE;
use bulkhead_virtio::Part;
use bulkhead_virtio::driver::{Driver, Peer};
use bulkhead_virtio::layout::{
    ACCEPTED, DRIVER_OK, HELLO, NEXT, NUM, POOL, SIZES, STATUS, WRITE, avail, desc,
};

bulkhead_program::entry!(foe);

/// Nanoseconds that anything may take.
const PATIENCE: u64 = 10_000_000_000;
/// Nanoseconds between two looks.
const LOOK: u64 = 100_000;
/// Nanoseconds in which the store can see a lie.
const SEEN: u64 = 1_000_000;
/// Nanoseconds for which answers are left where they are.
const LEFT: u64 = 20_000_000;
/// Nanoseconds for which headers change.
const CHANGES: u64 = 300_000;

/// Bytes of a request's data, and of the place around it.
const DATA: usize = 512;
const PLACE: usize = 2 * DATA;
const HEADER: usize = 16;
const PAGE: usize = 4096;
/// Number of the queue.
const QUEUE: usize = 0;

const READ: u64 = 0;
/// Kinds of request: those that a disk may have, and others.
const KINDS: [u64; 8] = [READ, 1, 4, 8, 11, 13, 99, u64::MAX];

/// Offsets of what is kept over all lives, in the own section.
const LIVES: usize = 2048;
const ROUNDS: usize = LIVES + 8;
const LIES: usize = LIVES + 16;
const SESSIONS: usize = LIVES + 24;
const GREEDS: usize = LIVES + 32;
const KEPT: core::ops::Range<usize> = LIVES..GREEDS + 8;

/// Ways to do harm, without complaints.
const WAYS: u64 = 7;
/// Kinds of wild chains.
const WILD: usize = 15;
/// Times that it begins anew in one go, and after how many of these it waits for a session.
const ANEW: u32 = 200;
const WAITS: u32 = 25;

/// Begin, length, flags and next of a descriptor.
type Descriptor = (usize, u64, u16, u16);

struct Foe {
    driver: Driver<Mapping<'static>>,
    mine: Mapping<'static>,
    theirs: Mapping<'static>,
    section: usize,
    caller: Option<Caller<Mapping<'static>, Port>>,
    answers: Notification,
    seed: u64,
}

fn foe(program: Program) -> u32 {
    let name = program.name();
    ready();
    let number = |name, default| program.number(name).unwrap_or(default);
    let Some(mut foe) = Foe::open(program, program.arg("channel").unwrap_or("disk")) else {
        println!("{name}: its channel is another");
        return 1;
    };
    let life = foe.count(LIVES);
    // Each life lies in other words.
    foe.seed = foe.seed.wrapping_add(life);
    let until = now().saturating_add(number("ms", 1_000).saturating_mul(1_000_000));
    if !foe.live(until, WAYS + number("complains", 0).min(1)) {
        println!("{name}: no answer");
        return 2;
    }
    if life < number("lives", 1) {
        // In the middle of its requests.
        let _ = foe.begin() && foe.ask(8);
        restart(3)
    }
    let [lies, greeds, sessions] = [LIES, GREEDS, SESSIONS].map(|at| foe.look(at));
    println!("{name}: lied {lies} times, {sessions} sessions, greedy {greeds} times, {life} lives");
    0
}

impl Foe {
    fn open(program: Program, name: &str) -> Option<Self> {
        let pair = program.pair(name);
        let (mine, theirs, section) = (*pair.tx(), *pair.rx(), pair.shape().tx_bytes()?);
        let driver = Driver::open(mine, theirs, section, DEVICE, 0).ok()?;
        let (caller, answers) = (program.caller(&pair), program.waits("answers"));
        let seed = 0x9E37_79B9_7F4A_7C15;
        Some(Self { driver, mine, theirs, section, caller, answers, seed })
    }

    /// Does harm in one way after the other. `false`: the store no longer answers.
    fn live(&mut self, until: u64, ways: u64) -> bool {
        let mut served = true;
        while served && now() < until {
            served = match (self.count(ROUNDS) - 1) % ways {
                0 => self.lies(Self::garbage),
                1 => self.lies(Self::ahead),
                2 => (0..WILD).all(|kind| self.lies(|foe| foe.wild(kind))),
                3 => self.lies(Self::change),
                4 => self.greedy(),
                5 => self.anew(),
                6 => self.lies(Self::scribble),
                _ => self.complain(),
            };
        }
        served
    }

    /// Waits for a session. A client that has lied may have another one.
    fn begin(&mut self) -> bool {
        let due = now() + PATIENCE;
        while now() < due {
            let news = self.driver.attend();
            self.tell();
            if matches!(news, Some(Peer::Begun(_))) {
                self.count(SESSIONS);
                return true;
            }
            self.pause(LOOK);
        }
        false
    }

    fn again(&mut self) {
        self.driver.reset();
        self.tell();
    }

    /// A session with a lie. No answer is taken after that: an impossible one would be a complaint.
    fn lies(&mut self, lie: impl FnOnce(&mut Self)) -> bool {
        if !self.begin() {
            return false;
        }
        // So the disk has work of a session that ends.
        let requests = self.random(9) as u16;
        self.ask(requests);
        lie(self);
        self.tell();
        self.count(LIES);
        // Otherwise it begins anew before the store has seen all of it.
        if self.random(2) == 0 {
            self.pause(SEEN);
        }
        self.again();
        true
    }

    /// Random words in the table and in the ring.
    fn garbage(&mut self) {
        let index = self.index();
        for at in (0..PAGE).step_by(8) {
            let [descriptor, entry] = [self.word(), self.word()];
            self.poke(desc(QUEUE) + at, descriptor);
            self.poke(avail(QUEUE) + at, entry);
        }
        let more = 1 + self.random(NUM as u64) as u16;
        self.publish(index.wrapping_add(more));
    }

    /// An index further on than the ring has entries.
    fn ahead(&mut self) {
        let more = NUM as u64 + 1 + self.random(65_000);
        self.publish(self.index().wrapping_add(more as u16));
    }

    /// A chain that is nearly right.
    fn wild(&mut self, kind: usize) {
        const FIRST: u16 = NUM as u16 - 2;
        const SECOND: u16 = FIRST + 1;
        const NOWHERE: u16 = 60_000;
        const INDIRECT: u16 = 4;
        let (section, at) = (self.section, Self::at(120));
        let reads = |at, len| (at, len, NEXT, SECOND);
        let writes = |at| (at, DATA as u64 + 1, WRITE, 0);
        let (right, room) = (reads(at, HEADER as u64), writes(section + at));
        let all: [[Descriptor; 2]; WILD] = [
            // In a header, at its end, without a byte, without an end, beyond the section.
            [reads(0, 16), room],
            [reads(POOL - 8, 16), room],
            [reads(at, 0), room],
            [reads(at, u32::MAX.into()), room],
            [reads(usize::MAX - 8, 16), room],
            [reads(section - 8, 16), room],
            // To be written: the own section, the other header, beyond the other section.
            [right, writes(at)],
            [right, writes(section)],
            [right, writes(2 * section - 8)],
            // A chain that goes on with itself, a ring of two, one to nowhere, flags that mean nothing here.
            [(at, 16, NEXT, FIRST), room],
            [right, (section + at, 513, NEXT | WRITE, FIRST)],
            [(at, 16, NEXT, NOWHERE), room],
            [(at, 16, INDIRECT, SECOND), room],
            // Right ones, for the heads below.
            [right, room],
            [right, room],
        ];
        self.header(120, READ, 0);
        let [first, second] = all[kind];
        self.describe(FIRST, first);
        self.describe(SECOND, second);
        match kind {
            13 => self.offer(NOWHERE),
            // One chain again and again, before its answer.
            14 => (0..64).for_each(|_| self.offer(FIRST)),
            _ => self.offer(FIRST),
        }
    }

    /// Headers that change while the store reads them.
    fn change(&mut self) {
        let until = now() + CHANGES;
        while now() < until {
            let number = self.random(8) as u16;
            let kind = KINDS[self.random(KINDS.len() as u64) as usize];
            let sectors = [self.random(8192), u64::MAX - self.random(3), self.word()];
            let sector = sectors[self.random(3) as usize];
            self.header(number, kind, sector);
        }
    }

    /// All requests that there can be, with answers that it leaves where they are. Such a client is served, too.
    fn greedy(&mut self) -> bool {
        if !self.begin() {
            return false;
        }
        let requests = self.driver.requests() as u16;
        let asked = self.ask(requests);
        self.pause(LEFT);
        let served = asked && (self.random(2) == 0 || self.take(requests));
        self.count(GREEDS);
        self.again();
        served
    }

    /// Begins anew again and again in the middle of requests, mostly without waiting for a session.
    fn anew(&mut self) -> bool {
        for n in 0..ANEW {
            if n % WAITS == 0 && !self.begin() {
                return false;
            }
            self.driver.attend();
            // Without a session there is no request.
            let _ = self.ask(4);
            self.again();
            (0..self.random(1 << 10)).for_each(|_| core::hint::spin_loop());
        }
        true
    }

    /// Random words in all of its section, or words that are nearly right in registers. It rings for nothing, too.
    fn scribble(&mut self) {
        if self.random(2) == 0 {
            for at in (0..self.section).step_by(8).filter(|at| !KEPT.contains(at)) {
                let word = self.word();
                self.poke(at, word);
            }
        } else {
            for _ in 0..64 {
                // It answers the device's epoch. A hello that has left with `FAILED` would be a complaint.
                let seen =
                    self.theirs.word(HELLO).map_or(0, |hello| Hello::of(hello.acquire()).epoch);
                let phase = [Phase::Open, Phase::Closed][self.random(2) as usize];
                let epoch = self.word() as u32;
                let hello = Hello { phase, epoch, seen }.word();
                let values = [self.word(), DRIVER_OK, u64::MAX];
                let value = values[self.random(3) as usize];
                match self.random(5) {
                    0 => self.poke(STATUS, value),
                    1 => self.poke(ACCEPTED, value),
                    2 => self.poke(SIZES, value),
                    3 => self.poke(avail(QUEUE), value),
                    _ => self.poke(HELLO, hello),
                }
            }
        }
        if let Some(caller) = &mut self.caller {
            (0..16).for_each(|_| caller.ring());
        }
    }

    /// Says that an answer cannot be. The next session is one with a device that is opened anew.
    fn complain(&mut self) -> bool {
        if !self.begin() {
            return false;
        }
        self.driver.give_up();
        self.tell();
        self.count(LIES);
        true
    }

    /// Asks for so many reads as an honest client does. Each has data for a write, too: its header may change.
    fn ask(&mut self, count: u16) -> bool {
        let asked = (0..count).all(|n| {
            self.header(n, READ, n.into());
            let at = Self::at(n);
            let (reads, writes) = (Part { at, len: HEADER + DATA }, Part { at, len: DATA + 1 });
            self.driver.put(n, reads, writes)
        });
        self.driver.tell();
        self.tell();
        asked
    }

    /// Takes so many answers.
    fn take(&mut self, count: u16) -> bool {
        let (due, mut left) = (now() + PATIENCE, count);
        while left > 0 && now() < due {
            match self.driver.used().unwrap_or_default() {
                Some(_) => left -= 1,
                None => self.pause(LOOK),
            }
        }
        left == 0
    }

    const fn at(number: u16) -> usize {
        POOL + PLACE * number as usize
    }

    fn header(&self, number: u16, kind: u64, sector: u64) {
        self.poke(Self::at(number), kind);
        self.poke(Self::at(number) + 8, sector);
    }

    fn describe(&self, number: u16, (begin, len, flags, next): Descriptor) {
        let at = desc(QUEUE) + 16 * usize::from(number);
        self.poke(at, begin as u64);
        self.poke(at + 8, len | u64::from(flags) << 32 | u64::from(next) << 48);
    }

    /// Makes a head available, after those that were before.
    fn offer(&self, head: u16) {
        let index = self.index();
        let slot = usize::from(index) % NUM;
        if let Some(ring) = self.mine.bytes(avail(QUEUE), 4 + 2 * NUM) {
            ring.write(4 + 2 * slot, &head.to_le_bytes());
        }
        self.publish(index.wrapping_add(1));
    }

    fn index(&self) -> u16 {
        (self.look(avail(QUEUE)) >> 16) as u16
    }

    /// Says that the ring goes on to an index. The word has the first two entries, too.
    fn publish(&self, index: u16) {
        let rest = self.look(avail(QUEUE)) & !0xFFFF_0000;
        self.poke(avail(QUEUE), rest | u64::from(index) << 16);
    }

    /// Wakes the store, if it sleeps.
    fn tell(&mut self) {
        if let Some(caller) = &mut self.caller {
            caller.tell();
        }
    }

    /// Sleeps: looking all the time would take the host's processors from the others.
    fn pause(&self, nanos: u64) {
        // It has time of its own.
        let _ = sleep_until(self.answers, now() + nanos);
    }

    fn look(&self, at: usize) -> u64 {
        self.mine.word(at).map_or(0, |word| word.relaxed())
    }

    fn poke(&self, at: usize, value: u64) {
        if let Some(word) = self.mine.word(at) {
            word.release(value);
        }
    }

    /// Counts one more.
    fn count(&self, at: usize) -> u64 {
        let count = self.look(at) + 1;
        self.poke(at, count);
        count
    }

    /// Draws a word (xorshift).
    const fn word(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }

    const fn random(&mut self, below: u64) -> u64 {
        self.word() % below
    }
}
