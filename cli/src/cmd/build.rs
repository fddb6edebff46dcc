//! `bulkhead build`: the image that a machine boots.

use super::ManifestArguments;
use crate::output;
use bulkhead_manifest::Checked;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Build the image that the machine boots (QEMU `-kernel`, GRUB multiboot2).
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    manifest: ManifestArguments,
    /// The image.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Refuse a system that belongs into no release: sandboxes that learn.
    #[arg(long)]
    release: bool,
    /// Wrap it into an ISO that boots on BIOS and on UEFI.
    #[arg(long)]
    iso: bool,
    /// Write a file that a running Linux starts the system from: it becomes the sandbox that `[under_linux]` names.
    #[arg(long, conflicts_with = "iso")]
    under_linux: bool,
    /// Cores that the machine has: its first ones. Without it there are all that its description names.
    #[arg(long, value_name = "N", requires = "under_linux")]
    cores: Option<usize>,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let checked = match super::make::load(&arguments.manifest) {
        Ok(checked) => checked,
        Err(status) => return status,
    };
    if let Some(learner) = super::learners(&checked).first().filter(|_| arguments.release) {
        return output::fail(&format!("{learner}: no release has a sandbox that learns"));
    }
    if let Some(open) = super::debugged(&checked).first().filter(|_| arguments.release) {
        return output::fail(&format!("{open}: no release lets a debugger in"));
    }
    if arguments.under_linux {
        return under_linux(arguments, &checked);
    }
    let baked = match bulkhead_run::build(&checked, &arguments.manifest.folder()) {
        Ok(baked) => baked,
        Err(error) => return output::fail(&error.to_string()),
    };
    let image =
        if arguments.iso { beside(&arguments.output, ".image") } else { arguments.output.clone() };
    if let Err(error) = std::fs::write(&image, &baked.bytes) {
        return output::fail(&format!("{}: {error}", image.display()));
    }
    if arguments.iso {
        output::complain("note: GRUB wraps the image");
        let made = bulkhead_run::iso(&image, &arguments.output);
        let _ = std::fs::remove_file(&image);
        if let Err(error) = made {
            return output::fail(&error.to_string());
        }
    }
    let written = std::fs::metadata(&arguments.output).map_or(0, |file| file.len());
    output::result(&format!(
        "{}: {written} bytes, a monitor's text is {} bytes\n",
        arguments.output.display(),
        baked.map.text_bytes
    ));
    ExitCode::SUCCESS
}

/// Writes the file from which a running Linux starts the system.
fn under_linux(arguments: &Arguments, checked: &Checked) -> ExitCode {
    let cores = arguments.cores.unwrap_or(usize::MAX);
    let late = match bulkhead_run::build_late(checked, &arguments.manifest.folder(), cores) {
        Ok(late) => late,
        Err(error) => return output::fail(&error.to_string()),
    };
    let file = late.file();
    if let Err(error) = std::fs::write(&arguments.output, &file) {
        return output::fail(&format!("{}: {error}", arguments.output.display()));
    }
    output::result(&format!(
        "{}: {} bytes, {} addresses in an image for a block of {} MiB\n",
        arguments.output.display(),
        file.len(),
        late.relocations.len(),
        late.block >> 20
    ));
    ExitCode::SUCCESS
}

/// A longer name: never the file itself, and none that a user is likely to have.
fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
