//! Bakes a [`Plan`] into the image that a machine boots. Every table is at its final physical address, so that nothing
//! is built on the target (docs/decisions/0001-one-image.md).
//!
//! ```text
//! IMAGE_PA  boot code, with the loaders' headers
//!           boot report (written by the boot code)
//!           pristine guests (read-only for their monitors, for restarts)
//!           ── sealed by the checksum ──
//!           header, sandboxes
//!           mailboxes, reports
//!           for each sandbox: monitor text copy, configuration, vectors, stacks,
//!           control blocks, page tables; nested tables, which no monitor maps
//! ```

mod build;
mod config;
mod devices;
mod elf;
pub mod end;
mod guest;
mod info;
mod kernel;
pub mod late;
mod monitor;
mod multikernel;
mod nested;
mod pack;
mod pages;
mod parts;
pub mod pci;
pub mod space;
mod sweep;
mod target;
mod x86;

pub use build::{Baked, Map, Programs, bake, bake_for, kernel_window};
pub use config::Tail;
pub use devices::{Devices, Grant, Route, Unit};
pub use elf::{Local, Program, Relocated, Segment, section_len};
pub use guest::{Entry, Guest, Piece, Start, Trace, bare};
pub use kernel::{
    Asked, Ground, Hold, KernelMemory, Kernels, Placed, Route as KernelRoute, State, offset,
};
pub use monitor::{CONFIGURATION, DEBUGGER, MONITOR_TEXT};
pub use pack::{pack, pack_with};
pub use pages::Pages;
pub use parts::Part;
pub use target::{Confine, Target};
pub use x86::{GDT_GPA, absent_ports, load, set_console};

use std::fmt;

/// Why an image cannot be baked.
#[derive(Debug)]
pub enum Error {
    /// A file cannot be read.
    File(std::path::PathBuf, std::io::Error),
    /// A program is not what it should be.
    Program(String),
    /// The system does not fit in the machine's memory.
    Misfit(Vec<bulkhead_plan::Misfit>),
    /// The system cannot start under a Linux that runs.
    Refused(Box<bulkhead_plan::Refused>),
    /// Interrupt lines that cannot be given away so.
    Lines(String),
    /// Tables could not be built: a fault in the plan.
    Tables(bulkhead_arch::MapError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Program(what) | Self::Lines(what) => write!(f, "{what}"),
            Self::Misfit(misfit) => {
                write!(f, "the system does not fit in the machine's memory: {misfit:?}")
            }
            Self::Refused(why) => write!(f, "{why}"),
            Self::Tables(error) => write!(f, "the tables cannot be built: {error:?}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<bulkhead_plan::Refused> for Error {
    fn from(why: bulkhead_plan::Refused) -> Self {
        Self::Refused(Box::new(why))
    }
}

impl From<bulkhead_arch::MapError> for Error {
    fn from(error: bulkhead_arch::MapError) -> Self {
        Self::Tables(error)
    }
}
