//! Findings for people, for programs, and for code review tools.

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::source::Location;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// Characters of a source line that are shown at most.
const WIDTH: usize = 110;

struct Paint {
    error: &'static str,
    mark: &'static str,
    bold: &'static str,
    off: &'static str,
}

const PLAIN: Paint = Paint { error: "", mark: "", bold: "", off: "" };
const COLOUR: Paint =
    Paint { error: "\x1b[1;31m", mark: "\x1b[1;34m", bold: "\x1b[1m", off: "\x1b[0m" };

/// Renders findings as text: each with its source line and a mark under the mistake.
#[must_use]
pub fn human(findings: &Diagnostics, colour: bool) -> String {
    let paint = if colour { COLOUR } else { PLAIN };
    let mut out = String::new();
    for finding in &findings.shown {
        one(&mut out, finding, &paint);
        out.push('\n');
    }
    let count = findings.shown.len() + findings.left_out;
    let errors = if count == 1 { "error" } else { "errors" };
    let shown = match findings.left_out {
        0 => String::new(),
        _ => format!(", of which these are the first {}", findings.shown.len()),
    };
    let _ = writeln!(out, "{}{count} {errors}{shown}{}", paint.bold, paint.off);
    out
}

fn one(out: &mut String, finding: &Diagnostic, paint: &Paint) {
    let Paint { error, mark, bold, off } = paint;
    let _ = writeln!(
        out,
        "{error}error[{}]{off}{bold}: {}{off}",
        finding.rule,
        clean(&finding.message)
    );
    let digits = finding
        .related
        .iter()
        .map(|(at, _)| at)
        .chain([&finding.at])
        .map(|at| at.first().0.to_string().len())
        .max()
        .unwrap_or(1);
    snippet(out, &finding.at, &finding.label, "-->", '^', digits, paint);
    for (at, label) in &finding.related {
        snippet(out, at, label, ":::", '-', digits, paint);
    }
    for help in &finding.help {
        let _ = writeln!(out, "{:digits$} {mark}= help:{off} {}", "", clean(help));
    }
}

/// A place, its line, and a mark under the range.
fn snippet(
    out: &mut String,
    at: &Location,
    label: &str,
    arrow: &str,
    sign: char,
    digits: usize,
    paint: &Paint,
) {
    let Paint { error, mark, off, .. } = paint;
    let (line, column) = at.first();
    let _ = writeln!(
        out,
        "{:digits$}{mark}{arrow}{off} {}:{line}:{column}",
        "",
        at.source.path.display()
    );
    if at.source.text.is_empty() {
        return;
    }
    let (last_line, last_column) = at.last();
    let text: Vec<char> = at.line().chars().collect();
    // A long line is shown from shortly before the mark on.
    let skip = if text.len() > WIDTH && column > WIDTH / 2 { column - WIDTH / 2 } else { 0 };
    let shown: String = text.iter().skip(skip).take(WIDTH).map(|c| printable(*c)).collect();
    let end = if last_line == line { last_column } else { text.len() + 1 };
    let start = column - 1 - skip.min(column - 1);
    let len = end.saturating_sub(column).clamp(1, WIDTH.saturating_sub(start).max(1));
    let signs: String = std::iter::repeat_n(sign, len).collect();
    let _ = writeln!(out, "{:digits$} {mark}|{off}", "");
    let _ = writeln!(out, "{mark}{line:digits$} |{off} {shown}");
    let under =
        format!("{:digits$} {mark}|{off} {:start$}{error}{signs} {}{off}", "", "", clean(label));
    let _ = writeln!(out, "{}", under.trim_end());
}

/// A manifest's text cannot steer the terminal.
fn printable(c: char) -> char {
    if c == '\t' {
        ' '
    } else if c.is_control() {
        '\u{fffd}'
    } else {
        c
    }
}

fn clean(text: &str) -> String {
    text.chars().map(printable).collect()
}

fn region(at: &Location) -> Value {
    let ((line, column), (end_line, end_column)) = (at.first(), at.last());
    json!({"line": line, "column": column, "end_line": end_line, "end_column": end_column})
}

/// `{"version", "errors", "diagnostics": [{"rule", "message", "file", "line",
/// "column", "end_line", "end_column", "label", "help": [], "related": []}]}`; `errors` counts those that are left out.
#[must_use]
pub fn json(findings: &Diagnostics) -> String {
    let place = |at: &Location| {
        let mut place = region(at);
        place["file"] = json!(at.source.path.display().to_string());
        place
    };
    let diagnostics: Vec<Value> = findings
        .shown
        .iter()
        .map(|finding| {
            let mut entry = place(&finding.at);
            entry["rule"] = json!(finding.rule);
            entry["severity"] = json!("error");
            entry["message"] = json!(finding.message);
            entry["label"] = json!(finding.label);
            entry["help"] = json!(finding.help);
            let related = finding.related.iter().map(|(at, label)| {
                let mut entry = place(at);
                entry["label"] = json!(label);
                entry
            });
            entry["related"] = related.collect();
            entry
        })
        .collect();
    let errors = findings.shown.len() + findings.left_out;
    let report = json!({"version": 1, "errors": errors, "diagnostics": diagnostics});
    format!("{report:#}\n")
}

/// SARIF 2.1.0.
#[must_use]
pub fn sarif(findings: &Diagnostics) -> String {
    let mut rules: Vec<&str> = findings.shown.iter().map(|finding| finding.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    let rules: Vec<Value> = rules.iter().map(|rule| json!({"id": rule})).collect();
    let mut results: Vec<Value> = findings.shown.iter().map(sarif_result).collect();
    if findings.left_out > 0 {
        let text = format!("{} more findings are left out", findings.left_out);
        results.push(json!({"level": "note", "message": {"text": text}}));
    }
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "bulkhead",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    format!("{log:#}\n")
}

fn sarif_result(finding: &Diagnostic) -> Value {
    let text = std::iter::once(finding.message.clone()).chain(finding.help.clone());
    let text: Vec<String> = text.collect();
    let related: Vec<Value> = finding
        .related
        .iter()
        .enumerate()
        .map(|(id, (at, label))| {
            let mut location = sarif_location(at);
            location["id"] = json!(id);
            location["message"] = json!({"text": label});
            location
        })
        .collect();
    json!({
        "ruleId": finding.rule,
        "level": "error",
        "message": {"text": text.join("; ")},
        "locations": [sarif_location(&finding.at)],
        "relatedLocations": related,
    })
}

fn sarif_location(at: &Location) -> Value {
    let ((line, column), (end_line, end_column)) = (at.first(), at.last());
    json!({"physicalLocation": {
        "artifactLocation": {"uri": uri(&at.source.path)},
        "region": {
            "startLine": line,
            "startColumn": column,
            "endLine": end_line,
            "endColumn": end_column,
        },
    }})
}

/// A path as a URI reference (RFC 3986): whatever is not plain is escaped.
fn uri(path: &Path) -> String {
    let mut out = String::new();
    for byte in path.display().to_string().bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
