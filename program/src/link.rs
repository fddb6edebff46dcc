//! Channels made at run time (`docs/connecting.md`), as in a bare guest (`sdk/src/link.rs`). One sandbox offers a slot
//! of memory that the manifest has set aside for it, another accepts, and either closes. A program has those slots that
//! its `connects` names.
//!
//! ```ignore
//! let slot = link::offer(program, program.sandbox("miner"), TAG)?;        // one, for a sandbox of its `may_connect`
//! let mut out = Sender::<Order>::open(&slot.pair(Kind::Queue, 64)?)?;
//! // ...
//! let slot = link::offers(program).next()?;                               // the other
//! slot.accept(slot.state().epoch)?;
//! let mut orders = Receiver::<Order>::open(&slot.pair(Kind::Queue, 64)?)?;
//! ```
//!
//! An access to a slot that is not open is an exception of the accessing thread.

use crate::call::invoke;
use crate::names::{Program, text};
use bulkhead_channel::layout::Kind as Message;
use bulkhead_channel_memory::typed::Pair;
use bulkhead_kernel_abi::{Address, Code, Grant, Name, label};
use bulkhead_layout::hypercall::{ACCEPT, BAD_ARGUMENT, CLOSE, DENIED, NO_CALL, OFFER, SLOT};
pub use bulkhead_layout::slot::{Phase, Refused, State};
use bulkhead_layout::{PAGE, slot};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

/// A slot that this program may offer or be offered.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Its number.
    pub number: u32,
    /// Index of the sandbox that offers it.
    pub owner: u32,
    /// Its name.
    pub name: &'static str,
    /// True if that is this program's sandbox.
    pub mine: bool,
    /// Address at which the program sees the owner's memory; a page of the other's lies behind it.
    pub address: u64,
    /// Bytes of the owner's memory.
    pub size: u64,
    right: Address,
}

/// A hypercall about a slot, as a method of the program's capability.
fn ask(right: Address, number: u64, first: u64, second: u64) -> u64 {
    let (method, words) = match number {
        OFFER => (label::OFFER, [first, second >> 16]),
        ACCEPT => (label::ACCEPT, [second, 0]),
        CLOSE => (label::CLOSE, [0; 2]),
        SLOT => (label::LOOK, [second, 0]),
        _ => return NO_CALL,
    };
    match invoke(right, method, [words[0], words[1], 0, 0]) {
        Ok([answer, ..]) => answer,
        Err(error) if error.code() == Some(Code::OutOfRange) => BAD_ARGUMENT,
        // Not its own, as the manifest has it.
        Err(_) => DENIED,
    }
}

/// Makes a hypercall about slots with its first two arguments. A number that is no slot of this program's is refused
/// here, as there is no capability to ask by.
#[must_use]
pub fn call(program: Program, number: u64, first: u64, second: u64) -> u64 {
    let named = if number == OFFER { second & 0xFFFF } else { first };
    let right = slots(program).find(|slot| u64::from(slot.number) == named);
    right.map_or(DENIED, |slot| ask(slot.right, number, first, second))
}

impl Slot {
    fn of(name: &'static Name) -> Option<Self> {
        let Grant::Slot(it) = name.grant()? else { return None };
        Some(Self {
            number: it.number.into(),
            owner: it.owner.into(),
            name: text(&name.name),
            mine: it.mine,
            address: it.start,
            size: it.sent.into(),
            right: it.right,
        })
    }

    fn call(&self) -> impl Fn(u64, u64, u64) -> u64 {
        let right = self.right;
        move |number, first, second| ask(right, number, first, second)
    }

    /// Reads its state now.
    #[must_use]
    pub fn state(&self) -> State {
        slot::state(self.number, self.mine, self.call()).unwrap_or(State::of(0, 0, self.mine))
    }

    /// Accepts an offer, by its epoch.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn accept(&self, epoch: u32) -> Result<(), Refused> {
        slot::accept(self.number, epoch, self.call())
    }

    /// Closes this end, or takes the offer back. An access to the slot's memory is an exception from then on.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn close(&self) -> Result<(), Refused> {
        slot::close(self.number, self.call())
    }

    /// The 64-bit words of the owner's memory, and of the other's page behind it. An access is an exception while the
    /// slot is not [`Phase::Open`] or [`Phase::Gone`] here, as is a store to the other's memory.
    #[must_use]
    pub fn words(&self) -> &'static [AtomicU64] {
        let len = self.size as usize + PAGE as usize;
        // SAFETY: the program's page is the kernel's word that nothing else lies there. An access to an absent page
        // raises an exception, and ends in no memory of this program's. Atomics allow for a second party that writes.
        unsafe { core::slice::from_raw_parts(self.address as *const AtomicU64, len / 8) }
    }

    /// Both regions, for messages of a kind and size that both ends agree on; its owner sends. An access while the slot
    /// is not open here is an exception.
    #[must_use]
    pub fn pair(&self, kind: Message, message: u32) -> Option<Pair<'static>> {
        let (base, len) =
            (NonNull::new(self.address as *mut u8)?, usize::try_from(self.size).ok()?);
        // SAFETY: the program's page is the kernel's word that nothing else lies there, and `mine` says which region
        // may be written. An access to an absent page raises an exception, and ends in no memory of this program's.
        unsafe { Pair::new(base, len, (kind as u8, message), self.mine) }
    }
}

/// All slots that this program may offer or be offered.
pub fn slots(program: Program) -> impl Iterator<Item = Slot> {
    program.names().filter_map(Slot::of)
}

/// Slots that stand offered to this program.
pub fn offers(program: Program) -> impl Iterator<Item = Slot> {
    let [me, _] = program.page().sandbox;
    slots(program).filter(move |slot| !slot.mine && slot.state().offered(me))
}

/// Offers a slot to a sandbox, by its index, with a tag that tells its use.
///
/// # Errors
/// See [`Refused`].
pub fn offer(program: Program, to: u32, tag: u16) -> Result<Slot, Refused> {
    let own = || slots(program).filter(|slot| slot.mine);
    let call = |number, first, second| call(program, number, first, second);
    let number = slot::offer(own().map(|slot| slot.number), (to, tag), call)?;
    own().find(|slot| slot.number == number).ok_or(Refused::Nothing)
}
