//! The driver of virtio block devices with a device made from the specification (virtio 1.2, 4.1 and 5.2).

mod fake;

use bulkhead_disks::virtio_blk::MEMORY;
use bulkhead_disks::{Configuration, Registers, VirtioBlk, Wrong};
use bulkhead_random::SplitMix64;
use bulkhead_store::disk::{Disk, Failed, Full, Info, Operation, Request};
use fake::{DATA, Ram, TICK, Time, answers, any, flush, read, write};
use std::cell::RefCell;
use std::rc::Rc;

const FEATURES: u64 = 1 << 1 | 1 << 6 | 1 << 9 | 1 << 32 | 1 << 33 | 1 << 28 | 1 << 29 | 1 << 35;
const NEXT: u64 = 1;
const WRITES: u64 = 2;
/// Places of the structures in BAR 4, and its bytes.
const COMMON: u64 = 0x40;
const CONFIG: u64 = 0x100;
const NOTIFY: u64 = 0x204;
const BYTES: u64 = 0x240;
const UNIT: u64 = 8;

/// A request that the device has fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fetched {
    head: u16,
    kind: u32,
    sector: u64,
    data: Option<(u64, u32, bool)>,
    status: u64,
}

/// The device.
struct State {
    ram: Ram,
    offered: u64,
    accepted: u64,
    selects: [u32; 2],
    status: u8,
    /// The status never becomes 0, features are never right, there is no vector, the configuration never rests.
    stuck: bool,
    refuses_features: bool,
    no_vector: bool,
    restless: bool,
    /// It hears no notification.
    deaf: bool,
    generation: u8,
    size: u16,
    vector: u16,
    enabled: bool,
    parts: [u64; 3],
    notify: u16,
    config: [u32; 15],
    fetched: u16,
    used: u16,
    requests: Vec<Fetched>,
    notified: u32,
}

impl State {
    fn fetch(&mut self) {
        assert!(self.status == 15 && self.enabled, "notified before it is ready");
        self.notified += 1;
        let [_, available, _] = self.parts;
        let index = self.ram.load(available + 2, 2) as u16;
        while self.fetched != index {
            let at = available + 4 + 2 * u64::from(self.fetched % self.size);
            let head = self.ram.load(at, 2) as u16;
            let request = self.chain(head);
            self.requests.push(request);
            self.fetched = self.fetched.wrapping_add(1);
        }
    }

    /// Reads a chain as the specification has it: a header, perhaps data, and a status.
    fn chain(&self, head: u16) -> Fetched {
        let (mut parts, mut next) = (Vec::new(), head);
        loop {
            assert!(next < self.size, "descriptor {next} of {}", self.size);
            let at = self.parts[0] + 16 * u64::from(next);
            let flags = self.ram.load(at + 12, 2);
            let len = self.ram.load(at + 8, 4) as u32;
            parts.push((self.ram.load(at, 8), len, flags & WRITES != 0));
            if flags & NEXT == 0 {
                break;
            }
            next = self.ram.load(at + 14, 2) as u16;
        }
        let ((header, 16, false), (status, 1, true)) = (parts[0], parts[parts.len() - 1]) else {
            panic!("{parts:x?}");
        };
        assert!(parts.len() <= 3, "{parts:x?}");
        let (kind, sector) = (self.ram.load(header, 4) as u32, self.ram.load(header + 8, 8));
        assert_eq!(self.ram.load(header + 4, 4), 0);
        let data = (parts.len() == 3).then(|| parts[1]);
        Fetched { head, kind, sector, data, status }
    }

    /// Answers a request, by its place among those fetched.
    fn finish(&mut self, place: usize, status: u8) {
        let request = self.requests.remove(place);
        self.ram.store(request.status, 1, status.into());
        self.put(request.head.into());
    }

    fn put(&mut self, head: u32) {
        let at = self.parts[2] + 4 + 8 * u64::from(self.used % self.size);
        self.ram.store(at, 4, head.into());
        self.ram.store(at + 4, 4, 1);
        self.used = self.used.wrapping_add(1);
        self.ram.store(self.parts[2] + 2, 2, self.used.into());
    }
}

#[derive(Clone)]
struct Device(Rc<RefCell<State>>, Time);

impl Device {
    fn new() -> Self {
        let state = State {
            ram: Ram::new(MEMORY),
            offered: FEATURES,
            accepted: 0,
            selects: [0; 2],
            status: 15,
            stuck: false,
            refuses_features: false,
            no_vector: false,
            restless: false,
            deaf: false,
            generation: 0,
            size: 256,
            vector: 0xFFFF,
            enabled: false,
            parts: [0; 3],
            notify: 3,
            // 2^33 sectors, segments of 70,000 bytes, blocks of 1024 bytes.
            // Ranges of 4096 sectors that are discarded, and of 64 that become zeros.
            config: [0, 2, 70_000, 5, 6, 1024, 0, 0, 0, 4096, 1, 2, 64, 1, 1],
            fetched: 0,
            used: 0,
            requests: Vec::new(),
            notified: 0,
        };
        Self(Rc::new(RefCell::new(state)), Time::default())
    }

    fn with(change: impl FnOnce(&mut State)) -> Self {
        let device = Self::new();
        change(&mut device.0.borrow_mut());
        device
    }

    fn open(&self) -> Result<VirtioBlk<Self, Ram, Time>, Wrong> {
        self.open_by(&Self::configuration())
    }

    fn open_by(&self, space: &Space) -> Result<VirtioBlk<Self, Ram, Time>, Wrong> {
        let bars = |bar| (bar == 4).then(|| self.clone());
        let ram = self.0.borrow().ram.clone();
        VirtioBlk::new(space, bars, ram, self.1.clone(), 7)
    }

    fn finish(&self, place: usize, status: u8) {
        self.0.borrow_mut().finish(place, status);
    }

    /// Capabilities in an odd order: another one, the configuration, notifications, a later common one.
    fn configuration() -> Space {
        let mut space = Space([0xAAAA_AAAA; 64]);
        space.0[0x34 / 4] = 0x98;
        let mut put = |at: usize, kind: u32, next: u32, bar: u32, start: u64, bytes: u32| {
            let words = [9 | next << 8 | 20 << 16 | kind << 24, bar, start as u32, bytes];
            space.0[at / 4..][..4].copy_from_slice(&words);
        };
        // A driver ignores structures in such a BAR.
        put(0xD0, 1, 0x40, 7, COMMON, 0x38);
        put(0x40, 4, 0x60, 4, CONFIG, 0x20);
        put(0x60, 2, 0x80, 4, NOTIFY, 0x3C);
        put(0x80, 1, 0xB0, 4, COMMON, 0x38);
        put(0xB0, 1, 0, 2, 0, 0x38);
        space.0[0x70 / 4] = UNIT as u32;
        space.0[0x98 / 4] = 0x11 | 0xD0 << 8;
        space
    }
}

struct Space([u32; 64]);

impl Configuration for Space {
    fn read(&self, at: u16) -> u32 {
        assert!(at.is_multiple_of(4), "{at:#x}");
        self.0[usize::from(at) / 4]
    }
}

impl Registers for Device {
    fn bytes(&self) -> u64 {
        BYTES
    }

    fn read8(&self, at: u64) -> u8 {
        let mut state = self.0.borrow_mut();
        match at - COMMON {
            0x14 => state.status,
            0x15 => {
                state.generation += u8::from(state.restless);
                state.generation
            }
            at => panic!("{at:#x}"),
        }
    }

    fn read16(&self, at: u64) -> u16 {
        let state = self.0.borrow();
        match at - COMMON {
            0x18 => state.size,
            0x1A if state.no_vector => 0xFFFF,
            0x1A => state.vector,
            0x1E => state.notify,
            at => panic!("{at:#x}"),
        }
    }

    fn read32(&self, at: u64) -> u32 {
        let state = self.0.borrow();
        assert_ne!(state.status & 2, 0, "no driver yet");
        match at {
            CONFIG..0x13C => state.config[(at - CONFIG) as usize / 4],
            _ if at == COMMON + 4 => (state.offered >> (32 * state.selects[0])) as u32,
            _ => panic!("{at:#x}"),
        }
    }

    fn write8(&self, at: u64, value: u8) {
        let mut state = self.0.borrow_mut();
        assert_eq!(at, COMMON + 0x14);
        let wrong = state.refuses_features || state.accepted & !state.offered != 0;
        match value {
            0 if state.stuck => {}
            0 => {
                state.status = 0;
                (state.enabled, state.accepted, state.vector) = (false, 0, 0xFFFF);
                (state.fetched, state.used) = (0, 0);
                state.requests.clear();
            }
            _ => state.status = if wrong { value & !8 } else { value },
        }
    }

    fn write16(&self, at: u64, value: u16) {
        let mut state = self.0.borrow_mut();
        if at == NOTIFY + UNIT * u64::from(state.notify) {
            assert_eq!(value, 0);
            if !state.deaf {
                state.fetch();
            }
            return;
        }
        match at - COMMON {
            0x10 => assert_eq!(value, 0xFFFF),
            0x16 => assert_eq!(value, 0),
            0x18 => {
                assert!(value.is_power_of_two() && value <= state.size);
                state.size = value;
            }
            0x1A => state.vector = value,
            0x1C => {
                assert_eq!((value, state.status), (1, 11));
                assert!(state.parts[0].is_multiple_of(16) && state.parts[2].is_multiple_of(4));
                state.enabled = true;
            }
            at => panic!("{at:#x}"),
        }
    }

    fn write32(&self, at: u64, value: u32) {
        let mut state = self.0.borrow_mut();
        match at - COMMON {
            0x00 => state.selects[0] = value,
            0x08 => state.selects[1] = value,
            0x0C => {
                let shift = 32 * state.selects[1];
                state.accepted =
                    state.accepted & !(0xFFFF_FFFF << shift) | u64::from(value) << shift;
            }
            at @ 0x20..0x38 => {
                let (part, shift) = ((at as usize - 0x20) / 8, at % 8 * 8);
                let old = state.parts[part] & !(0xFFFF_FFFF << shift);
                state.parts[part] = old | u64::from(value) << shift;
            }
            at => panic!("{at:#x}"),
        }
    }
}

type Change = fn(&mut State);

#[test]
fn a_disk_is_described() {
    let device = Device::new();
    let info = *device.open().unwrap().info();
    let most = 69_632;
    let described = Info {
        sectors: 2 << 32,
        block: 1024,
        read_only: false,
        flush: true,
        most,
        depth: 64,
        discard: 0,
        zero: 0,
    };
    assert_eq!(info, described);
    assert_eq!(device.0.borrow().accepted, 1 << 1 | 1 << 6 | 1 << 9 | 3 << 32);
    assert_eq!(device.0.borrow().vector, 7);
    let simple = Device::with(|s| {
        (s.offered, s.size) = (3 << 32 | 1 << 5, 100);
    });
    let info = *simple.open().unwrap().info();
    let described =
        Info { block: 512, read_only: true, flush: false, most: 1 << 20, depth: 21, ..described };
    assert_eq!(info, described);
}

#[test]
fn requests_are_answered_in_any_order() {
    let device = Device::new();
    let mut disk = device.open().unwrap();
    for request in [read(7, 2, 2048), write(900, 4, 1024), flush(3)] {
        disk.submit(&request).unwrap();
    }
    assert!(device.0.borrow().requests.is_empty(), "the device knows of none yet");
    disk.ring();
    disk.ring();
    let requests = device.0.borrow().requests.clone();
    assert_eq!(device.0.borrow().notified, 1);
    let seen: Vec<_> = requests.iter().map(|r| (r.kind, r.sector, r.data)).collect();
    let data = |sector: u64, len, writes| Some((DATA + 512 * sector, len, writes));
    assert_eq!(seen, [(0, 2, data(2, 2048, true)), (1, 4, data(4, 1024, false)), (4, 0, None)]);
    assert_eq!(answers(&mut disk), []);
    device.finish(2, 0);
    device.finish(0, 1);
    assert_eq!(answers(&mut disk), [(3, Ok(())), (7, Err(Failed))]);
    device.finish(0, 2);
    assert_eq!(answers(&mut disk), [(900, Err(Failed))]);
    assert_eq!(disk.fault(), None);
}

const RANGES: u64 = 1 << 13 | 1 << 14;

/// A configuration that is long enough for requests about ranges.
fn long() -> Space {
    let mut space = Device::configuration();
    space.0[0x40 / 4 + 3] = 0x3C;
    space
}

#[test]
fn ranges_are_described_to_the_device() {
    let device = Device::with(|s| s.offered |= RANGES);
    let mut disk = device.open_by(&long()).unwrap();
    assert_eq!((disk.info().discard, disk.info().zero), (4096, 64));
    let range = |tag, operation, sector, len| Request { operation, ..read(tag, sector, len) };
    let zero = |unmap| Operation::Zero { unmap };
    for request in [
        range(1, Operation::Discard, 8, 4096 * 512),
        range(2, zero(false), 10, 64 * 512),
        range(3, zero(true), 12, 1024),
        // Too long, no whole block, and beyond the end.
        range(4, Operation::Discard, 8, 4098 * 512),
        range(5, zero(false), 0, 66 * 512),
        range(6, Operation::Discard, 1, 1024),
        range(7, Operation::Discard, (2 << 32) - 2, 2048),
    ] {
        disk.submit(&request).unwrap();
    }
    disk.ring();
    assert_eq!(answers(&mut disk), [4, 5, 6, 7].map(|tag| (tag, Err(Failed))));
    let state = device.0.borrow();
    let seen: Vec<_> = state.requests.iter().map(|r| (r.kind, r.sector, r.data.unwrap())).collect();
    let expected = [(11, 8, 4096u64), (13, 10, 64), (13, 12, 2 | 1 << 32)];
    for ((kind, sector, (at, len, writes)), (of, first, rest)) in seen.into_iter().zip(expected) {
        assert_eq!((kind, sector, len, writes), (of, 0, 16, false));
        assert_eq!((state.ram.load(at, 8), state.ram.load(at + 8, 8)), (first, rest));
    }
    assert_eq!(state.requests.len(), 3);
}

#[test]
fn a_disk_without_ranges_has_none() {
    // They are not offered, or the configuration ends before it describes them.
    for (offered, space) in [(0, long()), (RANGES, Device::configuration())] {
        let device = Device::with(|s| s.offered |= offered);
        let mut disk = device.open_by(&space).unwrap();
        assert_eq!((disk.info().discard, disk.info().zero), (0, 0));
        assert_eq!(device.0.borrow().accepted & RANGES, 0);
        disk.submit(&Request { operation: Operation::Discard, ..read(1, 0, 1024) }).unwrap();
        disk.ring();
        assert_eq!(answers(&mut disk), [(1, Err(Failed))]);
    }
}

/// A request without a new status failed, although its slot has an old one.
#[test]
fn an_old_status_is_no_answer() {
    let device = Device::new();
    let mut disk = device.open().unwrap();
    disk.submit(&read(1, 0, 1024)).unwrap();
    disk.ring();
    device.finish(0, 0);
    assert_eq!(answers(&mut disk), [(1, Ok(()))]);
    disk.submit(&read(2, 0, 1024)).unwrap();
    disk.ring();
    device.0.borrow_mut().put(0);
    assert_eq!(answers(&mut disk), [(2, Err(Failed))]);
}

/// It says if it wants interrupts, also after a reset, and keeps the ring around that.
#[test]
fn interrupts_are_wanted_or_not() {
    let device = Device::new();
    let mut disk = device.open().unwrap();
    let flags = || {
        let state = device.0.borrow();
        (state.ram.load(state.parts[1], 2), state.ram.load(state.parts[1] + 2, 2))
    };
    disk.submit(&read(1, 0, 1024)).unwrap();
    disk.ring();
    assert_eq!(flags(), (0, 1));
    disk.interrupts(false);
    assert_eq!(flags(), (1, 1));
    disk.reset().unwrap();
    assert_eq!(flags(), (1, 0));
    disk.interrupts(true);
    assert_eq!(flags(), (0, 0));
}

/// Thousands of requests in queues of all sizes: all rings and indices wrap.
#[test]
fn rings_wrap() {
    for size in [4, 8, 64, 256, 1000] {
        let device = Device::with(|s| s.size = size);
        let mut disk = device.open().unwrap();
        let mut random = SplitMix64(size.into());
        let (mut given, mut got) = (Vec::new(), 0u32);
        for n in 0..70_000u32 {
            let request = read(n as u16, 2 * u64::from(n), 1024);
            while disk.submit(&request) == Err(Full) {
                disk.ring();
                let count = device.0.borrow().requests.len() as u64;
                assert_eq!(count, u64::from(disk.info().depth));
                for left in (1..=count).rev().take(1 + random.below(count) as usize) {
                    device.finish(random.below(left) as usize, 0);
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
        assert!(got > 65_536 && disk.fault().is_none());
    }
}

#[test]
fn an_impossible_request_fails_without_the_device() {
    let device = Device::with(|s| s.config[..6].copy_from_slice(&[100, 0, 70_000, 0, 0, 1024]));
    let mut disk = device.open().unwrap();
    let bad = [
        read(0, 0, 0),
        read(1, 0, 512),
        read(2, 1, 1024),
        read(3, 98, 2048),
        read(4, 100, 1024),
        read(5, u64::MAX - 1, 1024),
        read(6, 0, 70 * 1024),
        bulkhead_store::disk::Request { address: DATA + 2, ..read(7, 0, 1024) },
        bulkhead_store::disk::Request { address: u64::MAX - 3, ..read(8, 0, 1024) },
    ];
    bad.iter().for_each(|request| disk.submit(request).unwrap());
    disk.submit(&read(9, 98, 1024)).unwrap();
    disk.ring();
    assert_eq!(device.0.borrow().requests.len(), 1);
    let failed: Vec<_> = (0..9).map(|tag| (tag, Err(Failed))).collect();
    assert_eq!(answers(&mut disk), failed);
    let device = Device::with(|s| s.offered = 3 << 32 | 1 << 5);
    let mut disk = device.open().unwrap();
    disk.submit(&write(1, 0, 512)).unwrap();
    disk.submit(&flush(2)).unwrap();
    disk.ring();
    assert_eq!(device.0.borrow().notified, 0);
    assert_eq!(answers(&mut disk), [(1, Err(Failed)), (2, Ok(()))]);
}

/// Each lie makes the disk silent, and a reset mends it.
#[test]
fn lies_make_it_silent_until_a_reset() {
    let lies: [(&str, Change); 6] = [
        ("an index too far", |s| s.ram.store(s.parts[2] + 2, 2, 3)),
        ("an index that goes back", |s| s.ram.store(s.parts[2] + 2, 2, 0xFFFF)),
        ("no head", |s| s.put(1)),
        ("no request's head", |s| s.put(6)),
        ("no descriptor", |s| s.put(u32::MAX)),
        ("a head twice", |s| {
            s.put(0);
            s.put(0);
        }),
    ];
    for (name, lie) in lies {
        let device = Device::new();
        let mut disk = device.open().unwrap();
        disk.submit(&read(1, 0, 1024)).unwrap();
        disk.submit(&read(2, 2, 1024)).unwrap();
        disk.ring();
        lie(&mut device.0.borrow_mut());
        answers(&mut disk);
        assert!(matches!(disk.fault(), Some(Wrong::Lies(_))), "{name}");
        // It takes requests as a device that hangs.
        disk.submit(&read(3, 0, 1024)).unwrap();
        disk.ring();
        assert_eq!((answers(&mut disk), device.0.borrow().notified), (vec![], 1), "{name}");
        disk.reset().unwrap();
        assert_eq!((disk.fault(), answers(&mut disk)), (None, vec![]));
        disk.submit(&read(4, 0, 1024)).unwrap();
        disk.ring();
        device.finish(0, 0);
        assert_eq!(answers(&mut disk), [(4, Ok(()))], "{name}");
    }
}

/// A request that the device was not told of cannot be done.
#[test]
fn an_answer_before_the_question_is_a_lie() {
    let device = Device::new();
    let mut disk = device.open().unwrap();
    disk.submit(&read(1, 0, 1024)).unwrap();
    device.0.borrow_mut().put(0);
    assert_eq!(answers(&mut disk), []);
    assert_eq!(disk.fault(), Some(Wrong::Lies("index of the used ring")));
}

#[test]
fn a_reset_has_a_limit() {
    let device = Device::new();
    let mut disk = device.open().unwrap();
    device.0.borrow_mut().stuck = true;
    let start = device.1.0.get();
    assert_eq!(disk.reset(), Err(Failed));
    assert!(device.1.0.get() - start < 5_000_000_000 + 4 * TICK);
    assert_eq!(disk.fault(), Some(Wrong::Silent("end of its reset")));
    device.0.borrow_mut().stuck = false;
    assert_eq!(disk.reset(), Ok(()));
    // Another disk in its place is refused, and switched off.
    device.0.borrow_mut().config[0] = 4;
    assert_eq!(disk.reset(), Err(Failed));
    assert_eq!(device.0.borrow().status, 0);
}

#[test]
fn devices_that_are_wrong_are_refused() {
    let refused: [(&str, Change); 12] = [
        ("end of its reset", |s| s.stuck = true),
        ("VERSION_1", |s| s.offered &= !(1 << 32)),
        ("ACCESS_PLATFORM", |s| s.offered &= !(1 << 33)),
        ("use for its own features", |s| s.refuses_features = true),
        ("vector", |s| s.no_vector = true),
        ("configuration that stays", |s| s.restless = true),
        ("size of a block", |s| s.config[5] = 0),
        ("size of a block", |s| s.config[5] = 1536),
        ("size of a block", |s| s.config[5] = 1 << 31),
        ("most bytes", |s| s.config[2] = 1023),
        ("queue for a request", |s| s.size = 2),
        ("notification", |s| s.notify = 8),
    ];
    for (text, wrong) in refused {
        let error = Device::with(wrong).open().map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(text), "{text}: {error}");
    }
    let spaces: [(&str, usize, u32); 9] = [
        ("common", 0x34, 0),
        ("common", 0x34, 0xFC),
        ("common", 0x84, 2),
        ("common", 0x88, 0x220),
        ("common", 0x88, 0x42),
        ("common", 0x88, 0xFFFF_FFFC),
        ("common", 0x8C, 0x37),
        ("place for notifications", 0x60, 9 | 0x80 << 8),
        // A list that goes round.
        ("place for notifications", 0x60, 9 | 0x40 << 8),
    ];
    for (text, at, value) in spaces {
        let mut space = Device::configuration();
        space.0[at / 4] = value;
        if text.starts_with("place") {
            space.0[0x34 / 4] = 0x80;
            space.0[0x80 / 4] = 9 | 0x40 << 8 | 1 << 24;
        }
        let error = Device::new().open_by(&space).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(text), "{at:#x} {text}: {error}");
    }
    let device = Device::with(|s| s.ram = Ram::new(MEMORY - 8));
    assert_eq!(device.open().map(|_| ()).unwrap_err(), Wrong::Lacks("memory for its queues"));
}

/// A device that writes anything into the queue's memory causes no panic, and no tag that is not under way.
#[test]
fn anything_in_memory_is_survived() {
    let (mut faults, mut answered) = (0, 0);
    for seed in 0..600 {
        let mut random = SplitMix64(seed);
        let device = Device::with(|s| {
            (s.size, s.deaf, s.config[5]) = (4 << random.below(7), true, 512);
        });
        let mut disk = device.open().unwrap();
        let (mut given, mut faulty) = (Vec::new(), false);
        for _ in 0..30 {
            let request = any(&mut random, 1 << 20);
            if disk.submit(&request).is_ok() {
                given.push(request.tag);
            }
            disk.ring();
            if random.below(4) == 0 {
                let mut state = device.0.borrow_mut();
                if random.below(2) == 0 {
                    state.ram.scribble(&mut random);
                } else {
                    state.put(3 * random.below(4) as u32);
                }
            } else if disk.fault().is_none() && random.below(8) == 0 {
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
