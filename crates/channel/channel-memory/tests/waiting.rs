//! Ends of bytes that ring, wait and sleep, over a bed that counts.

use bulkhead_channel::Stop;
use bulkhead_channel::adaptive::Platform;
use bulkhead_channel::bell::Ring;
use bulkhead_channel::layout::Kind;
use bulkhead_channel_memory::typed::{Doorbell, Pair};
use bulkhead_channel_memory::waiting::{Bed, Patience, Receiver, Sender};
use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;

const LEN: usize = 4096;
const MESSAGE: [u8; 64] = [7; 64];

/// Counts of one kind each.
#[derive(Clone, Default)]
struct Counts {
    rings: Rc<Cell<u32>>,
    sleeps: Rc<Cell<u32>>,
    settled: Rc<Cell<u32>>,
    awake: Rc<Cell<bool>>,
}

fn count(one: &Cell<u32>) {
    one.set(one.get() + 1);
}

struct Bell(Counts);

impl Ring for Bell {
    fn ring(&mut self) {
        count(&self.0.rings);
    }
}

/// So many rests or sleeps.
struct Looks {
    left: u32,
    rests: u32,
}

impl Looks {
    fn of(left: u32) -> Self {
        Self { left, rests: 0 }
    }
}

impl Patience for Looks {
    fn is_over(&self) -> bool {
        self.rests >= self.left
    }

    fn rest(&mut self) {
        self.rests += 1;
    }
}

struct Count(Counts);

impl Platform for Count {
    fn now(&mut self) -> u64 {
        0
    }

    fn relax(&mut self) {}

    fn sleep(&mut self) {
        count(&self.0.sleeps);
        assert!(self.0.sleeps.get() < 3, "it sleeps for ever");
    }
}

impl Bed for Count {
    type Patience = Looks;

    fn prepare(&mut self, patience: &Looks) -> bool {
        assert!(!patience.is_over());
        !self.0.awake.get() && self.0.sleeps.get() < 2
    }

    fn settle(&mut self) {
        count(&self.0.settled);
    }
}

/// Both ends of a queue with a session; the receiver is woken.
fn ends(counts: &Counts) -> (Sender<'static, Bell>, Receiver<'static, Count>) {
    let base: NonNull<u8> = NonNull::from(vec![0u64; LEN / 4].leak()).cast();
    let doorbell = Doorbell { at: 1, adaptive: false, right: 0 };
    // SAFETY: leaked, so it lasts, and all of it is writable; it is only accessed by these two.
    let side = |sends| unsafe { Pair::new(base, LEN, (Kind::Queue as u8, 64), sends) };
    let [from, to] = [true, false].map(|sends| side(sends).expect("fits").with(Some(doorbell)));
    let mut out = Sender::open(&from, |_| Some(Bell(counts.clone()))).expect("sends");
    let mut end = Receiver::open(&to, 0, |_| Some(Count(counts.clone()))).expect("receives");
    for _ in 0..3 {
        let _ = (out.attend(), end.attend());
    }
    (out, end)
}

#[test]
fn a_receiver_sleeps_and_then_rests_until_its_patience_is_over() {
    let counts = Counts::default();
    let (mut out, mut end) = ends(&counts);
    let (mut looks, mut buffer) = (Looks::of(3), [0; 64]);
    let found = end.within(&mut looks, |end| end.receive(&mut buffer));
    // A bed that cannot be slept in any more is rested beside.
    assert_eq!((found, counts.sleeps.get(), looks.rests), (Err(Stop::Wait), 2, 3));
    assert_eq!(end.sleeper().map(|sleeper| sleeper.armings()), Some(2));
    out.send(&MESSAGE).expect("room");
    assert_eq!(counts.rings.get(), 0, "it asks no longer");
    // It looks first, whatever its patience.
    let found = end.within(&mut Looks::of(0), |end| end.receive(&mut buffer));
    assert_eq!((found, buffer), (Ok(64), MESSAGE));
    assert_eq!(end.once(|end| end.receive(&mut buffer)), Err(Stop::Wait));
}

#[test]
fn a_loop_of_the_callers_is_woken_and_gets_news_once() {
    let counts = Counts::default();
    let (mut out, mut end) = ends(&counts);
    let mut buffer = [0; 64];
    assert!(end.arm());
    out.send(&MESSAGE).expect("room");
    assert_eq!((counts.rings.get(), counts.settled.get()), (1, 0));
    assert!(!end.arm(), "there is a message");
    // The first arming was over, and the second is.
    assert_eq!(counts.settled.get(), 2);
    assert_eq!(end.once(|end| end.receive(&mut buffer)), Ok(64));
    assert!(end.arm());
    out.close();
    assert_eq!(counts.rings.get(), 2, "to leave is news");
    assert!(!end.arm());
    assert!(!end.arm(), "the news is there until it is received");
    assert_eq!(end.once(|end| end.receive(&mut buffer)), Err(Stop::Left));
    assert_ne!(end.once(|end| end.receive(&mut buffer)), Err(Stop::Left));
}

#[test]
fn a_sender_rests_until_there_is_room() {
    let counts = Counts::default();
    let (mut out, mut end) = ends(&counts);
    assert_eq!(out.send(&MESSAGE[1..]), Err(Stop::Size));
    assert_eq!(out.send_within(&MESSAGE[1..], &mut Looks::of(9)), Err(Stop::Size));
    while out.send(&MESSAGE).is_ok() {}
    let mut looks = Looks::of(5);
    assert_eq!((out.send_within(&MESSAGE, &mut looks), looks.rests), (Err(Stop::Wait), 5));
    let mut buffer = [0; 64];
    while end.once(|end| end.receive(&mut buffer)).is_ok() {}
    assert_eq!(out.send_within(&MESSAGE, &mut Looks::of(0)), Ok(()));
    assert_eq!((out.longest(), end.longest()), (64, 64));
    end.close();
    // It sees that when the ring is full, at the latest.
    let why = (0..LEN).find_map(|_| out.send(&MESSAGE).err());
    assert_eq!(why, Some(Stop::Left));
}
