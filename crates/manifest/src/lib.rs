//! Manifests and machine descriptions: their format, their rules, and how a
//! checked manifest becomes a plan.
//!
//! [`load`] reads a manifest with everything that it names, applies every rule
//! ([`rules`]), and reports all that it finds, each finding with its place, the
//! reason and what would be right. What it returns is right and can be placed:
//! [`Checked::plan`].
//!
//! What it keeps true: no input makes it panic, and nothing that a manifest does
//! not grant appears in a plan.

mod artifact;
mod check;
pub mod diagnostic;
pub mod guest_file;
pub mod limits;
pub mod machine;
pub mod raw;
pub mod raw_kernel;
pub mod raw_machine;
pub mod render;
pub mod rules;
pub mod schema;
pub mod shape;
pub mod size;
pub mod source;
pub mod time;

pub use artifact::folder as artifacts;
pub use check::{Checked, Options, load, load_text};
pub use diagnostic::{Diagnostic, Diagnostics};
