//! GDB's remote protocol for the guest of one sandbox. Its monitor stops it, and answers by a page
//! ([`bulkhead_layout::debug`]); all other sandboxes run on. How the page is reached is the caller's affair ([`Wire`]).
#![forbid(unsafe_code)]

mod guest;
mod paging;
mod target;

pub use guest::{Guest, Wire};
pub use paging::translate;

use gdbstub::conn::ConnectionExt;
use gdbstub::stub::{DisconnectReason, GdbStub};
use std::fmt;
use std::io;

/// Why a debugger's session ends early.
#[derive(Debug)]
pub enum Error {
    /// The page cannot be reached.
    Io(io::Error),
    /// The monitor does not answer a request; the seconds that were waited.
    Silent(&'static str, u64),
    /// The guest has ended.
    Ended,
    /// The session with GDB.
    Session(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the machine's memory: {error}"),
            Self::Silent(what, seconds) => {
                write!(f, "waited {seconds} s for the monitor to {what}: does the sandbox run?")
            }
            Self::Ended => write!(f, "the guest has ended"),
            Self::Session(why) => write!(f, "the session with gdb: {why}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Stops a guest, serves a debugger until that leaves, and lets the guest go on without breakpoints.
///
/// # Errors
/// The guest does not stop, or the connection breaks. The guest goes on then, too, if its monitor answers.
pub fn serve<W: Wire, C: ConnectionExt<Error = io::Error>>(
    wire: W,
    connection: C,
) -> Result<(), Error> {
    let mut guest = Guest::new(wire);
    if let Err(error) = guest.stop() {
        // It may have stopped after all.
        let _ = guest.leave();
        return Err(error);
    }
    let session = GdbStub::new(connection).run_blocking::<target::Loop<W, C>>(&mut guest);
    let left = guest.leave();
    match session {
        // A debugger that is killed closes the connection in the midst of anything.
        Ok(
            DisconnectReason::Disconnect
            | DisconnectReason::Kill
            | DisconnectReason::TargetExited(_),
        ) => left,
        Ok(reason) => Err(Error::Session(format!("{reason:?}"))),
        Err(error) if error.is_connection_error() => left,
        Err(error) => Err(Error::Session(error.to_string())),
    }
}
