//! Layouts that only x86-64 has.

pub mod bareload;
pub mod marker;
