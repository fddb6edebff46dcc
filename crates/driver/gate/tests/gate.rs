//! A gate with clients of both kinds, and a card that does what a test tells it.

use bulkhead_cards::{Card, HEADER, Mac, PLACES, Received, Wrong};
use bulkhead_channel::bell::{Bell, Caller, Ring};
use bulkhead_channel::host::Region;
use bulkhead_channel::page::{Hello, Phase};
use bulkhead_channel::{Bytes, Memory, Word, records};
use bulkhead_gate::{Client, Gate, News, Sections, Terms};
use bulkhead_net::{Limit, Silent, Wire};
use bulkhead_virtio::layout::*;
use bulkhead_virtio::net::{RECEIVE, SEND};
use std::cell::Cell;
use std::rc::Rc;

const SECTION: usize = 1 << 20;
const BUS: u64 = 0xD200_0000;
const PATIENCE: u64 = 1_000_000;
const LIMIT: Limit = Limit { rate: 1000, burst: 4 };
const TERMS: Terms = Terms { share: 8, limit: LIMIT, patience: PATIENCE };
const BYTES: u32 = 16 << 10;
const ALL: Mac = [0xFF; 6];
const HOST: Mac = [0x52, 0x55, 10, 0, 2, 2];

fn mac(n: u8) -> Mac {
    [2, 0, 0, 0, 0, n]
}

fn frame(to: Mac, from: Mac, len: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[8, 0]].concat();
    frame.extend((14..len).map(|n| n as u8));
    frame
}

/// Place of a frame, its first bytes, and where its rest is.
type Taken = (u16, Vec<u8>, Option<(u64, u32)>);

/// A card that keeps frames until it is told to finish them. It reads a frame's rest when that is done.
#[derive(Default)]
struct Fake {
    /// Sections by their bus addresses.
    sections: Vec<(u64, Region)>,
    taken: Vec<Taken>,
    /// Frames that were sent, and places to tell of.
    out: Vec<Vec<u8>>,
    done: Vec<u16>,
    /// Frames that have come, by buffer, and buffers that are the gate's.
    came: Vec<Vec<u8>>,
    next: usize,
    held: usize,
    rung: u32,
    resets: u32,
    dead: bool,
}

impl Fake {
    /// Sends all frames taken.
    fn finish(&mut self) {
        for (place, head, rest) in std::mem::take(&mut self.taken) {
            let mut frame = head;
            if let Some((at, len)) = rest {
                let found = self
                    .sections
                    .iter()
                    .find(|(bus, _)| (*bus..bus + SECTION as u64).contains(&at));
                let (bus, region) = found.expect("an address of a client's section");
                let at = (at - bus) as usize;
                assert!(at >= POOL && at + len as usize <= SECTION, "{at:#x}");
                let mut bytes = vec![0; len as usize];
                assert!(region.bytes(0, SECTION).unwrap().read(at, &mut bytes));
                frame.extend(bytes);
            }
            self.out.push(frame);
            self.done.push(place);
        }
    }
}

impl Card for Fake {
    fn mac(&self) -> Mac {
        mac(0xFE)
    }
    fn link(&self) -> bool {
        true
    }
    fn send(&mut self, head: &[u8], rest: Option<(u64, u32)>) -> Option<u16> {
        let used = |place: &u16| {
            self.taken.iter().any(|(one, ..)| one == place) || self.done.contains(place)
        };
        let place = (0..PLACES as u16 - 1).find(|place| !used(place))?;
        self.taken.push((place, head.to_vec(), rest));
        Some(place)
    }
    fn sent(&mut self) -> Option<u16> {
        (!self.done.is_empty()).then(|| self.done.remove(0))
    }
    fn receive(&mut self) -> Option<Received> {
        assert_eq!(self.held, 0, "a buffer was not given back");
        let len = self.came.get(self.next)?.len();
        self.held += 1;
        self.next += 1;
        Some(Received { buffer: self.next as u16 - 1, len })
    }
    fn read(&self, buffer: u16, at: usize) -> u64 {
        assert!(at.is_multiple_of(8));
        let mut whole = vec![0xEE; HEADER];
        whole.extend(&self.came[usize::from(buffer)]);
        whole.resize(2048, 0xEE);
        u64::from_le_bytes(whole[at..at + 8].try_into().unwrap())
    }
    fn give_back(&mut self, buffer: u16) {
        assert_eq!(usize::from(buffer), self.next - 1);
        self.held -= 1;
    }
    fn ring(&mut self) {
        self.rung += 1;
    }
    fn interrupts(&mut self, _: bool) {}
    fn reset(&mut self) -> Result<(), Wrong> {
        (self.taken, self.done) = (Vec::new(), Vec::new());
        self.resets += 1;
        if self.dead { Err(Wrong::Silent("end of its reset")) } else { Ok(()) }
    }
    fn check(&mut self) {}
    fn fault(&self) -> Option<Wrong> {
        None
    }
}

/// Counts rings.
#[derive(Clone, Default)]
struct Count(Rc<Cell<u32>>);

impl Ring for Count {
    fn ring(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// A virtio client's driver: both queues, buffers of 2 KiB.
struct Driver {
    mine: Region,
    theirs: Region,
    epoch: u64,
    given: [u16; 2],
    seen: [u16; 2],
}

const BUFFER: usize = 2048;

impl Driver {
    fn at(number: u16) -> usize {
        POOL + BUFFER * usize::from(number)
    }

    /// Begins a session, as linux/module does.
    fn begin(&mut self) {
        self.epoch += 1;
        let device = Hello::of(self.theirs.look(HELLO / 8));
        self.hello(Phase::Absent, 0);
        for at in [STATUS, ACCEPTED, SIZES, avail(0), avail(1)] {
            self.mine.poke(at / 8, 0);
        }
        (self.given, self.seen) = ([0; 2], [0; 2]);
        self.mine.poke(ACCEPTED / 8, VERSION_1);
        self.mine.poke(SIZES / 8, 256 | 128 << 16);
        self.mine.poke(STATUS / 8, DRIVER_OK);
        self.hello(Phase::Open, device.epoch);
    }

    fn hello(&self, phase: Phase, seen: u32) {
        let hello = Hello { phase, epoch: self.epoch as u32, seen };
        self.mine.word(HELLO).unwrap().fenced(hello.word());
    }

    /// Makes buffer `number` of a queue available.
    fn put(&mut self, queue: usize, number: u16, len: usize) {
        let flags = if queue == RECEIVE { u64::from(WRITE) } else { 0 };
        let at = Self::at(number) + if queue == RECEIVE { SECTION } else { 0 };
        let word = desc(queue) / 8 + 2 * usize::from(number);
        self.mine.poke(word, at as u64);
        self.mine.poke(word + 1, len as u64 | flags << 32);
        let size = if queue == RECEIVE { 256 } else { 128 };
        let ring = self.mine.bytes(avail(queue), 4096).unwrap();
        ring.write(4 + 2 * usize::from(self.given[queue] % size), &number.to_le_bytes());
        self.given[queue] = self.given[queue].wrapping_add(1);
        ring.write(2, &self.given[queue].to_le_bytes());
    }

    /// Gives so much room to receive into.
    fn room(&mut self, count: u16) {
        (0..count).for_each(|number| self.put(RECEIVE, number, 1530));
    }

    fn send(&mut self, number: u16, frame: &[u8]) {
        let section = self.mine.bytes(0, SECTION).unwrap();
        assert!(section.write(Self::at(number), &[0xAA; HEADER]));
        assert!(section.write(Self::at(number) + HEADER, frame));
        self.put(SEND, number, HEADER + frame.len());
    }

    /// Chains of a queue that came back: number and length.
    fn used(&mut self, queue: usize) -> Vec<(u16, usize)> {
        let ring = self.theirs.bytes(used(queue), 4096).unwrap();
        let size = if queue == RECEIVE { 256 } else { 128 };
        let index = (self.theirs.look(used(queue) / 8) >> 16) as u16;
        let mut all = Vec::new();
        while self.seen[queue] != index {
            let mut entry = [0; 8];
            ring.read(4 + 8 * usize::from(self.seen[queue] % size), &mut entry);
            let entry = u64::from_le_bytes(entry);
            all.push((entry as u16, (entry >> 32) as usize));
            self.seen[queue] = self.seen[queue].wrapping_add(1);
        }
        all
    }

    /// Frames that it received.
    fn received(&mut self) -> Vec<Vec<u8>> {
        let section = self.theirs.bytes(0, SECTION).unwrap();
        let one = |(number, len): (u16, usize)| {
            let mut packet = vec![0; len];
            assert!(section.read(Self::at(number), &mut packet));
            assert_eq!(packet[..HEADER], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
            packet.split_off(HEADER)
        };
        self.used(RECEIVE).into_iter().map(one).collect()
    }
}

type Rings = Count;

/// A gate with two virtio clients (addresses 1 and 2) and a wire (3).
struct World {
    gate: Gate<Region, Rings, 4, 5>,
    card: Fake,
    drivers: [Driver; 2],
    wire: Wire<Region, Silent>,
    rings: Count,
    news: Vec<(usize, News)>,
    now: u64,
}

impl World {
    fn new() -> Self {
        let mut gate = Gate::new(TERMS);
        let (mut card, rings) = (Fake::default(), Count::default());
        let drivers = [1, 2].map(|n| {
            let (theirs, mine) = (Region::new(SECTION), Region::new(SECTION));
            let bus = BUS + u64::from(n) * 2 * SECTION as u64;
            card.sections.push((bus, theirs.clone()));
            let bell = Bell::open(mine.clone(), &theirs).unwrap();
            let sections =
                Sections { mine: mine.clone(), theirs: theirs.clone(), len: SECTION, bus };
            let caller = Caller::new(bell, rings.clone());
            assert!(gate.add(Client::card(mac(n), sections, Some(caller)).unwrap()));
            Driver { mine: theirs, theirs: mine, epoch: 0, given: [0; 2], seen: [0; 2] }
        });
        let region = || (Region::new(BYTES as usize + 4096), Region::new(4096));
        let ((a, b), (c, d)) = (region(), region());
        let sender = |tx: &Region, rx: &Region| records::Sender::open(tx, rx, BYTES).unwrap();
        let receiver = |rx: &Region, tx: &Region| records::Receiver::open(rx, tx, BYTES).unwrap();
        let end = Wire::new((sender(&a, &b), None), (receiver(&d, &c), None));
        assert!(gate.add(Client::wire(mac(3), end)));
        let wire = Wire::new((sender(&c, &d), None), (receiver(&b, &a), None));
        let mut world = Self { gate, card, drivers, wire, rings, news: Vec::new(), now: 1 };
        world.drivers.iter_mut().for_each(Driver::begin);
        (0..3).for_each(|_| {
            world.wire.arm();
            assert!(world.wire.receive(&mut [0; bulkhead_net::FRAME]).is_none());
            world.gate.arm(true);
            world.round();
        });
        world.drivers.iter_mut().for_each(Driver::assert_begun);
        world.news.clear();
        world
    }

    fn round(&mut self) -> bool {
        let Self { gate, card, news, now, .. } = self;
        gate.round(card, *now, &mut |client, heard| news.push((client, heard))).unwrap()
    }

    /// Rounds until nothing happens, with a card that sends at once.
    fn settle(&mut self) {
        for _ in 0..100 {
            let busy = self.round();
            self.card.finish();
            if !busy && self.card.done.is_empty() {
                return;
            }
        }
        panic!("there is no end");
    }
}

impl Driver {
    fn assert_begun(&mut self) {
        let hello = Hello::of(self.theirs.look(HELLO / 8));
        assert_eq!((hello.phase, u64::from(hello.seen)), (Phase::Open, self.epoch));
    }
}

#[test]
fn frames_go_to_the_card_from_where_they_lie() {
    let mut world = World::new();
    let sent = frame(HOST, mac(1), 1514);
    world.drivers[0].send(5, &sent);
    assert!(world.round());
    let [(_, head, Some((at, len)))] = &world.card.taken[..] else { panic!("one frame") };
    // The header is the gate's, all else the client's.
    assert_eq!((&head[..], *len), (&sent[..14], 1500));
    assert_eq!(*at, world.card.sections[0].0 + (Driver::at(5) + HEADER + 14) as u64);
    assert_eq!(world.drivers[0].used(SEND), []);
    world.settle();
    assert_eq!(world.card.out, [sent]);
    assert_eq!(world.drivers[0].used(SEND), [(5, 0)]);
    assert_eq!(world.gate.under_way(), 0);
}

#[test]
fn a_header_that_changes_later_is_not_sent() {
    let mut world = World::new();
    world.drivers[0].send(0, &frame(HOST, mac(1), 100));
    world.round();
    let section = world.drivers[0].mine.bytes(0, SECTION).unwrap();
    assert!(section.write(Driver::at(0) + HEADER, &frame(HOST, mac(2), 14)));
    world.settle();
    assert_eq!(world.card.out, [frame(HOST, mac(1), 100)]);
}

#[test]
fn frames_of_all_lengths_come_whole() {
    let mut world = World::new();
    for len in [14, 15, 42, 60, 61, 62, 63, 64, 65, 116, 117, 1513, 1514, 1517, 1518] {
        for to in [1, 2, 3] {
            world.drivers.iter_mut().for_each(|driver| driver.room(1));
            world.card.came.push(frame(mac(to), HOST, len));
            world.settle();
            let got = match to {
                3 => {
                    let mut buffer = [0; bulkhead_net::FRAME];
                    vec![world.wire.receive(&mut buffer).unwrap().to_vec()]
                }
                to => world.drivers[usize::from(to) - 1].received(),
            };
            assert_eq!(got, [frame(mac(to), HOST, len)], "{len} to {to}");
        }
    }
    world.card.came.push(frame(mac(1), HOST, 1519));
    world.card.came.push(vec![0; 13]);
    world.settle();
    assert!(world.drivers[0].received().is_empty());
}

#[test]
fn clients_reach_each_other() {
    let mut world = World::new();
    world.drivers.iter_mut().for_each(|driver| driver.room(4));
    world.drivers[0].send(0, &frame(mac(2), mac(1), 333));
    world.drivers[0].send(1, &frame(mac(3), mac(1), 444));
    assert!(world.wire.send(&frame(mac(1), mac(3), 555)));
    assert!(world.wire.send(&frame(HOST, mac(3), 666)));
    world.settle();
    assert_eq!(world.drivers[1].received(), [frame(mac(2), mac(1), 333)]);
    assert_eq!(world.drivers[0].received(), [frame(mac(1), mac(3), 555)]);
    let mut buffer = [0; bulkhead_net::FRAME];
    assert_eq!(world.wire.receive(&mut buffer).unwrap(), frame(mac(3), mac(1), 444));
    assert_eq!(world.card.out, [frame(HOST, mac(3), 666)]);
    assert_eq!(world.drivers[0].used(SEND), [(0, 0), (1, 0)]);
    // To all: the others and the card, but not itself.
    world.drivers[0].send(2, &frame(ALL, mac(1), 64));
    world.settle();
    assert_eq!(world.drivers[1].received(), [frame(ALL, mac(1), 64)]);
    assert_eq!(world.wire.receive(&mut buffer).unwrap(), frame(ALL, mac(1), 64));
    assert_eq!(world.card.out[1..], [frame(ALL, mac(1), 64)]);
    assert!(world.drivers[0].received().is_empty());
}

#[test]
fn another_name_and_a_storm_go_nowhere() {
    let mut world = World::new();
    world.drivers.iter_mut().for_each(|driver| driver.room(200));
    world.drivers[0].send(0, &frame(HOST, mac(2), 64));
    world.wire.send(&frame(HOST, mac(1), 64));
    world.card.came.push(frame(mac(1), mac(2), 64));
    world.settle();
    assert!(world.card.out.is_empty() && world.drivers[0].received().is_empty());
    assert_eq!(world.gate.counts(0).unwrap().refused, 1);
    (1..101).for_each(|n| world.drivers[0].send(n, &frame(ALL, mac(1), 64)));
    world.drivers[1].send(0, &frame(ALL, mac(2), 64));
    world.settle();
    // Four at once, and the other client's one.
    assert_eq!(world.card.out.len(), 5);
    assert_eq!(world.drivers[1].received().len(), 4);
    assert_eq!(world.drivers[0].received(), [frame(ALL, mac(2), 64)]);
    // All of them are done with, so it could go on.
    assert_eq!(world.drivers[0].used(SEND).len(), 101);
}

#[test]
fn a_client_without_room_loses_its_frames_alone() {
    let mut world = World::new();
    world.drivers[1].room(150);
    (0..100).for_each(|_| world.card.came.push(frame(mac(1), HOST, 100)));
    (0..100).for_each(|_| world.card.came.push(frame(mac(2), HOST, 100)));
    world.settle();
    assert_eq!(world.drivers[1].received().len(), 100);
    assert_eq!(world.gate.counts(0).unwrap().lost, 100);
    assert_eq!(world.gate.counts(1).unwrap().lost, 0);
}

#[test]
fn a_client_never_has_all_places_of_the_card() {
    let mut world = World::new();
    (0..128).for_each(|n| world.drivers[0].send(n, &frame(HOST, mac(1), 100)));
    (0..20).for_each(|_| {
        world.round();
    });
    assert_eq!(world.card.taken.len(), (PLACES - 1) / 3);
    world.drivers[1].send(0, &frame(HOST, mac(2), 100));
    world.wire.send(&frame(HOST, mac(3), 100));
    world.round();
    assert_eq!(world.card.taken.len(), (PLACES - 1) / 3 + 2);
    world.settle();
    assert_eq!(world.card.out.len(), 130);
    assert_eq!(world.drivers[0].used(SEND).len(), 128);
}

#[test]
fn a_new_session_waits_for_the_frames_of_the_last_one() {
    let mut world = World::new();
    world.drivers[0].send(0, &frame(HOST, mac(1), 100));
    world.round();
    world.drivers[0].begin();
    world.round();
    world.round();
    let seen = |world: &World| u64::from(Hello::of(world.drivers[0].theirs.look(HELLO / 8)).seen);
    assert_eq!(world.news, [(0, News::Lost)]);
    assert_ne!(seen(&world), world.drivers[0].epoch);
    world.card.finish();
    world.round();
    world.round();
    assert_eq!(seen(&world), world.drivers[0].epoch);
    assert_eq!(world.news[1], (0, News::Begun(VERSION_1)));
    // Nothing of the last session comes back.
    assert_eq!(world.drivers[0].used(SEND), []);
}

#[test]
fn a_card_that_sends_nothing_is_reset() {
    let mut world = World::new();
    world.drivers[0].send(0, &frame(HOST, mac(1), 100));
    world.wire.send(&frame(HOST, mac(3), 100));
    world.round();
    world.now += 2 * PATIENCE;
    world.round();
    world.round();
    assert_eq!((world.card.resets, world.gate.under_way()), (1, 0));
    assert_eq!(world.drivers[0].used(SEND), [(0, 0)]);
    world.drivers[0].send(1, &frame(HOST, mac(1), 200));
    world.settle();
    assert_eq!(world.card.out, [frame(HOST, mac(1), 200)]);
    world.card.dead = true;
    world.drivers[0].send(2, &frame(HOST, mac(1), 100));
    world.round();
    world.now += 2 * PATIENCE;
    let mut news = |_, _| {};
    assert!(world.gate.round(&mut world.card, world.now, &mut news).is_err());
}

#[test]
fn what_cannot_be_ends_that_session_alone() {
    let mut world = World::new();
    world.drivers.iter_mut().for_each(|driver| driver.room(1));
    // A buffer outside of the section.
    world.drivers[0].put(SEND, 0, SECTION);
    world.drivers[1].send(0, &frame(HOST, mac(2), 100));
    world.settle();
    assert_eq!(world.news, [(0, News::Corrupted)]);
    assert_eq!(world.card.out, [frame(HOST, mac(2), 100)]);
    // A chain without a frame is none of that.
    world.drivers[1].put(SEND, 1, HEADER + 13);
    world.drivers[1].put(SEND, 2, HEADER + 1519);
    world.settle();
    assert_eq!(world.drivers[1].used(SEND), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(world.news.len(), 1);
    world.drivers[0].begin();
    world.settle();
    assert_eq!(world.news[1..], [(0, News::Begun(VERSION_1))]);
}

#[test]
fn a_place_without_a_frame_is_a_stray() {
    let mut world = World::new();
    world.card.done.push(7);
    world.round();
    assert_eq!(world.gate.strays(), 1);
}

#[test]
fn a_sleeping_client_is_woken_for_a_frame() {
    let mut world = World::new();
    world.drivers[0].room(2);
    world.settle();
    let before = world.rings.0.get();
    world.drivers[0].mine.poke(ARMED / 8, 1);
    world.card.came.push(frame(mac(1), HOST, 100));
    world.settle();
    assert_eq!(world.rings.0.get(), before + 1);
}
