//! A client of a disk against the device side of this crate: out of order, and with ends and new beginnings of either.
//! A device side that writes anything harms nothing.

use bulkhead_channel::host::Region;
use bulkhead_channel::{Bytes, Memory};
use bulkhead_random::SplitMix64;
use bulkhead_virtio::block::feature::{
    BLOCK_SIZE, DISCARD, FLUSH, READ_ONLY as RO, SEG_MAX, SIZE_MAX, WRITE_ZEROES,
};
use bulkhead_virtio::block::{Config, DEVICE, HEADER, ID, read};
use bulkhead_virtio::disk::{Disk, Failed, Info, News, Operation, Slot};
use bulkhead_virtio::layout::{CONFIG_WORD, DEVICE as DEVICE_WORD, HELLO, POOL, used};
use bulkhead_virtio::{Chain, Device, Offer};
use std::collections::BTreeMap;

const MOST: usize = 4096;
const SECTION: usize = POOL + 4 * (MOST + 4096);
const SECTORS: u64 = 1024;

/// An honest disk's side over memory.
struct Side {
    device: Device<Region>,
    mine: Region,
    theirs: Region,
    features: u64,
    sectors: u64,
    content: Vec<u8>,
    taken: Vec<Chain>,
    flushes: usize,
}

impl Side {
    fn open(mine: &Region, theirs: &Region, features: u64, sectors: u64) -> Device<Region> {
        let config = sectors.to_le_bytes();
        let offer = Offer { device: DEVICE, features, config: &config, queues: &[16] };
        Device::open(mine.clone(), theirs.clone(), SECTION, &offer).expect("it fits")
    }

    fn new(features: u64) -> Self {
        let (mine, theirs) = (Region::new(SECTION), Region::new(SECTION));
        let device = Self::open(&mine, &theirs, features, SECTORS);
        let content = vec![0; 512 * SECTORS as usize];
        let (sectors, taken, flushes) = (SECTORS, Vec::new(), 0);
        Self { device, mine, theirs, features, sectors, content, taken, flushes }
    }

    /// It dies and begins anew; what it had taken is forgotten.
    fn again(&mut self) {
        self.taken.clear();
        self.device = Self::open(&self.mine, &self.theirs, self.features, self.sectors);
    }

    fn client(&self) -> Disk<Region> {
        Disk::open(self.theirs.clone(), self.mine.clone(), SECTION, MOST).expect("it fits")
    }

    fn take(&mut self) {
        if self.device.attend().is_some() {
            self.taken.clear();
        }
        while let Some(queue) = self.device.queue(0) {
            let Some(chain) = queue.take().expect("an honest client") else { break };
            self.taken.push(chain);
        }
    }

    /// Carries out one of the requests that it has.
    fn answer(&mut self, which: usize) {
        if self.taken.is_empty() {
            return;
        }
        let chain = self.taken.swap_remove(which % self.taken.len());
        let (reads, writes) = (chain.reads, chain.writes);
        let (mut header, mut data) = ([0; HEADER], vec![0; reads.len - HEADER]);
        // A buffer may begin at any byte; a region's bytes begin at words.
        let bytes = self.theirs.bytes(0, SECTION).expect("a section");
        assert!(bytes.read(reads.at, &mut header) && bytes.read(reads.at + HEADER, &mut data));
        let [kind, .., a, b, c, d, e, f, g, h] = header;
        let at = 512 * u64::from_le_bytes([a, b, c, d, e, f, g, h]) as usize;
        let own = self.mine.bytes(0, SECTION).expect("a section");
        let mut written = 1;
        match kind {
            0 => {
                own.write(writes.at, &self.content[at..at + writes.len - 1]);
                written = writes.len;
            }
            1 => self.content[at..at + data.len()].copy_from_slice(&data),
            4 => self.flushes += 1,
            kind => panic!("a request of kind {kind}"),
        }
        own.write(writes.at + writes.len - 1, &[0]);
        let queue = self.device.queue(0).expect("a session");
        queue.used(&chain, written);
        queue.tell();
    }
}

fn info(features: u64) -> Info {
    Info {
        sectors: SECTORS,
        read_only: features & RO != 0,
        cache: features & FLUSH != 0,
        block: 512,
        most: u32::MAX,
        discard: 0,
        zero: 0,
        name: [0; ID],
    }
}

/// Steps of both sides until there is a session.
fn meet(side: &mut Side, disk: &mut Disk<Region>) -> Vec<News> {
    let mut news = Vec::new();
    for _ in 0..4 {
        news.extend(disk.attend());
        side.take();
    }
    news
}

#[test]
fn a_disk_is_found_with_its_size_and_features() {
    for features in [0, RO, FLUSH, RO | FLUSH] {
        let mut side = Side::new(features);
        let mut disk = side.client();
        assert_eq!((disk.info(), disk.slot()), (None, None));
        assert_eq!(meet(&mut side, &mut disk), [News::Up(info(features))]);
        let slot = disk.slot().expect("a place");
        let written = disk.send(slot, Operation::Write, 0, 512);
        assert_eq!(written.is_ok(), features & RO == 0);
    }
}

#[test]
fn a_bad_request_is_not_sent() {
    let mut side = Side::new(0);
    let mut disk = side.client();
    meet(&mut side, &mut disk);
    let slot = disk.slot().expect("a place");
    let bad = [
        (Operation::Read, 0, 0),
        (Operation::Read, 0, 511),
        (Operation::Read, SECTORS, 512),
        (Operation::Write, SECTORS - 1, 1024),
        (Operation::Read, u64::MAX, 512),
        (Operation::Read, 0, MOST + 512),
        (Operation::Flush, 0, 512),
        (Operation::Flush, 1, 0),
    ];
    for (operation, sector, len) in bad {
        assert_eq!(disk.send(slot, operation, sector, len), Err(Failed::Bad), "{sector} {len}");
    }
    assert_eq!(disk.waiting(), 0);
    // A request is the disk's until the answer.
    assert_eq!(disk.send(slot, Operation::Read, SECTORS - 8, MOST), Ok(()));
    assert_eq!(disk.send(slot, Operation::Read, 0, 512), Err(Failed::Bad));
    disk.free(slot);
    assert!(disk.outgoing(slot).is_none() && disk.incoming(slot).is_none());
    let others: Vec<Slot> = std::iter::from_fn(|| disk.slot()).collect();
    assert_eq!((others.len(), others.contains(&slot)), (3, false));
}

#[test]
fn another_kind_or_another_size_is_refused() {
    let mut side = Side::new(0);
    let mut disk = side.client();
    side.mine.poke(DEVICE_WORD / 8, 1 | 1 << 32);
    assert_eq!(meet(&mut side, &mut disk), []);
    side.again();
    assert_eq!(meet(&mut side, &mut disk), [News::Up(info(0))]);
    // A disk of another size does not get this one's requests.
    side.sectors = 8;
    side.again();
    assert_eq!(meet(&mut side, &mut disk), [News::Lost, News::Refused]);
    side.sectors = SECTORS;
    side.again();
    assert_eq!(meet(&mut side, &mut disk), [News::Up(info(0))]);
}

/// Configuration of a disk that has all features.
const WHOLE: Config = Config {
    sectors: SECTORS,
    most: 8192,
    block: 4096,
    queues: 1,
    ranges: 1,
    discard: 64,
    zero: 32,
    name: *b"a name of 20 letters",
};
const RANGES: u64 = SIZE_MAX | SEG_MAX | BLOCK_SIZE | DISCARD | WRITE_ZEROES;

/// A disk's side with a configuration.
fn described(config: &Config, features: u64) -> (Device<Region>, [Region; 2]) {
    let (mine, theirs) = (Region::new(SECTION), Region::new(SECTION));
    let config = config.bytes();
    let offer = Offer { device: DEVICE, features, config: &config, queues: &[16] };
    let device = Device::open(mine.clone(), theirs.clone(), SECTION, &offer).expect("it fits");
    (device, [theirs, mine])
}

#[test]
fn ranges_are_described_and_bounded() {
    let (mut device, [theirs, mine]) = described(&WHOLE, RANGES);
    let mut disk = Disk::open(theirs.clone(), mine, SECTION, MOST).expect("it fits");
    disk.attend();
    device.attend();
    let name = WHOLE.name;
    let up = Info { block: 4096, most: 8192, discard: 64, zero: 32, name, ..info(0) };
    assert_eq!(disk.attend(), Some(News::Up(up)));
    let slot = disk.slot().expect("a place");
    let zero = |unmap| Operation::Zero { unmap };
    for (operation, sector, len) in [
        (Operation::Discard, 0, 65 * 512),
        (Operation::Discard, 0, 0),
        (Operation::Discard, 0, 511),
        (Operation::Discard, SECTORS - 1, 1024),
        (Operation::Discard, u64::MAX, 512),
        (zero(true), 0, 33 * 512),
    ] {
        assert_eq!(disk.send(slot, operation, sector, len), Err(Failed::Bad), "{sector} {len}");
    }
    // They may be longer than a place is.
    let good = [
        (Operation::Discard, SECTORS - 64, 64 * 512, 11, 0),
        (zero(false), 8, 32 * 512, 13, 0),
        (zero(true), 8, 512, 13, 1u64 << 32),
    ];
    for (operation, sector, len, kind, flags) in good {
        assert_eq!(disk.send(slot, operation, sector, len), Ok(()));
        disk.tell();
        let queue = device.queue(0).expect("a session");
        let chain = queue.take().expect("an honest client").expect("a request");
        assert_eq!((chain.reads.len, chain.writes.len), (HEADER + 16, 1));
        let mut words = [0; 32];
        assert!(read(&theirs, chain.reads.at, &mut words));
        let expected = [kind, 0, sector, (len as u64 / 512) | flags].map(u64::to_le_bytes);
        assert_eq!(words[..], expected.concat());
        assert!(disk.incoming(slot).is_none());
        queue.used(&chain, 1);
        queue.tell();
        // The status of a region that was never written is a success.
        assert_eq!(disk.completed(), Some((slot, Ok(()))));
        assert!(disk.incoming(slot).is_none());
    }
}

#[test]
fn features_say_what_a_configuration_means() {
    let up = |config: &Config, features| {
        let (mut device, [theirs, mine]) = described(config, features);
        let mut disk = Disk::open(theirs, mine, SECTION, MOST).expect("it fits");
        disk.attend();
        device.attend();
        disk.attend()
    };
    let name = WHOLE.name;
    assert_eq!(up(&WHOLE, 0), Some(News::Up(Info { name, ..info(0) })));
    // A range of a disk without such requests is not sent, and blocks are powers of two from a sector on.
    for block in [0, 511, 513, 1536, u32::MAX] {
        let config = Config { block, ..WHOLE };
        assert_eq!(up(&config, BLOCK_SIZE), Some(News::Refused), "{block}");
    }
    // Not a block fits a request.
    let config = Config { most: 0, ..WHOLE };
    assert_eq!(up(&config, SIZE_MAX | SEG_MAX), Some(News::Refused));
}

#[test]
fn a_disk_of_another_name_is_another_one() {
    let (mut device, [theirs, mine]) = described(&WHOLE, RANGES);
    let mut disk = Disk::open(theirs.clone(), mine.clone(), SECTION, MOST).expect("it fits");
    let mut meet = |device: &mut Device<Region>| {
        let first = disk.attend();
        device.attend();
        [first, disk.attend()]
    };
    assert!(matches!(meet(&mut device), [None, Some(News::Up(_))]));
    let again = |name: &[u8; ID]| {
        let config = Config { name: *name, ..WHOLE }.bytes();
        let offer = Offer { device: DEVICE, features: RANGES, config: &config, queues: &[16] };
        Device::open(mine.clone(), theirs.clone(), SECTION, &offer).expect("it fits")
    };
    let mut other = again(b"another one         ");
    assert_eq!(meet(&mut other)[0], Some(News::Lost));
    assert_eq!(meet(&mut other)[1], Some(News::Refused));
    let mut back = again(&WHOLE.name);
    assert!(matches!(meet(&mut back), [_, Some(News::Up(_))]));
}

/// A disk's side answers one read: index of its ring, chain, bytes that it wrote, status.
#[test]
fn an_answer_is_a_claim() {
    let whole = MOST as u64 + 1;
    let cases = [
        ((1, 0, whole, 0), Some(Ok(()))),
        // Fewer bytes than were asked for: an older request's would be in their place.
        ((1, 0, whole - 1, 0), None),
        ((1, 0, 1, 1), Some(Err(Failed::Disk))),
        ((1, 0, 1, 2), Some(Err(Failed::Unsupported))),
        ((1, 0, whole, 0xFF), None),
        ((1, 0, whole + 1, 0), None),
        ((1, 1, whole, 0), None),
        ((1, 2, whole, 0), None),
        ((1, u64::from(u32::MAX), whole, 0), None),
        ((9, 0, whole, 0), None),
        ((u16::MAX, 0, whole, 0), None),
    ];
    for ((index, chain, len, status), expected) in cases {
        let mut side = Side::new(0);
        let mut disk = side.client();
        meet(&mut side, &mut disk);
        let slot = disk.slot().expect("a place");
        disk.send(slot, Operation::Read, 0, MOST).expect("a good request");
        disk.tell();
        side.mine.poke(used(0) / 8, u64::from(index) << 16 | chain << 32);
        side.mine.poke(used(0) / 8 + 1, len);
        let own = side.mine.bytes(0, SECTION).expect("a section");
        assert!(own.write(POOL + MOST, &[status]));
        let done = disk.completed();
        assert_eq!(done, expected.map(|done| (slot, done)), "{index} {chain} {len} {status}");
        // After an answer that cannot be, the session is over, and the request waits for the next one.
        assert_eq!(disk.waiting(), usize::from(expected.is_none()));
        if expected.is_none() {
            assert_eq!(disk.attend(), None);
            side.again();
            assert_eq!(meet(&mut side, &mut disk), [News::Up(info(0))]);
            side.answer(0);
            assert_eq!(disk.completed(), Some((slot, Ok(()))));
        }
    }
}

/// A client at work: each place has a part of the disk for itself.
struct Work {
    disk: Disk<Region>,
    random: SplitMix64,
    /// Places on their way: kind, first sector, the byte that fills it.
    sent: BTreeMap<u16, (Slot, Operation, u64, u8, usize)>,
    /// Acknowledged content by first sector.
    known: BTreeMap<u64, (u8, usize)>,
    answers: usize,
    flushes: usize,
    lost: usize,
}

impl Work {
    fn send(&mut self) {
        let Some(slot) = self.disk.slot() else { return };
        let mut number = 0;
        while self.sent.contains_key(&number) {
            number += 1;
        }
        let sector = u64::from(number) * 64;
        let known = self.known.get(&sector).copied();
        let (operation, fill, len) = match (self.random.below(5), known) {
            (0, _) => (Operation::Flush, 0, 0),
            (1 | 2, Some((fill, len))) => (Operation::Read, fill, len),
            _ => {
                let len = 512 * (1 + self.random.below(MOST as u64 / 512)) as usize;
                (Operation::Write, 1 + self.random.below(255) as u8, len)
            }
        };
        if operation == Operation::Write {
            let bytes = self.disk.outgoing(slot).expect("its own");
            assert!(bytes.write(0, &vec![fill; len]));
        }
        let at = if operation == Operation::Flush { 0 } else { sector };
        self.disk.send(slot, operation, at, len).expect("a good request");
        self.disk.tell();
        self.sent.insert(number, (slot, operation, sector, fill, len));
    }

    fn take(&mut self) {
        while let Some((slot, done)) = self.disk.completed() {
            let number = self.sent.iter().find(|(_, sent)| sent.0 == slot).map(|(n, _)| *n);
            let number = number.expect("an answer to something");
            let (_, operation, sector, fill, len) = self.sent.remove(&number).expect("sent");
            assert_eq!(done, Ok(()));
            match operation {
                Operation::Write => drop(self.known.insert(sector, (fill, len))),
                Operation::Read => {
                    let mut read = vec![0; len];
                    assert!(self.disk.incoming(slot).expect("bytes").read(0, &mut read));
                    assert!(read.iter().all(|byte| *byte == fill), "{read:?}, not {fill}");
                }
                Operation::Flush => self.flushes += 1,
                other => panic!("{other:?} was never sent"),
            }
            self.disk.free(slot);
            self.answers += 1;
        }
    }
}

/// Ends of the disk's side at any point: no error, nothing acknowledged is lost, nothing is answered twice.
#[test]
fn requests_outlive_the_disks_side() {
    let mut side = Side::new(FLUSH);
    let (disk, random) = (side.client(), SplitMix64(18));
    let (sent, known) = (BTreeMap::new(), BTreeMap::new());
    let mut work = Work { disk, random, sent, known, answers: 0, flushes: 0, lost: 0 };
    let mut restarts = 0;
    for _ in 0..60_000 {
        match work.random.below(40) {
            0..10 => work.send(),
            10..20 => work.take(),
            20..25 => work.lost += usize::from(work.disk.attend() == Some(News::Lost)),
            25..30 => side.take(),
            30..39 => side.answer(work.random.below(16) as usize),
            _ => {
                if work.random.below(20) == 0 {
                    side.again();
                    restarts += 1;
                }
            }
        }
    }
    for _ in 0..100 {
        work.disk.attend();
        side.take();
        side.answer(0);
        work.take();
    }
    assert!(work.sent.is_empty(), "without an answer: {:?}", work.sent);
    for (sector, (fill, len)) in &work.known {
        let at = 512 * *sector as usize;
        assert!(side.content[at..at + len].iter().all(|byte| byte == fill), "sector {sector}");
    }
    assert!(side.flushes >= work.flushes && work.flushes > 100, "{} flushes", work.flushes);
    assert!(work.answers > 2_000 && restarts > 40, "{} answers, {restarts}", work.answers);
    assert!(work.lost > 20, "{} of {restarts} seen", work.lost);
}

/// A disk's side that writes anything: nothing panics, nothing is written to its section, and an honest one works.
#[test]
fn a_disk_that_writes_anything_harms_nothing() {
    let (mut answered, mut lost) = (0, 0);
    for seed in 0..300 {
        let mut random = SplitMix64(seed);
        let mut side = Side::new(0);
        let mut disk = side.client();
        meet(&mut side, &mut disk);
        let mut wrote: BTreeMap<usize, u64> = BTreeMap::new();
        let before: Vec<u64> = (0..side.mine.words()).map(|at| side.mine.look(at)).collect();
        let mut held = Vec::new();
        for _ in 0..200 {
            match random.below(6) {
                0 => {
                    held.extend(disk.slot());
                    if let Some(slot) = held.last() {
                        let _ = disk.send(*slot, Operation::Read, random.below(1024), MOST);
                        disk.tell();
                    }
                }
                1 => {
                    let places = [HELLO, CONFIG_WORD, DEVICE_WORD, used(0)];
                    let at = match random.below(5) {
                        0..4 => places[random.below(4) as usize],
                        _ => 8 * random.below(SECTION as u64 / 8) as usize,
                    };
                    let near = side.mine.look(at / 8).wrapping_add(1 << (16 * random.below(4)));
                    let value = if random.below(4) == 0 { random.any() } else { near };
                    side.mine.poke(at / 8, value);
                    wrote.insert(at / 8, value);
                }
                2 => lost += usize::from(disk.attend() == Some(News::Lost)),
                3 => held.iter().for_each(|slot| {
                    if let Some(bytes) = disk.incoming(*slot) {
                        assert!(bytes.len() <= MOST);
                    }
                }),
                _ => answered += usize::from(disk.completed().is_some()),
            }
        }
        for (at, was) in before.iter().enumerate() {
            let now = wrote.get(&at).unwrap_or(was);
            assert_eq!(side.mine.look(at), *now, "word {at} of the disk's section");
        }
        held.into_iter().for_each(|slot| disk.free(slot));
        // An honest one begins: its description is the first one's, so it is taken.
        side.again();
        let up = meet(&mut side, &mut disk).contains(&News::Up(info(0)));
        let mut other = side.client();
        assert!(up || meet(&mut side, &mut other).contains(&News::Up(info(0))), "seed {seed}");
    }
    // An answer by chance is whole hardly ever, so nearly all of them end their session.
    assert!(lost > 50, "{answered} answered, {lost} lost");
}
