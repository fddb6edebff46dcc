//! `bulkhead report` and `bulkhead compare`: pages of runs (docs/report.md).

use crate::program::Program as _;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Bytes of a page at most.
const MOST: usize = 2_000_000;

/// Makes the page of a report in a folder, as a user there does, and looks at it. It has all promises and sandboxes,
/// the picture, and nothing that a browser would fetch. Returns its bytes.
///
/// # Errors
/// The fault.
pub fn check(folder: &Path) -> Result<usize, String> {
    bulkhead(folder, &["report", "report.json", "--html", "page.html"], 0)?;
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).map_err(|e| e.to_string());
    let (html, report) = (read("page.html")?, read("report.json")?);
    let report: Value = serde_json::from_str(&report).map_err(|e| e.to_string())?;
    let mut names = Vec::new();
    for list in ["promises", "sandboxes"] {
        let all = report[list].as_array().into_iter().flatten();
        names.extend(all.filter_map(|one| one["name"].as_str()));
    }
    let bare: Vec<&str> =
        html.split("src=\"data:").map(|part| part.split_once('"').map_or("", |p| p.1)).collect();
    let bare =
        html.split("src=\"data:").next().unwrap_or_default().to_owned() + &bare[1..].concat();
    if let Some(lacks) = names.iter().find(|name| !bare.contains(&name.replace('&', "&amp;"))) {
        return Err(format!("the page has no `{lacks}`"));
    }
    if html.matches("src=\"data:image/svg+xml,").count() == 0 {
        return Err("the page has no picture".into());
    }
    let fetched =
        ["src=", "href=", "<script", "<link", "<iframe", "@import", "url(", "http:", "https:"];
    if let Some(what) = fetched.iter().find(|what| bare.contains(**what)) {
        return Err(format!("the page has {what}"));
    }
    match html.len() {
        len if len <= MOST => Ok(len),
        len => Err(format!("the page has {len} bytes of {MOST}")),
    }
}

/// Compares a report with itself, and with one in which a promise is broken and a figure is another.
///
/// # Errors
/// The fault.
pub fn compared(folder: &Path) -> Result<(), String> {
    let file = folder.join("report.json");
    let text = std::fs::read_to_string(&file).map_err(|e| e.to_string())?;
    let mut report: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    let equal = bulkhead(folder, &["compare", "report.json", "report.json"], 0)?;
    if !equal.starts_with("no figure differs\n") {
        return Err(format!("compared with itself:\n{equal}"));
    }
    report["promises"][0]["held"] = false.into();
    report["monitor"]["resident_text_bytes"] = 1.into();
    std::fs::write(folder.join("after.json"), report.to_string()).map_err(|e| e.to_string())?;
    let arguments = ["compare", "report.json", "after.json", "--html", "compared.html"];
    let differs = bulkhead(folder, &arguments, 1)?;
    let html = std::fs::read_to_string(folder.join("compared.html")).map_err(|e| e.to_string())?;
    for what in ["promise: every sandbox was launched", "monitor: resident_text_bytes"] {
        if !differs.contains(what) || !html.contains(what) {
            return Err(format!("no `{what}` in what differs:\n{differs}"));
        }
    }
    match differs.contains("held before, and does not now: every sandbox was launched") {
        true => Ok(()),
        false => Err(format!("nobody says which promise is broken:\n{differs}")),
    }
}

/// Runs the command in a folder; what it says.
fn bulkhead(folder: &Path, arguments: &[&str], status: i32) -> Result<String, String> {
    let out = Command::new(crate::build::target().join("release/bulkhead"))
        .args(arguments)
        .current_dir(folder)
        .printed()?;
    let said = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    match out.status.code() == Some(status) {
        true => Ok(said.concat()),
        false => {
            Err(format!("bulkhead {}: {}\n{}", arguments.join(" "), out.status, said.concat()))
        }
    }
}
