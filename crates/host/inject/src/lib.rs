//! Campaigns of faults: one fault a run, in deterministic virtual time, judged by what was seen.
//!
//! * A [`System`] is a manifest's image, with the sandbox that faults strike.
//! * A [`Golden`] run without a fault says what is right: what each sandbox prints and does, and which pages stay.
//! * A [`Fault`] is drawn from a seed and its number alone. It has a kind, an instant (a count of instructions) and a
//!   place.
//! * [`run::run`] boots the machine, stops it at the instant, strikes, and watches it to its end.
//! * [`judge`] classes what was seen.
//! * A [`Store`] keeps a row for each fault, and [`campaign`] fills it: on several cores, in shards, and again from
//!   where it was left.
//!
//! The machine is QEMU with our plugin, which stops it (`plugin/src/control.rs`). docs/inject.md describes the use,
//! docs/decisions/0063-campaigns.md the choices.

pub mod campaign;
mod clock;
mod device;
mod fault;
mod golden;
pub mod judge;
mod pages;
pub mod run;
mod stand;
mod store;
mod strike;
mod system;
mod table;
mod watch;

pub use campaign::{Campaign, Shard};
pub use fault::{Fault, KINDS, Kind};
pub use golden::Golden;
pub use judge::{Class, Judge, Verdict};
pub use stand::{At, Came, Stand, Stop};
pub use store::{Row, Store};
pub use system::System;
pub use table::{Cell, cells, table};

use std::fmt;

/// Reason for which a campaign does not go on.
#[derive(Debug)]
pub enum Error {
    /// The emulator.
    Machine(bulkhead_qemu::Error),
    /// The image.
    Run(bulkhead_run::Error),
    /// The database.
    Store(rusqlite::Error),
    /// Anything else, in words.
    Other(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(error) => write!(f, "{error}"),
            Self::Run(error) => write!(f, "{error}"),
            Self::Store(error) => write!(f, "the database: {error}"),
            Self::Other(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<bulkhead_qemu::Error> for Error {
    fn from(error: bulkhead_qemu::Error) -> Self {
        Self::Machine(error)
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error)
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

fn other<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::Other(what.into()))
}
