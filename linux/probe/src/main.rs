//! `bulkhead-probe`: `bulkhead probe` alone, static, to be copied to the machine
//! that is to be described.

use bulkhead_probe::Arguments;
use clap::Parser;
use std::process::ExitCode;

/// Writes the description of this machine from what its Linux knows.
#[derive(Parser)]
#[command(name = "bulkhead-probe", version, about)]
struct Command {
    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> ExitCode {
    bulkhead_probe::run(&Command::parse().arguments)
}
