//! A client of a disk in another sandbox: writes, flushes, reads back and compares, with several requests at once.
//!
//! Arguments:
//!
//! * `channel=NAME` (default `disk`): the channel;
//! * `rounds=N` (default 8) of writes and reads;
//! * `ms=N` (default 0): further rounds follow until so many milliseconds have passed;
//! * `requests=N` (default 8): requests under way at once, each of 4 KiB;
//! * `readonly=1`: the disk refuses writes, and is only read;
//! * `anew=N`: it begins a new session each N rounds, in the middle of its requests.
//!
//! With the notification `answers` it sleeps until the device's side rings; without, it looks.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::bell::Port;
use bulkhead_program::channel::bell::{Arm, Caller};
use bulkhead_program::channel::{Bytes, Memory};
use bulkhead_program::typed::{Mapping, Pair};
use bulkhead_program::{Guest, Notification, Program, now, println, ready, wait_until};
use bulkhead_store::{DEVICE, feature};
use bulkhead_virtio::Part;
use bulkhead_virtio::driver::{Driver, Peer};
use bulkhead_virtio::layout::POOL;

bulkhead_program::entry!(client);

/// Nanoseconds that anything may take.
const PATIENCE: u64 = 10_000_000_000;
/// Bytes of a request's data, and of the place around it.
const DATA: usize = 4096;
const PLACE: usize = 2 * DATA;
const HEADER: usize = 16;

const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;

struct Disk {
    driver: Driver<Mapping<'static>>,
    pair: Pair<'static>,
    caller: Option<Caller<Mapping<'static>, Port>>,
    sleep: Option<(Arm<Mapping<'static>>, Notification)>,
    sessions: u32,
    slept: u64,
}

/// A request.
#[derive(Clone, Copy)]
struct Asked {
    kind: u32,
    sector: u64,
    len: usize,
}

impl Disk {
    fn open(program: Program, name: &str) -> Option<Self> {
        let pair = program.pair(name);
        let len = pair.shape().tx_bytes()?;
        let knows = feature::FLUSH | feature::READ_ONLY;
        let driver = Driver::open(*pair.tx(), *pair.rx(), len, DEVICE, knows).ok()?;
        let [_, woken] = pair.doorbells();
        let sleep = match woken {
            Some(_) => Some((pair.arm().ok()?, program.waits("answers"))),
            None => None,
        };
        Some(Self { driver, pair, caller: program.caller(&pair), sleep, sessions: 0, slept: 0 })
    }

    fn tell(&mut self) {
        self.driver.tell();
        if let Some(caller) = &mut self.caller {
            caller.tell();
        }
    }

    /// Looks until something is there, for as long as its patience lasts.
    fn wait<T>(&mut self, mut look: impl FnMut(&mut Self) -> Option<T>) -> Option<T> {
        let due = now() + PATIENCE;
        while now() < due {
            if let Some(found) = look(self) {
                return Some(found);
            }
            let Some((mut arm, notification)) = self.sleep.take() else {
                core::hint::spin_loop();
                continue;
            };
            arm.arm();
            let found = look(self);
            if found.is_none() {
                self.slept += u64::from(matches!(wait_until(notification, due), Ok(Some(_))));
            }
            arm.disarm();
            self.sleep = Some((arm, notification));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Waits for a session, and returns how many sectors there are.
    fn begin(&mut self) -> Option<u64> {
        self.wait(|disk| {
            let news = disk.driver.attend();
            disk.tell();
            matches!(news, Some(Peer::Begun(_))).then_some(())
        })?;
        self.sessions += 1;
        let mut sectors = [0; 8];
        self.driver.config(0, &mut sectors).then_some(u64::from_le_bytes(sectors))
    }

    const fn at(number: u16) -> usize {
        POOL + PLACE * number as usize
    }

    /// Makes a request; the data of a write is words that `word` makes.
    fn put(&mut self, number: u16, asked: Asked, word: impl Fn(usize) -> u64) -> bool {
        let (at, writes) = (Self::at(number), asked.kind == WRITE);
        let Some(bytes) = self.pair.tx().bytes(at, PLACE) else { return false };
        bytes.set_word(0, asked.kind.into());
        bytes.set_word(8, asked.sector);
        let out = if writes { asked.len } else { 0 };
        (0..out / 8).for_each(|n| bytes.set_word(HEADER + 8 * n, word(n)));
        let room = asked.len - out;
        // A status that no device gives.
        self.driver.put(number, Part { at, len: HEADER + out }, Part { at, len: room + 1 })
    }

    /// Waits for `count` answers; returns how many failed.
    fn answers(&mut self, count: u16, len: usize) -> Option<u32> {
        let mut failed = 0;
        for _ in 0..count {
            let (number, _) = self.wait(|disk| disk.driver.used().unwrap_or_default())?;
            failed += u32::from(self.status(number, len) != 0);
        }
        Some(failed)
    }

    fn status(&self, number: u16, len: usize) -> u8 {
        let mut status = [0xFF];
        if let Some(bytes) = self.pair.rx().bytes(Self::at(number), PLACE) {
            bytes.read(len, &mut status);
        }
        status[0]
    }

    /// Counts words of what was read that are not right.
    fn wrong(&self, number: u16, word: impl Fn(usize) -> u64) -> usize {
        let Some(bytes) = self.pair.rx().bytes(Self::at(number), PLACE) else { return 1 };
        (0..DATA / 8).filter(|n| bytes.word(8 * n) != word(*n)).count()
    }
}

/// Content of a word of the disk.
fn pattern(round: u64, number: u16, at: usize) -> u64 {
    (round << 40 | u64::from(number) << 32 | at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn client(program: Program) -> u32 {
    let name = program.name();
    ready();
    let done =
        Disk::open(program, program.arg("channel").unwrap_or("disk")).and_then(|mut disk| {
            let wrong = work(program, &mut disk)?;
            println!("{name}: {} sessions, {wrong} wrong", disk.sessions);
            if disk.sleep.is_some() {
                println!(
                    "{name}: slept {}",
                    if disk.slept > 0 { "and was woken" } else { "never" }
                );
            }
            Some(u32::from(wrong > 0))
        });
    done.unwrap_or_else(|| {
        println!("{name}: no answer");
        2
    })
}

fn work(program: Program, disk: &mut Disk) -> Option<usize> {
    let name = program.name();
    let sectors = disk.begin()?;
    println!("{name}: a disk of {sectors} sectors");
    let number = |name, default| program.number(name).unwrap_or(default);
    let (rounds, requests) = (number("rounds", 8), number("requests", 8) as u16);
    let (read_only, anew) = (number("readonly", 0) > 0, number("anew", 0));
    const PER: u64 = DATA as u64 / 512;
    let until = now().saturating_add(number("ms", 0).saturating_mul(1_000_000));
    let (mut wrong, mut done, mut longest) = (0, 0, 0);
    for round in (0..).take_while(|round| *round < rounds || now() < until) {
        let begun = now();
        let sector =
            |n: u16| (round * u64::from(requests) + u64::from(n)) * PER % (sectors - PER + 1);
        let all = |disk: &mut Disk, kind| {
            let asked = |n| Asked { kind, sector: sector(n), len: DATA };
            let put = (0..requests).all(|n| disk.put(n, asked(n), |at| pattern(round, n, at)));
            disk.tell();
            put
        };
        if anew > 0 && round % anew == anew - 1 {
            // In the middle of its requests.
            let _ = all(disk, READ);
            disk.driver.reset();
            disk.tell();
            disk.begin()?;
        }
        wrong += usize::from(!all(disk, WRITE));
        let failed = disk.answers(requests, 0)?;
        wrong += usize::from(failed != if read_only { requests.into() } else { 0 });
        let flush = Asked { kind: FLUSH, sector: 0, len: 0 };
        wrong += usize::from(!disk.put(0, flush, |_| 0));
        disk.tell();
        wrong += disk.answers(1, 0)? as usize;
        wrong += usize::from(!all(disk, READ));
        wrong += disk.answers(requests, DATA)? as usize;
        let compared = if read_only { 0 } else { requests };
        wrong += (0..compared).map(|n| disk.wrong(n, |at| pattern(round, n, at))).sum::<usize>();
        done = round + 1;
        longest = longest.max(now() - begun);
    }
    println!("{name}: {done} rounds, the longest took {} us", longest / 1_000);
    // Beyond the end.
    let beyond = Asked { kind: READ, sector: sectors, len: DATA };
    wrong += usize::from(!disk.put(0, beyond, |_| 0));
    disk.tell();
    wrong += usize::from(disk.answers(1, DATA)? != 1);
    Some(wrong)
}
