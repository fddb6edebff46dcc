//! Other programs that the harness runs. An error names the program that was wanted, and what would help.

use bulkhead_qemu::Error;
use std::process::{Child, Command, ExitStatus, Output};

/// Ways to run a program.
pub trait Program {
    /// To its end; all that it prints.
    fn printed(&mut self) -> Result<Output, String>;
    /// To its end.
    fn ended(&mut self) -> Result<ExitStatus, String>;
    /// Beside the caller.
    fn started(&mut self) -> Result<Child, String>;
}

impl Program for Command {
    fn printed(&mut self) -> Result<Output, String> {
        self.output().map_err(|error| wrong(self, error))
    }

    fn ended(&mut self) -> Result<ExitStatus, String> {
        self.status().map_err(|error| wrong(self, error))
    }

    fn started(&mut self) -> Result<Child, String> {
        self.spawn().map_err(|error| wrong(self, error))
    }
}

fn wrong(command: &Command, error: std::io::Error) -> String {
    Error::start(command, error).to_string()
}
