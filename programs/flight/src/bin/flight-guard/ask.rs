//! Questions to a thread: whether its rounds go on.

use crate::ward::Place;
use bulkhead_program::{Notification, Program, now};
use store_programs::progress::Progress;

const MILLI: u64 = 1_000_000;

/// The questions, and the thread that they go to.
pub struct Ask {
    /// The thread, or the other one in its place.
    pub place: Place,
    progress: Progress,
    work: Notification,
    /// Times, ns: between two questions, and for a first answer.
    every: u64,
    first: u64,
    /// Questions without an answer that are a hang, and those so far.
    most: u64,
    missed: u64,
    question: u64,
    /// Time of the next question, of the last answer, and until which the first answer may take.
    due: u64,
    since: u64,
    begins: u64,
    answered: bool,
    /// The thread has stopped for good.
    over: bool,
}

impl Ask {
    /// Prepares the questions; the first one is due at once.
    pub fn new(program: Program, place: Place) -> Self {
        let Some(progress) = Progress::find(program) else {
            panic!("there is no memory for answers");
        };
        let millis = |name, default| program.number(name).unwrap_or(default).max(1) * MILLI;
        let mut ask = Self {
            place,
            progress,
            work: program.signals("work"),
            every: millis("every", 2),
            first: millis("first", 100),
            most: program.number("missed").unwrap_or(2),
            missed: 0,
            question: 0,
            due: 0,
            since: 0,
            begins: 0,
            answered: false,
            over: false,
        };
        ask.begin(now(), true);
        ask
    }

    /// The thread begins, or has stopped for good.
    pub fn begin(&mut self, now: u64, begins: bool) {
        (self.missed, self.since, self.begins) = (0, now, now + self.first);
        (self.answered, self.over) = (false, !begins);
    }

    /// Returns when the next question is due.
    pub const fn due(&self) -> u64 {
        self.due
    }

    /// Tells if the thread has answered since it began.
    pub const fn has_answered(&self) -> bool {
        self.answered
    }

    /// Looks at the answer to the last question, and asks the next one. Returns for how long there was no answer, in
    /// microseconds, if the thread hangs.
    pub fn next(&mut self, now: u64) -> Option<u64> {
        self.due = now + self.every;
        if self.over {
            return None;
        }
        if self.question > 0 && self.progress.answered() == self.question {
            (self.answered, self.missed, self.since) = (true, 0, now);
        } else {
            self.missed += 1;
            let begins = !self.answered && now < self.begins;
            if self.missed >= self.most && !begins {
                return Some((now - self.since) / 1_000);
            }
        }
        // A question that no life of the thread has answered.
        self.question += 1;
        self.progress.ask(self.question);
        self.work.signal();
        None
    }
}
