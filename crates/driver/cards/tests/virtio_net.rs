//! The driver of virtio network devices with a device made from the specification (virtio 1.2, 4.1 and 5.1).

mod fake;

use bulkhead_cards::{
    Card, Configuration, HEADER, LONGEST, PLACES, Received, Registers, StrictNet, VirtioNet, Wrong,
};
use bulkhead_random::SplitMix64;
use fake::{CLIENT, OWN, Ram, Time, frame};
use std::cell::RefCell;
use std::rc::Rc;

const FEATURES: u64 = 1 << 5 | 1 << 16 | 1 << 32 | 1 << 33 | 1 << 0 | 1 << 15 | 1 << 17 | 1 << 29;
const ACCEPTED: u64 = 1 << 5 | 1 << 16 | 1 << 32 | 1 << 33;
const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
const RECEIVE: usize = 0;
const SEND: usize = 1;
/// Places of the structures in BAR 4, and its bytes.
const COMMON: u64 = 0x40;
const CONFIG: u64 = 0x100;
const NOTIFY: u64 = 0x200;
const BYTES: u64 = 0x240;

#[derive(Clone, Copy, Default)]
struct Queue {
    size: u16,
    vector: u16,
    enabled: bool,
    parts: [u64; 3],
    fetched: u16,
    used: u16,
    notified: u32,
}

struct State {
    ram: Ram,
    offered: u64,
    accepted: u64,
    selects: [u32; 2],
    status: u8,
    stuck: bool,
    selected: usize,
    queues: [Queue; 2],
    most: u16,
    mac: [u8; 6],
    link: u16,
    /// Frames that the device has sent.
    out: Vec<Vec<u8>>,
}

impl State {
    fn ready(&self) {
        assert!(self.status == 15 && self.queues.iter().all(|queue| queue.enabled));
    }

    /// The next head of a queue.
    fn fetch(&mut self, number: usize) -> Option<u16> {
        let queue = &mut self.queues[number];
        let [_, available, _] = queue.parts;
        if queue.fetched == self.ram.load(available + 2, 2) as u16 {
            return None;
        }
        let at = available + 4 + 2 * u64::from(queue.fetched % queue.size);
        queue.fetched = queue.fetched.wrapping_add(1);
        Some(self.ram.load(at, 2) as u16)
    }

    /// A descriptor: address, length, flags, next.
    fn descriptor(&self, queue: usize, number: u16) -> (u64, usize, u64, u16) {
        assert!(number < self.queues[queue].size);
        let at = self.queues[queue].parts[0] + 16 * u64::from(number);
        let ram = &self.ram;
        let next = ram.load(at + 14, 2) as u16;
        (ram.load(at, 8), ram.load(at + 8, 4) as usize, ram.load(at + 12, 2), next)
    }

    fn use_up(&mut self, number: usize, head: u32, len: u32) {
        let queue = &mut self.queues[number];
        let at = queue.parts[2] + 4 + 8 * u64::from(queue.used % queue.size);
        self.ram.store(at, 4, head.into());
        self.ram.store(at + 4, 4, len.into());
        queue.used = queue.used.wrapping_add(1);
        self.ram.store(queue.parts[2] + 2, 2, queue.used.into());
    }

    /// Sends all that is there, as the specification has a packet: a header of zeros, then the frame.
    fn send(&mut self) {
        while let Some(head) = self.fetch(SEND) {
            let (mut packet, mut next) = (Vec::new(), head);
            loop {
                let (at, len, flags, more) = self.descriptor(SEND, next);
                assert!(flags & 2 == 0 && len > 0);
                packet.extend(self.ram.bytes_at(at, len));
                if flags & 1 == 0 {
                    break;
                }
                next = more;
            }
            assert_eq!(packet[..HEADER], [0; HEADER]);
            self.out.push(packet.split_off(HEADER));
            self.use_up(SEND, head.into(), 0);
        }
    }

    /// Receives a frame, if there is a buffer.
    fn receive(&mut self, frame: &[u8]) -> bool {
        let Some(head) = self.fetch(RECEIVE) else { return false };
        let (at, len, flags, _) = self.descriptor(RECEIVE, head);
        assert!(flags == 2 && len >= HEADER + frame.len());
        self.ram.put(at, &[&[0; HEADER], frame].concat());
        self.use_up(RECEIVE, head.into(), (HEADER + frame.len()) as u32);
        true
    }
}

#[derive(Clone)]
struct Device(Rc<RefCell<State>>, Time);

impl Device {
    fn with(change: impl FnOnce(&mut State)) -> Self {
        let mut state = State {
            ram: Ram::new(),
            offered: FEATURES,
            accepted: 0,
            selects: [0; 2],
            status: 15,
            stuck: false,
            selected: 0,
            queues: [Queue::default(); 2],
            most: 256,
            mac: MAC,
            link: 1,
            out: Vec::new(),
        };
        change(&mut state);
        Self(Rc::new(RefCell::new(state)), Time::default())
    }

    fn open(&self) -> Result<VirtioNet<Self, Ram, Time>, Wrong> {
        let bars = |bar| (bar == 4).then(|| self.clone());
        let ram = self.0.borrow().ram.clone();
        VirtioNet::new(&Space::new(), bars, ram, self.1.clone(), 3)
    }

    fn send(&self) {
        self.0.borrow_mut().send();
    }

    fn receive(&self, frame: &[u8]) -> bool {
        self.0.borrow_mut().receive(frame)
    }

    fn out(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0.borrow_mut().out)
    }
}

struct Space([u32; 64]);

impl Space {
    fn new() -> Self {
        let mut space = Self([0; 64]);
        space.0[0x34 / 4] = 0x40;
        let places =
            [(0x40, 1, 0x60, COMMON, 0x38), (0x60, 2, 0x80, NOTIFY, 8), (0x80, 4, 0, CONFIG, 12)];
        for (at, kind, next, start, bytes) in places {
            let words = [9 | next << 8 | 20 << 16 | kind << 24, 4, start as u32, bytes];
            space.0[at / 4..][..4].copy_from_slice(&words);
        }
        space.0[0x70 / 4] = 4;
        space
    }
}

impl Configuration for Space {
    fn read(&self, at: u16) -> u32 {
        self.0[usize::from(at) / 4]
    }
}

impl Registers for Device {
    fn bytes(&self) -> u64 {
        BYTES
    }
    fn read8(&self, at: u64) -> u8 {
        let state = self.0.borrow();
        match at {
            0x54 if state.stuck => 1,
            0x54 => state.status,
            0x55 => 0,
            CONFIG..0x106 => state.mac[(at - CONFIG) as usize],
            _ => panic!("{at:#x}"),
        }
    }
    fn read16(&self, at: u64) -> u16 {
        let state = self.0.borrow();
        let queue = &state.queues[state.selected];
        match at {
            0x58 => state.most,
            0x5A => queue.vector,
            0x5E => state.selected as u16,
            0x106 => state.link,
            _ => panic!("{at:#x}"),
        }
    }
    fn read32(&self, at: u64) -> u32 {
        let state = self.0.borrow();
        match (at, state.selects[0]) {
            (0x44, 0) => state.offered as u32,
            (0x44, 1) => (state.offered >> 32) as u32,
            _ => panic!("{at:#x}"),
        }
    }
    fn write8(&self, at: u64, value: u8) {
        assert_eq!(at, 0x54);
        let mut state = self.0.borrow_mut();
        if value == 0 {
            state.queues = [Queue::default(); 2];
        }
        state.status = value;
    }
    fn write16(&self, at: u64, value: u16) {
        let mut state = self.0.borrow_mut();
        let selected = state.selected;
        match at {
            0x50 => assert_eq!(value, 0xFFFF),
            0x56 => state.selected = value.into(),
            0x58 => state.queues[selected].size = value,
            0x5A => state.queues[selected].vector = value,
            0x5C => state.queues[selected].enabled = value == 1,
            0x200 | 0x204 => {
                state.ready();
                let number = ((at - 0x200) / 4) as usize;
                assert_eq!(usize::from(value), number);
                state.queues[number].notified += 1;
            }
            _ => panic!("{at:#x}"),
        }
    }
    fn write32(&self, at: u64, value: u32) {
        let mut state = self.0.borrow_mut();
        let selected = state.selected;
        match at {
            0x40 => state.selects[0] = value,
            0x48 => state.selects[1] = value,
            0x4C => {
                let shift = 32 * state.selects[1];
                state.accepted =
                    state.accepted & !(0xFFFF_FFFF << shift) | u64::from(value) << shift;
            }
            0x60..0x78 => {
                let (part, shift) = ((at - 0x60) / 8, (at - 0x60) % 8 * 8);
                let part = &mut state.queues[selected].parts[part as usize];
                *part = *part & !(0xFFFF_FFFF << shift) | u64::from(value) << shift;
            }
            _ => panic!("{at:#x}"),
        }
    }
}

/// A frame's bytes in the driver's buffer.
fn read(card: &impl Card, got: Received) -> Vec<u8> {
    let words = (0..(HEADER + got.len).div_ceil(8)).map(|n| card.read(got.buffer, 8 * n));
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes[HEADER..HEADER + got.len].to_vec()
}

#[test]
fn it_begins_with_the_features_that_it_knows() {
    let device = Device::with(|_| {});
    let card = device.open().unwrap();
    let state = device.0.borrow();
    assert_eq!((state.accepted, state.status, card.mac()), (ACCEPTED, 15, MAC));
    for queue in &state.queues {
        assert_eq!((queue.size, queue.vector, queue.enabled), (256, 3, true));
        assert!(queue.parts.iter().all(|part| (OWN..OWN + (6 << 12)).contains(part)));
    }
    drop(state);
    assert!(card.link());
    device.0.borrow_mut().link = 0;
    assert!(!card.link());
}

#[test]
fn it_is_refused_without_what_it_needs() {
    let wrong = |change: fn(&mut State)| Device::with(change).open().map(drop).unwrap_err();
    assert_eq!(wrong(|state| state.offered &= !(1 << 32)), Wrong::Lacks("VERSION_1"));
    assert_eq!(wrong(|state| state.offered &= !(1 << 5)), Wrong::Lacks("address"));
    assert_eq!(wrong(|state| state.most = 1), Wrong::Lacks("queue for a request"));
    assert_eq!(wrong(|state| state.stuck = true), Wrong::Silent("end of its reset"));
    let open = wrong(|state| state.offered &= !(1 << 33));
    assert!(matches!(open, Wrong::Lacks(why) if why.starts_with("ACCESS_PLATFORM")));
}

#[test]
fn frames_are_sent_from_both_places() {
    let device = Device::with(|_| {});
    let mut card = device.open().unwrap();
    let whole = frame(1514, 3);
    let one = card.send(&whole, None).unwrap();
    let two = card.send(&whole[..14], Some((CLIENT + 0x105, 1500))).unwrap();
    // The device sees nothing before it is told.
    device.send();
    assert!(device.out().is_empty());
    card.ring();
    device.send();
    let rest: Vec<u8> = (0x105..0x105 + 1500).map(|n| n as u8).collect();
    assert_eq!(device.out(), [whole.clone(), [&whole[..14], &rest].concat()]);
    assert_eq!([card.sent(), card.sent(), card.sent()], [Some(one), Some(two), None]);
    for (head, rest) in [
        (&whole[..13], None),
        (&whole[..14], None),
        (&whole[..14], Some((CLIENT, 0))),
        (&whole[..14], Some((CLIENT, 1523))),
        (&vec![0; LONGEST + 1][..], None),
    ] {
        assert_eq!(card.send(head, rest), None, "{} {rest:?}", head.len());
    }
}

#[test]
fn there_are_so_many_places() {
    let device = Device::with(|_| {});
    let mut card = device.open().unwrap();
    for _ in 0..5 {
        let places: Vec<u16> = std::iter::from_fn(|| card.send(&frame(60, 1), None)).collect();
        let mut unique = places.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!((places.len(), unique.len()), (PLACES, PLACES));
        card.ring();
        device.send();
        assert_eq!(device.out().len(), PLACES);
        assert_eq!(std::iter::from_fn(|| card.sent()).count(), PLACES);
    }
}

#[test]
fn frames_come_and_their_buffers_go_back() {
    let device = Device::with(|_| {});
    let mut card = device.open().unwrap();
    for round in 0..600usize {
        let sent = frame(14 + round % 1500, round as u8);
        assert!(device.receive(&sent), "{round}");
        let got = card.receive().unwrap();
        assert_eq!(read(&card, got), sent);
        assert_eq!(card.receive(), None);
        card.give_back(got.buffer);
        card.ring();
    }
    // A driver that keeps them loses frames, and no more.
    let mut kept = Vec::new();
    while device.receive(&frame(60, 0)) {
        kept.push(card.receive().unwrap().buffer);
    }
    assert_eq!(kept.len(), 256);
    kept.into_iter().for_each(|buffer| card.give_back(buffer));
    card.ring();
    assert!(device.receive(&frame(60, 0)));
}

#[test]
fn what_cannot_be_makes_it_silent_until_a_reset() {
    // A head that it does not have, a second time, an odd place, an index too far on, a packet too long.
    let lies: [fn(&mut State); 5] = [
        |state| state.use_up(RECEIVE, 256, 100),
        |state| {
            state.receive(&frame(60, 0));
            state.use_up(RECEIVE, 0, 100);
        },
        |state| state.use_up(SEND, 1, 0),
        |state| {
            let used = state.queues[RECEIVE].parts[2];
            state.ram.store(used + 2, 2, 300);
        },
        |state| {
            let head = state.fetch(RECEIVE).unwrap();
            state.use_up(RECEIVE, head.into(), 3000);
        },
    ];
    for (n, lie) in lies.into_iter().enumerate() {
        let device = Device::with(|_| {});
        let mut card = device.open().unwrap();
        card.send(&frame(60, 1), None).unwrap();
        card.ring();
        lie(&mut device.0.borrow_mut());
        for _ in 0..4 {
            let _ = (card.sent(), card.receive());
        }
        assert!(matches!(card.fault(), Some(Wrong::Lies(_))), "{n}: {:?}", card.fault());
        assert_eq!(
            (card.sent(), card.receive(), card.send(&frame(60, 1), None)),
            (None, None, None)
        );
        card.reset().unwrap();
        assert!(device.receive(&frame(60, 9)));
        assert_eq!(card.receive().map(|got| got.len), Some(60));
    }
}

#[test]
fn a_frame_of_no_length_is_dropped() {
    let device = Device::with(|_| {});
    let mut card = device.open().unwrap();
    for len in [0, 5, 12] {
        let head = device.0.borrow_mut().fetch(RECEIVE).unwrap();
        device.0.borrow_mut().use_up(RECEIVE, head.into(), len);
    }
    assert_eq!((card.receive(), card.fault()), (None, None));
    // Their buffers went back.
    card.ring();
    assert_eq!((0..).take_while(|_| device.receive(&frame(60, 0))).count(), 256);
}

#[test]
fn a_reset_that_finds_another_card_fails() {
    let device = Device::with(|_| {});
    let mut card = device.open().unwrap();
    device.0.borrow_mut().mac = [2, 0, 0, 0, 0, 1];
    assert!(card.reset().is_err() && card.fault().is_some());
    assert_eq!(device.0.borrow().status, 0);
}

#[test]
fn it_says_when_it_does_not_go_on() {
    let device = Device::with(|_| {});
    let mut card = device.open().unwrap();
    card.check();
    assert_eq!(card.fault(), None);
    device.0.borrow_mut().status |= 64;
    card.check();
    assert_eq!(card.fault(), Some(Wrong::Failed("go on", 79)));
}

#[test]
fn it_interrupts_only_where_it_shall() {
    let device = Device::with(|_| {});
    let mut card = device.open().unwrap();
    let flags = || {
        let state = device.0.borrow();
        state.queues.map(|queue| state.ram.load(queue.parts[1], 2))
    };
    assert_eq!(flags(), [1, 1]);
    card.interrupts(true);
    assert_eq!(flags(), [0, 0]);
    card.reset().unwrap();
    assert_eq!(flags(), [0, 0]);
    card.interrupts(false);
    assert_eq!(flags(), [1, 1]);
}

#[test]
fn whatever_it_writes_no_driver_panics() {
    let mut random = SplitMix64(7);
    for _ in 0..300 {
        let device = Device::with(|_| {});
        let mut card = device.open().unwrap();
        for _ in 0..30 {
            let ram = device.0.borrow().ram.clone();
            ram.scribble(&mut random);
            let _ = (card.send(&frame(60, 1), None), card.sent());
            if let Some(got) = card.receive() {
                assert!(got.len <= LONGEST);
                let _ = read(&card, got);
                card.give_back(got.buffer);
            }
            card.ring();
            if card.fault().is_some() {
                card.reset().unwrap();
            }
        }
    }
}

/// The stricter driver, of a device of its own.
fn strict(device: &Device) -> StrictNet<Device, Ram, Time> {
    let bars = |bar| (bar == 4).then(|| device.clone());
    let ram = device.0.borrow().ram.clone();
    StrictNet::new(&Space::new(), bars, ram, device.1.clone()).unwrap()
}

#[test]
fn the_strict_one_carries_frames_both_ways() {
    let device = Device::with(|_| {});
    let mut card = strict(&device);
    assert_eq!((card.mac(), device.0.borrow().accepted), (MAC, ACCEPTED));
    for n in 0..200u8 {
        let (out, back) = (frame(60 + 7 * usize::from(n), n), frame(1514 - usize::from(n), n));
        let place = card.send(&out, None).unwrap();
        card.ring();
        device.send();
        assert_eq!((device.out(), card.sent(), card.sent()), (vec![out], Some(place), None));
        assert!(device.receive(&back));
        let got = card.receive().unwrap();
        assert_eq!((read(&card, got), card.receive()), (back, None));
        card.give_back(got.buffer);
        card.ring();
    }
    assert_eq!(card.fault(), None);
}

#[test]
fn the_strict_one_has_few_frames_under_way_and_none_of_others() {
    let device = Device::with(|_| {});
    let mut card = strict(&device);
    assert_eq!(card.send(&frame(14, 1), Some((CLIENT, 100))), None);
    assert_eq!((card.send(&[0; 13], None), card.send(&[0; LONGEST + 1], None)), (None, None));
    let taken = (0..100).take_while(|n| card.send(&frame(60, *n), None).is_some()).count();
    assert_eq!(taken, usize::from(bulkhead_cards::strict::SENDS));
    card.ring();
    device.send();
    assert_eq!(std::iter::from_fn(|| card.sent()).count(), taken);
    let come = (0..100).take_while(|n| device.receive(&frame(60, *n))).count();
    assert_eq!(come, usize::from(bulkhead_cards::strict::RECEIVES));
    for n in 0..come as u8 {
        let got = card.receive().unwrap();
        assert_eq!(read(&card, got), frame(60, n));
        card.give_back(got.buffer);
    }
    assert_eq!((card.receive(), card.fault()), (None, None));
}

#[test]
fn the_strict_one_finds_every_difference() {
    // A packet that is too short, too long, or has flags; another order; an index too far on. Then a descriptor, an
    // entry and the index of the available ring are not as they were written.
    let lies: [fn(&mut State); 9] = [
        |state| {
            let head = state.fetch(RECEIVE).unwrap();
            state.use_up(RECEIVE, head.into(), (HEADER + 13) as u32);
        },
        |state| state.use_up(RECEIVE, 0, (HEADER + LONGEST + 1) as u32),
        |state| {
            state.receive(&frame(60, 0));
            let at = state.descriptor(RECEIVE, 0).0;
            state.ram.store(at + 1, 1, 1);
        },
        |state| {
            state.receive(&frame(60, 0));
            let at = state.descriptor(RECEIVE, 0).0;
            state.ram.store(at + 10, 2, 2);
        },
        |state| state.use_up(RECEIVE, 1, 100),
        |state| {
            let used = state.queues[RECEIVE].parts[2];
            state.ram.store(used + 2, 2, 33);
        },
        |state| {
            let at = state.queues[SEND].parts[0];
            state.ram.store(at + 8, 4, 4000);
            state.use_up(SEND, 0, 0);
        },
        |state| {
            let at = state.queues[SEND].parts[1];
            state.ram.store(at + 4, 2, 7);
            state.use_up(SEND, 0, 0);
        },
        |state| {
            let at = state.queues[SEND].parts[1];
            state.ram.store(at + 2, 2, 2);
            state.use_up(SEND, 0, 0);
        },
    ];
    for (n, lie) in lies.into_iter().enumerate() {
        let device = Device::with(|_| {});
        let mut card = strict(&device);
        card.send(&frame(60, 1), None).unwrap();
        card.ring();
        lie(&mut device.0.borrow_mut());
        let _ = (card.sent(), card.receive());
        assert!(matches!(card.fault(), Some(Wrong::Lies(_))), "{n}: {:?}", card.fault());
        assert_eq!(
            (card.sent(), card.receive(), card.send(&frame(60, 1), None)),
            (None, None, None)
        );
        card.reset().unwrap();
        assert!(device.receive(&frame(60, 9)) && card.receive().is_some());
    }
}

#[test]
fn the_strict_one_outlives_garbage() {
    let mut random = SplitMix64(7);
    for _ in 0..300 {
        let device = Device::with(|_| {});
        let mut card = strict(&device);
        let ram = device.0.borrow().ram.clone();
        for n in 0..20 {
            ram.scribble(&mut random);
            let _ = card.send(&frame(60, n), None);
            card.ring();
            if let Some(got) = card.receive() {
                assert!(got.len <= LONGEST);
                card.give_back(got.buffer);
            }
            let _ = card.sent();
        }
        card.reset().unwrap();
        assert!(device.receive(&frame(99, 3)));
        assert_eq!(card.receive().map(|got| got.len), Some(99));
    }
}
