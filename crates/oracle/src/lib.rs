//! An oracle for admission: it plays what a core does, as the papers say it, and knows nothing of how the kernel
//! does it or what the analysis thinks of it.
mod account;
mod campaign;
mod core;
mod generate;
pub mod judge;
mod manifest;
mod random;
mod search;
mod set;
mod shrink;
pub use crate::core::{Core, MOST, Rules, Seen};
pub use campaign::{Campaign, Counts, Miss};
pub use generate::{Class, TICK, set};
pub use manifest::Text;
pub use random::Random;
pub use search::{Found, search};
pub use set::{Op, Pattern, Policy, Promise, Server, Set, Thread, Time};
