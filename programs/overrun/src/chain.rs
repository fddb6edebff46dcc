//! The server's work: a chain of numbers, one step after the other. Its state lies in memory that its handler reads,
//! twice: one copy is complete, the other one being worked at.

use core::sync::atomic::{AtomicU64, Ordering};

/// Rounds of a step, some nanoseconds each.
const ROUNDS: u64 = 64;

/// One step of the chain, with something done in each of its rounds.
pub fn step(mut value: u64, each: impl Fn()) -> u64 {
    for round in 0..ROUNDS {
        value = (value ^ round).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
        each();
    }
    value
}

/// A state of the chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Steps done of the request.
    pub count: u64,
    /// Where they led.
    pub value: u64,
}

/// Two states, and which of them is complete.
#[derive(Clone, Copy, Debug)]
pub struct Chain(pub &'static [AtomicU64]);

const COMPLETE: usize = 0;

impl Chain {
    fn place(which: u64) -> [usize; 2] {
        let first = 1 + 2 * (which as usize & 1);
        [first, first + 1]
    }

    /// The last complete state.
    pub fn state(self) -> State {
        let [count, value] = Self::place(self.0[COMPLETE].load(Ordering::Acquire));
        State {
            count: self.0[count].load(Ordering::Relaxed),
            value: self.0[value].load(Ordering::Relaxed),
        }
    }

    /// Another state, complete at once.
    pub fn set(self, state: State) {
        let other = self.0[COMPLETE].load(Ordering::Relaxed) ^ 1;
        let [count, value] = Self::place(other);
        self.0[count].store(state.count, Ordering::Relaxed);
        self.0[value].store(state.value, Ordering::Relaxed);
        self.0[COMPLETE].store(other, Ordering::Release);
    }
}
