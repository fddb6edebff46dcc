//! The driver of AHCI controllers with a controller made from the specification (AHCI 1.3.1).

mod fake;

use bulkhead_disks::ahci::MEMORY;
use bulkhead_disks::{Ahci, Registers, Wrong};
use bulkhead_random::SplitMix64;
use bulkhead_store::disk::{Disk, Failed, Full, Info, Operation, Request};
use fake::{DATA, QUEUES, Ram, TICK, Time, answers, any, flush, read, write};
use std::cell::RefCell;
use std::rc::Rc;

/// `CAP`: addresses of 64 bits, 8 slots, 6 ports. The disk is at port 3.
const CAP: u32 = 1 << 31 | 7 << 8 | 5;
const PORT: u8 = 3;
const BASE: u64 = 0x100 + 0x80 * PORT as u64;
const END: u32 = 1;
const TASK_ERROR: u32 = 1 << 30;

/// A command that the controller has fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fetched {
    slot: u32,
    code: u8,
    block: u64,
    blocks: u64,
    writes: bool,
    /// Bus address and bytes of the data.
    data: Option<(u64, u64)>,
    /// Ranges of a TRIM: first block, blocks.
    ranges: Vec<(u64, u64)>,
}

/// The controller.
struct State {
    ram: Ram,
    cap: u32,
    implemented: u32,
    ghc: u32,
    pending: u32,
    bases: [u64; 2],
    status: u32,
    enabled: u32,
    cmd: u32,
    task: u32,
    signature: u32,
    issued: u32,
    /// It stopped at a failed command.
    halted: bool,
    /// Messages that it has sent.
    messages: u32,
    /// Its reset does not end, it has no link, the disk is never ready, the port never stops, an error leaves it busy.
    stuck: bool,
    unlinked: bool,
    unready: bool,
    runs_on: bool,
    stays_busy: bool,
    /// It carries nothing out; it fails its identification; a failed command leaves `PxCI`.
    deaf: bool,
    unknown: bool,
    leaves: bool,
    /// Words of its identification.
    words: Vec<(u64, u64)>,
    commands: Vec<Fetched>,
}

impl State {
    /// Fetches the command of a slot (5.5.1).
    fn fetch(&mut self, slot: u32) {
        let load = |at| self.ram.load(at, 8);
        let header = self.bases[0] + 32 * u64::from(slot);
        let (head, table) = (load(header), load(header + 8));
        assert!(table.is_multiple_of(128), "{table:#x}");
        let (length, entries) = (head & 0x1F, head >> 16 & 0xFFFF);
        assert_eq!((length, head & 0xFFA0, head >> 32), (5, 0, 0), "{head:#x}");
        let (first, second) = (load(table), load(table + 8));
        assert_eq!((first & 0xFFFF, first >> 56), (0x8027, 0x40));
        let entry = |n: u64| {
            let at = table + 128 + 16 * n;
            let (address, count) = (load(at), load(at + 8) >> 32);
            assert!(address % 2 == 0 && count % 2 == 1 && count < 4 << 20);
            (address, count + 1)
        };
        let data = (entries != 0).then(|| entry(0));
        let block = (first >> 32 & 0xFF_FFFF) | (second & 0xFF_FFFF) << 24;
        let (code, blocks) = ((first >> 16) as u8, second >> 32);
        let mut ranges = Vec::new();
        if code == 0x06 {
            // TRIM, and one block of ranges.
            assert_eq!((first >> 24 & 0xFF, block, blocks, entries), (1, 0, 1, 2));
            let words = (0..2).map(entry).flat_map(|(at, len)| (at..at + len).step_by(8));
            let words: Vec<u64> = words.map(load).collect();
            assert_eq!(words.len(), 64);
            let listed = words.iter().filter(|word| **word >> 48 != 0);
            ranges.extend(listed.map(|word| (word & ((1 << 48) - 1), word >> 48)));
        } else {
            assert!((first >> 24 & 0xFF, entries / 2) == (0, 0));
        }
        let writes = head & 0x40 != 0;
        let command = Fetched { slot, code, block, blocks, writes, data, ranges };
        self.commands.push(command);
        if code == 0xEC {
            self.identify();
        }
    }

    fn identify(&mut self) {
        let place = self.commands.len() - 1;
        let Some((address, 512)) = self.commands[place].data else { panic!("no room") };
        if self.unknown {
            return self.fail(place);
        }
        (0..512).step_by(8).for_each(|at| self.ram.store(address + at, 8, 0x5A5A << 48));
        for &(word, value) in &self.words {
            self.ram.store(address + 2 * word, 2, value);
        }
        // Data that a PIO setup FIS announced.
        self.finish(place);
        self.cause(1 << 1);
    }

    fn cause(&mut self, causes: u32) {
        self.status |= causes;
        self.signal();
    }

    /// Sends a message if a port newly asks for an interrupt (10.7).
    fn signal(&mut self) {
        let asks = self.status & self.enabled != 0 && self.pending == 0;
        if asks {
            self.pending = 1 << PORT;
            self.messages += self.ghc >> 1 & 1;
        }
    }

    fn finish(&mut self, place: usize) {
        assert!(!self.halted);
        let slot = self.commands.remove(place).slot;
        self.issued &= !(1 << slot);
        self.cause(END);
    }

    fn fail(&mut self, place: usize) {
        let slot = self.commands[place].slot;
        self.issued &= !(u32::from(self.leaves) << slot);
        self.halted = true;
        self.task = if self.stays_busy { 0x88 } else { 0x41 };
        self.cause(TASK_ERROR);
    }

    fn reset(&mut self) {
        (self.ghc, self.pending, self.status, self.enabled) = (0, 0, 0, 0);
        (self.cmd, self.issued, self.task) = (6, 0, 0x7F | 0x80);
        (self.bases, self.halted) = ([0; 2], false);
        self.commands.clear();
    }

    fn command(&mut self, value: u32) {
        const ON: u32 = 6 | 1 << 28;
        assert_eq!(value & !0x11, ON, "{value:#x}");
        let (was, is) = (self.cmd & 1 != 0, value & 1 != 0);
        if is && !was {
            assert!(self.cmd & 1 << 15 == 0 && self.cmd & 0x10 != 0 && self.task & 0x88 == 0);
        }
        if was && !is {
            (self.issued, self.halted) = (0, false);
            self.commands.clear();
        }
        let runs = is || was && self.runs_on;
        self.cmd = value | u32::from(runs) << 15;
        // The disk's first FIS.
        if value & 0x10 != 0 && self.task == 0xFF {
            self.task = if self.unready { 0xFF } else { 0x50 };
        }
    }

    fn port(&mut self, at: u64, value: u32) {
        match at {
            0x00..0x10 => {
                assert_eq!(self.cmd & 0x11, 0);
                let (base, shift) = (at as usize / 8, at % 8 * 8);
                let old = self.bases[base] & !(0xFFFF_FFFF << shift);
                self.bases[base] = old | u64::from(value) << shift;
            }
            0x10 => self.status &= !value,
            0x14 => {
                self.enabled = value;
                self.signal();
            }
            0x18 => self.command(value),
            0x30 => assert_eq!(value, u32::MAX),
            0x38 => {
                assert!(self.cmd & 1 != 0 && self.issued & value == 0, "{value:#x}");
                self.issued |= value;
                if !self.deaf {
                    (0..32).filter(|slot| value >> slot & 1 != 0).for_each(|n| self.fetch(n));
                }
            }
            _ => panic!("{at:#x}"),
        }
    }
}

#[derive(Clone)]
struct Controller(Rc<RefCell<State>>, Time);

type Driver = Ahci<Controller, Ram, Time>;

impl Controller {
    fn new() -> Self {
        // 2^33 + 5 blocks of 512 bytes.
        let words = [(83, 0x6400), (100, 5), (101, 0), (102, 2), (103, 0), (106, 0)];
        let state = State {
            ram: Ram::new(MEMORY),
            cap: CAP,
            implemented: 0b1001,
            ghc: 1 << 31,
            pending: 0,
            bases: [0; 2],
            status: 0xFFFF,
            enabled: 1,
            cmd: 0x8017,
            task: 0,
            signature: 0x101,
            issued: 0,
            halted: false,
            messages: 0,
            stuck: false,
            unlinked: false,
            unready: false,
            runs_on: false,
            stays_busy: false,
            deaf: false,
            unknown: false,
            leaves: false,
            words: words.to_vec(),
            commands: Vec::new(),
        };
        Self(Rc::new(RefCell::new(state)), Time::default())
    }

    fn with(change: impl FnOnce(&mut State)) -> Self {
        let controller = Self::new();
        change(&mut controller.0.borrow_mut());
        controller
    }

    fn open(&self) -> Result<Driver, Wrong> {
        let ram = self.0.borrow().ram.clone();
        Ahci::new(self.clone(), ram, self.1.clone(), PORT)
    }

    fn finish(&self, place: usize) {
        self.0.borrow_mut().finish(place);
    }

    fn fail(&self, place: usize) {
        self.0.borrow_mut().fail(place);
    }

    /// Tags of the requests that it has fetched, which are their blocks.
    fn fetched(&self) -> Vec<u64> {
        self.0.borrow().commands.iter().map(|command| command.block).collect()
    }
}

impl Registers for Controller {
    fn bytes(&self) -> u64 {
        BASE + 0x80
    }

    fn read8(&self, at: u64) -> u8 {
        panic!("{at:#x}")
    }

    fn read16(&self, at: u64) -> u16 {
        panic!("{at:#x}")
    }

    fn read32(&self, at: u64) -> u32 {
        let state = self.0.borrow();
        match at.checked_sub(BASE) {
            None if at == 0 => state.cap,
            None if at == 4 => state.ghc,
            None if at == 12 => state.implemented,
            Some(0x10) => state.status,
            Some(0x18) => state.cmd,
            Some(0x20) => state.task,
            Some(0x24) => state.signature,
            Some(0x28) => u32::from(!state.unlinked) * 0x123,
            Some(0x38) => state.issued,
            _ => panic!("{at:#x}"),
        }
    }

    fn write8(&self, at: u64, _: u8) {
        panic!("{at:#x}")
    }

    fn write16(&self, at: u64, _: u16) {
        panic!("{at:#x}")
    }

    fn write32(&self, at: u64, value: u32) {
        let mut state = self.0.borrow_mut();
        match at.checked_sub(BASE) {
            None if at == 4 => {
                state.ghc = value;
                if value & 1 != 0 {
                    state.reset();
                    state.ghc = u32::from(state.stuck);
                }
            }
            None if at == 8 => {
                state.pending &= !value;
                state.signal();
            }
            Some(at) => state.port(at, value),
            None => panic!("{at:#x}"),
        }
    }
}

#[test]
fn a_disk_is_described() {
    let controller = Controller::new();
    let disk = controller.open().unwrap();
    let described = Info {
        sectors: (2 << 32) + 5,
        block: 512,
        read_only: false,
        flush: true,
        most: 1 << 20,
        depth: 8,
        discard: 0,
        zero: 0,
    };
    assert_eq!(*disk.info(), described);
    assert_eq!(controller.0.borrow().bases, [QUEUES, QUEUES + 1024]);
    assert_eq!(controller.0.borrow().messages, 0);
    let other = Controller::with(|s| {
        s.cap |= 31 << 8;
        s.words.extend([(83, 0x4400), (106, 0x5000), (117, 2048), (118, 0)]);
    });
    let disk = other.open().unwrap();
    let described =
        Info { sectors: described.sectors * 8, block: 4096, flush: false, depth: 32, ..described };
    assert_eq!(*disk.info(), described);
}

#[test]
fn requests_are_commands() {
    let controller = Controller::new();
    let mut disk = controller.open().unwrap();
    let high = 0x1_2345_6789;
    for request in [read(7, high, 1 << 20), write(900, 8, 512), flush(3)] {
        disk.submit(&request).unwrap();
    }
    assert!(controller.0.borrow().commands.is_empty(), "the controller knows of none yet");
    disk.ring();
    let commands = controller.0.borrow().commands.clone();
    let command = |slot, code, block, blocks, data| Fetched {
        slot,
        code,
        block,
        blocks,
        writes: code == 0x35,
        data,
        ranges: Vec::new(),
    };
    let address = DATA + 512 * (high % (1 << 20));
    let expected = [
        command(0, 0x25, high, 2048, Some((address, 1 << 20))),
        command(1, 0x35, 8, 1, Some((DATA + 4096, 512))),
        command(2, 0xEA, 0, 0, None),
    ];
    assert_eq!(commands, expected);
    assert_eq!(answers(&mut disk), []);
    controller.finish(1);
    assert_eq!(answers(&mut disk), [(900, Ok(()))]);
    // A free slot is used while others are under way.
    disk.submit(&read(4, 0, 512)).unwrap();
    disk.ring();
    controller.finish(2);
    controller.finish(1);
    assert_eq!(answers(&mut disk), [(4, Ok(())), (3, Ok(()))]);
    controller.finish(0);
    assert_eq!(answers(&mut disk), [(7, Ok(()))]);
    assert_eq!(disk.fault(), None);
}

/// A disk with TRIM discards ranges of any length, in pieces; none has a request for zeros.
#[test]
fn ranges_are_discarded_in_pieces() {
    const PIECE: u64 = 0xFFFF;
    let range = |tag, operation, sector, len| Request { operation, ..read(tag, sector, len) };
    assert_eq!(Controller::new().open().unwrap().info().discard, 0);
    for per in [1, 8] {
        let controller = Controller::with(|s| {
            s.words.push((169, 1));
            if per == 8 {
                s.words.extend([(106, 0x5000), (117, 2048), (118, 0)]);
            }
        });
        let mut disk = controller.open().unwrap();
        let most = disk.info().discard;
        assert_eq!((u64::from(most), disk.info().zero), (8 * PIECE * per, 0));
        let block = 512 * per as u32;
        for request in [
            range(1, Operation::Discard, 16 * per, 3 * block),
            range(2, Operation::Discard, 0, (PIECE as u32 + 1) * block),
            range(3, Operation::Discard, (1 << 20) * per, most * 512),
            range(4, Operation::Discard, 0, most * 512 + block),
            range(5, Operation::Zero { unmap: true }, 0, block),
        ] {
            disk.submit(&request).unwrap();
        }
        disk.ring();
        assert_eq!(answers(&mut disk), [4, 5].map(|tag| (tag, Err(Failed))));
        let ranges: Vec<_> =
            controller.0.borrow().commands.iter().map(|c| c.ranges.clone()).collect();
        let long: Vec<_> = (0..8).map(|n| ((1 << 20) + n * PIECE, PIECE)).collect();
        assert_eq!(ranges, [vec![(16, 3)], vec![(0, PIECE), (PIECE, 1)], long]);
        assert!(controller.0.borrow().commands.iter().all(|c| c.writes));
        (0..3).for_each(|_| controller.finish(0));
        assert_eq!(answers(&mut disk), [1, 2, 3].map(|tag| (tag, Ok(()))));
        // A shorter list in a slot that had a longer one.
        for tag in 6..9 {
            disk.submit(&range(tag, Operation::Discard, 8 * per, block)).unwrap();
        }
        disk.ring();
        let mut commands = controller.0.borrow().commands.clone();
        assert!(commands.drain(..).all(|c| c.ranges == [(8, 1)]));
    }
}

#[test]
fn blocks_of_4096_bytes_are_counted() {
    let controller = Controller::with(|s| s.words.extend([(106, 0x5000), (117, 2048), (118, 0)]));
    let mut disk = controller.open().unwrap();
    disk.submit(&read(1, 80, 8192)).unwrap();
    disk.submit(&read(2, 81, 4096)).unwrap();
    disk.ring();
    let command = controller.0.borrow().commands[0].clone();
    assert_eq!((command.block, command.blocks), (10, 2));
    assert_eq!(answers(&mut disk), [(2, Err(Failed))]);
}

/// A bad block fails its request alone, wherever the error comes, on controllers that keep the failed command's bit
/// and on those that clear it.
#[test]
fn an_error_fails_one_request() {
    for (leaves, bad) in [false, true].into_iter().flat_map(|l| (0..6).map(move |b| (l, b))) {
        let controller = Controller::with(|s| s.leaves = leaves);
        let mut disk = controller.open().unwrap();
        for tag in 0..6 {
            disk.submit(&read(tag, tag.into(), 512)).unwrap();
        }
        disk.ring();
        let mut got = Vec::new();
        for _ in 0..30 {
            let place = controller.0.borrow().commands.iter().position(|c| c.block == bad);
            match place {
                Some(place) if place > 1 => controller.finish(0),
                Some(place) => controller.fail(place),
                None if controller.fetched().is_empty() => break,
                None => controller.finish(0),
            }
            got.extend(answers(&mut disk));
        }
        got.sort_by_key(|(tag, _)| *tag);
        let expected: Vec<_> = (0..6)
            .map(|tag| (tag, if u64::from(tag) == bad { Err(Failed) } else { Ok(()) }))
            .collect();
        assert_eq!(got, expected);
        assert_eq!((disk.fault(), controller.0.borrow().status), (None, 0));
    }
}

/// After an error each request goes alone, and new ones wait for that.
#[test]
fn new_requests_wait_for_those_that_go_alone() {
    let controller = Controller::new();
    let mut disk = controller.open().unwrap();
    (0..3).for_each(|tag| disk.submit(&read(tag, tag.into(), 512)).unwrap());
    disk.ring();
    controller.fail(1);
    assert_eq!(answers(&mut disk), []);
    disk.submit(&read(3, 3, 512)).unwrap();
    disk.submit(&read(4, 4, 512)).unwrap();
    disk.ring();
    for tag in 0..3 {
        assert_eq!(controller.fetched(), [u64::from(tag)]);
        controller.finish(0);
        assert_eq!(answers(&mut disk), [(tag, Ok(()))]);
    }
    assert_eq!(controller.fetched(), [3, 4]);
}

/// The driver looks only after a message, and requests end at any time, with errors: none is lost.
#[test]
fn messages_suffice() {
    let (mut ok, mut failed) = (0, 0);
    for seed in 0..200 {
        let mut random = SplitMix64(seed);
        let controller = Controller::with(|s| s.leaves = seed % 2 == 0);
        let mut disk = controller.open().unwrap();
        let (mut under_way, mut seen) = (Vec::new(), 0);
        for tag in 0..200u16 {
            for tag in [2 * tag, 2 * tag + 1] {
                if disk.submit(&read(tag, tag.into(), 512)) == Ok(()) {
                    under_way.push(tag);
                }
            }
            disk.ring();
            for _ in 0..random.below(4) {
                let count = controller.fetched().len() as u64;
                if count != 0 && !controller.0.borrow().halted {
                    let place = random.below(count) as usize;
                    if random.below(10) == 0 {
                        controller.fail(place)
                    } else {
                        controller.finish(place)
                    }
                }
            }
            let messages = controller.0.borrow().messages;
            if std::mem::replace(&mut seen, messages) != messages {
                for (tag, result) in answers(&mut disk) {
                    let place = under_way.iter().position(|&t| t == tag).expect("a tag under way");
                    under_way.remove(place);
                    *if result.is_ok() { &mut ok } else { &mut failed } += 1;
                }
                assert_eq!(
                    under_way.is_empty(),
                    controller.0.borrow().issued == 0,
                    "it forgot one"
                );
            }
        }
    }
    assert!(ok > 10_000 && failed > 500, "{ok} {failed}");
}

#[test]
fn it_does_not_interrupt_if_not_asked() {
    let controller = Controller::new();
    let mut disk = controller.open().unwrap();
    let ends = |disk: &mut Driver| {
        disk.submit(&read(1, 0, 512)).unwrap();
        disk.ring();
        controller.finish(0);
        let messages = std::mem::take(&mut controller.0.borrow_mut().messages);
        (messages, answers(disk).len())
    };
    assert_eq!(ends(&mut disk), (1, 1));
    disk.interrupts(false);
    assert_eq!(ends(&mut disk), (0, 1));
    disk.reset().unwrap();
    assert_eq!(ends(&mut disk), (0, 1));
    disk.interrupts(true);
    assert_eq!(ends(&mut disk), (1, 1));
}

#[test]
fn all_slots_are_used() {
    let controller = Controller::with(|s| s.cap |= 31 << 8);
    let mut disk = controller.open().unwrap();
    (0..32).for_each(|tag| disk.submit(&read(tag, tag.into(), 512)).unwrap());
    assert_eq!(disk.submit(&read(32, 0, 512)), Err(Full));
    disk.ring();
    (0..32).for_each(|_| controller.finish(0));
    let all: Vec<_> = (0..32).map(|tag| (tag, Ok(()))).collect();
    assert_eq!(answers(&mut disk), all);
}

type Change = fn(&mut State);

/// Each lie makes the disk silent, and a reset mends it.
#[test]
fn lies_make_it_silent_until_a_reset() {
    let lies: [(Change, Change, Wrong); 4] = [
        (|s| s.issued |= 1 << 5, |_| {}, Wrong::Lies("command in a slot")),
        // The function is gone.
        (|s| (s.issued, s.status) = (!0, !0), |_| {}, Wrong::Lies("command in a slot")),
        (
            |s| {
                s.runs_on = true;
                s.fail(0);
            },
            |s| s.runs_on = false,
            Wrong::Silent("stop after an error"),
        ),
        (
            |s| {
                s.stays_busy = true;
                s.fail(0);
            },
            |s| s.stays_busy = false,
            Wrong::Silent("readiness after an error"),
        ),
    ];
    for (lie, undo, fault) in lies {
        let controller = Controller::new();
        let mut disk = controller.open().unwrap();
        disk.submit(&read(1, 0, 4096)).unwrap();
        disk.ring();
        lie(&mut controller.0.borrow_mut());
        let start = controller.1.0.get();
        assert_eq!(answers(&mut disk), []);
        assert_eq!(disk.fault(), Some(fault));
        assert!(controller.1.0.get() - start <= 10_000_000 + 3 * TICK, "it waited long");
        disk.submit(&read(2, 0, 4096)).unwrap();
        disk.ring();
        assert_eq!(answers(&mut disk), []);
        undo(&mut controller.0.borrow_mut());
        disk.reset().unwrap();
        assert_eq!((disk.fault(), answers(&mut disk)), (None, vec![]));
        disk.submit(&read(5, 0, 4096)).unwrap();
        disk.ring();
        controller.finish(0);
        assert_eq!(answers(&mut disk), [(5, Ok(()))]);
    }
}

#[test]
fn a_reset_has_a_limit() {
    let controller = Controller::new();
    let mut disk = controller.open().unwrap();
    let mut limited = |change: Change, undo: Change, limit, text| {
        change(&mut controller.0.borrow_mut());
        let start = controller.1.0.get();
        assert_eq!(disk.reset(), Err(Failed));
        let took = controller.1.0.get() - start;
        assert!(took > limit && took < limit + 12 * TICK, "{text}: {took}");
        assert_eq!(disk.fault(), Some(Wrong::Silent(text)));
        assert_eq!(controller.0.borrow().cmd & 0x8011, 0);
        undo(&mut controller.0.borrow_mut());
    };
    const SECOND: u64 = 1_000_000_000;
    limited(|s| s.stuck = true, |s| s.stuck = false, SECOND, "end of its reset");
    limited(|s| s.unlinked = true, |s| s.unlinked = false, SECOND, "link to the port");
    limited(|s| s.unready = true, |s| s.unready = false, 10 * SECOND, "readiness");
    limited(|s| s.deaf = true, |s| s.deaf = false, 5 * SECOND, "identify itself");
    assert_eq!(disk.reset(), Ok(()));
    // Another disk in its place is refused.
    controller.0.borrow_mut().words.push((100, 6));
    assert_eq!(disk.reset(), Err(Failed));
    assert_eq!(controller.0.borrow().cmd & 0x8011, 0);
}

#[test]
fn controllers_that_are_wrong_are_refused() {
    let refused: [(&str, Change); 13] = [
        ("end of its reset", |s| s.stuck = true),
        ("64 bits", |s| s.cap &= !(1 << 31)),
        ("no such port", |s| s.implemented = 7),
        ("link to the port", |s| s.unlinked = true),
        ("readiness", |s| s.unready = true),
        // A disk for discs.
        ("disk at the port", |s| s.signature = 0xEB14_0101),
        ("identify itself in time", |s| s.deaf = true),
        ("identify itself with status 0x41", |s| s.unknown = true),
        ("48 bits", |s| s.words.push((83, 0x2400))),
        ("48 bits", |s| s.words.push((83, 0x6000))),
        ("size of a block", |s| s.words.extend([(106, 0x5000), (117, 0), (118, 0x8000)])),
        ("size of a block", |s| s.words.extend([(106, 0x5000), (117, 264), (118, 0)])),
        ("number of blocks", |s| s.words.extend([(100, 0), (102, 0)])),
    ];
    for (text, wrong) in refused {
        let controller = Controller::with(wrong);
        let error = controller.open().map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(text), "{text}: {error}");
        assert_eq!(controller.0.borrow().cmd & 0x8011, 0, "{text}: it is still on");
    }
    let small = Controller::with(|s| s.ram = Ram::new(MEMORY - 8));
    assert_eq!(small.open().map(|_| ()).unwrap_err(), Wrong::Lacks("memory for its queues"));
    for number in [PORT + 1, 32, 255] {
        let (controller, ram) = (Controller::new(), Ram::new(MEMORY));
        let error = Ahci::new(controller.clone(), ram, controller.1, number).map(|_| ());
        assert_eq!(error, Err(Wrong::Lacks("registers for the port")));
    }
}

/// A controller with anything in its registers and memory causes no panic, and no tag that is not under way.
#[test]
fn anything_is_survived() {
    let (mut faults, mut answered) = (0, 0);
    for seed in 0..600 {
        let mut random = SplitMix64(seed);
        let controller = Controller::new();
        let mut disk = controller.open().unwrap();
        let (mut given, mut faulty) = (Vec::new(), false);
        controller.0.borrow_mut().deaf = true;
        for _ in 0..30 {
            let request = any(&mut random, 1 << 20);
            if disk.submit(&request).is_ok() {
                given.push(request.tag);
            }
            disk.ring();
            let mut state = controller.0.borrow_mut();
            match random.below(8) {
                0 => state.issued &= random.any() as u32,
                1 => state.issued = random.any() as u32 >> random.below(32),
                2 => state.status = random.any() as u32,
                3 => (state.task, state.runs_on) = (random.any() as u32, random.below(2) == 0),
                4 => state.ram.scribble(&mut random),
                _ => {}
            }
            state.task &= if random.below(2) == 0 { !0x88 } else { !0 };
            state.issued &= if random.below(3) == 0 { !0 } else { 0xFF };
            drop(state);
            for (tag, _) in answers(&mut disk) {
                let place = given.iter().position(|&other| other == tag).expect("a tag under way");
                given.remove(place);
                answered += 1;
            }
            if disk.fault().is_some() {
                faulty = true;
                (controller.0.borrow_mut().deaf, controller.0.borrow_mut().runs_on) =
                    (false, false);
                disk.reset().unwrap();
                controller.0.borrow_mut().deaf = true;
                given.clear();
            }
        }
        faults += u32::from(faulty);
    }
    assert!(faults > 300 && answered > 1000, "{faults} {answered}");
}
