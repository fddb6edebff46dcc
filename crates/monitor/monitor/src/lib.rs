//! The part of a monitor that no architecture shows in: a sandbox's life, its mail, its links, its records, its
//! hypercalls. An architecture's shell implements [`contract`] for a core and calls these functions at its exits.
//!
//! Handlers decide and return an [`Outcome`]; [`exit::carry_out`] alone counts an exit, moves the guest on or ends
//! its life. A guest's values are claims. One is used as an address, compared with the guest's RAM before
//! ([`snapshot`]). Nothing panics: slices are read with `get`, arithmetic wraps.
#![no_std]
#![forbid(unsafe_code)]

pub mod contract;
pub mod debug;
pub mod exit;
pub mod hypercall;
pub mod ladder;
pub mod life;
pub mod link;
pub mod mail;
mod outcome;
pub mod peer;
pub mod record;
pub mod role;
pub mod running;
pub mod signal;
pub mod snapshot;
pub mod watch;

pub use contract::{Devices, Interrupts, Layout, Monitor, Vcpu};
pub use outcome::{End, Outcome, Then};
