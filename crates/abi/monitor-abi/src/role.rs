//! Roles: places that one sandbox holds at a time, and another one can take over.
//!
//! A role has memory, such as the ends of channels. Each monitor of a *holder* has a word for each role in its mailbox.
//! The word says what its own guest has, and the monitor maps the role's memory for that guest alone. A role moves in
//! two steps, each of which one monitor takes:
//!
//! 1. the monitor that has it *gives* it, once no core runs its guest. It takes the memory from its guest. Then it says
//!    which sandbox is next, and which time this is;
//! 2. that one's monitor *takes* it. It says so, and then maps the memory.
//!
//! So no two guests reach the memory, and a monitor that stops in between leaves a word that says how far it came. The
//! number of the time, the *epoch*, grows with each step: a word of earlier times gives nothing.

use crate::bell::Word;
use crate::monitor::Slice;
use crate::report::State;
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most roles of a machine.
pub const ROLES: usize = 8;
/// Most sandboxes that can hold a role.
pub const HOLDERS: usize = 4;

/// Holder: it begins when a role comes to it.
pub const COLD: u8 = 1 << 7;
/// No holder.
pub const NOBODY: u8 = 0xFF;
/// No sandbox: a role stays where it is.
pub const STAYS: u32 = u32::MAX;

/// A role, for one of its holders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Role {
    /// Its number, which all holders use.
    pub number: u32,
    /// 1: this sandbox has it at the machine's start.
    pub begins: u32,
    /// 1: this sandbox's guest lives while it has a role. Alike in all its roles.
    pub waits: u32,
    /// Padding.
    pub reserved: u32,
    /// All ones: it goes to the holder with the fewest roles; 0: to the first one in the manifest's order.
    pub least_loaded: u64,
    /// Indices of the other holders, in the manifest's order, some with [`COLD`]; then [`NOBODY`].
    pub others: [u8; 8],
    /// Parts of its memory in the guest's nested tables ([`Piece`]).
    pub pieces: Slice,
    /// Own ends of its channels ([`crate::bell::End`]).
    pub ends: Slice,
}

/// Memory of a role, or registers of its functions, on one page of entries that has no others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Piece {
    /// The entries (`u64`) while the guest has the role.
    pub entries: Slice,
    /// Monitor-virtual address of the first one.
    pub table: u64,
}

/// Phase of a sandbox's word: it has never had the role.
pub const NEVER: u64 = 0;
/// It has the role.
pub const HELD: u64 = 1;
/// It gave the role away.
pub const GIVEN: u64 = 2;

/// Returns a word's phase.
#[must_use]
pub const fn phase(word: u64) -> u64 {
    word & 3
}

/// Returns the sandbox that a word gives the role to.
#[must_use]
pub const fn to(word: u64) -> u32 {
    word as u32 >> 8 & 0xFF
}

/// Tells which time a word is about.
#[must_use]
pub const fn epoch(word: u64) -> u64 {
    word >> 32
}

const fn held(epoch: u64) -> u64 {
    epoch << 32 | HELD
}

const fn given(to: u32, epoch: u64) -> u64 {
    epoch << 32 | (to as u64) << 8 | GIVEN
}

/// A holder, as its monitor does what is decided here.
pub trait Side {
    /// See [`Side::word`].
    type Word: Word;
    /// Returns the index of this sandbox.
    fn me(&self) -> u32;
    /// Returns the word of a holder's monitor on the role.
    fn word(&self, of: u32) -> &Self::Word;
    /// Maps the role's memory for the guest, or takes it away; the guest is shown the epoch, or 0.
    fn map(&self, epoch: u64);
    /// Makes another sandbox's monitor look, by its first core.
    fn ring(&self, sandbox: u32);
    /// Tells if a rule holds: builds for the mutation gate leave one out.
    fn enforced(&self, rule: &str) -> bool;
}

/// Returns the epoch in which this sandbox has the role; 0: it has not.
#[must_use]
pub fn holds(side: &impl Side) -> u64 {
    let word = side.word(side.me()).load();
    if phase(word) == HELD { epoch(word) } else { 0 }
}

/// Begins as a monitor: with the machine, or as a spare one. `begins` says that the role is this sandbox's at first.
pub fn begin(side: &impl Side, begins: bool) {
    let own = side.word(side.me());
    let word = own.load();
    if begins && phase(word) == NEVER {
        own.exchange(held(1));
    }
    // The last monitor may have stopped before it rang.
    let taken = || epoch(side.word(to(word)).load()) > epoch(word);
    if phase(word) == GIVEN && !taken() && side.enforced("role-again") {
        side.ring(to(word));
    }
}

/// Takes the role if another holder has given it to this sandbox in an epoch above the own one.
pub fn take(side: &impl Side, from: u32) -> bool {
    let (me, own) = (side.me(), side.word(side.me()));
    // Another monitor's word is a claim.
    let (last, word) = (own.load(), side.word(from).load());
    let mine = word as u32 == given(me, 0) as u32 || !side.enforced("role-to");
    let newer = epoch(word) > epoch(last) || !side.enforced("role-newer");
    if phase(last) == HELD || !mine || !newer {
        return false;
    }
    own.exchange(held(epoch(word) + 1));
    side.map(epoch(word) + 1);
    true
}

/// Maps the memory, or not, as this sandbox's word says. A guest is about to begin.
pub fn settle(side: &impl Side) {
    let epoch = holds(side);
    side.map(if side.enforced("role-given") { epoch } else { epoch.max(1) });
}

/// Gives the role to another holder, if this sandbox has it. No core runs the guest.
pub fn give(side: &impl Side, to: u32) {
    let epoch = holds(side);
    if epoch == 0 {
        return;
    }
    // First nobody reaches it.
    if side.enforced("role-taken") {
        side.map(0);
    }
    side.word(side.me()).exchange(given(to, epoch));
    side.ring(to);
}

/// Tells if a holder can take a role, by the state of its sandbox.
#[must_use]
pub const fn healthy(state: State, cold: bool) -> bool {
    matches!(state, State::Running) || cold && matches!(state, State::Stopped)
}
