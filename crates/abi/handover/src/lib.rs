//! Layouts that the host hands over to the boot code, and the boot code to guests. They are the image, the page that
//! tells a guest about itself, and addresses. `bulkhead_layout` has them under these names; see there for the words.
#![no_std]

pub mod image;
pub mod info;
pub mod map;
pub mod x86;

pub use bulkhead_monitor_abi::{MAX_CORES, MAX_SANDBOXES, PAGE};
