//! The lock of shared registers, under every order of accesses that C11's memory model allows (loom's), on the real
//! code. Parties are in time, are overtaken before their turn, or are late with the lock. No party is inside with
//! another, and each sees the work of the one before. A party that gives up has done nothing, and in the end the lock
//! is free. Without any part that this hangs on the test must fail, so that the model is known to see it.

use bulkhead_monitor_abi::lock::{Lock, Pace, Word};
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicBool, AtomicU32};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The part that is left out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    Nothing,
    /// The exchange by which the lock is taken.
    Exchange,
    /// The order of taking it and what is done then.
    Acquire,
    /// The order of what was done and giving it back.
    Release,
}

struct Bits(AtomicU32, Without);

impl Bits {
    fn new(without: Without) -> Self {
        Self(AtomicU32::new(0), without)
    }
}

impl Word for Bits {
    fn load(&self) -> u32 {
        self.0.load(Relaxed)
    }
    fn take(&self, from: u32, to: u32) -> bool {
        if self.1 == Without::Exchange {
            let same = self.0.load(Acquire) == from;
            if same {
                self.0.store(to, Relaxed);
            }
            return same;
        }
        let order = if self.1 == Without::Acquire { Relaxed } else { Acquire };
        self.0.compare_exchange(from, to, order, Relaxed).is_ok()
    }
    fn give(&self, to: u32) {
        self.0.store(to, if self.1 == Without::Release { Relaxed } else { Release });
    }
    fn add(&self, bits: u32) {
        self.0.fetch_or(bits, Relaxed);
    }
    fn remove(&self, bits: u32) {
        self.0.fetch_and(!bits, Relaxed);
    }
}

/// The lock, and registers that two must not use at once: no access of them orders any other.
struct Machine {
    lock: Lock<Bits>,
    index: AtomicU32,
    table: AtomicU32,
}

impl Machine {
    fn new(without: Without) -> Arc<Self> {
        let lock = Lock { state: Bits::new(without), want: Bits::new(without) };
        Arc::new(Self { lock, index: AtomicU32::new(0), table: AtomicU32::new(0) })
    }

    /// Writes once more, by index and window; between both, runs `between`. Returns true if the turn came.
    fn write(&self, me: u32, pace: Pace, between: impl FnOnce()) -> bool {
        let time = Cell::new(0);
        let clock = || {
            loom::thread::yield_now();
            time.set(time.get() + 1);
            time.get()
        };
        let work = || {
            self.index.store(me, Relaxed);
            between();
            assert_eq!(self.index.load(Relaxed), me, "another one is inside");
            // Not one operation: lost if another one does it at once, or did it and that is not seen.
            self.table.store(self.table.load(Relaxed) + 1, Relaxed);
        };
        self.lock.with(me, pace, clock, work).is_some()
    }

    /// How many writes there were; at the end.
    fn written(&self) -> u32 {
        assert_eq!(self.lock.want.load(), 0, "somebody wants it still");
        assert!(self.write(9, Pace { patience: 0, turn: 0 }, || {}), "it is not free");
        self.table.load(Relaxed) - 1
    }
}

/// Two parties at once; the turns are so short that one is overtaken, or so long that none is.
fn contest(without: Without, turn: u64) {
    let machine = Machine::new(without);
    let pace = Pace { patience: 3, turn };
    let other = {
        let machine = machine.clone();
        loom::thread::spawn(move || u32::from(machine.write(4, pace, || {})))
    };
    let mut done = u32::from(machine.write(2, pace, || {}));
    done += other.join().expect("a party");
    assert!(done > 0, "nobody had a turn");
    assert_eq!(machine.written(), done, "who gave up has written, or a write is lost");
}

/// A party that is late with the lock, until the other one has given up. Then both go on.
fn late() {
    let machine = Machine::new(Without::Nothing);
    let (inside, gone) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let holder = {
        let (machine, inside, gone) = (machine.clone(), inside.clone(), gone.clone());
        loom::thread::spawn(move || {
            let wait = || {
                inside.store(true, Release);
                while !gone.load(Acquire) {
                    loom::thread::yield_now();
                }
            };
            assert!(machine.write(1, Pace { patience: 0, turn: 0 }, wait));
        })
    };
    while !inside.load(Acquire) {
        loom::thread::yield_now();
    }
    let pace = Pace { patience: 2, turn: 0 };
    assert!(!machine.write(2, pace, || {}), "inside with the holder");
    gone.store(true, Release);
    holder.join().expect("the holder");
    assert!(machine.write(2, pace, || {}), "a late holder broke it");
    assert_eq!(machine.written(), 2);
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn finds(without: Without) -> bool {
    let model = || explore(move || contest(without, 1));
    catch_unwind(AssertUnwindSafe(model)).is_err()
}

#[test]
fn one_at_a_time_and_it_never_breaks() {
    for turn in [0, 1, 100] {
        explore(move || contest(Without::Nothing, turn));
    }
    explore(late);
}

#[test]
fn it_hangs_on_the_exchange_and_both_orders() {
    for without in [Without::Exchange, Without::Acquire, Without::Release] {
        assert!(finds(without), "{without:?}");
    }
}
