//! Denials that only x86 has the words for.

pub mod ipi;
