//! An oracle for admission: it plays what a core does, as the papers say it, and knows nothing of how the kernel does it
//! or what the analysis thinks of it.
mod account;
mod core;
mod generate;
pub mod judge;
mod random;
mod search;
mod set;
pub use crate::core::{Core, MOST, Rules, Seen};
pub use generate::{Class, TICK, set};
pub use random::Random;
pub use search::{Found, search};
pub use set::{Op, Pattern, Policy, Promise, Server, Set, Thread, Time};
