//! A store with clients of all kinds, and a disk that does what a test tells it.

use bulkhead_channel::bell::{Arm, Bell, Caller, Ring};
use bulkhead_channel::host::Region;
use bulkhead_channel::{Bytes, Memory};
use bulkhead_store::disk::{Disk, Failed, Full, Info, Operation, Request};
use bulkhead_store::{Client, DEVICE, News, Sections, Share, Store, Terms, feature};
use bulkhead_virtio::Part;
use bulkhead_virtio::driver::{Driver, Peer};
use bulkhead_virtio::layout::POOL;
use std::cell::Cell;
use std::rc::Rc;

const SECTION: usize = 256 << 10;
const BUS: u64 = 0xD200_0000;
const PATIENCE: u64 = 1_000_000;
const TERMS: Terms = Terms { share: 2, queues: 1, patience: PATIENCE };
const INFO: Info = Info {
    sectors: 4096,
    block: 512,
    read_only: false,
    flush: true,
    most: 64 << 10,
    depth: 8,
    discard: 0,
    zero: 0,
};

/// Counts rings.
#[derive(Clone, Default)]
struct Count(Rc<Cell<u32>>);

impl Ring for Count {
    fn ring(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// A disk that keeps requests until it is told to finish them.
struct Fake {
    info: Info,
    taken: Vec<Request>,
    done: Vec<(u16, Result<(), Failed>)>,
    /// Requests of each time that it was rung.
    rung: Vec<usize>,
    resets: u32,
    dead: bool,
}

impl Fake {
    fn new(info: Info) -> Self {
        let (taken, done, rung) = (Vec::new(), Vec::new(), Vec::new());
        Self { info, taken, done, rung, resets: 0, dead: false }
    }

    /// Finishes the request of that place among those taken.
    fn finish(&mut self, place: usize, result: Result<(), Failed>) {
        let request = self.taken.remove(place);
        self.done.push((request.tag, result));
    }
}

impl Disk for Fake {
    fn info(&self) -> &Info {
        &self.info
    }
    fn submit(&mut self, request: &Request) -> Result<(), Full> {
        if self.taken.len() + self.done.len() >= self.info.depth.into() {
            return Err(Full);
        }
        assert!(self.taken.iter().all(|one| one.tag != request.tag), "a tag twice");
        self.taken.push(*request);
        Ok(())
    }
    fn ring(&mut self) {
        self.rung.push(self.taken.len());
    }
    fn completed(&mut self) -> Option<(u16, Result<(), Failed>)> {
        (!self.done.is_empty()).then(|| self.done.remove(0))
    }
    fn reset(&mut self) -> Result<(), Failed> {
        (self.taken, self.done) = (Vec::new(), Vec::new());
        self.resets += 1;
        if self.dead { Err(Failed) } else { Ok(()) }
    }
}

/// A client's side.
struct Peers {
    driver: Driver<Region>,
    theirs: Region,
    device: Region,
    rings: Count,
}

const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
const ID: u32 = 8;

impl Peers {
    /// Bytes of request `number`: a header and data in its own section, room and a status in the device's.
    fn at(number: u16) -> usize {
        POOL + 8192 * usize::from(number)
    }

    fn ask(&mut self, number: u16, kind: u32, sector: u64, len: usize) {
        let (out, room) = if kind == WRITE { (len, 0) } else { (0, len) };
        assert!(self.ask_with(number, (kind, sector), (16 + out, room + 1)));
        self.driver.tell();
    }

    fn ask_with(
        &mut self,
        number: u16,
        (kind, sector): (u32, u64),
        (out, room): (usize, usize),
    ) -> bool {
        let at = Self::at(number);
        let header = [u64::from(kind).to_le_bytes(), sector.to_le_bytes()].concat();
        assert!(self.theirs.bytes(at, 16).unwrap().write(0, &header));
        self.driver.put(number, Part { at, len: out }, Part { at, len: room })
    }

    /// Asks about a range.
    fn ask_range(&mut self, kind: u32, range: [u64; 2], out: usize) {
        let at = Self::at(0) + 16;
        let range = range.map(u64::to_le_bytes).concat();
        assert!(self.theirs.bytes(at, 16).unwrap().write(0, &range));
        assert!(self.ask_with(0, (kind, 0), (16 + out, 1)));
        self.driver.tell();
    }

    /// The answer to a request: its number, bytes written and status.
    fn answer(&mut self, len: usize) -> Option<(u16, usize, u8)> {
        let (number, written) = self.driver.used().expect("an honest device")?;
        let mut status = [0xFF];
        let at = Self::at(number) + len;
        assert!(self.device.bytes(at / 8 * 8, 8).unwrap().read(at % 8, &mut status));
        Some((number, written, status[0]))
    }
}

struct World {
    store: Store<Region, Count, 4>,
    disk: Fake,
    peers: Vec<Peers>,
    news: Vec<(usize, News)>,
    now: u64,
}

impl World {
    /// A disk with as many clients as shares.
    fn new(info: Info, shares: &[Share]) -> Self {
        let mut store = Store::new(TERMS);
        let peer = |(n, share): (usize, &Share)| {
            let (theirs, mine) = (Region::new(SECTION), Region::new(SECTION));
            let rings = Count::default();
            let bell = Bell::open(mine.clone(), &theirs).unwrap();
            let caller = Caller::new(bell, rings.clone());
            let sections = Sections {
                mine: mine.clone(),
                theirs: theirs.clone(),
                len: SECTION,
                bus: BUS + n as u64 * 2 * SECTION as u64,
            };
            let client = Client::open(sections, &info, *share, "part", 1, Some(caller)).unwrap();
            assert!(store.add(client));
            let knows = feature::FLUSH | feature::READ_ONLY;
            let driver =
                Driver::open(theirs.clone(), mine.clone(), SECTION, DEVICE, knows).unwrap();
            Peers { driver, theirs, device: mine, rings }
        };
        let peers = shares.iter().enumerate().map(peer).collect();
        let mut world = Self { store, disk: Fake::new(info), peers, news: Vec::new(), now: 1 };
        world.peers.iter_mut().for_each(|peer| assert_eq!(peer.driver.attend(), None));
        assert!(world.round());
        for peer in &mut world.peers {
            assert!(matches!(peer.driver.attend(), Some(Peer::Begun(_))));
        }
        assert_eq!(world.news.len(), shares.len());
        world.news.clear();
        world
    }

    fn round(&mut self) -> bool {
        let mut news = |client, news| self.news.push((client, news));
        self.store.round(&mut self.disk, self.now, &mut news).expect("the disk can be reset")
    }
}

const HALVES: [Share; 2] = [
    Share { first: 0, sectors: 2048, read_only: false },
    Share { first: 2048, sectors: 2048, read_only: true },
];

#[test]
fn requests_go_to_the_clients_part_by_bus_addresses() {
    let mut world = World::new(INFO, &HALVES);
    world.peers[0].ask(0, WRITE, 7, 1024);
    world.peers[1].ask(3, READ, 2047, 512);
    world.peers[0].ask(1, FLUSH, 0, 0);
    assert!(world.round());
    assert_eq!(world.disk.rung, [3]);
    let section = SECTION as u64;
    // The second client's turn is first now.
    let [read, written, flushed] = world.disk.taken[..] else { panic!("three requests") };
    let at = |number: u16| Peers::at(number) as u64;
    assert_eq!(
        (written.operation, written.sector, written.address, written.len),
        (Operation::Write, 7, BUS + at(0) + 16, 1024)
    );
    assert_eq!(flushed.operation, Operation::Flush);
    let theirs = BUS + 2 * section;
    assert_eq!(
        (read.operation, read.sector, read.address, read.len),
        (Operation::Read, 4095, theirs + section + at(3), 512)
    );
    // The disk answers in another order, and one request fails.
    world.disk.finish(2, Ok(()));
    world.disk.finish(0, Ok(()));
    world.disk.finish(0, Err(Failed));
    assert_eq!(world.store.under_way(), 3);
    assert!(world.round() && !world.round());
    assert_eq!(world.store.under_way(), 0);
    assert_eq!(world.peers[1].answer(512), Some((3, 513, 0)));
    assert_eq!(world.peers[0].answer(0), Some((1, 1, 0)));
    assert_eq!(world.peers[0].answer(0), Some((0, 1, 1)));
    assert!(world.news.is_empty());
}

#[test]
fn requests_that_may_not_be_fail_and_harm_nobody() {
    let mut world = World::new(INFO, &HALVES);
    let failing: [(usize, u32, u64, usize, u8); 9] = [
        (0, READ, 2048, 512, 1),
        (0, READ, 2047, 1024, 1),
        (0, READ, u64::MAX, 512, 1),
        (0, READ, 0, 0, 1),
        (0, READ, 0, 513, 1),
        (0, READ, 0, 512 * 129, 1),
        (0, WRITE, 2048, 512, 1),
        (1, WRITE, 0, 512, 1),
        (0, 13, 0, 0, 2),
    ];
    for (n, kind, sector, len, status) in failing {
        world.peers[n].ask(0, kind, sector, len);
        assert!(world.round());
        let room = if kind == READ { len } else { 0 };
        assert_eq!(world.peers[n].answer(room), Some((0, 1, status)), "{kind} {sector} {len}");
    }
    assert!(world.disk.taken.is_empty() && world.disk.rung.is_empty());
    world.peers[0].ask(0, ID, 0, 20);
    assert!(world.round());
    assert_eq!(world.peers[0].answer(20), Some((0, 21, 0)));
    let mut name = [0; 5];
    assert!(world.peers[0].device.bytes(Peers::at(0), 8).unwrap().read(0, &mut name));
    assert_eq!(&name, b"part\0");
}

/// Kinds of request, and a flag of the second: it may be discarded.
const DISCARD: u32 = 11;
const ZERO: u32 = 13;
const UNMAP: u64 = 1 << 32;
const RANGES: Info = Info { discard: 1024, zero: 64, ..INFO };

#[test]
fn a_range_of_the_clients_part_goes_to_the_disk() {
    let [_, last] = HALVES;
    let share = Share { read_only: false, ..last };
    let mut world = World::new(RANGES, &[share]);
    let zero = |unmap| Operation::Zero { unmap };
    for (kind, range, operation) in [
        (DISCARD, [1024, 1024], Operation::Discard),
        (ZERO, [2047, 1], zero(false)),
        (ZERO, [0, 64 | UNMAP], zero(true)),
    ] {
        world.peers[0].ask_range(kind, range, 16);
        assert!(world.round());
        let [request] = world.disk.taken[..] else { panic!("one request") };
        let (sector, len) = (2048 + range[0], 512 * range[1] as u32);
        assert_eq!((request.operation, request.sector), (operation, sector));
        assert_eq!((request.len, request.address), (len, 0));
        world.disk.finish(0, Ok(()));
        assert!(world.round());
        assert_eq!(world.peers[0].answer(0), Some((0, 1, 0)));
    }
}

#[test]
fn a_range_that_may_not_be_fails() {
    let mut world = World::new(RANGES, &HALVES);
    let failing: [(usize, u32, [u64; 2], usize, u8); 12] = [
        // Beyond the part, which others have, and beyond all.
        (0, DISCARD, [2047, 2], 16, 1),
        (0, DISCARD, [2048, 8], 16, 1),
        (0, ZERO, [2047, 2], 16, 1),
        (0, ZERO, [u64::MAX, 1], 16, 1),
        // Nothing, and more than the disk takes.
        (0, DISCARD, [0, 0], 16, 1),
        (0, DISCARD, [0, 1025], 16, 1),
        (0, ZERO, [0, 65], 16, 1),
        (0, DISCARD, [0, 0xFFFF_FFFF], 16, 1),
        // Half a range, and two.
        (0, DISCARD, [0, 8], 8, 1),
        (0, DISCARD, [0, 8], 32, 1),
        // A flag that its kind does not have.
        (0, DISCARD, [0, 8 | UNMAP], 16, 2),
        // A part that must not be written.
        (1, ZERO, [0, 8], 16, 1),
    ];
    for (n, kind, range, out, status) in failing {
        world.peers[n].ask_range(kind, range, out);
        assert!(world.round());
        assert_eq!(world.peers[n].answer(0), Some((0, 1, status)), "{n} {kind} {range:?} {out}");
    }
    assert!(world.disk.taken.is_empty());
    // Half a block, and a disk without such requests.
    let whole = Share { first: 0, sectors: 2048, read_only: false };
    for (info, status) in [(Info { block: 4096, ..RANGES }, 1), (INFO, 2)] {
        let mut world = World::new(info, &[whole]);
        for (kind, range) in [(DISCARD, [1, 8]), (ZERO, [0, 4])] {
            world.peers[0].ask_range(kind, range, 16);
            assert!(world.round());
            assert_eq!(world.peers[0].answer(0), Some((0, 1, status)));
        }
        assert!(world.disk.taken.is_empty());
    }
}

#[test]
fn ranges_are_offered_where_the_disk_has_them() {
    let [writable, read_only] = HALVES;
    let offered = |info: Info, share| {
        let world = World::new(info, &[share]);
        world.peers[0].device.bytes(520, 8).unwrap().word(0) & (1 << 13 | 1 << 14)
    };
    assert_eq!(offered(INFO, writable), 0);
    assert_eq!(offered(RANGES, read_only), 0);
    assert_eq!(offered(RANGES, writable), 1 << 13 | 1 << 14);
    assert_eq!(offered(Info { zero: 0, ..RANGES }, writable), 1 << 13);
}

#[test]
fn a_share_is_a_part_of_the_disk_in_whole_blocks() {
    let share = |first, sectors| Share { first, sectors, read_only: false };
    let info = Info { block: 4096, ..INFO };
    for (first, sectors, fits) in [
        (0, 4096, true),
        (8, 4088, true),
        (8, 4096, false),
        (0, 0, false),
        (1, 8, false),
        (0, 9, false),
        (u64::MAX - 7, 8, false),
    ] {
        assert_eq!(share(first, sectors).fits(&info), fits, "{first} {sectors}");
    }
    let mut world = World::new(info, &[share(8, 8)]);
    world.peers[0].ask(0, READ, 0, 4096);
    world.peers[0].ask(1, READ, 1, 512);
    assert!(world.round());
    assert_eq!(world.disk.taken.len(), 1);
    assert_eq!((world.disk.taken[0].sector, world.disk.taken[0].len), (8, 4096));
}

#[test]
fn a_client_that_lies_ends_its_own_session_only() {
    let mut world = World::new(INFO, &HALVES);
    // A header that is too short, and no room for a status.
    for short in [(15, 1), (8, 513)] {
        assert!(world.peers[0].ask_with(0, (READ, 0), short));
        world.peers[0].driver.tell();
        world.peers[1].ask(0, READ, 0, 512);
        assert!(world.round());
        assert_eq!(world.news, [(0, News::Corrupted)]);
        world.disk.finish(0, Ok(()));
        assert!(world.round());
        assert_eq!(world.peers[1].answer(512), Some((0, 513, 0)));
        // It begins anew.
        world.peers[0].driver.reset();
        assert_eq!(world.peers[0].driver.attend(), None);
        assert!(world.round());
        assert!(matches!(world.news[1..], [(0, News::Begun(_))]));
        assert!(matches!(world.peers[0].driver.attend(), Some(Peer::Begun(_))));
        world.news.clear();
    }
}

#[test]
fn a_client_that_begins_anew_waits_for_the_disk() {
    let mut world = World::new(INFO, &HALVES);
    world.peers[0].ask(0, READ, 0, 512);
    assert!(world.round());
    world.peers[0].driver.reset();
    assert!(world.round());
    assert_eq!(world.news, [(0, News::Lost)]);
    // It is not answered while the disk can write to its buffers, however often it looks.
    for _ in 0..10 {
        assert_eq!(world.peers[0].driver.attend(), None);
        assert!(!world.round());
    }
    // The other one goes on.
    world.peers[1].ask(0, READ, 0, 512);
    assert!(world.round());
    world.disk.finish(1, Ok(()));
    assert!(world.round());
    assert_eq!(world.peers[1].answer(512), Some((0, 513, 0)));
    // The late answer comes to no session, and then the new one begins.
    let status = Peers::at(0) + 512;
    world.peers[0].device.poke(status / 8, 0xEE);
    world.disk.finish(0, Ok(()));
    assert!(world.round());
    assert_eq!(world.peers[0].device.look(status / 8), 0xEE);
    assert!(matches!(world.news[1..], [(0, News::Begun(_))]));
    assert!(matches!(world.peers[0].driver.attend(), Some(Peer::Begun(_))));
    assert_eq!(world.peers[0].answer(512), None);
}

#[test]
fn a_greedy_client_leaves_places_for_others() {
    let mut world = World::new(INFO, &HALVES);
    (0..20).for_each(|n| world.peers[0].ask(n, READ, 0, 512));
    // Two a round; of the eight places two stay free for the other one.
    for round in 1..=5 {
        world.round();
        assert_eq!(world.disk.taken.len(), 6.min(2 * round));
    }
    world.peers[1].ask(0, READ, 5, 512);
    world.peers[1].ask(1, READ, 6, 512);
    assert!(world.round());
    assert_eq!(world.disk.taken.len(), 8);
    assert!(world.disk.taken[6..].iter().all(|request| request.sector >= 2048));
}

#[test]
fn a_full_disk_gets_the_rest_later() {
    let all = Share { first: 0, sectors: 4096, read_only: false };
    let mut world = World::new(Info { depth: 3, ..INFO }, &[all]);
    (0..8).for_each(|n| world.peers[0].ask(n, READ, n.into(), 512));
    let mut seen = Vec::new();
    for _ in 0..20 {
        world.round();
        if !world.disk.taken.is_empty() {
            seen.push(world.disk.taken[0].sector);
            world.disk.finish(0, Ok(()));
        }
    }
    assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7]);
    let answers: Vec<_> = std::iter::from_fn(|| world.peers[0].answer(512)).collect();
    assert_eq!(answers.len(), 8);
}

#[test]
fn a_silent_disk_is_reset_and_asked_again_in_order() {
    let mut world = World::new(INFO, &HALVES);
    world.peers[0].ask(0, WRITE, 1, 512);
    world.peers[1].ask(0, READ, 2, 512);
    assert!(world.round());
    world.peers[0].ask(1, FLUSH, 0, 0);
    assert!(world.round());
    let before: Vec<_> = world.disk.taken.clone();
    // The second client is gone when the disk is given up.
    world.peers[1].driver.reset();
    world.now = PATIENCE;
    assert!(world.round());
    assert_eq!(world.disk.resets, 0);
    world.now = 2 * PATIENCE;
    world.round();
    assert_eq!(world.disk.resets, 1);
    assert_eq!(world.disk.taken, before[1..]);
    // Nothing of the old session is under way: it is answered.
    world.peers[1].driver.attend();
    world.round();
    assert!(matches!(world.news[..], [(1, News::Lost), (1, News::Begun(_))]));
    world.disk.finish(0, Ok(()));
    world.disk.finish(0, Ok(()));
    assert!(world.round());
    assert_eq!(world.peers[0].answer(0), Some((0, 1, 0)));
    assert_eq!(world.peers[0].answer(0), Some((1, 1, 0)));
}

#[test]
fn a_dead_disk_ends_the_store() {
    let mut world = World::new(INFO, &HALVES);
    world.peers[0].ask(0, READ, 0, 512);
    assert!(world.round());
    (world.disk.dead, world.now) = (true, 2 * PATIENCE);
    let result = world.store.round(&mut world.disk, world.now, &mut |_, _| ());
    assert_eq!(result, Err(Failed));
}

#[test]
fn a_sleeping_client_is_woken_by_answers_and_a_sleeping_store_asks_to_be() {
    let mut world = World::new(INFO, &HALVES);
    let mut arm = Arm::open(&world.peers[0].theirs).unwrap();
    arm.arm();
    let before = world.peers[0].rings.0.get();
    world.peers[0].ask(0, READ, 0, 512);
    world.round();
    assert_eq!(world.peers[0].rings.0.get(), before);
    world.disk.finish(0, Ok(()));
    world.round();
    assert_eq!(world.peers[0].rings.0.get(), before + 1);
    // The store's own armed word, which the client's bell reads.
    let peer = &world.peers[0];
    let mut bell = Bell::open(peer.theirs.clone(), &peer.device).unwrap();
    let mut rung = Count::default();
    assert!(!bell.notify(&mut rung));
    world.store.arm(true);
    assert!(bell.notify(&mut rung) && !bell.notify(&mut rung));
    world.store.arm(false);
    assert!(!bell.notify(&mut rung));
}

#[test]
fn answers_of_a_disk_that_lies_are_nobodys() {
    let mut world = World::new(INFO, &HALVES);
    world.disk.done = vec![(3, Ok(())), (u16::MAX, Ok(()))];
    assert!(world.round());
    assert_eq!((world.store.under_way(), world.store.strays()), (0, 2));
}

#[test]
fn a_client_that_gives_up_gets_its_device_anew_after_the_disk_is_done() {
    let mut world = World::new(INFO, &HALVES);
    world.peers[0].ask(0, READ, 0, 512);
    assert!(world.round());
    assert_eq!(world.store.complaint(), None);
    world.peers[0].driver.give_up();
    assert!(world.round());
    assert_eq!((&world.news[..], world.store.complaint()), (&[(0, News::Lost)][..], Some(0)));
    // Not before the disk can no longer write to its buffers.
    world.store.renew(0);
    for _ in 0..10 {
        assert!(!world.round());
        assert_eq!(world.peers[0].driver.attend(), None);
    }
    assert_eq!(world.store.complaint(), None);
    world.disk.finish(0, Ok(()));
    assert!(world.round());
    assert_eq!(world.peers[0].driver.attend(), None);
    assert!(world.round());
    assert!(matches!(world.peers[0].driver.attend(), Some(Peer::Begun(_))));
    assert_eq!(world.peers[0].answer(512), None);
    assert_eq!(world.store.complaint(), None);
}

/// One of two clients complains each time that its device is open again, and the other one once.
#[test]
fn a_client_that_complains_for_ever_hides_nobody() {
    let mut world = World::new(INFO, &HALVES);
    world.peers.iter_mut().for_each(|peer| peer.driver.give_up());
    assert!(world.round());
    for _ in 0..4 {
        let client = world.store.complaint().expect("one complains for ever");
        if client == 1 {
            return;
        }
        world.store.renew(0);
        world.round();
        let _ = world.peers[0].driver.attend();
        world.peers[0].driver.give_up();
    }
    panic!("nobody has heard the other one");
}

/// A client writes anything into all that it can write, beside an honest one. Each request that reaches the disk is
/// within the client's part and the buffers of its own channel. The honest client is served in each round.
#[test]
fn a_client_that_writes_anything_reaches_its_own_part_only() {
    let mut world = World::new(INFO, &HALVES);
    let (section, pool) = (SECTION as u64, POOL as u64);
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let (mut served, mut sessions, mut asked) = (0, 0, 0);
    for round in 0..20_000u64 {
        let rogue = &mut world.peers[0];
        if random(4) > 0 {
            rogue.driver.attend();
        }
        if random(16) == 0 {
            rogue.driver.reset();
        }
        // Requests that are nearly right, and words of all kinds in rings, registers and buffers.
        let number = random(8) as u16;
        let kinds = [READ, WRITE, FLUSH, ID, 13];
        let kind = kinds[random(kinds.len() as u64) as usize];
        let sector = [random(2100), u64::MAX - random(3)][random(2) as usize];
        let lengths = [0, 512, 512, 512, 513, 4096, 66_000, 1];
        let long = if random(64) == 0 { SECTION } else { 0 };
        let mut len = || long + lengths[random(lengths.len() as u64) as usize];
        let (out, room) = (16 + len(), 1 + len());
        let _ = rogue.ask_with(number, (kind, sector), (out, room));
        rogue.driver.tell();
        if random(32) == 0 {
            let word = random(pool / 8 + 64) as usize;
            let value = [random(u64::MAX), random(1 << 16) << 16, 0][random(3) as usize];
            rogue.theirs.poke(word, value);
        }
        while rogue.driver.used().is_ok_and(|found| found.is_some()) {}
        if round % 7 == 0 {
            world.peers[1].ask(0, READ, random(2048), 512);
        }
        world.round();
        for request in &world.disk.taken {
            let at = request.address.wrapping_sub(BUS);
            if request.operation == Operation::Flush {
                continue;
            }
            if request.sector >= 2048 {
                let honest = 3 * section + Peers::at(0) as u64;
                assert_eq!((request.operation, at), (Operation::Read, honest), "{request:?}");
                continue;
            }
            asked += 1;
            assert!(request.sector + u64::from(request.len) / 512 <= 2048, "{request:?}");
            let begins = if request.operation == Operation::Read { section } else { 0 };
            let end = at + u64::from(request.len);
            assert!(at >= begins + pool && end <= begins + section, "{request:?}");
        }
        sessions +=
            world.news.iter().filter(|(n, news)| *n == 0 && matches!(news, News::Begun(_))).count();
        assert!(world.news.iter().all(|(n, _)| *n == 0), "the honest client is disturbed");
        world.news.clear();
        while !world.disk.taken.is_empty() {
            world.disk.finish(0, Ok(()));
        }
        world.round();
        while let Some(answer) = world.peers[1].answer(512) {
            assert_eq!(answer, (0, 513, 0));
            served += 1;
        }
        world.news.clear();
    }
    assert_eq!(served, 20_000 / 7 + 1);
    assert!(sessions > 100 && asked > 1_000, "{sessions} sessions, {asked} requests");
}
