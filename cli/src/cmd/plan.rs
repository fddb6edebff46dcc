//! `bulkhead plan`: who gets what.

use super::ManifestArguments;
use crate::{output, picture, table};
use std::path::PathBuf;
use std::process::ExitCode;

/// Show the partition that a manifest describes, as a table and as a picture.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    manifest: ManifestArguments,
    /// Write a picture to this file too.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Do not open the guests' files, which may not have been built yet.
    #[arg(long)]
    skip_files: bool,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let planned = arguments
        .manifest
        .load(arguments.skip_files)
        .and_then(|checked| checked.plan(checked.image_estimate));
    let plan = match planned {
        Ok(plan) => plan,
        Err(findings) => {
            super::show(&findings);
            return ExitCode::FAILURE;
        }
    };
    if let Some(file) = &arguments.svg
        && let Err(error) = std::fs::write(file, picture::svg(&plan))
    {
        return output::fail(&format!("cannot write {}: {error}", file.display()));
    }
    output::result(&table::plan(&plan));
    ExitCode::SUCCESS
}
