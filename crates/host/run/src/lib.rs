//! Builds a system, boots it in QEMU, and watches it to its end: what
//! `bulkhead run`, the tests and the measurements have in common.

mod arch;
pub mod audit;
mod build;
mod console;
mod exits;
mod fault;
mod intact;
mod live;
mod load;
mod machine;
mod promises;
mod system;
mod trace;
mod x86;

pub use build::{build, build_at, build_late, iso};
pub use console::Log;
pub use intact::Program;
pub use live::{DebugPage, Live};
pub use load::Load;
pub use machine::{emulated, machine};
pub use promises::judge;
pub use system::{Event, Options, Outcome, Spoil, run};
pub use trace::{Readers, Traced, attached};

/// Beginning of the reason of a run in which the emulator did not end by itself; the number of a signal follows.
pub const CRASHED: &str = "the emulator was ended by signal";

/// Why a run did not come to a report.
#[derive(Debug)]
pub enum Error {
    /// The manifest is wrong.
    Manifest(bulkhead_manifest::Diagnostics),
    /// The image cannot be built.
    Image(bulkhead_image::Error),
    /// The emulator.
    Machine(bulkhead_qemu::Error),
    /// Anything else, in words.
    Other(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Manifest(findings) => {
                write!(f, "{}", bulkhead_manifest::render::human(findings, false))
            }
            Self::Image(error) => write!(f, "{error}"),
            Self::Machine(error) => write!(f, "{error}"),
            Self::Other(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for Error {}
