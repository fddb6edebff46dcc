//! A set as the harness tells its programs of it: a table that it writes into a copy of the program's file. All
//! programs of a set have all of it, since a server does a part of its caller's job.
#![no_std]

/// Mark that the harness looks for in the file.
pub const MAGIC: [u64; 2] = [0x7365_7473_2d74_6162, 0x6c65_2d68_6572_653a];
/// Most threads with contexts.
pub const THREADS: usize = 8;
/// Words of a thread: the header, and its job.
pub const WORDS: usize = 64;
/// Words of a header.
pub const HEADER: usize = 5;
/// Words of the table.
pub const TABLE: usize = HEADER + THREADS * WORDS;
/// Words of the results of a thread: the longest response of a job in nanoseconds, and how many jobs ended. A driver
/// counts its interrupts there, and a handler the calls that it ended.
pub const SEEN: usize = 2;

/// A thread's part of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Release of the first job, or a driver's first interrupt, in nanoseconds of the kernel's clock.
    pub first: u64,
    /// Nanoseconds from a release, or an interrupt, to the next one.
    pub every: u64,
    /// No job goes on from here on.
    pub end: u64,
    /// Steps of its job.
    pub steps: u64,
    /// A driver's work for an interrupt, in nanoseconds; 0: its device sends none.
    pub interrupt: u64,
}

impl Thread {
    /// As it stands in the table.
    #[must_use]
    pub const fn words(&self) -> [u64; HEADER] {
        [self.first, self.every, self.end, self.steps, self.interrupt]
    }

    /// From the table.
    #[must_use]
    pub const fn of(words: [u64; HEADER]) -> Self {
        let [first, every, end, steps, interrupt] = words;
        Self { first, every, end, steps, interrupt }
    }
}

/// A step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Uses the processor for so many nanoseconds.
    Run(u64),
    /// Calls a server, which takes the steps up to the matching answer.
    Call(u8),
    /// The innermost server answers.
    Answer,
    /// Asks a driver for so many nanoseconds of work.
    Ask(u8, u64),
    /// Waits for so many nanoseconds.
    Sleep(u64),
}

impl Step {
    const TIME: u64 = (1 << 48) - 1;

    /// As it stands in the table: kind in bits 63:56, server or driver in 55:48, time below.
    #[must_use]
    pub const fn word(self) -> u64 {
        let (kind, whom, time) = match self {
            Self::Run(time) => (1, 0, time),
            Self::Call(server) => (2, server, 0),
            Self::Answer => (3, 0, 0),
            Self::Ask(driver, time) => (4, driver, time),
            Self::Sleep(time) => (5, 0, time),
        };
        kind << 56 | (whom as u64) << 48 | time & Self::TIME
    }

    /// From the table.
    #[must_use]
    pub const fn of(word: u64) -> Option<Self> {
        let (whom, time) = ((word >> 48) as u8, word & Self::TIME);
        Some(match word >> 56 {
            1 => Self::Run(time),
            2 => Self::Call(whom),
            3 => Self::Answer,
            4 => Self::Ask(whom, time),
            5 => Self::Sleep(time),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_back() {
        let most = (1 << 48) - 1;
        for step in
            [Step::Run(most), Step::Call(255), Step::Answer, Step::Ask(7, 9), Step::Sleep(3)]
        {
            assert_eq!(Step::of(step.word()), Some(step));
        }
        assert_eq!(Step::of(0), None);
    }
}
