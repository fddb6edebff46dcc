//! Links bare guests and programs of the kernel, as their build script:
//!
//! ```ignore
//! fn main() {
//!     bulkhead_build::guest();
//! }
//! ```

mod link;

/// Links the package's programs as bare guests.
pub fn guest() {
    link::with(include_str!("../../guest.ld"));
}

/// Links the package's programs as programs of the kernel.
pub fn program() {
    link::with(include_str!("../../../program/program.ld"));
}
