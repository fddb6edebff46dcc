//! Channels that guests make and close at run time, in *links*: memory that the manifest has set aside.
//!
//! A link's owner may *offer* it to one other sandbox at a time, and that one may *accept* it. No monitor decides for
//! both. Each monitor says in its mailbox, in a word for each link, what its own guest has, and maps the link for that
//! guest alone. One rule joins them: a link is offered anew only after the last party's monitor has said that its cores
//! no longer reach it ([`holds`]).
//!
//! A core first claims the word, by a compare and exchange to [`BUSY`]: so only one core of a sandbox works at a link.
//! `docs/links.md` has the protocol on one page.

use crate::bell::{End, Word};
use crate::monitor::Slice;
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most links of a machine.
pub const MAX_LINKS: usize = 32;

/// A link, for one of its parties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Link {
    /// Its number, which all parties use.
    pub number: u32,
    /// Index of the owner's sandbox.
    pub owner: u32,
    /// Sandboxes that it may be offered to, as a set.
    pub to: u32,
    /// Entries (`u64`) of its pages in the guest's nested tables while the guest has it.
    pub open: Slice,
    /// Entries for a guest that it was taken from: pages that do no harm. An owner has none of them.
    pub gone: Slice,
    /// Padding.
    pub reserved: u32,
    /// Monitor-virtual address of those entries. No other entry is on that page.
    pub table: u64,
    /// Monitor-virtual address of its memory, and its length; the owner's only.
    pub memory: [u64; 2],
    /// Words of both ends, the owner's first; the owner's only.
    pub ends: [End; 2],
}

/// Phase of a sandbox's word: its guest has nothing of it.
pub const IDLE: u64 = 0;
/// It was taken from the guest, which has not closed it yet.
pub const GONE: u64 = 1;
/// A core is at it.
pub const BUSY: u64 = 2;
/// The guest has it; in the owner's word: it is offered.
pub const OPEN: u64 = 3;
/// Its entries are as they are when it is idle, but cores may have older ones in their TLBs.
pub const LEAVING: u64 = 4;
/// As [`LEAVING`], with the entries of [`GONE`].
pub const LOSING: u64 = 5;

/// Bits of the phase.
const PHASE: u64 = 7;
/// In the owner's word: the other end has left, and was closed for it.
const LEFT: u64 = 1 << 3;
/// Bits that the owner chooses freely.
const TAG: u64 = 0xFFFF << 16;

/// Returns a word's phase.
#[must_use]
pub const fn phase(word: u64) -> u64 {
    word & PHASE
}

/// Returns the sandbox that an owner's word offers it to.
#[must_use]
pub const fn to(word: u64) -> u32 {
    word as u32 >> 8 & 0xFF
}

/// Tells which offer a word is about: the owner counts them.
#[must_use]
pub const fn epoch(word: u64) -> u64 {
    word >> 32
}

/// Tells if cores of the word's writer may reach the link.
#[must_use]
pub const fn holds(word: u64) -> bool {
    phase(word) >= BUSY
}

/// Tells if an owner's word offers it to a sandbox, in an epoch.
#[must_use]
pub const fn offered(word: u64, me: u32, epoch: u64) -> bool {
    word & !TAG == epoch << 32 | (me as u64) << 8 | OPEN
}

/// Changes a word's phase.
const fn with(word: u64, phase: u64) -> u64 {
    word & !PHASE | phase
}

/// A party of a link, as its monitor does what is decided here.
pub trait Side {
    /// See [`Side::word`].
    type Word: Word;
    /// Returns the index of this sandbox.
    fn me(&self) -> u32;
    /// Returns the index of the owner's sandbox.
    fn owner(&self) -> u32;
    /// Returns the word of a sandbox's monitor on the link.
    fn word(&self, of: u32) -> &Self::Word;
    /// Clears the link's memory.
    fn clear(&self);
    /// Sets the guest's entries: as they are in phase [`OPEN`], [`GONE`] or [`IDLE`].
    fn map(&self, phase: u64);
    /// Returns how many times the own cores were to empty their TLBs.
    fn wanted(&self) -> &Self::Word;
    /// Returns the value of that word when a core did so last; `None` behind the last core.
    fn done(&self, core: u32) -> Option<&Self::Word>;
    /// Has each own core [`empty`] its TLB. This core does so before its guest goes on; the others do it at a doorbell,
    /// at which they [`settle`], too.
    fn flush(&self);
    /// Makes another sandbox's monitor [`look`], by its first core.
    fn ring(&self, sandbox: u32);
    /// Says in the link that an end has closed: the owner's, 0, or the other, 1.
    fn bury(&self, end: usize);
}

/// Offers the own link to a sandbox. False: it is in use.
pub fn offer(side: &impl Side, to: u32, tag: u64) -> bool {
    let own = side.word(side.me());
    let was = own.load();
    if phase(was) != IDLE || !own.claim(was, with(was, BUSY)) {
        return false;
    }
    // The taker of the last offer claims its own word, then looks if the offer stands. Both claims are fences: so it
    // sees that the offer does not stand, or its claim is seen here.
    let free = was == 0 || !holds(side.word(self::to(was)).load());
    if free {
        side.clear();
        side.map(OPEN);
    }
    let next = u64::from((epoch(was) as u32).checked_add(1).unwrap_or(1));
    let offered = next << 32 | tag << 16 & TAG | u64::from(to) << 8 | OPEN;
    own.exchange(if free { offered } else { was });
    free
}

/// Accepts the offer of an epoch, 32 bits, once. `None`: it does not stand; false: the last one is not over yet.
pub fn accept(side: &impl Side, epoch: u64) -> Option<bool> {
    let (own, owner) = (side.word(side.me()), side.word(side.owner()));
    let stands = || offered(owner.load(), side.me(), epoch);
    let was = own.load();
    let now = epoch << 32;
    if !stands() || was == now {
        return None;
    }
    if phase(was) != IDLE || !own.claim(was, now | BUSY) {
        return Some(false);
    }
    let still = stands();
    if still {
        side.map(OPEN);
    }
    own.exchange(if still { now | OPEN } else { was });
    // One who took it back meanwhile has rung, perhaps while this core was at it.
    look(side);
    still.then_some(true)
}

/// Closes the own end, or forgets one that was taken away. `None`: there is none; false: another core is at it.
pub fn close(side: &impl Side) -> Option<bool> {
    let was = side.word(side.me()).load();
    match phase(was) {
        IDLE | LEAVING => None,
        BUSY => Some(false),
        _ => Some(part(side, was, IDLE)),
    }
}

/// Ends the guest's part: closes its end. Other cores do no more than [`settle`], each once.
pub fn end(side: &impl Side) {
    while close(side).is_some() {}
}

/// Says that the link has gone, if it is to and no core has it any more. All cores do so after [`empty`].
pub fn settle(side: &impl Side) {
    let own = side.word(side.me());
    let was = own.load();
    // The word first: what made it so has asked before.
    let done = phase(was) >= LEAVING && flushed(side) && own.claim(was, was - LEAVING);
    if done && side.me() != side.owner() {
        tell(side, was);
    }
}

/// Reacts to a change by the other party's monitor, which rings the first core.
#[inline(never)]
pub fn look(side: &impl Side) {
    let (own, mine) = (side.word(side.me()), side.me() == side.owner());
    let was = own.load();
    if phase(was) != OPEN {
        return;
    }
    if !mine {
        if !offered(side.word(side.owner()).load(), side.me(), epoch(was)) {
            part(side, was, GONE);
        }
        return;
    }
    let other = side.word(to(was)).load();
    let left = was & LEFT == 0 && epoch(other) == epoch(was) && !holds(other);
    if left && own.claim(was, with(was, BUSY)) {
        side.bury(1);
        own.exchange(was | LEFT);
    }
}

/// Empties a core's TLB by `flush` if that is wanted. The caller [`settle`]s after it: by the fence here the last core
/// to do so sees that all have.
pub fn empty<S: Side>(side: &S, core: u32, flush: impl FnOnce()) {
    let (wanted, Some(done)) = (side.wanted().load(), side.done(core)) else { return };
    if done.load() != wanted {
        flush();
        done.exchange(wanted);
    }
}

/// Tells if each core has emptied its TLB as often as was wanted.
fn flushed(side: &impl Side) -> bool {
    let wanted = side.wanted().load();
    (0..).map_while(|core| side.done(core)).all(|done| done.load() == wanted)
}

/// Takes the link from the own guest.
#[inline(never)]
fn part(side: &impl Side, was: u64, then: u64) -> bool {
    let own = side.word(side.me());
    if !own.claim(was, with(was, BUSY)) {
        return false;
    }
    let mine = side.me() == side.owner();
    if mine {
        side.bury(0);
    }
    side.map(then);
    side.wanted().count();
    own.exchange(with(was, then + LEAVING));
    side.flush();
    settle(side);
    if mine {
        tell(side, was);
    }
    true
}

/// Has the other party look, if it has something to see: once for each time that it consented.
#[inline(never)]
fn tell(side: &impl Side, was: u64) {
    let other = other(side, was);
    let word = side.word(other).load();
    let waits = match side.me() == side.owner() {
        true => epoch(word) == epoch(was) && matches!(phase(word), BUSY | OPEN),
        false => offered(word, side.me(), epoch(was)),
    };
    if waits {
        side.ring(other);
    }
}

/// Returns the word on a link that its guest is told: its own monitor's, or the other party's. The other party is the
/// owner, or the sandbox that the owner offered it to last.
pub fn state(side: &impl Side, others: bool) -> u64 {
    let own = side.word(side.me()).load();
    if others { side.word(other(side, own)).load() } else { own }
}

/// Returns the other party, by the own word.
fn other(side: &impl Side, own: u64) -> u32 {
    if side.me() == side.owner() { to(own) } else { side.owner() }
}
