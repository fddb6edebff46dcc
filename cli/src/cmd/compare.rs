//! `bulkhead compare`: two runs side by side.

use crate::compare::{Compared, compare, percent};
use crate::output::{self, Form};
use crate::text::Sheet;
use crate::{page, saved, text};
use bulkhead_explain::Untrusted;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show the figures of two runs that differ, from their reports. Exit status 1: a promise that held in the first run
/// does not in the second.
#[derive(clap::Args)]
pub struct Arguments {
    /// The report of the run before.
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The report of the run after.
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// Write a page of HTML to this file too.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Form of the result.
    #[arg(long, value_enum, default_value_t = Form::Human)]
    format: Form,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let read = |file| saved::read(file).map_err(|why| output::fail(&why));
    let (before, after) = match (read(&arguments.before), read(&arguments.after)) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(status), _) | (_, Err(status)) => return status,
    };
    for (report, file) in [(&before, &arguments.before), (&after, &arguments.after)] {
        if report["promises"].as_array().is_none_or(Vec::is_empty) {
            output::complain(&format!("{}: no promise was judged in that run", file.display()));
        }
    }
    if before["system"] != after["system"] {
        output::complain(&format!("the runs are of {} and {}", before["system"], after["system"]));
    }
    let compared = compare(&before, &after);
    let rows = rows(&compared);
    let same = text::count(compared.same, "figure is equal", "figures are equal");
    let mut out = Sheet::default();
    match rows.is_empty() {
        true => out.push_str("no figure differs\n"),
        false => text::table(&mut out, "Figures that differ", &HEADS, &rows),
    }
    out.push_str(&format!("{same}\n"));
    match arguments.format {
        Form::Human => output::result(out.text.trim_start_matches('\n')),
        Form::Json => output::json(json!({
            "version": 1,
            "equal": compared.same,
            "broken": compared.broken,
            "tables": out.tables(),
        })),
    }
    if let Some(file) = &arguments.html {
        let names = [&arguments.before, &arguments.after].map(|path| path.display().to_string());
        let html = page::compared(&names, &HEADS, &rows, &same);
        if let Err(error) = std::fs::write(file, html) {
            return output::fail(&format!("cannot write {}: {error}", file.display()));
        }
    }
    match compared.broken.as_slice() {
        [] => ExitCode::SUCCESS,
        broken => {
            let broken = Untrusted::new(broken.join("; ")).text();
            output::fail(&format!("held before, and does not now: {broken}"))
        }
    }
}

const HEADS: [&str; 4] = ["figure", "before", "after", "change"];

fn rows(compared: &Compared) -> Vec<Vec<String>> {
    let row = |(name, was, is): &crate::compare::Change| {
        // A report from elsewhere may have anything in its names.
        let shown = |text: &str| Untrusted::new(text).text();
        let show = |value: &Option<String>| value.as_deref().map_or("-".into(), shown);
        let change = percent(was.as_deref(), is.as_deref());
        let change = change.map_or(String::new(), |percent| format!("{percent:+.1} %"));
        vec![shown(name), show(was), show(is), change]
    };
    compared.changes.iter().map(row).collect()
}
