//! Channels made at run time, under every order of accesses that C11's memory model allows (loom's), on the real code.
//! A link's memory is cleared for the next party while no core of the last one reaches it. Without any part that the
//! order hangs on the test must fail, so that the model is known to see it.

// loom's threads are coroutines of one thread, and its cells are not `Sync`.
#![allow(clippy::arc_with_non_send_sync)]

use bulkhead_monitor_abi::bell::Word;
use bulkhead_monitor_abi::link::{self, GONE, IDLE, OPEN, Side};
use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// The part that is left out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    Nothing,
    /// The fences of those who claim a word.
    Fence,
    /// The wait for the own cores.
    Cores,
    /// The owner's look at who had the link, before it is offered anew.
    Tenant,
    /// The other's look whether the offer stands, behind its claim and ever after.
    Stands,
    /// The next one's look whether it is offered the link.
    Offered,
    /// The look of cores after their guest's end, before they enter it anew.
    Settle,
    /// The wait for the owner's second core.
    OwnersCores,
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

/// Sandboxes: the link's owner, its peer, and the next one that it is offered to.
const OWNER: u32 = 0;
const PEER: u32 = 1;
const NEXT: u32 = 2;
/// The owner's word once it has offered the link to the peer, and once to the next one.
const OFFERED: u64 = 1 << 32 | (PEER as u64) << 8 | OPEN;
const HANDED_ON: u64 = 2 << 32 | (NEXT as u64) << 8 | OPEN;

/// A party's mailbox, tables and cores.
struct Sandbox {
    word: Cell,
    /// Phase of its entries.
    entries: AtomicU64,
    /// Flushes: asked for, and done by each core.
    wanted: Cell,
    done: Vec<Cell>,
    /// NMIs that its cores have not taken.
    nmi: Vec<AtomicBool>,
}

impl Sandbox {
    fn new(without: Without, word: u64, entries: u64, cores: usize) -> Self {
        let cell = |value| Cell(AtomicU64::new(value), without);
        Self {
            word: cell(word),
            entries: AtomicU64::new(entries),
            wanted: cell(0),
            done: { 0..cores }.map(|_| cell(0)).collect(),
            nmi: { 0..cores }.map(|_| AtomicBool::new(false)).collect(),
        }
    }
}

/// One link and its parties.
struct Machine {
    without: Without,
    sandboxes: [Sandbox; 3],
    /// A word of nobody's, idle; the owner's as it was; and as it may be later.
    stale: [Cell; 3],
    /// The memory of the link, of which loom tells when somebody reads while it is cleared or written.
    frame: UnsafeCell<()>,
}

impl Machine {
    /// The owner has offered the link to the peer.
    fn new(without: Without, cores: [usize; 3]) -> Arc<Self> {
        let cell = |value| Cell(AtomicU64::new(value), without);
        let sandbox = |who, word, entries| Sandbox::new(without, word, entries, cores[who]);
        Arc::new(Self {
            without,
            sandboxes: [sandbox(0, OFFERED, OPEN), sandbox(1, 0, IDLE), sandbox(2, 0, IDLE)],
            stale: [0, OFFERED, HANDED_ON].map(cell),
            frame: UnsafeCell::new(()),
        })
    }

    fn of(&self, who: u32) -> &Sandbox {
        &self.sandboxes[who as usize]
    }
}

/// A party's view, from one of its cores.
struct Party<'a>(&'a Machine, u32, u32);

impl Party<'_> {
    fn own(&self) -> &Sandbox {
        self.0.of(self.1)
    }
}

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
            (Without::Offered, NEXT, OWNER) => &self.0.stale[2],
            _ => &self.0.of(of).word,
        }
    }
    fn clear(&self) {
        self.0.frame.with_mut(|_| ());
    }
    fn map(&self, phase: u64) {
        self.own().entries.store(phase, Relaxed);
    }
    fn wanted(&self) -> &Cell {
        &self.own().wanted
    }
    fn done(&self, core: u32) -> Option<&Cell> {
        // The second core itself still empties its TLB.
        let left_out = self.0.without == Without::OwnersCores && self.1 == OWNER && core > self.2;
        self.own().done.get(core as usize).filter(|_| !left_out)
    }
    fn flush(&self) {
        if self.0.without == Without::Cores {
            // As if they had.
            self.own().done.iter().for_each(|done| {
                done.exchange(self.own().wanted.load());
            });
        }
        // A core with a modelled TLB empties it when it takes its NMI. This core does so, too.
        if self.1 == OWNER {
            link::empty(self, self.2, || ());
        }
        let others = self.own().nmi.iter().enumerate();
        others.filter(|(n, _)| self.1 != OWNER || *n != self.2 as usize).for_each(|(_, nmi)| {
            nmi.swap(true, AcqRel);
        });
    }
    fn ring(&self, sandbox: u32) {
        // The owner has nothing to do that this shows.
        if sandbox != OWNER {
            self.0.of(sandbox).nmi[0].swap(true, AcqRel);
        }
    }
    fn bury(&self, _: usize) {}
}

/// A core, with what its TLB has of the link.
struct Core<'a> {
    machine: &'a Machine,
    who: u32,
    number: u32,
    tlb: u64,
}

impl<'a> Core<'a> {
    fn new(machine: &'a Machine, who: u32, number: u32) -> Self {
        Self { machine, who, number, tlb: IDLE }
    }

    fn side(&self) -> Party<'a> {
        Party(self.machine, self.who, self.number)
    }

    /// Tells if the guest reaches the link.
    fn reaches(&mut self) -> bool {
        if self.tlb != OPEN {
            self.tlb = self.machine.of(self.who).entries.load(Relaxed);
        }
        self.tlb == OPEN
    }

    /// The guest reads the link, if it reaches it.
    fn guest(&mut self) {
        if self.reaches() {
            self.machine.frame.with(|_| ());
        }
    }

    /// The guest writes it.
    fn writes(&mut self) {
        if self.reaches() {
            self.machine.frame.with_mut(|_| ());
        }
    }

    /// Does its monitor's work at an NMI, if there is one.
    fn monitor(&mut self) {
        if self.machine.of(self.who).nmi[self.number as usize].swap(false, AcqRel) {
            self.looks();
        }
    }

    /// Does what its monitor does then, and before a guest is entered anew.
    fn looks(&mut self) {
        let side = self.side();
        link::empty(&side, self.number, || self.tlb = IDLE);
        link::settle(&side);
        // The owner rings the first core.
        if self.number == 0 {
            link::look(&side);
        }
    }

    fn run(&mut self) {
        self.guest();
        self.monitor();
        self.guest();
    }
}

/// Tries every order with at most so many preemptions; how many there were.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) -> usize {
    let orders = Arc::new(AtomicUsize::new(0));
    let counted = orders.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        model();
    });
    orders.load(std::sync::atomic::Ordering::Relaxed)
}

fn finds(without: Without, model: fn(Without)) -> bool {
    catch_unwind(AssertUnwindSafe(|| explore(4, move || model(without)))).is_err()
}

/// The peer uses it on both cores, and the second makes a call meanwhile; the owner takes it back and offers it to
/// another.
fn contest(machine: Arc<Machine>, call: fn(&Party)) {
    let core = |number| {
        let machine = machine.clone();
        loom::thread::spawn(move || {
            let mut core = Core::new(&machine, PEER, number);
            if number == 1 {
                core.guest();
                call(&core.side());
            }
            core.run();
        })
    };
    let threads = [core(0), core(1)];
    let again = taken(&machine);
    threads.into_iter().for_each(|thread| thread.join().expect("a core"));
    settled(&machine, again);
}

/// The owner takes it back and offers it to the next one, if it can.
fn taken(machine: &Machine) -> bool {
    let owner = Party(machine, OWNER, 0);
    assert_eq!(link::close(&owner), Some(true));
    link::offer(&owner, NEXT, 0)
}

/// The peer accepts.
fn taken_back(without: Without) {
    contest(Machine::new(without, [1, 2, 1]), |peer| {
        link::accept(peer, 1);
    });
}

/// Returns a machine after the peer has accepted.
fn accepted(without: Without, cores: [usize; 3]) -> Arc<Machine> {
    let machine = Machine::new(without, cores);
    assert_eq!(link::accept(&Party(&machine, PEER, 0), 1), Some(true));
    machine
}

/// The peer had accepted, and closes.
fn given_back(without: Without) {
    contest(accepted(without, [1, 2, 1]), |peer| {
        link::close(peer);
    });
}

/// The peer uses it; the owner takes it back and offers it to the next one, which accepts and writes.
fn handed_on(without: Without) {
    let machine = accepted(without, [1, 1, 1]);
    let (peers, nexts) = (machine.clone(), machine.clone());
    let peer = loom::thread::spawn(move || Core::new(&peers, PEER, 0).run());
    let next = loom::thread::spawn(move || {
        let mut core = Core::new(&nexts, NEXT, 0);
        let has = link::accept(&core.side(), 2) == Some(true);
        core.writes();
        has
    });
    let again = taken(&machine);
    peer.join().expect("a core");
    let has = next.join().expect("a core");
    assert!(again || !has, "it has what nobody offered");
    assert_eq!(machine.of(NEXT).entries.load(Relaxed) == OPEN, has);
    settled(&machine, again);
}

/// The peer's guest ends while the owner takes the link back and offers it to the next one. NMIs of the peer's cores
/// go with the last guest's interrupts; each looks before it enters the guest anew.
fn ended(without: Without) {
    let machine = accepted(without, [1, 2, 1]);
    let peers = machine.clone();
    let peer = loom::thread::spawn(move || {
        let mut cores = [0, 1].map(|number| Core::new(&peers, PEER, number));
        cores.iter_mut().for_each(Core::guest);
        // All cores have left the guest: a life begins with an empty TLB.
        cores.iter_mut().for_each(|core| core.tlb = IDLE);
        link::end(&Party(&peers, PEER, 0));
        peers.of(PEER).nmi.iter().for_each(|nmi| {
            nmi.swap(false, AcqRel);
        });
        for core in &mut cores {
            if without != Without::Settle {
                core.looks();
            }
            core.guest();
        }
    });
    let again = taken(&machine);
    peer.join().expect("the peer's cores");
    settled(&machine, again);
}

/// The owner's second core uses the link while the first takes it back and offers it anew.
fn own_cores(without: Without) {
    let machine = Machine::new(without, [2, 1, 1]);
    let owners = machine.clone();
    let second = loom::thread::spawn(move || Core::new(&owners, OWNER, 1).run());
    let again = taken(&machine);
    second.join().expect("the owner's core");
    settled(&machine, again);
}

/// When all NMIs are taken nothing is left: the link can be offered, if it was not already.
fn settled(machine: &Machine, again: bool) {
    for (who, sandbox) in (0..).zip(&machine.sandboxes).chain((0..).zip(&machine.sandboxes)) {
        for number in 0..sandbox.nmi.len() as u32 {
            Core { tlb: OPEN, ..Core::new(machine, who, number) }.monitor();
        }
    }
    let peer = machine.of(PEER);
    let phase = link::phase(peer.word.load());
    assert!(
        [IDLE, GONE].contains(&phase),
        "left in phase {phase}, {} wanted, {:?} done",
        peer.wanted.load(),
        peer.done.iter().map(Word::load).collect::<Vec<_>>()
    );
    assert_ne!(peer.entries.load(Relaxed), OPEN);
    assert!(again || link::offer(&Party(machine, OWNER, 0), NEXT, 0), "the link is lost");
}

#[test]
fn nobody_reaches_a_link_that_another_gets() {
    println!("{} orders", explore(4, || taken_back(Without::Nothing)));
    println!("{} orders", explore(4, || given_back(Without::Nothing)));
}

#[test]
fn the_next_one_has_it_alone() {
    println!("{} orders", explore(4, || handed_on(Without::Nothing)));
}

#[test]
fn a_guest_that_ends_leaves_nothing() {
    println!("{} orders", explore(4, || ended(Without::Nothing)));
}

#[test]
fn the_owners_cores_are_waited_for() {
    println!("{} orders", explore(4, || own_cores(Without::Nothing)));
}

#[test]
fn every_part_of_the_order_is_needed() {
    assert!(finds(Without::Fence, taken_back), "the claims' fences");
    assert!(finds(Without::Cores, given_back), "the wait for the other core");
    assert!(finds(Without::Tenant, taken_back), "the look at who had it");
    assert!(finds(Without::Stands, taken_back), "the look whether the offer stands");
    assert!(
        finds(Without::Tenant, handed_on),
        "the look at who had it, before the next one has it"
    );
    assert!(finds(Without::Offered, handed_on), "the next one's look for an offer");
    assert!(finds(Without::Settle, ended), "the look after a guest's end");
    assert!(finds(Without::OwnersCores, own_cores), "the wait for the owner's second core");
}
