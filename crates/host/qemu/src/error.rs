//! Errors around an emulator.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
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
        /// The event that was waited for.
        what: String,
        /// How long.
        limit: Duration,
        /// The machine's last lines.
        tail: String,
    },
    /// The emulator ended before the event that was waited for.
    Ended {
        /// The event that was waited for.
        what: String,
        /// How it ended.
        status: String,
        /// The last lines of emulator and machine.
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

    /// For `map_err` on what starts a program: `command` is as it was started.
    pub fn start(command: &Command, error: std::io::Error) -> Self {
        Self::Start(command.get_program().to_string_lossy().into_owned(), error)
    }
}

/// Advice on a program that is not found.
fn remedy(program: &str) -> &'static str {
    match program {
        "cargo" => "the pinned toolchain has to be in PATH, as `make test` puts it there",
        _ if program.contains('/') => "`make build` makes it",
        _ => "it has to be in PATH: `make setup` installs what is missing",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Start(program, error) => {
                write!(f, "cannot start {program}: {error}")?;
                match error.kind() {
                    ErrorKind::NotFound => write!(f, "; {}", remedy(program)),
                    _ => Ok(()),
                }
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_found_is_named_with_what_would_help() {
        let said = |program: &str| {
            let error = Command::new(program).spawn().expect_err("there is none");
            Error::start(&Command::new(program), error).to_string()
        };
        let text = said("bulkhead-no-such-program");
        assert!(text.starts_with("cannot start bulkhead-no-such-program: "), "{text}");
        assert!(text.contains("in PATH"), "{text}");
        assert!(said("/no/such/program").contains("`make build`"));
        let cargo = Error::Start("cargo".into(), ErrorKind::NotFound.into()).to_string();
        assert!(cargo.contains("toolchain"), "{cargo}");
        // A program that is there, but may not be started, is no case for an installation.
        let denied = Error::Start("cargo".into(), ErrorKind::PermissionDenied.into()).to_string();
        assert!(!denied.contains("PATH"), "{denied}");
    }
}
