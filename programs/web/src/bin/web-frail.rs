//! A web server that fails, for tests: in the middle of a record, when it is time for that ([`web_programs::plan`]).
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::{FOREVER, Program, now, println, wait_until};
use bulkhead_web::Words;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use web_programs::plan::Plan;
use web_programs::{FROM_NIC, NEWS, STATE, serve::serve};

bulkhead_program::entry!(frail);

fn frail(program: Program) -> u32 {
    serve(program, || {
        let words = program.memory(STATE).words();
        let next = Plan::of(program).next(now(), &KINDS);
        // A record has some twenty words.
        Frail { program, words, next, left: Cell::new(next.1 * 7 % 23) }
    })
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// It gives up.
    Panic,
    /// It writes to memory that is its driver's.
    Wild,
    /// A loop without an end.
    Spin,
    /// A wait that does not end.
    Sleep,
}

const KINDS: [Kind; 4] = [Kind::Panic, Kind::Wild, Kind::Spin, Kind::Sleep];

/// The memory of its connections, with a writer that fails.
struct Frail {
    program: Program,
    words: &'static [AtomicU64],
    next: (u64, u64, Kind),
    /// Words that it writes before that, once it is time.
    left: Cell<u64>,
}

impl Words for Frail {
    fn words(&self) -> usize {
        self.words.len()
    }
    fn load(&self, at: usize) -> u64 {
        self.words.load(at)
    }
    fn store(&self, at: usize, word: u64) {
        self.words.store(at, word);
        if now() >= self.next.0 {
            match self.left.get().checked_sub(1) {
                Some(left) => self.left.set(left),
                None => self.fail(),
            }
        }
    }
}

impl Frail {
    fn fail(&self) {
        let (name, kind) = (self.program.name(), self.next.2);
        println!("{name}: fault {kind:?} at {} us", now() / 1_000);
        match kind {
            Kind::Panic => panic!("as it was told"),
            Kind::Wild => self.program.memory(FROM_NIC).words()[0].store(1, Ordering::Relaxed),
            Kind::Spin => loop {
                core::hint::spin_loop();
            },
            Kind::Sleep => loop {
                let _ = wait_until(self.program.waits(NEWS), FOREVER);
            },
        }
    }
}
