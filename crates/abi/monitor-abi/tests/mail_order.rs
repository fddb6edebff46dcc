//! Requests between monitors, under every order of accesses that C11's memory model allows (loom's), on the real code.
//! Two cores of a sender post, and the receiver's first core takes the requests that it was rung for. Each ring is for
//! one request, no request is lost although it is rung for only once, and a token lets one core through. Without any
//! part that this hangs on the test must fail, so that the model is known to see it.

// loom's threads are coroutines of one thread, and its cells are not `Sync`.
#![allow(clippy::arc_with_non_send_sync)]

use bulkhead_monitor_abi::bell::Word;
use bulkhead_monitor_abi::hypercall::{CONTROL_RESTART, CONTROL_STOP};
use bulkhead_monitor_abi::mail::{Way, post, take};
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use loom::sync::atomic::{AtomicU64, AtomicUsize};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A step left out, to see the model find it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    Nothing,
    /// The exchange of the request: a core that read an older one writes over a newer one.
    Exchange,
    /// The look at the receiver's acknowledgement.
    Pending,
}

struct Cell(AtomicU64, bool);

impl Cell {
    fn new(always: bool) -> Self {
        Self(AtomicU64::new(0), always)
    }
}

impl Word for Cell {
    fn load(&self) -> u64 {
        self.0.load(Acquire)
    }
    fn replace(&self, from: u64, to: u64) -> bool {
        if self.1 {
            self.0.store(to, Relaxed);
            return true;
        }
        self.0.compare_exchange(from, to, AcqRel, Relaxed).is_ok()
    }
    fn claim(&self, from: u64, to: u64) -> bool {
        self.replace(from, to)
    }
    fn count(&self) {
        self.0.fetch_add(1, AcqRel);
    }
    fn exchange(&self, to: u64) -> u64 {
        self.0.swap(to, AcqRel)
    }
}

/// The words of both mailboxes, and the receiver's pending NMI.
struct Machine {
    request: Cell,
    done: Cell,
    tokens: [Cell; 2],
    nmi: AtomicUsize,
    rings: AtomicUsize,
    without: Without,
}

impl Machine {
    fn new(without: Without) -> Arc<Self> {
        let token = || Cell::new(false);
        Arc::new(Self {
            request: Cell::new(without == Without::Exchange),
            done: Cell::new(false),
            tokens: [token(), token()],
            nmi: AtomicUsize::new(0),
            rings: AtomicUsize::new(0),
            without,
        })
    }

    /// A core of the sender's posts, at a time when its token is there for one.
    fn post(&self, token: usize, what: u64) -> bool {
        let forgotten = Cell::new(false);
        if self.without == Without::Pending {
            forgotten.exchange(self.request.load() >> 8);
        }
        let done = if self.without == Without::Pending { &forgotten } else { &self.done };
        let way = Way { request: &self.request, done, token: &self.tokens[token] };
        let posted = post(&way, what, 0, u64::MAX);
        if posted {
            self.rings.fetch_add(1, Relaxed);
            self.nmi.swap(1, AcqRel);
        }
        posted
    }

    /// The receiver's first core, if it has been rung: what it takes.
    fn look(&self) -> usize {
        match self.nmi.swap(0, AcqRel) {
            0 => 0,
            _ => usize::from(take(&self.request, &self.done).is_some()),
        }
    }
}

/// Two cores at once, with rights of their own or one for both, against the receiver.
fn contest(without: Without, same: bool) {
    let machine = Machine::new(without);
    let core = |token, what| {
        let machine = machine.clone();
        loom::thread::spawn(move || usize::from(machine.post(token, what)))
    };
    let threads = [core(0, CONTROL_STOP), core(usize::from(!same), CONTROL_RESTART)];
    let mut taken = machine.look();
    let posted: usize = threads.into_iter().map(|thread| thread.join().expect("a core")).sum();
    taken += machine.look();
    assert_eq!(taken, posted, "a request is lost, or taken twice");
    assert_eq!(machine.rings.load(Relaxed), posted);
    // A right's time is not over: one of both.
    assert!(!same || posted == 1, "{posted} with one token");
    assert!(take(&machine.request, &machine.done).is_none(), "nobody was rung for it");
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(model);
}

fn finds(without: Without, same: bool) -> bool {
    catch_unwind(AssertUnwindSafe(|| explore(move || contest(without, same)))).is_err()
}

#[test]
fn each_request_rings_once_and_none_is_lost() {
    for same in [false, true] {
        explore(move || contest(Without::Nothing, same));
    }
}

/// A token that two cores claim at once shows nothing here: the exchange of the request lets one of them through.
#[test]
fn it_hangs_on_the_exchange_and_the_acknowledgement() {
    assert!(finds(Without::Exchange, false));
    assert!(finds(Without::Pending, false));
}
