//! `bulkhead exits`: exits by cause, from the report of a run.

use crate::output;
use bulkhead_manifest::limits;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the exits of a run by sandbox and cause, from its report.
#[derive(clap::Args)]
pub struct Arguments {
    /// A report that `bulkhead run --report` wrote.
    #[arg(value_name = "REPORT", default_value = "target/run/report.json")]
    report: PathBuf,
}

/// Bytes of a report at most. The demo's file has some 100,000.
const MOST: u64 = 64 << 20;

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let path = arguments.report.display();
    let text = match limits::bytes(&arguments.report, MOST) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => {
            return output::fail(&format!(
                "{path}: {error}; `bulkhead run M --report {path}` makes it"
            ));
        }
    };
    let report: serde_json::Value = match serde_json::from_str(&text) {
        Ok(report) => report,
        Err(error) => return output::fail(&format!("{path}: no report: {error}")),
    };
    let mut out = format!("{:<14}{:<12}{:>12}{:>12}\n", "sandbox", "cause", "boot", "steady");
    let Some(sandboxes) = report["sandboxes"].as_array() else {
        return output::fail(&format!("{path}: no report: it has no `sandboxes`"));
    };
    for sandbox in sandboxes {
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
