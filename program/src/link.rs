//! Channels made at run time, for a program: [`Slots`] of a [`Program`] are those that its `connects` names. An access
//! to a slot that is not open is an exception of the thread that makes it.

use crate::call::invoke;
use crate::names::Program;
pub use bulkhead_channel_memory::slots::{Phase, Refused, Slot, Slots, State};
use bulkhead_kernel_abi::{Address, Code, Grant, label, name};
use bulkhead_layout::hypercall::{ACCEPT, BAD_ARGUMENT, CLOSE, DENIED, NO_CALL, OFFER, SLOT};

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

fn grants(program: Program) -> impl Iterator<Item = name::Slot> {
    program.names().filter_map(|entry| match entry.grant()? {
        Grant::Slot(slot) => Some(slot),
        _ => None,
    })
}

// SAFETY: the program's page is the kernel's word that nothing but the slot lies there. An access to memory that is not
// mapped raises an exception, and ends in no memory of this program's.
unsafe impl Slots for Program {
    fn sandboxes(&self) -> [u32; 2] {
        self.page().sandbox
    }

    fn slots(&self) -> impl Iterator<Item = Slot> {
        grants(*self).map(|it| Slot {
            number: it.number.into(),
            owner: it.owner.into(),
            mine: it.mine,
            start: it.start,
            size: it.sent.into(),
        })
    }

    /// Denies a call about a slot that is not the program's: there is no capability to ask by.
    fn call(&self, number: u64, first: u64, second: u64) -> u64 {
        let named = if number == OFFER { second & 0xFFFF } else { first };
        let slot = grants(*self).find(|slot| u64::from(slot.number) == named);
        slot.map_or(DENIED, |slot| ask(slot.right, number, first, second))
    }
}
