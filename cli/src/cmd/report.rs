//! `bulkhead report`: a run as one page.

use crate::page::{self, Planned};
use crate::sched::{self, picture, table};
use crate::{output, saved};
use bulkhead_manifest::{Options, load};
use bulkhead_plan::System;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write a run as one page of HTML, from its report. The page has all that it shows, and loads nothing from a network.
#[derive(clap::Args)]
pub struct Arguments {
    /// A report that `bulkhead run --report` wrote.
    #[arg(value_name = "REPORT", default_value = saved::USUAL)]
    report: PathBuf,
    /// The page's file.
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
    /// The manifest, for the partition's picture [default: the one that the report names].
    #[arg(long, value_name = "MANIFEST")]
    manifest: Option<PathBuf>,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = match saved::read(&arguments.report) {
        Ok(report) => report,
        Err(why) => return output::fail(&why),
    };
    let named = report["manifest"].as_str().map(PathBuf::from);
    let planned = match arguments.manifest.clone().or(named) {
        Some(manifest) => planned(&manifest, report["system"].as_str().unwrap_or_default()),
        None => Err("the report names no manifest; `--manifest` does".into()),
    };
    if let (Some(manifest), Err(why)) = (&arguments.manifest, &planned) {
        return output::fail(&format!("{}: {why}", manifest.display()));
    }
    let html = page::page(&report, &planned);
    let file = arguments.html.display();
    if let Err(error) = std::fs::write(&arguments.html, &html) {
        return output::fail(&format!("cannot write {file}: {error}"));
    }
    if let Err(why) = planned {
        output::complain(&format!("the page has no picture of the partition: {why}"));
    }
    output::result(&format!("{file}: {} bytes\n", html.len()));
    ExitCode::SUCCESS
}

/// Reads the manifest for that. Guests' files may have gone since.
fn planned(manifest: &Path, system: &str) -> Result<Planned, String> {
    let options = Options { skip_files: true, skip_admission: true, ..Options::default() };
    let shown = manifest.display();
    let checked = load(manifest, &options)
        .map_err(|_| format!("{shown} is not right any more; `bulkhead check {shown}` says why"))?;
    let name = &checked.system.name;
    if name != system {
        return Err(format!("{shown} describes `{name}`, and the report is of `{system}`"));
    }
    let plan = checked.plan(checked.image_estimate);
    let plan = plan.map_err(|_| format!("{shown} does not fit its machine any more"))?;
    let (schedule, times) = schedule(&checked.system)?;
    Ok(Planned {
        picture: crate::picture::svg(&plan),
        table: crate::table::plan(&plan).text,
        schedule,
        times,
    })
}

fn schedule(system: &System) -> Result<(Option<String>, String), String> {
    let reports = sched::reports(system, None)?;
    let mut times = String::new();
    reports.iter().for_each(|report| table::report(&mut times, report));
    let drawn = (!reports.is_empty()).then(|| picture::svg(&system.name, &reports, false));
    Ok((drawn, times))
}
