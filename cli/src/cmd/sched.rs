//! `bulkhead sched`: can each context have its time?

use super::ManifestArguments;
use crate::output;
use crate::sched::{self, Report, json, picture, table};
use bulkhead_manifest::{Options, load, time};
use clap::ValueEnum;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show shares, response times and admission of each kernel's contexts. Exit status 0: the manifest's tests admit them
/// and no simulation takes longer than its response time. Exit status 1: not so.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    manifest: ManifestArguments,
    /// Form of the report.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
    /// Write a picture of the simulated schedule to this file too.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Draw lists of refills below it.
    #[arg(long, requires = "svg")]
    refills: bool,
    /// How long to simulate, such as `100ms` [default: twice the longest period].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<u64>,
    /// Do not open the guests' files, which may not have been built yet.
    #[arg(long)]
    skip_files: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Tables.
    Human,
    /// One object; times in nanoseconds, shares in percent.
    Json,
}

/// A time that is not 0, in nanoseconds.
///
/// # Errors
/// The error in it.
pub fn duration(text: &str) -> Result<u64, String> {
    match time::parse(text) {
        Ok(0) => Err("it is 0".into()),
        Ok(nanoseconds) => Ok(nanoseconds),
        Err(why) => Err(why.to_string()),
    }
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let artifacts = arguments.manifest.artifacts.clone();
    let options = Options {
        artifacts,
        skip_files: arguments.skip_files,
        skip_admission: true,
        ..Options::default()
    };
    let checked = match load(&arguments.manifest.manifest, &options) {
        Ok(checked) => checked,
        Err(findings) => {
            super::show(&findings);
            return ExitCode::FAILURE;
        }
    };
    let system = &checked.system;
    let reports = match sched::reports(system, arguments.duration) {
        Ok(reports) => reports,
        Err(why) => return output::fail(&why),
    };
    if reports.is_empty() {
        return output::fail(&format!("no sandbox of `{}` runs a kernel", system.name));
    }
    if let Some(file) = &arguments.svg
        && let Err(error) =
            std::fs::write(file, picture::svg(&system.name, &reports, arguments.refills))
    {
        return output::fail(&format!("cannot write {}: {error}", file.display()));
    }
    match arguments.format {
        Format::Json => output::result(&json::system(&system.name, &reports)),
        Format::Human => {
            let mut out = String::new();
            reports.iter().for_each(|report| table::report(&mut out, report));
            output::result(out.trim_start_matches('\n'));
        }
    }
    match reports.iter().all(Report::holds) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
