//! This program's terminal.

use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use std::io::{self, IsTerminal};

/// Does something while the standard input, if that is a terminal, gives each key as it is typed, without an echo.
///
/// # Errors
/// The error of `work`, or of setting the terminal.
pub fn raw<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return work();
    }
    let before = tcgetattr(&stdin)?;
    let mut raw = before.clone();
    cfmakeraw(&mut raw);
    tcsetattr(&stdin, SetArg::TCSADRAIN, &raw)?;
    let done = work();
    tcsetattr(&stdin, SetArg::TCSADRAIN, &before)?;
    done
}
