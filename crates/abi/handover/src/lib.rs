//! What the host hands over to the boot code, and the boot code to guests: the
//! image, the page that tells a guest about itself, and where things lie.
//! `bulkhead_layout` has these under the same names; see there for the words.
#![no_std]

pub mod image;
pub mod info;
pub mod map;

pub use bulkhead_monitor_abi::{MAX_CORES, MAX_SANDBOXES, PAGE};
