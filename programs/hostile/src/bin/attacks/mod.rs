//! Attacks by group.

use bulkhead_program::Program;

/// It returns a call's status, or `HARMLESS`.
pub type Attack = fn(Program) -> u64;

pub mod calls;
pub mod instructions;
pub mod itself;
pub mod time;
