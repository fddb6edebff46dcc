//! Measures reads of a disk: of one in another sandbox, or of the program's own. Harness: `block.kernel_client_N`.
//!
//! Arguments:
//!
//! * `channel=NAME`: the channel to the disk. Without it the program drives the disk that the manifest gives it, and
//!   needs memory `rings` and `data`, which the device reaches;
//! * `spin=MICROSECONDS` (default 2): longest time that it looks before it sleeps, where the channel is `adaptive`.
//!
//! The notification `answers` wakes it. Random blocks are read by 1, 4 and 16 requests at a time. A word of each
//! cache line is looked at, as an application reads what it has asked for. Events enclose each of the three loads.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::bell::{Port, SLEEP};
use bulkhead_program::channel::Bytes;
use bulkhead_program::channel::adaptive::Spin;
use bulkhead_program::channel::bell::{Arm, Caller};
use bulkhead_program::marker::{EVENT, id};
use bulkhead_program::typed::Mapping;
use bulkhead_program::{
    Guest, Handler, Memory, Notification, Program, mark, now, println, ready, wait_until,
};
use bulkhead_store::disk::{self, Disk as _};
use bulkhead_virtio::disk::{Disk, Operation};
use core::sync::atomic::Ordering;
use store_programs::disk::AnyDisk;

bulkhead_program::entry!(reads);

/// Requests at a time, and of a load.
const LOADS: [(u64, u64); 3] = [(1, 2_000), (4, 4_000), (16, 8_000)];
/// Requests of a load before those that are counted.
const WARM: u64 = 256;
/// Requests at a time, at most.
const DEPTH: usize = 16;
/// Bytes of a request.
const BLOCK: usize = 4096;
/// Bytes of a cache line.
const LINE: usize = 64;
const SECTORS: u64 = BLOCK as u64 / 512;
/// In an event's value: the requests end.
const ENDS: u64 = 1 << 63;
/// Nanoseconds that an answer may take.
const PATIENCE: u64 = 10_000_000_000;

/// A disk that can be read from.
trait Source {
    /// Asks for a block; the disk sees it after [`Source::tell`].
    fn ask(&mut self, sector: u64) -> Option<()>;
    fn tell(&mut self);
    /// The next answer: words of its block, by XOR, or nothing if the read failed.
    fn answer(&mut self) -> Option<Option<u64>>;
    /// Asks to be woken, or not any more.
    fn arm(&mut self, wanted: bool);
}

/// In another sandbox.
struct Remote {
    disk: Disk<Mapping<'static>>,
    caller: Option<Caller<Mapping<'static>, Port>>,
    arm: Option<Arm<Mapping<'static>>>,
}

impl Remote {
    fn new(program: Program, name: &str) -> Option<(Self, bool)> {
        let pair = program.pair(name);
        let disk = Disk::open(*pair.tx(), *pair.rx(), pair.shape().tx_bytes()?, BLOCK).ok()?;
        let [_, bell] = pair.doorbells();
        let arm = match bell {
            Some(_) => Some(pair.arm().ok()?),
            None => None,
        };
        let adaptive = bell.is_some_and(|bell| bell.adaptive);
        Some((Self { disk, caller: program.caller(&pair), arm }, adaptive))
    }

    fn ring(&mut self) {
        if let Some(caller) = &mut self.caller {
            caller.tell();
        }
    }

    /// Its sectors, when it is there.
    fn sectors(&mut self) -> Option<u64> {
        let due = now() + PATIENCE;
        while now() < due {
            self.disk.attend();
            self.ring();
            if let Some(info) = self.disk.info() {
                return Some(info.sectors);
            }
            core::hint::spin_loop();
        }
        None
    }
}

impl Source for Remote {
    fn ask(&mut self, sector: u64) -> Option<()> {
        let slot = self.disk.slot()?;
        self.disk.send(slot, Operation::Read, sector, BLOCK).ok()
    }

    fn tell(&mut self) {
        self.disk.tell();
        self.ring();
    }

    fn answer(&mut self) -> Option<Option<u64>> {
        self.disk.attend();
        let (slot, done) = self.disk.completed()?;
        let bytes = done.ok().and_then(|()| self.disk.incoming(slot));
        let sum =
            bytes.map(|bytes| (0..BLOCK).step_by(LINE).fold(0, |sum, at| sum ^ bytes.word(at)));
        self.disk.free(slot);
        Some(sum)
    }

    fn arm(&mut self, wanted: bool) {
        match &mut self.arm {
            Some(arm) if wanted => arm.arm(),
            Some(arm) => arm.disarm(),
            None => {}
        }
    }
}

/// The program's own.
struct Own {
    disk: AnyDisk,
    data: Memory,
    address: u64,
    /// Blocks of the memory without a request.
    free: u32,
    handler: Handler,
}

impl Own {
    fn new(program: Program) -> Option<Self> {
        let (data, address) = program.memory_for_device("data");
        let disk = AnyDisk::open(program, "rings").ok()?;
        let handler = program.interrupt("answers");
        (data.len >= DEPTH * BLOCK).then_some(Self {
            disk,
            data,
            address,
            free: (1 << DEPTH) - 1,
            handler,
        })
    }
}

impl Source for Own {
    fn ask(&mut self, sector: u64) -> Option<()> {
        let tag = self.free.trailing_zeros();
        let address = self.address + u64::from(tag) * BLOCK as u64;
        let operation = disk::Operation::Read;
        let (tag, len) = (tag as u16, BLOCK as u32);
        self.disk.submit(&disk::Request { tag, operation, sector, address, len }).ok()?;
        self.free &= self.free - 1;
        Some(())
    }

    fn tell(&mut self) {
        self.disk.ring();
    }

    fn answer(&mut self) -> Option<Option<u64>> {
        let (tag, done) = self.disk.completed()?;
        self.free |= 1 << tag;
        let words = self.data.words().iter().skip(usize::from(tag) * BLOCK / 8).take(BLOCK / 8);
        let words = words.step_by(LINE / 8);
        let sum = |()| words.fold(0, |sum, word| sum ^ word.load(Ordering::Relaxed));
        Some(done.ok().map(sum))
    }

    fn arm(&mut self, wanted: bool) {
        if wanted {
            let _ = self.handler.acknowledge();
        }
        self.disk.interrupts(wanted);
    }
}

struct Reader<S> {
    source: S,
    sectors: u64,
    answers: Notification,
    spin: Spin,
    seed: u64,
    sum: u64,
}

impl<S: Source> Reader<S> {
    /// Asks for one more block, from a place that repeats in every run.
    fn ask(&mut self) -> Option<()> {
        self.seed = self.seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        self.source.ask((self.seed >> 33) % (self.sectors / SECTORS) * SECTORS)
    }

    /// Waits for an answer.
    fn wait(&mut self) -> Option<u64> {
        if let Some(sum) = self.source.answer() {
            return sum;
        }
        let begun = now();
        while now() - begun < self.spin.time() {
            core::hint::spin_loop();
            if let Some(sum) = self.source.answer() {
                self.spin.learn(now() - begun);
                return sum;
            }
        }
        while now() < begun + PATIENCE {
            self.source.arm(true);
            let mut found = self.source.answer();
            let slept = found.is_none();
            if slept {
                wait_until(self.answers, begun + PATIENCE).ok()?;
                found = self.source.answer();
            }
            self.source.arm(false);
            if let Some(sum) = found {
                self.spin.learn((now() - begun).saturating_sub(if slept { SLEEP } else { 0 }));
                return sum;
            }
        }
        None
    }

    /// So many requests, some of them at a time.
    fn requests(&mut self, depth: u64, count: u64) -> Option<()> {
        (0..depth).try_for_each(|_| self.ask())?;
        self.source.tell();
        for done in 0..count {
            self.sum ^= self.wait()?;
            if done + depth < count {
                self.ask()?;
                self.source.tell();
            }
        }
        Some(())
    }

    fn loads(&mut self) -> Option<()> {
        for (depth, count) in LOADS {
            self.requests(depth, WARM)?;
            let value = depth << 32 | count;
            mark!(EVENT | id::IO_REQUESTS, value);
            self.requests(depth, count)?;
            mark!(EVENT | id::IO_REQUESTS, ENDS | value);
        }
        Some(())
    }
}

fn reads(program: Program) -> u32 {
    ready();
    let never = Spin::NEVER;
    let done = match program.arg("channel") {
        Some(name) => Remote::new(program, name).and_then(|(mut source, adaptive)| {
            let sectors = source.sectors()?;
            let ticks = program.number("spin").unwrap_or(SLEEP / 1_000) * 1_000;
            measured(program, source, sectors, if adaptive { Spin::new(ticks) } else { never })
        }),
        None => Own::new(program).and_then(|source| {
            let sectors = source.disk.info().sectors;
            measured(program, source, sectors, never)
        }),
    };
    done.map_or(1, |()| 0)
}

fn measured<S: Source>(program: Program, source: S, sectors: u64, spin: Spin) -> Option<()> {
    let answers = program.waits("answers");
    let mut reader = Reader { source, sectors, answers, spin, seed: 1, sum: 0 };
    let done = reader.loads();
    let how = if done.is_some() { "read" } else { "no answer" };
    println!("{}: {how}, {:#x}", program.name(), reader.sum);
    done
}
