//! Manifests and machine descriptions: their format, their rules, and how a
//! checked manifest becomes a plan.
//!
//! [`load`] reads a manifest with everything that it names and applies every rule ([`rules`]). It reports each
//! finding with its place, the reason and how to mend it. A system that it returns can be placed: [`Checked::plan`].
//!
//! Two things stay true: no input makes it panic, and no plan contains anything that its manifest does not grant.

mod artifact;
mod check;
mod commands;
pub mod diagnostic;
pub mod guest_file;
pub mod limits;
pub mod machine;
pub mod part;
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

pub use artifact::{Home, described, folder as artifacts};
pub use check::{Checked, Options, load, load_text};
pub use commands::{Command, commands};
pub use diagnostic::{Diagnostic, Diagnostics};
