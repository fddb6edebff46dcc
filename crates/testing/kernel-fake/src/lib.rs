//! The kernel on a machine of bytes. Tests make objects in a [`World`] and let threads call. [`World::audit`] has the
//! statements that hold for all of its memory after every call. [`random`] programs try to break them, with a record of
//! their grants.

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
pub use world::{Came, Machine, NUMBER, Thread, USER_END, World, both};
