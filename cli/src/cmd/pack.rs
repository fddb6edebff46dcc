//! `bulkhead pack`: a program for a channel of kind `program`.

use crate::output;
use bulkhead_layout::map::GUEST_LOW_END;
use bulkhead_manifest::limits;
use std::path::PathBuf;
use std::process::ExitCode;

/// Make a bare program into a file that another sandbox can load (`bulkheadctl load`, or a guest of its own).
#[derive(clap::Args)]
pub struct Arguments {
    /// The program: a static ELF64 file.
    #[arg(value_name = "PROGRAM")]
    program: PathBuf,
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Bytes of a program at most: more than fit below the addresses that monitors use for a guest's windows.
const MOST: u64 = 1 << 30;

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let name = arguments.program.display().to_string();
    let elf = match limits::bytes(&arguments.program, MOST) {
        Ok(elf) => elf,
        Err(error) => return output::fail(&format!("{name}: {error}")),
    };
    let packed = match bulkhead_image::pack(&name, &elf, GUEST_LOW_END) {
        Ok(packed) => packed,
        Err(error) => return output::fail(&error.to_string()),
    };
    match std::fs::write(&arguments.output, &packed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::fail(&format!("{}: {error}", arguments.output.display())),
    }
}
