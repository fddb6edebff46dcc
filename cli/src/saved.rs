//! Reports of runs that are in files.

use bulkhead_manifest::limits;
use serde_json::Value;
use std::path::Path;

/// Where `make run` leaves its report.
pub const USUAL: &str = "target/run/report.json";
/// Bytes of a report at most. The demo's file has some 100,000.
const MOST: u64 = 64 << 20;

/// Reads a report.
///
/// # Errors
/// A file that cannot be read, or is no report.
pub fn read(file: &Path) -> Result<Value, String> {
    let path = file.display();
    let bytes = limits::bytes(file, MOST)
        .map_err(|error| format!("{path}: {error}; `bulkhead run M --report {path}` makes it"))?;
    let report: Value = serde_json::from_str(&String::from_utf8_lossy(&bytes))
        .map_err(|error| format!("{path}: no report: {error}"))?;
    match report["sandboxes"].is_array() {
        true => Ok(report),
        false => Err(format!("{path}: no report: it has no `sandboxes`")),
    }
}

/// A list in a report; none as an empty one.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
