//! Parts of a run that only an architecture has: its auditor, its clock, its emulators' words for it. All machines are
//! of one family yet: its module asks the machine description for the rest.

pub use crate::x86::*;
