//! The contract of an architecture: blocks of 64 bytes between a mapping and registers, copies by one instruction, full
//! fences. An architecture without a module of its own, and Miri, have the language's words for all of it.

mod any;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub use any::{CAN_MOVE, copy, fence, fenced, load, long, store};
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub use x86::{CAN_MOVE, copy, fence, fenced, load, long, store};
