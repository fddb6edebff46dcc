//! The driver of NVMe controllers with a controller made from the specification (NVM Express 1.4).

mod fake;

use bulkhead_disks::nvme::MEMORY;
use bulkhead_disks::{Nvme, Registers, Wrong};
use bulkhead_random::SplitMix64;
use bulkhead_store::disk::{Disk, Failed, Full, Info, Operation, Request};
use fake::{DATA, Ram, TICK, Time, answers, any, flush, read, write};
use std::cell::RefCell;
use std::rc::Rc;

/// `CAP`: entries less 1, contiguous queues, a second for each change, doorbells each 8 bytes, NVM command set.
const CAP: u64 = 1023 | 1 << 16 | 2 << 24 | 1 << 32 | 1 << 37;
const STRIDE: u64 = 8;
const BYTES: u64 = 0x1000 + 3 * STRIDE + 4;
/// Nanoseconds of `CAP.TO`, and one unit more.
const LIMIT: u64 = 1_500_000_000;

/// A command that the controller has fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fetched {
    identifier: u16,
    opcode: u8,
    block: u64,
    blocks: u64,
    /// Places in memory, in pieces of a page at most.
    pieces: Vec<(u64, u64)>,
}

/// A queue pair as the controller sees it.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    submission: u64,
    completion: u64,
    entries: u16,
    head: u16,
    tail: u16,
    /// Completions posted, and the place of the first that the driver has not taken.
    posted: u64,
    taken: u16,
}

/// The controller.
struct State {
    ram: Ram,
    cap: u64,
    cc: u32,
    aqa: u32,
    bases: [u64; 2],
    /// It never becomes ready, is never off, ignores doorbells, fails an admin command by its opcode.
    unready: bool,
    stuck: bool,
    deaf: bool,
    fails: Option<u8>,
    /// Bits that its answers to admin commands have in the wrong state.
    lies: u64,
    /// `MDTS`, namespaces, `VWC`, blocks, format of blocks, `NSATTR`.
    transfer: u8,
    namespaces: u32,
    /// Commands that not each controller has.
    optional: u64,
    cache: u8,
    blocks: u64,
    format: u32,
    attributes: u8,
    vector: u32,
    admin: Queue,
    io: Queue,
    completions: bool,
    commands: Vec<Fetched>,
    /// How often the driver told of commands, and of completions.
    rung: u32,
    told: u32,
}

impl State {
    fn word(&self, at: u64) -> u64 {
        self.ram.load(at, 8)
    }

    /// Takes commands that the driver has told of.
    fn fetch(&mut self, admin: bool) {
        loop {
            let queue = if admin { &mut self.admin } else { &mut self.io };
            if queue.head == queue.tail {
                break;
            }
            let at = queue.submission + 64 * u64::from(queue.head);
            queue.head = (queue.head + 1) % queue.entries;
            let words: [u64; 8] = std::array::from_fn(|n| self.word(at + 8 * n as u64));
            assert_eq!((words[1], words[2], words[7]), (0, 0, 0));
            assert_eq!(words[0] >> 8 & 0xFF, 0, "fused, or with SGLs");
            if admin { self.manage(words) } else { self.queue(words) }
        }
    }

    fn manage(&mut self, words: [u64; 8]) {
        let (opcode, identifier, namespace) =
            (words[0] as u8, (words[0] >> 16) as u16, words[0] >> 32);
        let page = words[3];
        assert!(page.is_multiple_of(4096));
        let size = (words[5] >> 16) as u16;
        let mut status = u64::from(self.fails == Some(opcode));
        match (opcode, namespace, words[5] as u32) {
            (6, 0, 1) => self.fill(page, |s, n| match n {
                72 => u64::from(s.transfer) << 40,
                512 => u64::from(s.namespaces) << 32,
                520 => u64::from(s.cache) << 40 | s.optional,
                _ => 0x5A5A << 48,
            }),
            (6, 1, 0) => self.fill(page, |s, n| match n {
                0 => s.blocks,
                // Format 3.
                24 => 0x13 << 16,
                96 => u64::from(s.attributes) << 24,
                136 => u64::from(s.format) << 32,
                _ => 0xFFFF_FFFF_FFFF_FFFF,
            }),
            (9, 0, 7) => assert_eq!(words[5] >> 32, 0),
            (5, 0, _) if words[5] as u16 == 1 => {
                assert_eq!(words[5] >> 32 & 0xFFFF, 3);
                self.vector = (words[5] >> 48) as u32;
                self.io = Queue { completion: page, entries: size + 1, ..Queue::default() };
                self.completions = true;
            }
            (1, 0, _) if words[5] as u16 == 1 && self.completions => {
                assert_eq!(words[5] >> 32, 1 << 16 | 1);
                assert_eq!(size + 1, self.io.entries);
                self.io.submission = page;
            }
            _ => status = 2,
        }
        self.post(true, identifier, status as u16);
    }

    fn fill(&self, page: u64, word: impl Fn(&Self, u64) -> u64) {
        (0..4096).step_by(8).for_each(|n| self.ram.store(page + n, 8, word(self, n)));
    }

    fn queue(&mut self, words: [u64; 8]) {
        assert_eq!(words[0] >> 32, 1);
        let (opcode, identifier) = (words[0] as u8, (words[0] >> 16) as u16);
        assert!(self.commands.iter().all(|other| other.identifier != identifier));
        let (block, blocks) = (words[5], (words[6] & 0xFFFF) + 1);
        let len = blocks << (self.format >> 16);
        let pieces = match opcode {
            0 => Vec::new(),
            // If it may be discarded.
            8 => vec![(words[6] >> 25 & 1, 0)],
            // The only range of the list.
            9 => vec![(self.ram.load(words[3], 8), self.ram.load(words[3] + 8, 8))],
            _ => self.pieces(words[3], words[4], len),
        };
        self.commands.push(Fetched { identifier, opcode, block, blocks, pieces });
    }

    /// Follows the pointers to pages (4.3).
    fn pieces(&self, first: u64, second: u64, mut left: u64) -> Vec<(u64, u64)> {
        assert!(first.is_multiple_of(4));
        let mut pieces = Vec::new();
        let mut put = |at: u64| {
            let piece = left.min(4096 - at % 4096);
            pieces.push((at, piece));
            left -= piece;
            left
        };
        let rest = put(first);
        if rest > 4096 {
            assert!(second.is_multiple_of(8));
            let mut at = second;
            loop {
                let entry = self.word(at);
                assert!(entry.is_multiple_of(4096), "{entry:#x}");
                if put(entry) == 0 {
                    break;
                }
                at += 8;
                // The last entry of a page would lead to a further list.
                assert_ne!(at % 4096, 0, "a list over a page's end");
            }
        } else if rest > 0 {
            assert!(second.is_multiple_of(4096));
            put(second);
        } else {
            assert_eq!(second, 0);
        }
        pieces
    }

    fn post(&mut self, admin: bool, identifier: u16, status: u16) {
        let queue = if admin { &mut self.admin } else { &mut self.io };
        let entries = u64::from(queue.entries);
        let place = queue.posted % entries;
        assert_ne!((place + 1) % entries, queue.taken.into(), "a full completion queue");
        let phase = (queue.posted / entries + 1) & 1;
        queue.posted += 1;
        let word = u64::from(queue.head) | u64::from(!admin) << 16;
        let word = word | u64::from(identifier) << 32 | phase << 48 | u64::from(status) << 49;
        let (at, lies) = (queue.completion + 16 * place, if admin { self.lies } else { 0 });
        self.ram.store(at, 8, 0);
        self.ram.store(at + 8, 8, word ^ lies);
    }

    /// Answers a command, by its place among those fetched.
    fn finish(&mut self, place: usize, status: u16) {
        let command = self.commands.remove(place);
        self.post(false, command.identifier, status);
    }
}

#[derive(Clone)]
struct Controller(Rc<RefCell<State>>, Time);

type Driver = Nvme<Controller, Ram, Time>;

impl Controller {
    fn new() -> Self {
        let state = State {
            ram: Ram::new(MEMORY),
            cap: CAP,
            // Firmware has left it on.
            cc: 1,
            aqa: 0,
            bases: [0; 2],
            unready: false,
            stuck: false,
            deaf: false,
            fails: None,
            lies: 0,
            transfer: 7,
            namespaces: 2,
            optional: 0,
            cache: 1,
            blocks: 1 << 30,
            format: 12 << 16,
            attributes: 0,
            vector: 0,
            admin: Queue::default(),
            io: Queue::default(),
            completions: false,
            commands: Vec::new(),
            rung: 0,
            told: 0,
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
        Nvme::new(self.clone(), ram, self.1.clone(), 5)
    }

    fn finish(&self, place: usize, status: u16) {
        self.0.borrow_mut().finish(place, status);
    }
}

impl Registers for Controller {
    fn bytes(&self) -> u64 {
        BYTES
    }

    fn read8(&self, at: u64) -> u8 {
        panic!("{at:#x}")
    }

    fn read16(&self, at: u64) -> u16 {
        panic!("{at:#x}")
    }

    fn read32(&self, at: u64) -> u32 {
        let state = self.0.borrow();
        match at {
            0 => state.cap as u32,
            4 => (state.cap >> 32) as u32,
            0x1C => {
                let on = state.cc & 1 != 0;
                u32::from(if on { !state.unready } else { state.stuck })
            }
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
        match at {
            0x14 => {
                state.cc = value;
                if value & 1 == 0 {
                    (state.admin, state.io) = (Queue::default(), Queue::default());
                    (state.completions, state.vector) = (false, 0);
                    state.commands.clear();
                    return;
                }
                assert_eq!(value, 1 | 6 << 16 | 4 << 20);
                let [submission, completion] = state.bases;
                let entries = (state.aqa & 0xFFF) as u16 + 1;
                assert_eq!(state.aqa, u32::from(entries - 1) << 16 | u32::from(entries - 1));
                assert!(submission.is_multiple_of(4096) && completion.is_multiple_of(4096));
                state.admin = Queue { submission, completion, entries, ..Queue::default() };
            }
            0x24 => state.aqa = value,
            0x28..0x38 => {
                assert_eq!(state.cc & 1, 0);
                let (base, shift) = ((at as usize - 0x28) / 8, at % 8 * 8);
                let old = state.bases[base] & !(0xFFFF_FFFF << shift);
                state.bases[base] = old | u64::from(value) << shift;
            }
            _ if state.deaf => {}
            0x1000..BYTES if at % STRIDE == 0 => {
                assert_eq!(state.cc & 1, 1);
                let (number, value) = ((at - 0x1000) / STRIDE, value as u16);
                let queue = if number < 2 { &mut state.admin } else { &mut state.io };
                assert!(value < queue.entries);
                if number % 2 == 1 {
                    queue.taken = value;
                    state.told += u32::from(number == 3);
                    return;
                }
                queue.tail = value;
                state.rung += u32::from(number == 2);
                state.fetch(number == 0);
            }
            _ => panic!("{at:#x}"),
        }
    }
}

#[test]
fn a_disk_is_described() {
    let controller = Controller::new();
    let disk = controller.open().unwrap();
    let described = Info {
        sectors: 1 << 33,
        block: 4096,
        read_only: false,
        flush: true,
        most: 128 << 10,
        depth: 63,
        discard: 0,
        zero: 0,
    };
    assert_eq!(*disk.info(), described);
    assert_eq!(controller.0.borrow().vector, 5);
    let other = Controller::with(|s| {
        (s.transfer, s.cache, s.format, s.attributes, s.cap) =
            (2, 0xFE, 9 << 16, 1, CAP & !0xFFFF | 3);
    });
    let disk = other.open().unwrap();
    let described = Info {
        sectors: 1 << 30,
        block: 512,
        read_only: true,
        flush: false,
        most: 16 << 10,
        depth: 3,
        discard: 0,
        zero: 0,
    };
    assert_eq!(*disk.info(), described);
    let unlimited = Controller::with(|s| s.transfer = 0);
    assert_eq!(unlimited.open().unwrap().info().most, 128 << 10);
}

#[test]
fn requests_are_answered_in_any_order() {
    let controller = Controller::new();
    let mut disk = controller.open().unwrap();
    for request in [read(7, 1 << 32, 8192), write(900, 8, 4096), flush(3)] {
        disk.submit(&request).unwrap();
    }
    assert!(controller.0.borrow().commands.is_empty(), "the controller knows of none yet");
    disk.ring();
    disk.ring();
    assert_eq!(controller.0.borrow().rung, 1);
    let commands = controller.0.borrow().commands.clone();
    let command = |identifier, opcode, block, blocks, pieces| Fetched {
        identifier,
        opcode,
        block,
        blocks,
        pieces,
    };
    let expected = [
        command(0, 2, 1 << 29, 2, vec![(DATA, 4096), (DATA + 4096, 4096)]),
        command(1, 1, 1, 1, vec![(DATA + 4096, 4096)]),
        command(2, 0, 0, 1, vec![]),
    ];
    assert_eq!(commands, expected);
    assert_eq!(answers(&mut disk), []);
    controller.finish(2, 0);
    controller.finish(0, 0x4002);
    assert_eq!(answers(&mut disk), [(3, Ok(())), (7, Err(Failed))]);
    assert_eq!(controller.0.borrow().told, 1);
    controller.finish(0, 1);
    assert_eq!(answers(&mut disk), [(900, Err(Failed))]);
    assert_eq!(disk.fault(), None);
}

#[test]
fn ranges_are_commands() {
    let controller = Controller::with(|s| s.optional = 1 << 2 | 1 << 3);
    let mut disk = controller.open().unwrap();
    // Blocks of eight sectors.
    assert_eq!((disk.info().discard, disk.info().zero), (8 << 20, 8 << 15));
    let range = |tag, operation, sector, len| Request { operation, ..read(tag, sector, len) };
    for request in [
        range(1, Operation::Discard, 16, 3 * 4096),
        range(2, Operation::Zero { unmap: false }, 1 << 32, 4096 << 15),
        range(3, Operation::Zero { unmap: true }, 8, 4096),
        range(4, Operation::Zero { unmap: true }, 0, 4096 * ((1 << 15) + 1)),
        range(5, Operation::Discard, 1, 4096),
    ] {
        disk.submit(&request).unwrap();
    }
    disk.ring();
    assert_eq!(answers(&mut disk), [4, 5].map(|tag| (tag, Err(Failed))));
    let commands = controller.0.borrow().commands.clone();
    let seen: Vec<_> =
        commands.iter().map(|c| (c.opcode, c.block, c.blocks, c.pieces[0])).collect();
    // A discard has a number of ranges from 0 on, and what is done with them.
    let discard = (9, 4 << 32, 1, (3 << 32, 2));
    assert_eq!(seen, [discard, (8, 1 << 29, 1 << 15, (0, 0)), (8, 1, 1, (1, 0))]);
    for optional in [0, 1 << 2, 1 << 3] {
        let controller = Controller::with(|s| s.optional = optional);
        let info = *controller.open().unwrap().info();
        assert_eq!((info.discard > 0, info.zero > 0), (optional == 4, optional == 8));
    }
}

/// Each size at each start in a page: the controller finds just the request's bytes.
#[test]
fn pointers_lead_to_all_bytes() {
    let controller = Controller::with(|s| s.format = 9 << 16);
    let mut disk = controller.open().unwrap();
    for size in (1..=256).filter(|size| size % 8 < 2 || *size > 250) {
        for start in (0..4096).step_by(508).chain([4092]) {
            let (address, len) = (DATA + start, 512 * size);
            // Some requests more, so that each slot has its turn.
            for tag in 0..disk.info().depth {
                disk.submit(&Request { address, ..read(tag, 0, len) }).unwrap();
            }
            disk.ring();
            let commands = std::mem::take(&mut controller.0.borrow_mut().commands);
            for command in commands {
                let mut next = address;
                for (at, len) in &command.pieces {
                    assert_eq!(*at, next);
                    next += len;
                }
                assert_eq!(next, address + u64::from(len));
                controller.0.borrow_mut().post(false, command.identifier, 0);
            }
            assert_eq!(answers(&mut disk).len(), disk.info().depth.into());
        }
    }
}

/// Thousands of requests in queues of several sizes: rings and phases wrap.
#[test]
fn rings_wrap() {
    for entries in [2, 3, 7, 64, 0x1_0000] {
        let controller = Controller::with(|s| s.cap = CAP & !0xFFFF | (entries - 1));
        let mut disk = controller.open().unwrap();
        let mut random = SplitMix64(entries);
        let (mut given, mut got) = (Vec::new(), 0u32);
        for n in 0..20_000u32 {
            let request = read(n as u16, 8 * u64::from(n), 4096);
            while disk.submit(&request) == Err(Full) {
                disk.ring();
                let count = controller.0.borrow().commands.len() as u64;
                assert_eq!(count, u64::from(disk.info().depth));
                for left in (1..=count).rev().take(1 + random.below(count) as usize) {
                    controller.finish(random.below(left) as usize, 0);
                }
                for (tag, result) in answers(&mut disk) {
                    let place = given.iter().position(|&other| other == tag).expect("a tag");
                    given.remove(place);
                    got += 1;
                    assert_eq!(result, Ok(()));
                }
            }
            given.push(n as u16);
        }
        assert!(got > 19_000 && disk.fault().is_none());
    }
}

type Change = fn(&mut State);

/// Each lie makes the disk silent, and a reset mends it.
#[test]
fn lies_make_it_silent_until_a_reset() {
    let lies: [(&str, Change); 4] = [
        ("no command", |s| s.post(false, 2, 0)),
        ("no slot", |s| s.post(false, 0xFFFF, 0)),
        ("a command twice", |s| {
            s.post(false, 0, 0);
            s.post(false, 0, 0);
        }),
        ("another queue", |s| {
            s.post(false, 0, 0);
            let at = s.io.completion + 10;
            s.ram.store(at, 2, 2);
        }),
    ];
    for (name, lie) in lies {
        let controller = Controller::new();
        let mut disk = controller.open().unwrap();
        disk.submit(&read(1, 0, 4096)).unwrap();
        disk.submit(&read(2, 8, 4096)).unwrap();
        disk.ring();
        disk.submit(&read(3, 8, 4096)).unwrap();
        lie(&mut controller.0.borrow_mut());
        answers(&mut disk);
        assert!(matches!(disk.fault(), Some(Wrong::Lies(_))), "{name}");
        // It takes requests as a controller that hangs.
        disk.submit(&read(4, 0, 4096)).unwrap();
        disk.ring();
        assert_eq!((answers(&mut disk), controller.0.borrow().rung), (vec![], 1), "{name}");
        disk.reset().unwrap();
        assert_eq!((disk.fault(), answers(&mut disk)), (None, vec![]));
        disk.submit(&read(5, 0, 4096)).unwrap();
        disk.ring();
        controller.finish(0, 0);
        assert_eq!(answers(&mut disk), [(5, Ok(()))], "{name}");
    }
}

#[test]
fn a_reset_has_a_limit() {
    let controller = Controller::new();
    let mut disk = controller.open().unwrap();
    let mut limited = |change: Change, undo: Change, text| {
        change(&mut controller.0.borrow_mut());
        let start = controller.1.0.get();
        assert_eq!(disk.reset(), Err(Failed));
        assert!(controller.1.0.get() - start < LIMIT + 8 * TICK);
        assert_eq!(disk.fault(), Some(Wrong::Silent(text)));
        assert_eq!(controller.0.borrow().cc, 0);
        undo(&mut controller.0.borrow_mut());
    };
    limited(|s| s.stuck = true, |s| s.stuck = false, "end of its reset");
    limited(|s| s.unready = true, |s| s.unready = false, "readiness");
    assert_eq!(disk.reset(), Ok(()));
    // Another disk in its place is refused.
    controller.0.borrow_mut().blocks = 4;
    assert_eq!(disk.reset(), Err(Failed));
    assert_eq!(controller.0.borrow().cc, 0);
}

#[test]
fn an_impossible_request_fails_without_the_device() {
    let controller = Controller::with(|s| s.blocks = 100);
    let mut disk = controller.open().unwrap();
    let bad = [
        read(0, 0, 0),
        read(1, 0, 512),
        read(2, 1, 4096),
        read(3, 99 * 8, 8192),
        read(4, u64::MAX - 7, 4096),
        read(5, 0, 132 << 10),
        Request { address: DATA + 2, ..read(6, 0, 4096) },
        Request { address: u64::MAX - 3, ..read(7, 0, 4096) },
    ];
    bad.iter().for_each(|request| disk.submit(request).unwrap());
    disk.ring();
    assert_eq!(controller.0.borrow().rung, 0);
    let failed: Vec<_> = (0..8).map(|tag| (tag, Err(Failed))).collect();
    assert_eq!(answers(&mut disk), failed);
}

#[test]
fn controllers_that_are_wrong_are_refused() {
    let refused: [(&str, Change); 19] = [
        ("end of its reset", |s| s.stuck = true),
        ("readiness", |s| s.unready = true),
        ("NVM command set", |s| s.cap &= !(1 << 37)),
        ("pages of 4096", |s| s.cap |= 1 << 48),
        ("doorbells", |s| s.cap |= 0xF << 32),
        ("identify the controller in time", |s| s.deaf = true),
        ("identify the controller with status 0x1", |s| s.fails = Some(6)),
        ("set the number of queues", |s| s.fails = Some(9)),
        ("make a completion queue", |s| s.fails = Some(5)),
        ("make a submission queue", |s| s.fails = Some(1)),
        ("command in the admin", |s| s.lies = 1 << 35),
        ("queue in the admin", |s| s.lies = 1 << 17),
        ("namespaces", |s| s.namespaces = 0),
        ("namespace 1", |s| s.blocks = 0),
        ("namespace 1", |s| s.format |= 8),
        ("size of a block", |s| s.format = 8 << 16),
        ("size of a block", |s| s.format = 0xFF << 16),
        ("size", |s| s.blocks = u64::MAX),
        ("most bytes", |s| (s.transfer, s.format) = (1, 14 << 16)),
    ];
    for (text, wrong) in refused {
        let controller = Controller::with(wrong);
        let error = controller.open().map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(text), "{text}: {error}");
        assert!(controller.0.borrow().cc == 0 || text == "doorbells", "{text}: it is still on");
    }
    let small = Controller::with(|s| s.ram = Ram::new(MEMORY - 8));
    assert_eq!(small.open().map(|_| ()).unwrap_err(), Wrong::Lacks("memory for its queues"));
}

/// A controller that writes anything into the memory causes no panic, and no tag that is not under way.
#[test]
fn anything_in_memory_is_survived() {
    let (mut faults, mut answered) = (0, 0);
    for seed in 0..600 {
        let mut random = SplitMix64(seed);
        let entries = 1 + random.below(63);
        let controller = Controller::with(|s| {
            (s.cap, s.format) = (CAP & !0xFFFF | entries, 9 << 16);
        });
        let mut disk = controller.open().unwrap();
        let (mut given, mut faulty) = (Vec::new(), false);
        for _ in 0..30 {
            controller.0.borrow_mut().deaf = true;
            let request = any(&mut random, 1 << 20);
            if disk.submit(&request).is_ok() {
                given.push(request.tag);
            }
            disk.ring();
            if random.below(4) == 0 {
                let state = controller.0.borrow_mut();
                if random.below(2) == 0 {
                    state.ram.scribble(&mut random);
                } else {
                    for n in 0..=entries {
                        let identifier = random.below(4 + entries);
                        let word = identifier << 32 | random.below(2) << 48 | 1 << 16;
                        state.ram.store(state.io.completion + 16 * n + 8, 8, word);
                    }
                }
            } else if random.below(8) == 0 {
                controller.0.borrow_mut().deaf = false;
                disk.reset().unwrap();
                given.clear();
            }
            for (tag, _) in answers(&mut disk) {
                let place = given.iter().position(|&other| other == tag).expect("a tag under way");
                given.remove(place);
                answered += 1;
            }
            faulty |= disk.fault().is_some();
        }
        faults += u32::from(faulty);
    }
    assert!(faults > 300 && answered > 1000, "{faults} {answered}");
}
