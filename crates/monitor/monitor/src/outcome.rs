//! Decisions of handlers.

use bulkhead_monitor_abi::report::{Cause, State};

/// Decision on one exit: the cause that the exit counts for, and its sequel.
///
/// It is one word, so that a handler returns it in a register: bits 7:0 [`Cause`], 15:8 the sequel, 23:16 its
/// operand.
#[must_use = "a guest goes on by its outcome"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome(u32);

/// Sequel of an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The guest goes on at its instruction pointer.
    Resume,
    /// The guest goes on after an instruction of this many bytes.
    Skip(u8),
    /// The guest takes the exception of this number at its instruction pointer.
    Inject(u8),
    /// The guest's life ends in this state.
    End(State),
    /// The core waits for a start-up IPI of its sandbox.
    Park,
}

impl Outcome {
    #[inline(always)]
    const fn new(cause: Cause, then: u8, operand: u8) -> Self {
        Self(cause as u32 | (then as u32) << 8 | (operand as u32) << 16)
    }

    /// Goes on at the instruction pointer.
    #[inline(always)]
    pub const fn resume(cause: Cause) -> Self {
        Self::new(cause, 0, 0)
    }

    /// Goes on after an instruction of `length` bytes.
    #[inline(always)]
    pub const fn skip(cause: Cause, length: u8) -> Self {
        Self::new(cause, 1, length)
    }

    /// Gives the guest an exception.
    #[inline(always)]
    pub const fn inject(cause: Cause, exception: u8) -> Self {
        Self::new(cause, 2, exception)
    }

    /// Ends the guest's life.
    #[inline(always)]
    pub const fn end(cause: Cause, state: State) -> Self {
        Self::new(cause, 3, state as u8)
    }

    /// Has the core wait for its sandbox.
    #[inline(always)]
    pub const fn park(cause: Cause) -> Self {
        Self::new(cause, 4, 0)
    }

    /// Returns the number of the cause.
    #[inline(always)]
    #[must_use]
    pub const fn cause(self) -> usize {
        self.0 as u8 as usize
    }

    /// Returns the sequel of the exit.
    #[inline(always)]
    #[must_use]
    pub const fn then(self) -> Then {
        let operand = (self.0 >> 16) as u8;
        match self.0 >> 8 & 0xFF {
            0 => Then::Resume,
            1 => Then::Skip(operand),
            2 => Then::Inject(operand),
            3 => Then::End(State::of(operand as u32)),
            _ => Then::Park,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_was_put_into_it() {
        let cases = [
            (Outcome::resume(Cause::Config), Cause::Config, Then::Resume),
            (Outcome::skip(Cause::Hypercall, 15), Cause::Hypercall, Then::Skip(15)),
            (Outcome::inject(Cause::Denied, 13), Cause::Denied, Then::Inject(13)),
            (Outcome::end(Cause::Port, State::Stopped), Cause::Port, Then::End(State::Stopped)),
            (
                Outcome::end(Cause::Other, State::Launching),
                Cause::Other,
                Then::End(State::Launching),
            ),
            (Outcome::park(Cause::Doorbell), Cause::Doorbell, Then::Park),
        ];
        for (outcome, cause, then) in cases {
            assert_eq!((outcome.cause(), outcome.then()), (cause as usize, then));
        }
    }
}
