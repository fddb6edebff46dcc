//! `bulkhead plan`: each sandbox's resources.

use super::PlanArguments;
use crate::output::{self, Form};
use crate::{picture, table};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show the partition that a manifest describes, as a table and as a picture.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    manifest: PlanArguments,
    /// Write a picture to this file too.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Form of the result.
    #[arg(long, value_enum, default_value_t = Form::Human)]
    format: Form,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let plan = match arguments.manifest.plan() {
        Ok(plan) => plan,
        Err(status) => return status,
    };
    if let Some(file) = &arguments.svg
        && let Err(error) = std::fs::write(file, picture::svg(&plan))
    {
        return output::fail(&format!("cannot write {}: {error}", file.display()));
    }
    let sheet = table::plan(&plan);
    match arguments.format {
        Form::Human => output::result(&sheet.text),
        Form::Json => {
            output::json(json!({ "version": 1, "system": plan.system, "tables": sheet.tables() }));
        }
    }
    ExitCode::SUCCESS
}
