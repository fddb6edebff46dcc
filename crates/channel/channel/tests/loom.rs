//! Ring, mailbox and sleep on the real code, under every order of accesses that the memory model allows (loom's,
//! which is C11's). The tests run again with one order weakened, and must fail: so the models can see an error, and
//! every order is needed.

// loom's threads are coroutines of one thread, and its cells are not `Sync`.
#![allow(clippy::arc_with_non_send_sync)]

use bulkhead_channel::adaptive::{Platform, Sleeper, Spin};
use bulkhead_channel::bell::{Arm, Bell, Ring};
use bulkhead_channel::layout::ARMED;
use bulkhead_channel::{Bytes, Memory, Offsets, Stop, Word, mailbox, page, queue, records};
use bulkhead_monitor_abi::bell::{self, Word as _};
use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Condvar, Mutex};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Orders and fences that one end leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Without {
    release: bool,
    acquire: bool,
    fence: bool,
}

const NOTHING: Without = Without { release: false, acquire: false, fence: false };
const FENCE: Without = Without { fence: true, ..NOTHING };
const RELEASE: Without = Without { release: true, ..NOTHING };
const ACQUIRE: Without = Without { acquire: true, ..NOTHING };

/// A word, and a mark of its users: loom reports two at once if one writes. Words of the protocol are atomic, so only
/// messages are looked at in this way.
#[derive(Debug)]
struct Place {
    value: AtomicU64,
    access: UnsafeCell<()>,
}

/// A region, as one end sees it.
#[derive(Clone, Debug)]
struct Region {
    places: Arc<Vec<Place>>,
    without: Without,
}

impl Region {
    fn new(words: usize) -> Self {
        let place = |_| Place { value: AtomicU64::new(0), access: UnsafeCell::new(()) };
        Self { places: Arc::new((0..words).map(place).collect()), without: NOTHING }
    }

    fn seen(&self, without: Without) -> Self {
        Self { places: self.places.clone(), without }
    }
}

#[derive(Clone, Debug)]
struct Part {
    region: Region,
    at: usize,
    len: usize,
}

impl Part {
    fn value(&self) -> &AtomicU64 {
        &self.region.places[self.at].value
    }
}

impl Word for Part {
    fn relaxed(&self) -> u64 {
        self.value().load(Relaxed)
    }
    fn acquire(&self) -> u64 {
        self.value().load(if self.region.without.acquire { Relaxed } else { Acquire })
    }
    fn set(&self, value: u64) {
        self.value().store(value, Relaxed);
    }
    fn release(&self, value: u64) {
        self.value().store(value, if self.region.without.release { Relaxed } else { Release });
    }
    fn fenced(&self, value: u64) {
        self.release(value);
        self.region.fence();
    }
}

/// Messages are of words here.
impl Bytes for Part {
    fn len(&self) -> usize {
        self.len
    }
    fn read(&self, at: usize, to: &mut [u8]) -> bool {
        for (n, eight) in to.chunks_mut(8).enumerate() {
            eight.copy_from_slice(&self.word(at + 8 * n).to_le_bytes());
        }
        true
    }
    fn write(&self, at: usize, from: &[u8]) -> bool {
        for (n, eight) in from.chunks(8).enumerate() {
            self.set_word(at + 8 * n, u64::from_le_bytes(eight.try_into().expect("words")));
        }
        true
    }
    fn word(&self, at: usize) -> u64 {
        assert!(at + 8 <= self.len);
        let place = &self.region.places[self.at + at / 8];
        place.access.with(|_| place.value.load(Relaxed))
    }
    fn set_word(&self, at: usize, value: u64) {
        assert!(at + 8 <= self.len);
        let place = &self.region.places[self.at + at / 8];
        place.access.with_mut(|_| place.value.store(value, Relaxed));
    }
}

impl Memory for Region {
    type Word = Part;
    type Bytes = Part;
    type Lane = Offsets;

    fn word(&self, at: usize) -> Option<Part> {
        self.bytes(at, 8)
    }
    fn bytes(&self, at: usize, len: usize) -> Option<Part> {
        let fits = at % 8 == 0 && at + len <= 8 * self.places.len();
        fits.then(|| Part { region: self.clone(), at: at / 8, len })
    }
    fn lane(&self, at: usize, stride: usize, slots: u32) -> Option<Offsets> {
        let lane = Offsets::new(stride, slots)?;
        self.bytes(at, stride * slots as usize).map(|_| lane)
    }
    fn fence(&self) {
        if !self.without.fence {
            fence(SeqCst);
        }
    }
}

/// Every order with at most so many preemptions.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Returns loom's finding.
fn finds(preemptions: usize, model: impl Fn() + Sync + Send + 'static) -> String {
    match catch_unwind(AssertUnwindSafe(|| explore(preemptions, model))) {
        Ok(()) => String::new(),
        Err(why) => why.downcast::<String>().map_or("another panic".into(), |why| *why),
    }
}

/// Tells if loom finds two accesses to a message at once.
fn races(preemptions: usize, model: impl Fn() + Sync + Send + 'static) -> bool {
    finds(preemptions, model).contains("Causality violation")
}

/// Makes `[tx, rx]` of the sender and of the receiver, each without the orders that it leaves out.
fn regions(data: usize, [sender, receiver]: [Without; 2]) -> [[Region; 2]; 2] {
    let (tx, rx) = (Region::new(64 + data), Region::new(64));
    [[tx.seen(sender), rx.seen(sender)], [tx.seen(receiver), rx.seen(receiver)]]
}

/// Three messages through two slots, so that one is written over.
fn ring(without: [Without; 2]) {
    let [[tx, rx], theirs] = regions(2, without);
    let mut sender = queue::Sender::open(&tx, &rx, 2, 8).expect("fits");
    let mut receiver = queue::Receiver::open(&theirs[1], &theirs[0], 2, 8).expect("fits");
    while sender.attend().is_err() | receiver.attend().is_err() {}
    let sending = loom::thread::spawn(move || {
        for n in 1..=3u64 {
            while let Err(stop) = sender.send(&n.to_le_bytes()) {
                assert_eq!(stop, Stop::Wait);
                loom::thread::yield_now();
            }
        }
    });
    for n in 1..=3u64 {
        let mut got = [0; 8];
        while let Err(stop) = receiver.receive(&mut got) {
            assert_eq!(stop, Stop::Wait);
            loom::thread::yield_now();
        }
        assert_eq!(u64::from_le_bytes(got), n);
    }
    sending.join().expect("no panic");
}

#[test]
fn a_ring_hands_over_every_message() {
    explore(3, || ring([NOTHING, NOTHING]));
}

#[test]
fn a_ring_needs_each_release_and_acquire() {
    for without in [[RELEASE, NOTHING], [ACQUIRE, NOTHING], [NOTHING, RELEASE], [NOTHING, ACQUIRE]]
    {
        assert!(races(3, move || ring(without)), "{without:?}");
    }
}

#[test]
fn a_ring_needs_no_fence() {
    explore(3, || ring([FENCE, FENCE]));
}

/// Records that skip the ring's end.
#[test]
fn records_are_handed_over() {
    explore(3, || {
        let [[tx, rx], theirs] = regions(5, [NOTHING; 2]);
        let mut sender = records::Sender::open(&tx, &rx, 40).expect("fits");
        let mut receiver = records::Receiver::open(&theirs[1], &theirs[0], 40).expect("fits");
        while sender.attend().is_err() | receiver.attend().is_err() {}
        let sending = loom::thread::spawn(move || {
            for n in 1..=3u64 {
                while let Err(stop) = sender.send(&n.to_le_bytes()) {
                    assert_eq!(stop, Stop::Wait);
                    loom::thread::yield_now();
                }
            }
        });
        for n in 1..=3u64 {
            let mut got = [0; 8];
            while let Err(stop) = receiver.receive(&mut got) {
                assert_eq!(stop, Stop::Wait);
                loom::thread::yield_now();
            }
            assert_eq!(u64::from_le_bytes(got), n);
        }
        sending.join().expect("no panic");
    });
}

/// The sender begins anew while the receiver reads. Messages that arrive afterwards are the new life's, from its
/// first on.
#[test]
fn a_restart_is_seen_and_crossed() {
    explore(2, || {
        let [[tx, rx], theirs] = regions(2, [NOTHING; 2]);
        let mut sender = queue::Sender::open(&tx, &rx, 2, 8).expect("fits");
        let mut receiver = queue::Receiver::open(&theirs[1], &theirs[0], 2, 8).expect("fits");
        while sender.attend().is_err() | receiver.attend().is_err() {}
        sender.send(&1u64.to_le_bytes()).expect("there is room");
        let sending = loom::thread::spawn(move || {
            drop(sender);
            let mut sender = queue::Sender::open(&tx, &rx, 2, 8).expect("fits");
            while sender.send(&10u64.to_le_bytes()).is_err() {
                loom::thread::yield_now();
            }
        });
        let (mut got, mut lost) = ([0; 8], 0);
        loop {
            match receiver.receive(&mut got) {
                Ok(()) if lost == 0 => assert_eq!(u64::from_le_bytes(got), 1),
                Ok(()) => break,
                Err(Stop::Lost) => lost += 1,
                Err(_) => loom::thread::yield_now(),
            }
        }
        assert_eq!((u64::from_le_bytes(got), lost), (10, 1));
        sending.join().expect("no panic");
    });
}

/// Some writes against some reads; no access meets another, and no state is older than
/// one that was read.
fn newest(without: [Without; 2], writes: u64, reads: u64) {
    let [[tx, rx], theirs] = regions(32, without);
    let mut writer = mailbox::Writer::open(&tx, &rx, 8).expect("fits");
    let mut reader = mailbox::Reader::open(&theirs[1], &theirs[0], 8).expect("fits");
    writer.write(&1u64.to_le_bytes()).expect("fits");
    let writing = loom::thread::spawn(move || {
        for n in 2..2 + writes {
            writer.write(&n.to_le_bytes()).expect("fits");
        }
    });
    let mut last = 1;
    for _ in 0..reads {
        let mut got = [0; 8];
        reader.read(&mut got).expect("there is one");
        let got = u64::from_le_bytes(got);
        assert!(got >= last, "{got} after {last}");
        last = got;
    }
    writing.join().expect("no panic");
}

#[test]
fn a_mailbox_is_never_torn_and_never_older() {
    explore(4, || newest([NOTHING; 2], 3, 2));
    explore(3, || newest([NOTHING; 2], 2, 3));
}

#[test]
fn a_mailbox_needs_both_fences_and_each_order() {
    for without in [
        [FENCE, NOTHING],
        [NOTHING, FENCE],
        [RELEASE, NOTHING],
        [ACQUIRE, NOTHING],
        [NOTHING, RELEASE],
        [NOTHING, ACQUIRE],
    ] {
        assert!(races(4, move || newest(without, 3, 3)), "{without:?}");
    }
}

/// A word of the machine, as monitors see it.
struct Shared(AtomicU64);

impl bell::Word for Shared {
    fn load(&self) -> u64 {
        self.0.load(Acquire)
    }
    fn replace(&self, from: u64, to: u64) -> bool {
        self.0.compare_exchange(from, to, AcqRel, Relaxed).is_ok()
    }
    fn claim(&self, _: u64, _: u64) -> bool {
        panic!("nothing here is claimed");
    }
    fn count(&self) {
        panic!("nothing here is counted");
    }
    fn exchange(&self, to: u64) -> u64 {
        let was = self.0.swap(to, AcqRel);
        fence(SeqCst);
        was
    }
}

/// The receiver's armed word, which monitors only read.
struct Armed(Part);

impl bell::Word for Armed {
    fn load(&self) -> u64 {
        self.0.acquire()
    }
    fn replace(&self, _: u64, _: u64) -> bool {
        panic!("a monitor wrote to the receiver's page");
    }
    fn claim(&self, _: u64, _: u64) -> bool {
        panic!("a monitor wrote to the receiver's page");
    }
    fn count(&self) {
        panic!("a monitor wrote to the receiver's page");
    }
    fn exchange(&self, _: u64) -> u64 {
        panic!("a monitor wrote to the receiver's page");
    }
}

/// Delivers as the sender's monitor does; a ring that comes early is kept, as a local APIC keeps an interrupt.
struct Bed {
    rung: Shared,
    armed: Armed,
    pending: Mutex<bool>,
    woken: Condvar,
    /// Interrupts that were sent.
    sent: AtomicU64,
}

impl Bed {
    fn new(rx: &Region) -> Arc<Self> {
        Arc::new(Self {
            rung: Shared(AtomicU64::new(0)),
            armed: Armed(rx.word(ARMED).expect("inside")),
            pending: Mutex::new(false),
            woken: Condvar::new(),
            sent: AtomicU64::new(0),
        })
    }

    fn interrupt(&self) {
        self.sent.fetch_add(1, Relaxed);
        *self.pending.lock().expect("no panic") = true;
        self.woken.notify_one();
    }
}

struct Side(Arc<Bed>);

impl Ring for Side {
    fn ring(&mut self) {
        if bell::admit(&self.0.rung, &self.0.armed) {
            self.0.interrupt();
        }
    }
}

impl Platform for Side {
    fn now(&mut self) -> u64 {
        0
    }
    fn relax(&mut self) {}
    fn sleep(&mut self) {
        let mut pending = self.0.pending.lock().expect("no panic");
        while !*pending {
            pending = self.0.woken.wait(pending).expect("no panic");
        }
        *pending = false;
    }
}

/// Two messages to a receiver that sleeps between them. An end that sleeps for ever is a deadlock, which loom tells.
fn sleep(without: [Without; 2]) {
    let [[tx, rx], theirs] = regions(2, without);
    let mut sender = queue::Sender::open(&tx, &rx, 2, 8).expect("fits");
    let mut receiver = queue::Receiver::open(&theirs[1], &theirs[0], 2, 8).expect("fits");
    let mut bell = Bell::open(tx, &rx).expect("fits");
    let mut arm = Arm::open(&theirs[1]).expect("fits");
    while sender.attend().is_err() | receiver.attend().is_err() {}
    let bed = Bed::new(&theirs[1]);
    let mut other = Side(bed.clone());
    let sending = loom::thread::spawn(move || {
        for n in 1..=2u64 {
            sender.send(&n.to_le_bytes()).expect("there is room");
            bell.notify(&mut other);
        }
    });
    let mut bed = Side(bed);
    for n in 1..=2u64 {
        while !Spin::NEVER.clone().wait(&mut arm, &mut bed, || receiver.peek(1).is_ok()) {}
        let mut got = [0; 8];
        receiver.receive(&mut got).expect("there is one");
        assert_eq!(u64::from_le_bytes(got), n);
    }
    sending.join().expect("no panic");
}

#[test]
fn nobody_sleeps_through_a_message() {
    explore(3, || sleep([NOTHING; 2]));
}

#[test]
fn sleeping_needs_both_fences() {
    for without in [[FENCE, NOTHING], [NOTHING, FENCE]] {
        assert!(finds(3, move || sleep(without)).contains("deadlock"), "{without:?}");
    }
}

/// An alternative to [`bell::admit`] in a monitor.
type Admit = fn(&Shared, &Armed) -> bool;

/// Two cores of a sender ring as they like; the receiver arms twice, the second time when it was woken. More interrupts
/// than armings are told.
fn flood(admit: Admit) {
    let rx = Region::new(64);
    let bed = Bed::new(&rx);
    let mut arm = Arm::open(&rx).expect("fits");
    arm.arm();
    let core = |rings: usize| {
        let bed = bed.clone();
        loom::thread::spawn(move || {
            for _ in 0..rings {
                if admit(&bed.rung, &bed.armed) {
                    bed.interrupt();
                }
            }
        })
    };
    let cores = [core(2), core(2)];
    if bed.sent.load(Relaxed) > 0 {
        arm.disarm();
        arm.arm();
    }
    let armings = 1 + u64::from(rx.word(ARMED).expect("inside").relaxed() as u32 > 1);
    for core in cores {
        core.join().expect("no panic");
    }
    let sent = bed.sent.load(Relaxed);
    assert!(sent <= armings, "{sent} interrupts for {armings} armings");
}

#[test]
fn a_flood_from_two_cores_gets_through_once_for_each_arming() {
    explore(4, || flood(bell::admit));
}

#[test]
fn the_last_ring_is_read_before_the_armed_word_and_replaced_as_it_was() {
    // In the other order a value that was rung for long ago comes again.
    let late: Admit = |rung, armed| {
        let now = armed.load();
        let last = rung.load();
        now & 1 == 1 && now != last && rung.replace(last, now)
    };
    let swapped: Admit = |rung, armed| {
        let now = armed.load();
        now & 1 == 1 && rung.0.swap(now, AcqRel) != now
    };
    for admit in [late, swapped] {
        assert!(finds(4, move || flood(admit)).contains("armings"));
    }
}

/// Two cores of a sender each send through a channel of their own and ring one doorbell for both. The message with
/// the late ring wakes the receiver, too.
fn shared_bell() {
    let [one, two] = [(); 2].map(|()| Region::new(64));
    let rx = Region::new(64);
    let bed = Bed::new(&rx);
    let mut arm = Arm::open(&rx).expect("fits");
    let words = [&one, &two].map(|region| region.word(0).expect("inside"));
    let cores = words.clone().map(|word| {
        let mut side = Side(bed.clone());
        loom::thread::spawn(move || {
            word.fenced(1);
            side.ring();
        })
    });
    let mut side = Side(bed);
    let came = || words.iter().all(|word| word.acquire() == 1);
    while !Spin::NEVER.clone().wait(&mut arm, &mut side, came) {}
    for core in cores {
        core.join().expect("no panic");
    }
}

#[test]
fn a_ring_that_another_core_overtakes_wakes_all_the_same() {
    explore(3, shared_bell);
}

/// The sender's guest ends after a message, and its monitor says so and rings. An end that sleeps on is a deadlock.
fn end(without: Without) {
    let [[tx, rx], theirs] = regions(2, [NOTHING; 2]);
    let mut sender = queue::Sender::open(&tx, &rx, 2, 8).expect("fits");
    let mut receiver = queue::Receiver::open(&theirs[1], &theirs[0], 2, 8).expect("fits");
    let arm = Arm::open(&theirs[1]).expect("fits");
    while sender.attend().is_err() | receiver.attend().is_err() {}
    let bed = Bed::new(&theirs[1]);
    let mut monitor = Side(bed.clone());
    let sending = loom::thread::spawn(move || {
        sender.send(&1u64.to_le_bytes()).expect("there is room");
        let tx = tx.seen(without);
        assert!(page::bury(&tx));
        tx.fence();
        monitor.ring();
    });
    let mut sleeper = Sleeper::new(arm, Spin::NEVER, Side(bed));
    let mut got = [0; 8];
    assert_eq!(sleeper.wait(|| receiver.receive(&mut got)), Ok(()));
    assert_eq!(u64::from_le_bytes(got), 1);
    assert_eq!(sleeper.wait(|| receiver.receive(&mut got)), Err(Stop::Left));
    sending.join().expect("no panic");
}

#[test]
fn nobody_sleeps_through_an_end() {
    explore(3, || end(NOTHING));
}

#[test]
fn an_end_needs_its_fence() {
    assert!(finds(3, || end(FENCE)).contains("deadlock"));
}

/// A choice of where a Linux's interrupts go, and its monitor's reaction to a change.
type Aimed = fn(&Shared, u64) -> bool;

/// A message is sent while the receiver's other core switches interrupts on, which went nowhere before. A receiver
/// that sleeps for ever is a deadlock.
fn switched_on(aimed: Aimed) {
    let [[tx, rx], theirs] = regions(2, [NOTHING; 2]);
    let mut sender = queue::Sender::open(&tx, &rx, 2, 8).expect("fits");
    let mut receiver = queue::Receiver::open(&theirs[1], &theirs[0], 2, 8).expect("fits");
    let mut bell = Bell::open(tx, &rx).expect("fits");
    let mut arm = Arm::open(&theirs[1]).expect("fits");
    while sender.attend().is_err() | receiver.attend().is_err() {}
    let bed = Bed::new(&theirs[1]);
    let aim = Arc::new(Shared(AtomicU64::new(0)));
    struct Sender(Arc<Bed>, Arc<Shared>);
    impl Ring for Sender {
        fn ring(&mut self) {
            if bell::admit(&self.0.rung, &self.0.armed) && self.1.load() != 0 {
                self.0.interrupt();
            }
        }
    }
    let mut side = Sender(bed.clone(), aim.clone());
    let sending = loom::thread::spawn(move || {
        sender.send(&1u64.to_le_bytes()).expect("there is room");
        bell.notify(&mut side);
    });
    let mut got = [0; 8];
    arm.arm();
    // From its last look on it looks only when it is woken.
    let mut found = receiver.receive(&mut got).is_ok();
    if aimed(&aim, 0x41) {
        bed.interrupt();
    }
    let mut bed = Side(bed);
    while !found {
        bed.sleep();
        found = receiver.receive(&mut got).is_ok();
    }
    assert_eq!(u64::from_le_bytes(got), 1);
    sending.join().expect("no panic");
}

#[test]
fn nobody_sleeps_through_a_message_that_found_no_way() {
    explore(3, || switched_on(bell::aim));
}

#[test]
fn an_aim_needs_its_interrupt_and_its_fence() {
    let silent: Aimed = |aim, icr| {
        bell::aim(aim, icr);
        false
    };
    let unfenced: Aimed = |aim, icr| aim.0.swap(icr, AcqRel) != icr;
    for aimed in [silent, unfenced] {
        assert!(finds(3, move || switched_on(aimed)).contains("deadlock"));
    }
}
