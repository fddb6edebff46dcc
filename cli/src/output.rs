//! Printing. A reader that goes away (`bulkhead plan M | head`) is no error.

use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

/// Prints a result.
pub fn result(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush())
        && error.kind() != ErrorKind::BrokenPipe
    {
        complain(&format!("cannot write the result: {error}"));
    }
}

/// Columns of the terminal that results go to, if it is one.
pub fn columns() -> Option<usize> {
    /// Width taken for an output that tells none.
    const USUAL: usize = 80;
    let out = std::io::stdout();
    let size = || rustix::termios::tcgetwinsize(&out).ok();
    let columns = || size().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    out.is_terminal().then(|| columns().unwrap_or(USUAL))
}

/// Prints a complaint.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "bulkhead: {text}");
}

/// Complains and fails.
pub fn fail(text: &str) -> ExitCode {
    complain(text);
    ExitCode::FAILURE
}

/// Tells if standard error shows colours (<https://no-color.org>).>).
#[must_use]
pub fn colour() -> bool {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    wanted && std::io::stderr().is_terminal()
}
