//! `bulkhead build`: the image that a machine boots.

use super::ManifestArguments;
use crate::output;
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
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let checked = match arguments.manifest.load(false) {
        Ok(checked) => checked,
        Err(findings) => {
            super::show(&findings);
            return ExitCode::FAILURE;
        }
    };
    if let Some(learner) = super::learners(&checked).first().filter(|_| arguments.release) {
        return output::fail(&format!("{learner}: no release has a sandbox that learns"));
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

/// A longer name: never the file itself, and none that a user is likely to have.
fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
