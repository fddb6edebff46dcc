//! Channels made at run time (`docs/connecting.md`): one interface for a bare guest, a program of the kernel and a
//! process of a Linux. One sandbox offers a slot of memory that the manifest has set aside for it, another accepts, and
//! either closes.
//!
//! ```ignore
//! let slot = context.offer(miner, TAG)?;                      // one, for a sandbox of its `may_connect`
//! let mut out = Sender::<Order>::open(&context.pair(&slot, Kind::Queue, 64)?)?;
//! // ...
//! let slot = program.offers().next()?;                        // the other
//! program.accept(&slot, program.state(&slot).epoch)?;
//! let mut orders = Receiver::<Order>::open(&program.pair(&slot, Kind::Queue, 64)?)?;
//! ```

use crate::typed::Pair;
use bulkhead_channel::layout::Kind;
use bulkhead_layout::{PAGE, slot};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

pub use bulkhead_layout::slot::{Phase, Refused, State};

/// A slot that this sandbox may offer or be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Number of the slot.
    pub number: u32,
    /// Index of the sandbox that offers it.
    pub owner: u32,
    /// This sandbox offers it.
    pub mine: bool,
    /// Address of the owner's region, as the guest's page tells it; the other end's page lies behind it.
    pub start: u64,
    /// Bytes of the owner's region.
    pub size: u64,
}

/// The slots of a guest, and its calls about them.
///
/// # Safety
/// At [`Slots::base`] lie `size` bytes of the slot and a page, and nothing else of this program. An access that the
/// sandbox may not make reaches no memory of this program: it is denied, or an exception.
pub unsafe trait Slots {
    /// Returns the own sandbox's index, and the number of sandboxes.
    fn sandboxes(&self) -> [u32; 2];

    /// Returns all slots that this sandbox may offer or be offered.
    fn slots(&self) -> impl Iterator<Item = Slot>;

    /// Makes a hypercall with two arguments.
    fn call(&self, number: u64, first: u64, second: u64) -> u64;

    /// Returns the address at which this program finds a slot; `None` if it has not mapped it.
    fn base(&self, slot: &Slot) -> Option<NonNull<u8>> {
        NonNull::new(slot.start as *mut u8)
    }

    /// Returns the state of a slot.
    fn state(&self, slot: &Slot) -> State {
        let state =
            slot::state(slot.number, slot.mine, |n, first, second| self.call(n, first, second));
        state.unwrap_or(State::of(0, 0, slot.mine))
    }

    /// Returns the slots that stand offered to this sandbox.
    fn offers(&self) -> impl Iterator<Item = Slot> {
        let [me, _] = self.sandboxes();
        self.slots().filter(move |slot| !slot.mine && self.state(slot).offered(me))
    }

    /// Offers a slot to a sandbox, by its index, with a tag that tells what for.
    ///
    /// # Errors
    /// See [`Refused`].
    fn offer(&self, to: u32, tag: u16) -> Result<Slot, Refused> {
        let own = || self.slots().filter(|slot| slot.mine);
        let call = |n, first, second| self.call(n, first, second);
        let number = slot::offer(own().map(|slot| slot.number), (to, tag), call)?;
        own().find(|slot| slot.number == number).ok_or(Refused::Nothing)
    }

    /// Accepts an offer, by its epoch.
    ///
    /// # Errors
    /// See [`Refused`].
    fn accept(&self, slot: &Slot, epoch: u32) -> Result<(), Refused> {
        slot::accept(slot.number, epoch, |n, first, second| self.call(n, first, second))
    }

    /// Closes this end, or takes the offer back. An access to the slot's memory is denied from then on.
    ///
    /// # Errors
    /// See [`Refused`].
    fn close(&self, slot: &Slot) -> Result<(), Refused> {
        slot::close(slot.number, |n, first, second| self.call(n, first, second))
    }

    /// Returns the 64-bit words of the owner's region, and of the other end's page behind it. An access is denied while
    /// the slot is not [`Phase::Open`] here, as is a store to the peer's part.
    fn words(&self, slot: &Slot) -> Option<&'static [AtomicU64]> {
        let len = usize::try_from(slot.size + PAGE).ok()? / 8;
        // SAFETY: the trait's: nothing of this program's lies there, and a denied access reaches none of it. Atomics
        // allow for a second party that writes.
        Some(unsafe { core::slice::from_raw_parts(self.base(slot)?.as_ptr().cast(), len) })
    }

    /// Returns both regions, for messages of a kind and size that both ends agree on; the owner sends. An access while
    /// the slot is not [`Phase::Open`] here is denied.
    fn pair(&self, slot: &Slot, kind: Kind, message: u32) -> Option<Pair<'static>> {
        let len = usize::try_from(slot.size).ok()?;
        // SAFETY: as in `words`; `mine` says which region may be written.
        unsafe { Pair::new(self.base(slot)?, len, (kind as u8, message), slot.mine) }
    }
}
