//! `bulkhead exits`: exits by cause, from the report of a run.

use crate::output::{self, Form};
use crate::saved;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the exits of a run by sandbox and cause, from its report.
#[derive(clap::Args)]
pub struct Arguments {
    /// A report that `bulkhead run --report` wrote.
    #[arg(value_name = "REPORT", default_value = saved::USUAL)]
    report: PathBuf,
    /// Form of the result.
    #[arg(long, value_enum, default_value_t = Form::Human)]
    format: Form,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = match saved::read(&arguments.report) {
        Ok(report) => report,
        Err(why) => return output::fail(&why),
    };
    if arguments.format == Form::Json {
        let one = |sandbox: &Value| json!({ "name": sandbox["name"], "exits": sandbox["exits"] });
        let all: Vec<Value> = saved::list(&report["sandboxes"]).iter().map(one).collect();
        output::json(json!({ "version": 1, "system": report["system"], "sandboxes": all }));
        return ExitCode::SUCCESS;
    }
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
