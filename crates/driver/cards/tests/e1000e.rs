//! The driver of Intel's 82574 with a card made from its datasheet (rev. 3.4).

mod fake;

use bulkhead_cards::{Card, E1000e, HEADER, LONGEST, PLACES, Received, Registers, Wrong};
use bulkhead_random::SplitMix64;
use fake::{CLIENT, Ram, Time, frame};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
const CTRL: u64 = 0;
const STATUS: u64 = 8;
const ICR: u64 = 0xC0;
const IMS: u64 = 0xD0;
const IMC: u64 = 0xD8;
const RCTL: u64 = 0x100;
const TCTL: u64 = 0x400;
const RECEIVE: u64 = 0x2800;
const SEND: u64 = 0x3800;

struct State {
    ram: Ram,
    registers: BTreeMap<u64, u32>,
    mask: u32,
    mac: [u8; 6],
    link: bool,
    /// Its reset, or its accesses to memory, don't end.
    stuck: bool,
    busy: bool,
    resets: u32,
    out: Vec<Vec<u8>>,
}

impl State {
    fn register(&self, at: u64) -> u32 {
        self.registers.get(&at).copied().unwrap_or(0)
    }

    fn ring(&self, ring: u64) -> (u64, u32, u32) {
        let base = u64::from(self.register(ring)) | u64::from(self.register(ring + 4)) << 32;
        assert_eq!(self.register(ring + 8), 4096);
        (base, self.register(ring + 0x10), self.register(ring + 0x18))
    }

    /// Sends all descriptors up to the tail.
    fn send(&mut self) {
        assert!(self.register(TCTL) & 2 != 0);
        let (base, mut head, tail) = self.ring(SEND);
        let mut packet = Vec::new();
        while head != tail {
            let at = base + 16 * u64::from(head);
            let (buffer, word) = (self.ram.load(at, 8), self.ram.load(at + 8, 8));
            let len = word as u16 as usize;
            assert!(len > 0 && word >> 32 & 1 == 0, "{word:#x}");
            packet.extend(self.ram.bytes_at(buffer, len));
            // Command: end, check sequence, report.
            if word >> 24 & 1 != 0 {
                assert_eq!(word >> 24 & 0xFF, 0b1011);
                self.out.push(std::mem::take(&mut packet));
            }
            self.ram.store(at + 8, 8, word | if word >> 27 & 1 != 0 { 1 << 32 } else { 0 });
            head = (head + 1) % 256;
        }
        assert!(packet.is_empty());
        self.registers.insert(SEND + 0x10, head);
    }

    /// Receives into one descriptor, if there is one.
    fn receive(&mut self, bytes: &[u8], status: u64) -> bool {
        assert!(self.register(RCTL) & 2 != 0);
        let (base, head, tail) = self.ring(RECEIVE);
        if head == tail {
            return false;
        }
        let at = base + 16 * u64::from(head);
        self.ram.put(self.ram.load(at, 8), bytes);
        self.ram.store(at + 8, 8, bytes.len() as u64 | status << 32);
        self.registers.insert(RECEIVE + 0x10, (head + 1) % 256);
        true
    }
}

/// A descriptor is done; a packet ends.
const DONE: u64 = 1;
const END: u64 = 2;

#[derive(Clone)]
struct Device(Rc<RefCell<State>>, Time);

impl Device {
    fn with(change: impl FnOnce(&mut State)) -> Self {
        let mut state = State {
            ram: Ram::new(),
            registers: BTreeMap::from([(RCTL, 2), (RECEIVE + 0x10, 17)]),
            mask: u32::MAX,
            mac: MAC,
            link: true,
            stuck: false,
            busy: false,
            resets: 0,
            out: Vec::new(),
        };
        change(&mut state);
        Self(Rc::new(RefCell::new(state)), Time::default())
    }

    fn open(&self) -> Result<E1000e<Self, Ram, Time>, Wrong> {
        let ram = self.0.borrow().ram.clone();
        E1000e::new(self.clone(), ram, self.1.clone(), 2)
    }

    fn receive(&self, bytes: &[u8]) -> bool {
        self.0.borrow_mut().receive(bytes, DONE | END)
    }
}

impl Registers for Device {
    fn bytes(&self) -> u64 {
        0x2_0000
    }
    fn read8(&self, _: u64) -> u8 {
        panic!("registers have 32 bits")
    }
    fn read16(&self, _: u64) -> u16 {
        panic!("registers have 32 bits")
    }
    fn read32(&self, at: u64) -> u32 {
        let state = self.0.borrow();
        let [a, b, c, d, e, f] = state.mac;
        match at {
            CTRL if state.stuck => state.register(CTRL) | 1 << 26,
            STATUS => {
                let master = state.busy || state.register(CTRL) & 1 << 2 == 0;
                u32::from(state.link) << 1 | u32::from(master) << 19
            }
            0x5400 => u32::from_le_bytes([a, b, c, d]),
            0x5404 => u32::from_le_bytes([e, f, 0, 0x80]),
            _ => state.register(at),
        }
    }
    fn write8(&self, _: u64, _: u8) {
        panic!("registers have 32 bits")
    }
    fn write16(&self, _: u64, _: u16) {
        panic!("registers have 32 bits")
    }
    fn write32(&self, at: u64, value: u32) {
        let mut state = self.0.borrow_mut();
        match at {
            CTRL if value & 1 << 26 != 0 => {
                assert!(state.register(RCTL) & 2 == 0, "a reset while it receives");
                state.registers = BTreeMap::from([(CTRL, value & !(1 << 26))]);
                state.mask = 0;
                state.resets += 1;
            }
            IMS => state.mask |= value,
            IMC => state.mask &= !value,
            ICR => {
                let causes = state.register(ICR) & !value;
                state.registers.insert(ICR, causes);
            }
            _ => {
                state.registers.insert(at, value);
            }
        }
    }
}

fn read(card: &impl Card, got: Received) -> Vec<u8> {
    let words = (0..(HEADER + got.len).div_ceil(8)).map(|n| card.read(got.buffer, 8 * n));
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes[HEADER..HEADER + got.len].to_vec()
}

#[test]
fn it_is_reset_and_set_up() {
    let device = Device::with(|_| {});
    let card = device.open().unwrap();
    assert_eq!((card.mac(), card.link()), (MAC, true));
    let state = device.0.borrow();
    assert_eq!((state.resets, state.mask), (1, 0));
    // On, all addresses, buffers of 2,048 bytes; each cause by vector 2; a reset leaves the memory within reach.
    assert_eq!(state.register(RCTL) & 0x0003_8022, 0x8002);
    assert_eq!(state.register(RCTL) & 0x18, 0x18);
    assert_eq!(state.register(0xE4), 0xA0A0A);
    assert_eq!(state.register(CTRL) & 1 << 2, 0);
}

#[test]
fn it_is_refused_without_what_it_needs() {
    let wrong = |change: fn(&mut State)| Device::with(change).open().map(drop).unwrap_err();
    assert_eq!(wrong(|state| state.mac = [0; 6]), Wrong::Lacks("address"));
    assert_eq!(wrong(|state| state.mac = [0xFF; 6]), Wrong::Lacks("address"));
    assert_eq!(wrong(|state| state.stuck = true), Wrong::Silent("end of its reset"));
    let busy = Wrong::Silent("end of its accesses to memory");
    assert_eq!(wrong(|state| state.busy = true), busy);
}

#[test]
fn frames_are_sent_from_both_places() {
    let device = Device::with(|_| {});
    let mut card = device.open().unwrap();
    let whole = frame(1514, 3);
    let rest: Vec<u8> = (0x105..0x105 + 1500).map(|n| n as u8).collect();
    for _ in 0..300 {
        let one = card.send(&whole, None).unwrap();
        let two = card.send(&whole[..14], Some((CLIENT + 0x105, 1500))).unwrap();
        // It is not looked for before the card is told.
        assert_eq!(card.sent(), None);
        card.ring();
        assert_eq!(card.sent(), None);
        device.0.borrow_mut().send();
        let out = std::mem::take(&mut device.0.borrow_mut().out);
        assert_eq!(out, [whole.clone(), [&whole[..14], &rest].concat()]);
        assert_eq!([card.sent(), card.sent(), card.sent()], [Some(one), Some(two), None]);
    }
    let places = std::iter::from_fn(|| card.send(&whole, None)).count();
    assert_eq!(places, PLACES - 1);
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
        // Another's buffer changes nothing.
        card.give_back(got.buffer ^ 1);
        card.give_back(got.buffer);
        card.ring();
    }
    // A ring's worth at once; what finds no descriptor is lost.
    let came = (0..).take_while(|n| device.receive(&frame(60, *n as u8))).count();
    assert_eq!(came, 255);
    for n in 0..came {
        let got = card.receive().unwrap();
        assert_eq!(read(&card, got), frame(60, n as u8));
        card.give_back(got.buffer);
    }
    card.ring();
    assert!(device.receive(&frame(60, 1)));
}

#[test]
fn what_is_no_frame_is_dropped() {
    let device = Device::with(|_| {});
    let mut card = device.open().unwrap();
    let part = |bytes: &[u8], status| assert!(device.0.borrow_mut().receive(bytes, status));
    // A frame over three buffers, one with an error, one of no length, one too long.
    part(&frame(2048, 1), DONE);
    part(&frame(2048, 2), DONE);
    part(&frame(100, 3), DONE | END);
    part(&frame(100, 4), DONE | END | 1 << 8);
    part(&[], DONE | END);
    part(&frame(LONGEST + 1, 5), DONE | END);
    part(&frame(64, 6), DONE | END);
    let got = card.receive().unwrap();
    assert_eq!(read(&card, got), frame(64, 6));
    assert_eq!(card.fault(), None);
}

#[test]
fn a_length_that_cannot_be_makes_it_silent_until_a_reset() {
    let device = Device::with(|_| {});
    let mut card = device.open().unwrap();
    device.receive(&frame(60, 0));
    let ram = device.0.borrow().ram.clone();
    ram.store(fake::OWN + 8, 2, 2049);
    assert_eq!(card.receive(), None);
    assert_eq!(card.fault(), Some(Wrong::Lies("length of a packet")));
    assert_eq!((card.sent(), card.send(&frame(60, 1), None)), (None, None));
    card.reset().unwrap();
    assert!(device.receive(&frame(60, 9)));
    assert_eq!(card.receive().map(|got| got.len), Some(60));
}

#[test]
fn it_interrupts_only_where_it_shall() {
    let device = Device::with(|_| {});
    let mut card = device.open().unwrap();
    device.0.borrow_mut().registers.insert(ICR, 1 << 20 | 1 << 24);
    card.interrupts(true);
    let state = device.0.borrow();
    assert_eq!((state.mask, state.register(ICR)), (1 << 20 | 1 << 22, 1 << 24));
    drop(state);
    card.interrupts(false);
    assert_eq!(device.0.borrow().mask, 0);
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
