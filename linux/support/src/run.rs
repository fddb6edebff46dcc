//! Other programs.

use std::io;
use std::process::Command;

/// Runs a program to its good end.
///
/// # Errors
/// There is none, or it ended badly: then with its name.
pub fn done(command: &mut Command) -> io::Result<()> {
    let status = command.status()?;
    let name = command.get_program().display().to_string();
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{name}: {status}"))) }
}
