//! `bulkhead exits`: exits by cause, from the report of a run.

use crate::{output, saved};
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the exits of a run by sandbox and cause, from its report.
#[derive(clap::Args)]
pub struct Arguments {
    /// A report that `bulkhead run --report` wrote.
    #[arg(value_name = "REPORT", default_value = saved::USUAL)]
    report: PathBuf,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = match saved::read(&arguments.report) {
        Ok(report) => report,
        Err(why) => return output::fail(&why),
    };
    let mut out = format!("{:<14}{:<12}{:>12}{:>12}\n", "sandbox", "cause", "boot", "steady");
    for sandbox in saved::list(&report["sandboxes"]) {
        let name = sandbox["name"].as_str().unwrap_or("?");
        let exits = &sandbox["exits"];
        for cause in bulkhead_layout::report::CAUSE_NAMES {
            let count = |phase: &str| exits[phase][cause].as_u64().unwrap_or(0);
            let (boot, steady) = (count("boot"), count("steady"));
            if boot + steady > 0 {
                out += &format!("{name:<14}{cause:<12}{boot:>12}{steady:>12}\n");
            }
        }
        let seconds = exits["steady_seconds"].as_f64().unwrap_or(0.0);
        out += &format!("{name:<14}steady for {seconds:.3} s\n");
    }
    output::result(&out);
    ExitCode::SUCCESS
}
