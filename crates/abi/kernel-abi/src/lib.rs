//! The contract of the kernel and its programs: one definition of each number and layout. The kernel, the SDK and the
//! host's image builder use it.
//!
//! **A call** is an instruction of the architecture. Seven registers carry its words:
//!
//! | word | in | out |
//! |---|---|---|
//! | operation | [`Op`], and a reply object's [`Address`] shifted left by 32 | [`Status`] |
//! | names | the capability's [`Address`]; a second one is shifted left by 32 | badge of the sender |
//! | description | [`Info`]; of a wait its deadline | [`Info`] |
//! | words 1 to 4 | the message's first four words | the same |
//!
//! The architecture says which registers these are, and which ones the instruction destroys (docs/kernel-calls.md).
//! All other registers are preserved. Words beyond the fourth, and a capability to be sent along, lie in the thread's
//! [`Buffer`].
#![no_std]

mod buffer;
mod info;
mod kind;
mod method;
pub mod name;
mod numbered;
mod op;
mod page;
mod status;
mod tagged;

pub use buffer::{BUFFER_WORDS, Buffer};
pub use info::{Info, MAX_WORDS, REGISTER_WORDS};
pub use kind::{Kind, Rights};
pub use method::{Label, METHODS, Policy, label};
pub use name::{Grant, Name};
pub use numbered::Described;
pub use op::Op;
pub use page::{ARGS, Clock, Load, MAGIC, MAX_NAMES, NAME, Page, at, slot};
pub use status::{Code, Status};
pub use tagged::{Field, Payload, TAGGED};

/// Place of a capability, as a thread names it: a slot of its root node, or `node << 16 | slot`. The latter is a slot
/// of the node that slot `node` of the root node refers to. Slot 0 of every root node stays empty, so 0 names nothing.
pub type Address = u32;

/// Slots of the largest node.
pub const MAX_SLOTS: u32 = 1 << 16;
