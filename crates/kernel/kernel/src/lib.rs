//! The real-time kernel, as a portable crate: objects made of memory that programs give, capabilities to them,
//! messages, and time as one of those capabilities. The model is from Lyons, McLeod, Almatary, Heiser:
//! *Scheduling-context capabilities*, EuroSys 2018; the scheduler is `bulkhead-sched`.
//!
//! It keeps these true:
//!
//! * Each object is made from memory that a capability names.
//! * Authority only comes from authority, and ends with it ([`tree`]).
//! * A thread runs only on a context.
//! * A waiting thread can be told that the object of its wait is gone.
//!
//! A thread's arguments are looked up and checked before anything changes.
//!
//! All state lies in the sandbox's memory as plain data behind [`Machine`]. So the host runs this code on bytes: to
//! bake a system's first objects into an image, and to try calls by the million. `kernel/` runs it on a processor.
#![no_std]

#[cfg(any(test, feature = "host"))]
extern crate std;

mod call;
mod cap;
mod core;
mod delete;
mod fast;
mod fault;
#[cfg(any(test, feature = "host"))]
pub mod host;
mod interrupt;
mod invoke;
mod ipc;
mod link;
mod lookup;
mod machine;
mod objects;
mod queue;
mod run;
mod space;
mod text;
mod time;
mod trace;
mod tree;
mod untyped;

pub use crate::core::{Core, Kernel};
pub use bulkhead_kernel_abi as abi;
pub use cap::{Cap, Mapping, Place, SLOT_BITS, Slot};
pub use fast::Wake;
pub use fault::Exception;
pub use invoke::Answer;
pub use lookup::Root;
pub use machine::{
    Event, Layout, Machine, Object, REGISTER_WORDS, REGISTERS, Ref, Registers, Time, Vectors,
};
pub use objects::{
    CONTEXT_BITS, Context, Endpoint, Interrupt, Link, Notification, Queue, Reply, State,
    THREAD_BITS, Thread, refills, size, vectors,
};
pub use space::PageTable;
pub use text::Line;
pub use time::{MAX_PERIOD, MIN_PERIOD};
pub use tree::{MAX_DEPTH, plant};
