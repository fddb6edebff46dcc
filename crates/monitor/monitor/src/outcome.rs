//! Decisions of handlers.

use bulkhead_monitor_abi::monitor::LADDER;
use bulkhead_monitor_abi::report::{Cause, Condition, State};

/// Decision on one exit: the cause that the exit counts for, and its sequel.
///
/// It is one word, so that a handler returns it in a register: bits 7:0 [`Cause`], 15:8 the sequel, 31:16 its
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
    /// The guest's life ends.
    End(End),
    /// The core waits for a start-up IPI of its sandbox.
    Park,
}

/// How a guest's life ends: in a state, or by the ladder that answers a finding.
///
/// It has 16 bits, so that it fits in an outcome and in a signal. Bits 3:0 are a [`State`], or [`LADDER`] and a
/// ladder's number, 9:4 the [`Condition`], 15:10 the number of the core that found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End(u16);

impl End {
    /// Ends in a state.
    #[inline(always)]
    #[must_use]
    pub const fn state(state: State) -> Self {
        Self(state as u16)
    }

    /// Ends as the configuration answers a condition ([`bulkhead_monitor_abi::monitor::Config::ends`]).
    #[inline(always)]
    #[must_use]
    pub const fn found(answer: u8, condition: Condition) -> Self {
        Self(answer as u16 & 0xF | (condition as u16) << 4)
    }

    /// Has another core say who found it.
    #[inline(always)]
    #[must_use]
    pub const fn by(self, core: u32) -> Self {
        Self(self.0 & 0x3FF | (core as u16) << 10)
    }

    /// Returns its bits.
    #[inline(always)]
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Makes it of its bits.
    #[inline(always)]
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns the state, where it has no ladder.
    #[inline(always)]
    #[must_use]
    pub const fn in_state(self) -> State {
        State::of(self.0 as u32 & 0xF)
    }

    /// Returns the number of its ladder, if it has one.
    #[inline(always)]
    #[must_use]
    pub const fn ladder(self) -> Option<u8> {
        (self.0 as u8 & 0xF).checked_sub(LADDER)
    }

    /// Returns the number of the condition.
    #[inline(always)]
    #[must_use]
    pub const fn condition(self) -> u16 {
        self.0 >> 4 & 0x3F
    }

    /// Returns the core that found it.
    #[inline(always)]
    #[must_use]
    pub const fn core(self) -> u16 {
        self.0 >> 10
    }
}

impl Outcome {
    #[inline(always)]
    const fn new(cause: Cause, then: u8, operand: u16) -> Self {
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
        Self::new(cause, 1, length as u16)
    }

    /// Gives the guest an exception.
    #[inline(always)]
    pub const fn inject(cause: Cause, exception: u8) -> Self {
        Self::new(cause, 2, exception as u16)
    }

    /// Ends the guest's life in a state.
    #[inline(always)]
    pub const fn end(cause: Cause, state: State) -> Self {
        Self::answer(cause, End::state(state))
    }

    /// Ends the guest's life.
    #[inline(always)]
    pub const fn answer(cause: Cause, end: End) -> Self {
        Self::new(cause, 3, end.0)
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
        let operand = (self.0 >> 16) as u16;
        match self.0 >> 8 & 0xFF {
            0 => Then::Resume,
            1 => Then::Skip(operand as u8),
            2 => Then::Inject(operand as u8),
            3 => Then::End(End(operand)),
            _ => Then::Park,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_monitor_abi::MAX_CORES;
    use bulkhead_monitor_abi::ladder::LADDERS;
    use bulkhead_monitor_abi::report::CONDITIONS;

    #[test]
    fn a_word_says_what_was_put_into_it() {
        let cases = [
            (Outcome::resume(Cause::Config), Cause::Config, Then::Resume),
            (Outcome::skip(Cause::Hypercall, 15), Cause::Hypercall, Then::Skip(15)),
            (Outcome::inject(Cause::Denied, 13), Cause::Denied, Then::Inject(13)),
            (
                Outcome::end(Cause::Port, State::Stopped),
                Cause::Port,
                Then::End(End::state(State::Stopped)),
            ),
            (
                Outcome::end(Cause::Other, State::Launching),
                Cause::Other,
                Then::End(End::state(State::Launching)),
            ),
            (Outcome::park(Cause::Doorbell), Cause::Doorbell, Then::Park),
        ];
        for (outcome, cause, then) in cases {
            assert_eq!((outcome.cause(), outcome.then()), (cause as usize, then));
        }
    }

    #[test]
    fn an_end_has_a_state_or_a_ladder_and_says_who_found_what() {
        let states = [State::Launching, State::Stopped, State::Exited, State::Failed];
        for state in states {
            let end = End::state(state);
            assert_eq!((end.in_state(), end.ladder(), end.core()), (state, None, 0));
        }
        for ladder in 0..LADDERS as u8 {
            let condition = Condition::Failure;
            let end = End::found(LADDER + ladder, condition).by(MAX_CORES as u32 - 1);
            let Then::End(end) = Outcome::answer(Cause::Denied, end).then() else { panic!() };
            let end = End::from_bits(end.bits());
            assert_eq!(end.ladder(), Some(ladder));
            assert_eq!(end.condition(), condition as u16);
            assert_eq!(end.core() as usize, MAX_CORES - 1);
        }
        // Both have to fit.
        assert!(CONDITIONS <= 64 && MAX_CORES <= 64 && usize::from(LADDER) + LADDERS <= 16);
    }
}
