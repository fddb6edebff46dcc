//! What can go wrong around an emulator.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub enum Error {
    /// A file could not be read, written or made.
    Io(PathBuf, std::io::Error),
    /// A program could not be started.
    Start(String, std::io::Error),
    /// Waited in vain.
    TimedOut {
        /// What for.
        what: String,
        /// How long.
        limit: Duration,
        /// What the machine said last.
        tail: String,
    },
    /// The emulator ended before what was waited for.
    Ended {
        /// What was waited for.
        what: String,
        /// How it ended.
        status: String,
        /// What emulator and machine said last.
        tail: String,
    },
    /// The monitor protocol: command and answer.
    Qmp(String, String),
    /// An address that is no RAM.
    NoRam(u64),
    /// The plugin's file is not what it should be.
    Counts(PathBuf, String),
}

impl Error {
    /// For `map_err` on file operations.
    pub fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |error| Self::Io(path.to_owned(), error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Start(program, error) => write!(f, "cannot start {program}: {error}"),
            Self::TimedOut { what, limit, tail } => {
                write!(f, "waited {limit:?} for {what}; the machine said last:\n{tail}")
            }
            Self::Ended { what, status, tail } => {
                write!(f, "the emulator ended ({status}) before {what}; said last:\n{tail}")
            }
            Self::Qmp(command, answer) => write!(f, "QEMU's answer to {command}: {answer}"),
            Self::NoRam(pa) => write!(f, "physical address {pa:#x} is no RAM of the machine"),
            Self::Counts(path, why) => write!(f, "{}: {why}", path.display()),
        }
    }
}

impl std::error::Error for Error {}
