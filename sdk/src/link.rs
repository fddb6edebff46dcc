//! Channels made at run time (`docs/connecting.md`): one sandbox offers a slot of memory that the manifest has set
//! aside for it, another accepts, and either closes.
//!
//! ```ignore
//! let slot = link::offer(context, to, TAG)?;                  // one, for a sandbox of its `may_connect`
//! let mut out = Sender::<Order>::open(&slot.pair(Kind::Queue, 64)?)?;
//! // ...
//! let slot = link::offers(context).next()?;                   // the other
//! slot.accept(slot.state().epoch)?;
//! let mut orders = Receiver::<Order>::open(&slot.pair(Kind::Queue, 64)?)?;
//! ```

use crate::hypercall::{self, OK};
use crate::{Context, context::text};
use bulkhead_channel::layout::Kind;
use bulkhead_channel_memory::typed::Pair;
use bulkhead_layout::hypercall as call;
use bulkhead_layout::info::SLOT;
use bulkhead_layout::{PAGE, link};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

/// A slot that this sandbox may offer or be offered.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Its number.
    pub number: u32,
    /// Index of the sandbox that offers it.
    pub owner: u32,
    /// Its name.
    pub name: &'static str,
    /// Whether that is this one.
    pub mine: bool,
    /// Guest-physical address of what the owner writes; a page of the other's lies behind it.
    pub gpa: u64,
    /// Bytes of it.
    pub size: u64,
}

/// What a party has of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing.
    Idle,
    /// Of this sandbox: the owner took it back, and what lies there now is nobody's; to be closed. Of the other: it has
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

/// What there is of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// What this sandbox has.
    pub own: Phase,
    /// What the other party has.
    pub other: Phase,
    /// To whom it is or was offered last.
    pub to: u32,
    /// What the owner said with the offer.
    pub tag: u16,
    /// Which offer it is.
    pub epoch: u32,
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The manifest does not grant it; a record is left.
    Denied,
    /// All slots are in use, or the last use is not over: later.
    Busy,
    /// There is no such offer, or nothing to close.
    Nothing,
}

fn result(value: u64) -> Result<u64, Refused> {
    match value {
        call::DENIED => Err(Refused::Denied),
        call::BUSY => Err(Refused::Busy),
        call::BAD_ARGUMENT | call::NO_CALL => Err(Refused::Nothing),
        value => Ok(value),
    }
}

impl Slot {
    /// What there is of it now.
    #[must_use]
    pub fn state(&self) -> State {
        let word = |other| {
            result(hypercall::raw(call::SLOT, self.number.into(), other, 0, 0)).unwrap_or(0)
        };
        let (own, other) = (word(0), word(1));
        let owners = if self.mine { own } else { other };
        let other = match link::epoch(own) == link::epoch(other) && own != 0 {
            // It has had it.
            true if self.mine && !link::holds(other) => link::GONE,
            false if self.mine => link::IDLE,
            _ => link::phase(other),
        };
        State {
            own: Phase::of(link::phase(own)),
            other: Phase::of(other),
            to: link::to(owners),
            tag: (owners >> 16) as u16,
            epoch: link::epoch(owners) as u32,
        }
    }

    /// Accepts an offer, by its epoch.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn accept(&self, epoch: u32) -> Result<(), Refused> {
        let number = u64::from(self.number);
        result(hypercall::raw(call::ACCEPT, number, epoch.into(), 0, 0)).map(|_| ())
    }

    /// Closes this end, or takes the offer back. An access to the slot's memory is denied from then on.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn close(&self) -> Result<(), Refused> {
        match hypercall::raw(call::CLOSE, self.number.into(), 0, 0, 0) {
            OK => Ok(()),
            other => result(other).and(Err(Refused::Nothing)),
        }
    }

    /// The 64-bit words of what the owner writes, and of the other's page behind it. An access is denied while the slot is
    /// not [`Phase::Open`] here, as is a store to what the other writes.
    #[must_use]
    pub fn words(&self) -> &'static [AtomicU64] {
        let len = self.size as usize + PAGE as usize;
        // SAFETY: the information page is the monitor's word that nothing else lies there; what is not mapped is denied,
        // and ends in no memory of this program's. Atomics allow for a second party that writes.
        unsafe { core::slice::from_raw_parts(self.gpa as *const AtomicU64, len / 8) }
    }

    /// Both regions, for messages of a kind and size that both ends agree on; its owner sends. An access while the slot is
    /// not [`Phase::Open`] here is denied.
    #[must_use]
    pub fn pair(&self, kind: Kind, message: u32) -> Option<Pair<'static>> {
        let (base, len) = (NonNull::new(self.gpa as *mut u8)?, usize::try_from(self.size).ok()?);
        // SAFETY: the information page is the monitor's word that nothing else lies there, and `mine` says which region may be
        // written. What is not mapped is denied, and ends in no memory of this program's.
        unsafe { Pair::new(base, len, (kind as u8, message), self.mine) }
    }
}

/// All slots that this sandbox may offer or be offered.
pub fn slots(context: Context) -> impl Iterator<Item = Slot> {
    let info = context.info();
    let windows = &info.window[..(info.windows as usize).min(info.window.len())];
    windows.iter().filter(|w| w.kind == SLOT).map(|w| Slot {
        number: w.message,
        owner: w.messages,
        name: text(&w.name),
        mine: w.writable != 0,
        gpa: w.gpa,
        size: w.size,
    })
}

/// Slots that stand offered to this sandbox.
pub fn offers(context: Context) -> impl Iterator<Item = Slot> {
    let me = context.info().sandbox;
    let offered = move |slot: &Slot| {
        let state = slot.state();
        !slot.mine && state.own == Phase::Idle && state.other == Phase::Open && state.to == me
    };
    slots(context).filter(offered)
}

/// Offers a slot to a sandbox, with a tag that tells what for.
///
/// # Errors
/// See [`Refused`].
pub fn offer(context: Context, to: u32, tag: u16) -> Result<Slot, Refused> {
    let mut refused = Refused::Nothing;
    for slot in slots(context).filter(|slot| slot.mine) {
        let which = u64::from(slot.number) | u64::from(tag) << 16;
        match result(hypercall::raw(call::OFFER, to.into(), which, 0, 0)) {
            Ok(_) => return Ok(slot),
            Err(Refused::Denied) => return Err(Refused::Denied),
            Err(why) => refused = why,
        }
    }
    Err(refused)
}
