//! Channels made at run time, under every order of accesses that C11's memory model allows (loom's), on the real code:
//! a slot's memory is cleared for the next one while no core of the last one reaches it. The same without what the
//! order hangs on must fail, so that the model is known to see it.

// loom's threads are coroutines of one thread, and its cells are not `Sync`.
#![allow(clippy::arc_with_non_send_sync)]

use bulkhead_resident::bell::Word;
use bulkhead_resident::link::{self, GONE, IDLE, OPEN, Side};
use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What is left out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    Nothing,
    /// The fences of those who claim a word.
    Fence,
    /// The wait for the own cores.
    Cores,
    /// The owner's look at who had the slot, before it is offered anew.
    Tenant,
    /// The other's look whether the offer stands, behind its claim and ever after.
    Stands,
}

struct Cell(AtomicU64, Without);

impl Word for Cell {
    fn load(&self) -> u64 {
        self.0.load(Acquire)
    }
    fn replace(&self, from: u64, to: u64) -> bool {
        self.0.compare_exchange(from, to, AcqRel, Relaxed).is_ok()
    }
    fn claim(&self, from: u64, to: u64) -> bool {
        let done = self.replace(from, to);
        if self.1 != Without::Fence {
            fence(SeqCst);
        }
        done
    }
    fn count(&self) {
        self.0.fetch_add(1, AcqRel);
    }
    fn exchange(&self, to: u64) -> u64 {
        let was = self.0.swap(to, AcqRel);
        if self.1 != Without::Fence {
            fence(SeqCst);
        }
        was
    }
}

/// Sandboxes: the slot's owner, with one core, and who is to have it, with two.
const OWNER: u32 = 0;
const PEER: u32 = 1;
/// Whom it is offered to next.
const NEXT: u32 = 2;

/// One slot and two of its parties.
struct Machine {
    without: Without,
    words: [Cell; 3],
    /// A word of nobody's: idle; and the owner's as it was.
    stale: [Cell; 2],
    /// The memory of the slot, of which loom tells when somebody reads while it is cleared.
    frame: UnsafeCell<()>,
    /// The peer's entries: their phase.
    entries: AtomicU64,
    /// The peer's flushes: asked for, and done by each core.
    wanted: Cell,
    done: [Cell; 2],
    /// The owner's, whose only core does it where it asks for it.
    owners: [Cell; 2],
    /// NMIs that the peer's cores have not taken.
    nmi: [AtomicBool; 2],
}

impl Machine {
    /// The owner has offered the slot to the peer.
    fn new(without: Without) -> Arc<Self> {
        let word = |value| Cell(AtomicU64::new(value), without);
        let offered = 1 << 32 | u64::from(PEER) << 8 | OPEN;
        Arc::new(Self {
            without,
            words: [word(offered), word(0), word(0)],
            stale: [word(0), word(offered)],
            frame: UnsafeCell::new(()),
            entries: AtomicU64::new(IDLE),
            wanted: word(0),
            done: [word(0), word(0)],
            owners: [word(0), word(0)],
            nmi: [AtomicBool::new(false), AtomicBool::new(false)],
        })
    }
}

/// A party's view.
struct Party<'a>(&'a Machine, u32);

impl Side for Party<'_> {
    type Word = Cell;
    fn me(&self) -> u32 {
        self.1
    }
    fn owner(&self) -> u32 {
        OWNER
    }
    fn word(&self, of: u32) -> &Cell {
        match (self.0.without, self.1, of) {
            (Without::Tenant, OWNER, PEER) => &self.0.stale[0],
            (Without::Stands, PEER, OWNER) => &self.0.stale[1],
            _ => &self.0.words[of as usize],
        }
    }
    fn clear(&self) {
        self.0.frame.with_mut(|_| ());
    }
    fn map(&self, phase: u64) {
        if self.1 == PEER {
            self.0.entries.store(phase, Relaxed);
        }
    }
    fn wanted(&self) -> &Cell {
        if self.1 == PEER { &self.0.wanted } else { &self.0.owners[0] }
    }
    fn done(&self, core: u32) -> Option<&Cell> {
        match self.1 {
            PEER => self.0.done.get(core as usize),
            _ => (core == 0).then_some(&self.0.owners[1]),
        }
    }
    fn flush(&self) {
        if self.1 == PEER {
            if self.0.without == Without::Cores {
                // As if they had.
                self.0.done.iter().for_each(|done| {
                    done.exchange(self.0.wanted.load());
                });
            }
            self.0.nmi.iter().for_each(|nmi| {
                nmi.swap(true, AcqRel);
            });
        } else {
            link::empty(self, 0, || ());
        }
    }
    fn ring(&self, sandbox: u32) {
        if sandbox == PEER {
            self.0.nmi[0].swap(true, AcqRel);
        }
    }
    fn bury(&self, _: usize) {}
}

/// A core of the peer's, with what its TLB has of the slot.
struct Core<'a> {
    machine: &'a Machine,
    number: usize,
    tlb: u64,
}

impl Core<'_> {
    /// The guest reads the slot, if it reaches it.
    fn guest(&mut self) {
        if self.tlb != OPEN {
            self.tlb = self.machine.entries.load(Relaxed);
        }
        if self.tlb == OPEN {
            self.machine.frame.with(|_| ());
        }
    }

    /// What its monitor does at an NMI, if there is one.
    fn monitor(&mut self) {
        if self.machine.nmi[self.number].swap(false, AcqRel) {
            let side = Party(self.machine, PEER);
            link::empty(&side, self.number as u32, || self.tlb = IDLE);
            link::settle(&side);
            // The owner rings the first core.
            if self.number == 0 {
                link::look(&side);
            }
        }
    }

    fn run(&mut self) {
        self.guest();
        self.monitor();
        self.guest();
    }
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(model);
}

fn finds(without: Without, model: fn(Without)) -> bool {
    catch_unwind(AssertUnwindSafe(|| explore(move || model(without)))).is_err()
}

/// The peer uses it on both cores, and the second makes a call meanwhile; the owner takes it back and offers it to
/// another.
fn contest(machine: Arc<Machine>, call: fn(&Party)) {
    let core = |number| {
        let machine = machine.clone();
        loom::thread::spawn(move || {
            let mut core = Core { machine: &machine, number, tlb: IDLE };
            if number == 1 {
                core.guest();
                call(&Party(&machine, PEER));
            }
            core.run();
        })
    };
    let threads = [core(0), core(1)];
    assert_eq!(link::close(&Party(&machine, OWNER)), Some(true));
    let again = link::offer(&Party(&machine, OWNER), NEXT, 0);
    threads.into_iter().for_each(|thread| thread.join().expect("a core"));
    settled(&machine, again);
}

/// It accepts.
fn taken_back(without: Without) {
    contest(Machine::new(without), |peer| {
        link::accept(peer, 1);
    });
}

/// It had accepted, and closes.
fn given_back(without: Without) {
    let machine = Machine::new(without);
    assert_eq!(link::accept(&Party(&machine, PEER), 1), Some(true));
    contest(machine, |peer| {
        link::close(peer);
    });
}

/// When all NMIs are taken nothing is left: the slot can be offered, if it was not already.
fn settled(machine: &Machine, again: bool) {
    for _ in 0..2 {
        { 0..2 }.for_each(|number| Core { machine, number, tlb: OPEN }.monitor());
    }
    let phase = link::phase(machine.words[PEER as usize].load());
    assert!(
        [IDLE, GONE].contains(&phase),
        "left in phase {phase}, {} wanted, {:?} done, nmi {:?}",
        machine.wanted.load(),
        machine.done.each_ref().map(Word::load),
        machine.nmi.each_ref().map(|n| n.load(Relaxed))
    );
    assert_ne!(machine.entries.load(Relaxed), OPEN);
    assert!(again || link::offer(&Party(machine, OWNER), NEXT, 0), "the slot is lost");
}

#[test]
fn nobody_reaches_a_slot_that_another_gets() {
    explore(|| taken_back(Without::Nothing));
    explore(|| given_back(Without::Nothing));
}

#[test]
fn every_part_of_the_order_is_needed() {
    assert!(finds(Without::Fence, taken_back), "the claims' fences");
    assert!(finds(Without::Cores, given_back), "the wait for the other core");
    assert!(finds(Without::Tenant, taken_back), "the look at who had it");
    assert!(finds(Without::Stands, taken_back), "the look whether the offer stands");
}
