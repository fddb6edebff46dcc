//! A thread below a hog answers requests (figure 9 of the scheduling-context paper). There they come from a network;
//! here a thread above the hog makes them at absolute times. So an answer's latency is known to the nanosecond from the
//! moment when the request was due. The way is alike: a timer's interrupt for the network card's, a thread above all, a
//! signal. They come one in a period of the hog, so that their makers don't add to the hog's time.

use bulkhead_program::marker::{VALUE, id};
use bulkhead_program::{Notification, Program, mark, now, println, ready, sleep_until};
use core::sync::atomic::{AtomicU64, Ordering};

/// The hog's period, ns.
const PERIOD: u64 = 10_000_000;
/// The step by which requests move through the hog's period, ns. They move first through all of it, then around the
/// moment when the hog begins.
const COARSE: u64 = 250_000;
const FINE: u64 = 100;
/// How far around it, ns.
const AROUND: u64 = 3_000;

static ANSWERED: AtomicU64 = AtomicU64::new(0);

struct Requests {
    request: Notification,
    answer: Notification,
    never: Notification,
    /// The last one's time.
    last: u64,
}

impl Requests {
    /// Makes one at a time, ns; how long the answer takes.
    fn at(&mut self, due: u64) -> u64 {
        assert!(sleep_until(self.never, due).is_ok() && now() >= due);
        self.last = due;
        self.request.signal();
        assert!(self.answer.wait().is_ok());
        ANSWERED.load(Ordering::Relaxed) - due
    }

    /// Finds the hog's beginning in its period, to [`FINE`]. An answer waits for the rest of the hog's time, so it
    /// takes longest at the first instant, and shortest before. `later` is a phase at which it has begun, at most
    /// [`COARSE`] ago, and an answer's time there.
    fn beginning(&mut self, later: (u64, u64)) -> u64 {
        let (mut before, mut within) = (later.0 + PERIOD - COARSE, later.0 + PERIOD);
        while within - before > FINE {
            let middle = before.midpoint(within);
            match self.at(self.next(middle % PERIOD)) >= later.1 {
                true => within = middle,
                false => before = middle,
            }
        }
        within
    }

    /// The first time at this phase that is a period after the last request.
    fn next(&self, phase: u64) -> u64 {
        let earliest = self.last + PERIOD;
        earliest + (phase + PERIOD - earliest % PERIOD) % PERIOD
    }
}

/// Makes requests.
pub fn requests(program: Program) -> u32 {
    let (request, answer) = (program.signals("request"), program.waits("answer"));
    let mut requests = Requests { request, answer, never: program.waits("never"), last: now() };
    ready();
    let mut worst = (0, 0);
    for n in 0..PERIOD / COARSE {
        let took = requests.at(requests.next(n * COARSE));
        mark!(VALUE | id::HOG_PHASES, took);
        worst = worst.max((took, n * COARSE));
    }
    let first = requests.beginning((worst.1, worst.0)) - AROUND;
    for n in 0..2 * AROUND / FINE {
        let took = requests.at(requests.next((first + n * FINE) % PERIOD));
        mark!(VALUE | id::HOG_WORST, took);
    }
    println!("measure: done");
    0
}

bulkhead_program::thread!(echo, answers);

fn answers(program: Program) -> u32 {
    let (request, answer) = (program.waits("request"), program.signals("answer"));
    while request.wait().is_ok() {
        ANSWERED.store(now(), Ordering::Relaxed);
        answer.signal();
    }
    1
}
