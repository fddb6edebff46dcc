//! Words that a driver and its guard share: the guard asks, and the driver answers in each of its rounds.
//!
//! A word that the driver moves by itself would say nothing about a driver without work. So the guard asks, wakes it,
//! and looks for the answer. A driver that spins in the middle of a request does not answer, and one that sleeps for
//! ever does not either.

use bulkhead_program::{Memory, Program, now};
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

/// Name of the memory.
pub const NAME: &str = "progress";
/// Label of the message by which a program complains of a driver to its guard. The first word says of what.
pub const COMPLAINT: u64 = 200;

/// Word: the guard's newest question, a number from 1 on.
const ASKED: usize = 0;
/// Word: the question that the driver answered last.
const ANSWERED: usize = 1;
/// Word: time until which the driver does not answer, because it waits for its disk; 0: it answers.
const BUSY: usize = 2;

/// The words.
#[derive(Debug)]
pub struct Progress {
    memory: Memory,
    /// Question that was answered last, so that a round without a new one writes nothing.
    last: Cell<u64>,
}

impl Progress {
    /// Finds the words, if the manifest gives the program this memory.
    #[must_use]
    pub fn find(program: Program) -> Option<Self> {
        Some(Self { memory: program.find_memory(NAME)?, last: Cell::new(0) })
    }

    fn word(&self, number: usize) -> &'static AtomicU64 {
        &self.memory.words()[number]
    }

    /// Answers the newest question. Returns true if it is a new one.
    pub fn answer(&self) -> bool {
        let asked = self.word(ASKED).load(Ordering::Relaxed);
        if asked == self.last.replace(asked) {
            return false;
        }
        self.word(ANSWERED).store(asked, Ordering::Release);
        true
    }

    /// Says that no answer comes for so many nanoseconds; 0: answers come again.
    pub fn busy(&self, nanos: u64) {
        let until = if nanos == 0 { 0 } else { now().saturating_add(nanos) };
        self.word(BUSY).store(until, Ordering::Release);
    }

    /// Asks the next question. The guard wakes the driver after that.
    pub fn ask(&self, question: u64) {
        self.word(ASKED).store(question, Ordering::Release);
    }

    /// Returns the question that was answered last.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.word(ANSWERED).load(Ordering::Acquire)
    }

    /// Returns the time until which no answer need come. The driver's word is a claim: the guard bounds it.
    #[must_use]
    pub fn busy_until(&self) -> u64 {
        self.word(BUSY).load(Ordering::Acquire)
    }
}
