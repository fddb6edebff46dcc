//! Tries services that programmers expect: periodic releases, a mutex and conditions of two threads, a heap, `log`,
//! objects of its own. Its result is how many of these failed.
#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

mod objects;
mod queue;

use alloc::vec::Vec;
use bulkhead_program::{
    Mutex, Notification, Periodic, Program, Woken, now, println, ready, sleep_until,
};
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};
use queue::Queue;

bulkhead_program::entry!(main_thread);
bulkhead_program::thread!(second, second_thread);

const MILLI: u64 = 1_000_000;
const ITEMS: u32 = 100;

bulkhead_program::local!(
    /// Each thread sets its own, and finds it again.
    static OWN: Cell<u64>
);
static OTHERS: AtomicU32 = AtomicU32::new(0);

/// Results of the second thread.
static STEP: AtomicU32 = AtomicU32::new(0);
static COUNT: Mutex<u32> = Mutex::new(0);
static QUEUE: Queue<u32, 2> = Queue::new();

/// A thread's own notification, to signal and to wait for.
fn own(program: Program, name: &str) -> (Notification, Notification) {
    (program.signals(name), program.waits(name))
}

fn main_thread(program: Program) -> u32 {
    program.log();
    ready();
    let fresh = OWN.get() == 0;
    OWN.set(3);
    let (signals, waits) = own(program, "heap");
    program.shared_heap(signals, waits);
    let (signals, waits) = own(program, "count");
    COUNT.waits_at(signals, waits);
    let (signals, waits) = own(program, "queue");
    QUEUE.waits_at(signals, waits);
    let tried = [
        ("releases", releases(program)),
        ("mutex", mutex(program)),
        ("condition", condition(program)),
        ("heap", heap(program)),
        ("objects", objects::tried(program)),
        ("own variables", fresh && OWN.get() == 3 && OTHERS.load(Ordering::Relaxed) == 7),
    ];
    log::debug!("is said because the arguments have log=debug");
    log::trace!("is not");
    let failed = tried.iter().filter(|(_, right)| !right);
    failed.map(|(what, _)| println!("{what} failed")).count() as u32
}

/// Releases come at their times. A release that is over before it is served is counted and left out.
fn releases(program: Program) -> bool {
    let (signals, waits) = own(program, "main");
    let first = now() + MILLI;
    let mut periodic = Periodic::new(waits, first, MILLI);
    for n in 0..3 {
        let wanted = Woken::Release { due: first + n * MILLI, missed: 0 };
        if periodic.wait() != Ok(wanted) || now() < first + n * MILLI {
            return false;
        }
    }
    signals.signal();
    let woken = periodic.wait() == Ok(Woken::Signal(1));
    let slept = sleep_until(waits, first + 6 * MILLI + MILLI / 2);
    let late = periodic.wait() == Ok(Woken::Release { due: first + 6 * MILLI, missed: 3 });
    let next = periodic.wait() == Ok(Woken::Release { due: first + 7 * MILLI, missed: 0 });
    log::info!("releases: signal {woken}, late {late}, next {next}");
    woken && slept.is_ok() && late && next
}

/// While this thread sleeps with the lock, the other one wants it.
fn mutex(program: Program) -> bool {
    let (_, waits) = own(program, "main");
    let mut count = COUNT.lock();
    program.signals("second").signal();
    let slept = sleep_until(waits, now() + MILLI);
    let (step, refused) = (STEP.load(Ordering::Relaxed), COUNT.try_lock().is_none());
    *count += 1;
    drop(count);
    while STEP.load(Ordering::Relaxed) != 2 {
        let _ = sleep_until(waits, now() + MILLI);
    }
    let count = *COUNT.lock();
    log::info!("mutex: the other one came to step {step} first, to 2 then; count {count}");
    slept.is_ok() && (step, refused, count) == (1, true, 11)
}

/// Items through a queue that holds two: each thread waits for the other time and again.
fn condition(program: Program) -> bool {
    let own = own(program, "main");
    let sum: u32 = (0..ITEMS).filter_map(|_| QUEUE.take(own)).sum();
    log::info!("condition: {ITEMS} items, sum {sum}");
    sum == (1..=ITEMS).sum()
}

/// Memory that was allocated and freed is there again.
fn heap(program: Program) -> bool {
    let free = program.heap();
    let mut pieces: Vec<Vec<u8>> = (1..50).map(|n| alloc::vec![n as u8; n * 16]).collect();
    pieces.retain(|piece| piece.len() % 32 == 0);
    let whole =
        pieces.iter().all(|piece| piece.iter().all(|b| usize::from(*b) * 16 == piece.len()));
    let used = free - program.heap();
    let count = pieces.len();
    drop(pieces);
    let mut nothing = Vec::<u8>::new();
    let refused = nothing.try_reserve(1 << 20).is_err();
    let back = program.heap() == free;
    log::info!("heap: {count} pieces whole {whole}, too much refused {refused}, all back {back}");
    whole && used >= 49 * 16 && refused && back
}

fn second_thread(program: Program) -> u32 {
    let (_, waits) = own(program, "second");
    OWN.set(OWN.get() + 7);
    let woken = waits.wait();
    STEP.store(1, Ordering::Relaxed);
    *COUNT.lock() += 10;
    STEP.store(2, Ordering::Relaxed);
    if woken.is_err() {
        return 1;
    }
    for n in 1..=ITEMS {
        OTHERS.store(OWN.get() as u32, Ordering::Relaxed);
        QUEUE.put(n, own(program, "second"));
    }
    // The first thread ends the sandbox.
    let _ = waits.wait();
    0
}
