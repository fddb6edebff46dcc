//! `bulkhead build`: the image that a machine boots.

use super::ManifestArguments;
use crate::output;
use std::path::PathBuf;
use std::process::ExitCode;

/// Build the image that the machine boots (QEMU `-kernel`, GRUB multiboot2).
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    manifest: ManifestArguments,
    /// The image.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
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
    let baked = match bulkhead_run::build(&checked, &arguments.manifest.folder()) {
        Ok(baked) => baked,
        Err(error) => return output::fail(&error.to_string()),
    };
    let image = if arguments.iso {
        arguments.output.with_extension("image")
    } else {
        arguments.output.clone()
    };
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
    output::result(&format!(
        "{}: {} bytes, a monitor's text is {} bytes\n",
        arguments.output.display(),
        baked.bytes.len(),
        baked.map.text_bytes
    ));
    ExitCode::SUCCESS
}
