//! Channels made at run time ([`crate::link`]) as guests see them, whichever way they make hypercalls. The words of a
//! link and the answers to calls get their meaning for a party here.

use crate::hypercall::{ACCEPT, BAD_ARGUMENT, BUSY, CLOSE, DENIED, LOOK, NO_CALL, OFFER};
use crate::link;

/// A party's state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing.
    Idle,
    /// This sandbox: the owner took it back, and its memory now belongs to none; to be closed. The other party: it has
    /// had it in this epoch, and left.
    Gone,
    /// It: as the owner, it has offered it.
    Open,
    /// It is being mapped or unmapped.
    Changing,
}

impl Phase {
    const fn of(phase: u64) -> Self {
        match phase {
            link::IDLE => Self::Idle,
            link::GONE => Self::Gone,
            link::OPEN => Self::Open,
            _ => Self::Changing,
        }
    }
}

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// This sandbox's side.
    pub own: Phase,
    /// The other party's side.
    pub other: Phase,
    /// The sandbox that it is or was offered to last.
    pub to: u32,
    /// The owner's word with the offer.
    pub tag: u16,
    /// Which offer it is.
    pub epoch: u32,
}

impl State {
    /// By both words, as a party reads them; `mine` is the owner.
    #[must_use]
    pub const fn of(own: u64, other: u64, mine: bool) -> Self {
        let owners = if mine { own } else { other };
        let other = match link::epoch(own) == link::epoch(other) && own != 0 {
            // It has had it.
            true if mine && !link::holds(other) => link::GONE,
            false if mine => link::IDLE,
            _ => link::phase(other),
        };
        Self {
            own: Phase::of(link::phase(own)),
            other: Phase::of(other),
            to: link::to(owners),
            tag: (owners >> 16) as u16,
            epoch: link::epoch(owners) as u32,
        }
    }

    /// Tells if it is another's, and stands offered to this sandbox.
    #[must_use]
    pub fn offered(&self, me: u32) -> bool {
        self.own == Phase::Idle && self.other == Phase::Open && self.to == me
    }
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The manifest does not grant it; a record is left.
    Denied,
    /// All links are in use, or the last use is not over: later.
    Busy,
    /// There is no such offer, or nothing to close.
    Nothing,
}

/// Returns the answer to a call that gives a word.
const fn word(answer: u64) -> Result<u64, Refused> {
    match answer {
        DENIED => Err(Refused::Denied),
        BUSY => Err(Refused::Busy),
        BAD_ARGUMENT | NO_CALL => Err(Refused::Nothing),
        word => Ok(word),
    }
}

/// Reads the state of a link of this number, by two hypercalls; `mine`: it is this sandbox's.
///
/// # Errors
/// [`Refused::Denied`]: it is not among those that it may offer or be offered.
pub fn state(
    number: u32,
    mine: bool,
    call: impl Fn(u64, u64, u64) -> u64,
) -> Result<State, Refused> {
    let half = |other| word(call(LOOK, number.into(), other));
    Ok(State::of(half(0)?, half(1)?, mine))
}

/// Offers the first of the own links that is free to a sandbox, with a tag that tells its use. Its number.
///
/// # Errors
/// See [`Refused`].
pub fn offer(
    own: impl Iterator<Item = u32>,
    (to, tag): (u32, u16),
    call: impl Fn(u64, u64, u64) -> u64,
) -> Result<u32, Refused> {
    let mut refused = Refused::Nothing;
    for number in own {
        let which = u64::from(number) | u64::from(tag) << 16;
        match word(call(OFFER, to.into(), which)) {
            Ok(_) => return Ok(number),
            Err(Refused::Denied) => return Err(Refused::Denied),
            Err(why) => refused = why,
        }
    }
    Err(refused)
}

/// Accepts an offer, by its epoch.
///
/// # Errors
/// See [`Refused`].
pub fn accept(number: u32, epoch: u32, call: impl Fn(u64, u64, u64) -> u64) -> Result<(), Refused> {
    word(call(ACCEPT, number.into(), epoch.into())).map(drop)
}

/// Closes the own end, or takes the offer back.
///
/// # Errors
/// See [`Refused`].
pub fn close(number: u32, call: impl Fn(u64, u64, u64) -> u64) -> Result<(), Refused> {
    word(call(CLOSE, number.into(), 0)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An owner's word: offered to sandbox 2 with tag 7, in epoch 5.
    const OFFERED: u64 = 5 << 32 | 7 << 16 | 2 << 8 | link::OPEN;

    #[test]
    fn the_owner_sees_whether_the_other_has_come_and_gone() {
        let other = |word| State::of(OFFERED, word, true).other;
        assert_eq!(other(0), Phase::Idle);
        // The word is from another epoch: it has not seen this offer.
        assert_eq!(other(4 << 32), Phase::Idle);
        assert_eq!(other(4 << 32 | link::OPEN), Phase::Idle);
        assert_eq!(other(5 << 32 | link::BUSY), Phase::Changing);
        assert_eq!(other(5 << 32 | link::OPEN), Phase::Open);
        assert_eq!(other(5 << 32 | link::LOSING), Phase::Changing);
        assert_eq!(other(5 << 32), Phase::Gone);
        assert_eq!(other(5 << 32 | link::GONE), Phase::Gone);
        // A link that was never offered: no party has had it.
        assert_eq!(State::of(0, 0, true).other, Phase::Idle);
    }

    #[test]
    fn an_offer_is_the_owners_word_to_the_other() {
        let state = State::of(0, OFFERED, false);
        assert_eq!((state.to, state.tag, state.epoch), (2, 7, 5));
        assert!(state.offered(2) && !state.offered(1));
        // It has it, or lost it, or the owner took it back.
        for (own, owners) in [(link::OPEN, OFFERED), (link::GONE, OFFERED), (0, OFFERED & !7)] {
            assert!(!State::of(5 << 32 | own, owners, false).offered(2), "{own} {owners:#x}");
        }
        assert_eq!(State::of(4 << 32 | link::GONE, OFFERED, false).own, Phase::Gone);
    }

    #[test]
    fn the_first_free_link_is_offered_and_nothing_more_is_asked_after_a_denial() {
        let free = |_, _, which| if which == 4 { 0 } else { BUSY };
        assert_eq!(offer([1, 4, 5].into_iter(), (2, 0), free), Ok(4));
        assert_eq!(offer([1, 5].into_iter(), (2, 0), free), Err(Refused::Busy));
        assert_eq!(offer([].into_iter(), (2, 0), free), Err(Refused::Nothing));
        let denied = |_, _, which| if which == 1 { DENIED } else { panic!("link {which}") };
        assert_eq!(offer([1, 4].into_iter(), (2, 0), denied), Err(Refused::Denied));
    }

    #[test]
    fn calls_name_the_link_where_monitors_look_and_answers_are_told_apart() {
        let answer = |number, first, second| {
            move |n, a, b| {
                assert_eq!((n, a, b), (number, first, second));
                0
            }
        };
        assert_eq!(offer([3].into_iter(), (2, 0xFFFF), answer(OFFER, 2, 0xFFFF_0003)), Ok(3));
        assert_eq!(accept(3, u32::MAX, answer(ACCEPT, 3, 0xFFFF_FFFF)), Ok(()));
        assert_eq!(close(3, answer(CLOSE, 3, 0)), Ok(()));
        let refused = |value| close(0, |_, _, _| value).err();
        assert_eq!(refused(DENIED), Some(Refused::Denied));
        assert_eq!(refused(BUSY), Some(Refused::Busy));
        assert_eq!(refused(BAD_ARGUMENT), Some(Refused::Nothing));
        assert_eq!(refused(NO_CALL), Some(Refused::Nothing));
        assert_eq!(state(9, true, |_, _, _| DENIED), Err(Refused::Denied));
        let words = |n, a, b| if (n, a, b) == (LOOK, 1, 0) { OFFERED } else { 0 };
        assert_eq!(state(1, true, words).map(|state| state.own), Ok(Phase::Open));
    }
}
