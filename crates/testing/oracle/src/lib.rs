//! An oracle for admission: it plays a core by the papers, and knows nothing of the kernel's code or of the analysis.
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
pub use campaign::{Calls, Campaign, Counts, Miss};
pub use generate::{Class, TICK, set};
pub use manifest::Text;
pub use random::Random;
pub use search::{Found, search};
pub use set::{Op, Pattern, Policy, Promise, Server, Set, Thread, Time};
