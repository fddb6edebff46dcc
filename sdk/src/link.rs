//! Channels made at run time (`docs/connecting.md`). One sandbox offers a slot of memory that the manifest has set
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

use crate::hypercall;
use crate::{Context, context::text};
use bulkhead_channel::layout::Kind;
use bulkhead_channel_memory::typed::Pair;
use bulkhead_layout::info::SLOT;
pub use bulkhead_layout::slot::{Phase, Refused, State};
use bulkhead_layout::{PAGE, slot};
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
    /// True if that is this sandbox.
    pub mine: bool,
    /// Guest-physical address of the owner's memory; a page of the other's lies behind it.
    pub gpa: u64,
    /// Bytes of it.
    pub size: u64,
}

fn call(number: u64, first: u64, second: u64) -> u64 {
    hypercall::raw(number, first, second, 0, 0)
}

impl Slot {
    /// Reads its state now.
    #[must_use]
    pub fn state(&self) -> State {
        slot::state(self.number, self.mine, call).unwrap_or(State::of(0, 0, self.mine))
    }

    /// Accepts an offer, by its epoch.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn accept(&self, epoch: u32) -> Result<(), Refused> {
        slot::accept(self.number, epoch, call)
    }

    /// Closes this end, or takes the offer back. An access to the slot's memory is denied from then on.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn close(&self) -> Result<(), Refused> {
        slot::close(self.number, call)
    }

    /// The 64-bit words of the owner's memory, and of the other's page behind it. An access is denied while the slot is
    /// not [`Phase::Open`] here, as is a store to the other's memory.
    #[must_use]
    pub fn words(&self) -> &'static [AtomicU64] {
        let len = self.size as usize + PAGE as usize;
        // SAFETY: the information page is the monitor's word that nothing else lies there. An access to an unmapped
        // page is denied, and ends in no memory of this program's. Atomics allow for a second party that writes.
        unsafe { core::slice::from_raw_parts(self.gpa as *const AtomicU64, len / 8) }
    }

    /// Both regions, for messages of a kind and size that both ends agree on; its owner sends. An access while the slot
    /// is not [`Phase::Open`] here is denied.
    #[must_use]
    pub fn pair(&self, kind: Kind, message: u32) -> Option<Pair<'static>> {
        let (base, len) = (NonNull::new(self.gpa as *mut u8)?, usize::try_from(self.size).ok()?);
        // SAFETY: the information page is the monitor's word that nothing else lies there, and `mine` says which region
        // may be written. An access to an unmapped page is denied, and ends in no memory of this program's.
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
    slots(context).filter(move |slot| !slot.mine && slot.state().offered(me))
}

/// Offers a slot to a sandbox, with a tag that tells its use.
///
/// # Errors
/// See [`Refused`].
pub fn offer(context: Context, to: u32, tag: u16) -> Result<Slot, Refused> {
    let own = || slots(context).filter(|slot| slot.mine);
    let number = slot::offer(own().map(|slot| slot.number), (to, tag), call)?;
    own().find(|slot| slot.number == number).ok_or(Refused::Nothing)
}
