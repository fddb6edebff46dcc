//! How long an audit takes: the only figure in the host's time.

use super::Found;
use super::figure::{Figure, Must};
use crate::build;
use crate::rows::Row;
use bulkhead_manifest::{Options, load};
use std::time::Duration;

/// The demo, booted to its steady state and audited.
pub fn seconds() -> Found {
    let artifacts = build::target().join("artifacts");
    let options =
        Options { artifacts: Some(artifacts.clone()), skip_files: false, ..Default::default() };
    let checked = load(&build::root().join("systems/demo.toml"), &options)
        .map_err(|d| bulkhead_manifest::render::human(&d, false))?;
    let dir = build::target().join("bench/audit");
    let mut options = bulkhead_run::Options::new(artifacts, dir);
    options.limit = Duration::from_secs(180);
    options.until_steady = true;
    options.audit = true;
    let outcome = bulkhead_run::run(checked, &options, |_| {}).map_err(|e| e.to_string())?;
    let audited = outcome.audited.ok_or("the run was not audited")?;
    if let Some(finding) = audited.report.findings.first() {
        return Err(format!("a finding: {finding:?}").into());
    }
    let row = Row::new("audit.seconds", "s", audited.took.as_secs_f64());
    let note = format!("{} frames of tables, in the host's time", audited.report.tables);
    Ok(vec![Figure::new(row).must(Must::AtMost(5.0)).note(note)])
}
