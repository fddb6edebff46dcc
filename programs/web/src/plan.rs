//! Times at which a program for tests fails.
//!
//! Arguments: `first=MS every=MS count=N`: times of faults since the processor's start. After N of them (default: none)
//! they come each `then=MS`. `kind=N`: only that kind; without it they come by turns.

use bulkhead_program::Program;

const MILLI: u64 = 1_000_000;

/// Times of the faults.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    first: u64,
    every: u64,
    count: u64,
    then: u64,
    kind: Option<u64>,
}

impl Plan {
    /// Reads the program's arguments.
    #[must_use]
    pub fn of(program: Program) -> Self {
        let millis = |name, default| program.number(name).unwrap_or(default).saturating_mul(MILLI);
        Self {
            first: millis("first", 1_000),
            every: millis("every", 400).max(MILLI),
            count: program.number("count").unwrap_or(u64::MAX),
            then: millis("then", 100).max(MILLI),
            kind: program.number("kind"),
        }
    }

    /// Returns the time of the next fault after a time, its number, and its kind.
    pub fn next<K: Copy>(&self, now: u64, kinds: &[K]) -> (u64, u64, K) {
        let number = |since: u64, every: u64| match now.checked_sub(since) {
            Some(gone) => gone / every + 1,
            None => 0,
        };
        let last = self.first.saturating_add(self.every.saturating_mul(self.count));
        let (n, at) = match number(self.first, self.every) {
            n if n <= self.count => (n, self.first + n * self.every),
            _ => {
                let more = number(last, self.then);
                (self.count + more, last + more * self.then)
            }
        };
        (at, n, kinds[(self.kind.unwrap_or(n) % kinds.len() as u64) as usize])
    }
}
