//! The kernel on a machine of bytes: a [`World`] in which tests make objects and let threads call,
//! [`World::audit`] with what has to be true of all of its memory after every call, and
//! [`random`] programs that want it not to be, with a record of what they were given.

mod audit;
mod chain;
mod ghost;
mod lines;
mod mappings;
pub mod random;
mod threads;
mod tree;
mod world;

pub use bulkhead_kernel as kernel;
pub use chain::Chain;
pub use world::{Came, Machine, Thread, World, both};
