//! Makes the guests' files, as the manifest's `[build]` says. Only `bulkhead build` and `bulkhead run` come here.

use super::ManifestArguments;
use bulkhead_explain::owner;
use bulkhead_manifest::{Checked, Command, commands};
use std::process::{ExitCode, Stdio};

/// Executes the manifest's commands, then loads and checks it. Its errors have been printed.
///
/// # Errors
/// The status to end with.
pub fn load(arguments: &ManifestArguments) -> Result<Checked, ExitCode> {
    let failed = |findings| {
        super::show(&findings);
        ExitCode::FAILURE
    };
    let all = commands(&arguments.manifest, &arguments.options(true)).map_err(failed)?;
    for command in &all {
        execute(command).map_err(|why| crate::output::fail(&why))?;
    }
    arguments.load(false).map_err(failed)
}

fn execute(command: &Command) -> Result<(), String> {
    let Command { program, arguments, folder, at } = command;
    let written: Vec<&str> =
        std::iter::once(program).chain(arguments).map(String::as_str).collect();
    let (written, at) = (written.join(" "), owner::at(&at.place()));
    let mut child = std::process::Command::new(program);
    // A project's own `make` is not one of the `make` that called this command.
    for of_make in ["MAKEFLAGS", "MAKELEVEL", "MFLAGS"] {
        child.env_remove(of_make);
    }
    // Standard output is for the command's own result.
    child.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(std::io::stderr());
    match child.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!(
            "{at}: `{written}` failed in {}: {status}; its own messages are above this line",
            folder.display()
        )),
        Err(error) => Err(format!(
            "{at}: `{written}` cannot be run in {}: {error}; install `{program}`, or put it into `PATH`",
            folder.display()
        )),
    }
}
