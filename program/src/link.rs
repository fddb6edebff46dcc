//! Channels made at run time, for a program: [`Links`] of a [`Program`] are those that its `links` name. An access
//! to a link that is not open is an exception of the thread that makes it.

use crate::call::invoke;
use crate::names::Program;
pub use bulkhead_channel_memory::link::{Link, Links, Phase, Refused, State};
use bulkhead_kernel_abi::{Address, Code, Grant, label, name};
use bulkhead_layout::hypercall::{ACCEPT, BAD_ARGUMENT, CLOSE, DENIED, LOOK, NO_CALL, OFFER};

/// A hypercall about a link, as a method of the program's capability.
fn ask(right: Address, number: u64, first: u64, second: u64) -> u64 {
    let (method, words) = match number {
        OFFER => (label::OFFER, [first, second >> 16]),
        ACCEPT => (label::ACCEPT, [second, 0]),
        CLOSE => (label::CLOSE, [0; 2]),
        LOOK => (label::LOOK, [second, 0]),
        _ => return NO_CALL,
    };
    match invoke(right, method, [words[0], words[1], 0, 0]) {
        Ok([answer, ..]) => answer,
        Err(error) if error.code() == Some(Code::OutOfRange) => BAD_ARGUMENT,
        // Not its own, as the manifest has it.
        Err(_) => DENIED,
    }
}

fn grants(program: Program) -> impl Iterator<Item = name::Link> {
    program.names().filter_map(|entry| match entry.grant()? {
        Grant::Link(link) => Some(link),
        _ => None,
    })
}

// SAFETY: the program's page is the kernel's word that nothing but the link lies there. An access to memory that is not
// mapped raises an exception, and ends in no memory of this program's.
unsafe impl Links for Program {
    fn sandboxes(&self) -> [u32; 2] {
        self.page().sandbox
    }

    fn links(&self) -> impl Iterator<Item = Link> {
        grants(*self).map(|it| Link {
            number: it.number.into(),
            owner: it.owner.into(),
            mine: it.mine,
            start: it.start,
            size: it.sent.into(),
        })
    }

    /// Denies a call about a link that is not the program's: there is no capability to ask by.
    fn call(&self, number: u64, first: u64, second: u64) -> u64 {
        let named = if number == OFFER { second & 0xFFFF } else { first };
        let link = grants(*self).find(|link| u64::from(link.number) == named);
        link.map_or(DENIED, |link| ask(link.right, number, first, second))
    }
}
