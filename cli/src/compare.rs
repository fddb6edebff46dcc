//! Two reports side by side: figures that differ.

use crate::saved::list;
use serde_json::Value;
use std::collections::BTreeMap;

/// A figure that differs: its name, and both values; none where a report has no such figure.
pub type Change = (String, Option<String>, Option<String>);

/// Differences between two reports.
#[derive(Default)]
pub struct Compared {
    /// Figures that differ, in order of their names.
    pub changes: Vec<Change>,
    /// Figures that do not.
    pub same: usize,
    /// Promises that held in the first and are broken in the second, or are not there.
    pub broken: Vec<String>,
}

/// Compares two reports. Texts of records are left out: a denial is a count here.
#[must_use]
pub fn compare(first: &Value, second: &Value) -> Compared {
    let (mut before, mut after) = (figures(first), figures(second));
    let mut compared = Compared::default();
    // A live run has no promises, and breaks none.
    let judged = after.keys().any(|name| name.starts_with(PROMISE));
    let names: std::collections::BTreeSet<String> =
        before.keys().chain(after.keys()).cloned().collect();
    for name in names {
        let (was, is) = (before.remove(&name), after.remove(&name));
        if was == is {
            compared.same += 1;
            continue;
        }
        if judged && name.starts_with(PROMISE) && was.as_deref() == Some(HELD) {
            compared.broken.push(name[PROMISE.len()..].to_owned());
        }
        compared.changes.push((name, was, is));
    }
    compared
}

const PROMISE: &str = "promise: ";
const HELD: &str = "held";

/// Figures of a report by name.
fn figures(report: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let name = |value: &Value| value["name"].as_str().unwrap_or("?").to_owned();
    for promise in list(&report["promises"]) {
        let held = if promise["held"] == true { HELD } else { "broken" };
        all.insert(format!("{PROMISE}{}", name(promise)), held.to_owned());
    }
    for sandbox in list(&report["sandboxes"]) {
        let who = name(sandbox);
        for key in ["state", "exit_code", "restarts", "deeds", "denials", "overwritten"] {
            put(&mut all, format!("{who}: {key}"), &sandbox[key]);
        }
        for phase in ["boot", "steady"] {
            for (cause, count) in sandbox["exits"][phase].as_object().into_iter().flatten() {
                put(&mut all, format!("{who}: exits, {phase}, {cause}"), count);
            }
        }
        for (sender, rung) in sandbox["doorbells"].as_object().into_iter().flatten() {
            put(&mut all, format!("{who}: rings of {sender}"), &rung["rings"]);
        }
        for refused in list(&sandbox["by_condition"]) {
            let condition = refused["condition"].as_str().unwrap_or("?");
            put(&mut all, format!("{who}: denied, {condition}"), &refused["count"]);
        }
    }
    let blocked = list(&report["blocked_dma"]).len();
    all.insert("DMA that the IOMMU blocked and logged".into(), blocked.to_string());
    for told in list(&report["telemetry"]) {
        let channel = told["channel"].as_str().unwrap_or("?");
        for key in ["releases", "missed", "latest_ns"] {
            put(&mut all, format!("{channel}: {key}"), &told[key]);
        }
    }
    for rule in list(&report["audit"]["rules"]) {
        put(&mut all, format!("audit: {}", name(rule)), &rule["findings"]);
    }
    for part in ["monitor", "boot"] {
        for (key, value) in report[part].as_object().into_iter().flatten() {
            put(&mut all, format!("{part}: {key}"), value);
        }
    }
    all
}

fn put(all: &mut BTreeMap<String, String>, name: String, value: &Value) {
    let text = match value {
        Value::Null => return,
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    all.insert(name, text);
}

/// The change of a number in percent, if both are numbers and the first is not 0.
#[must_use]
pub fn percent(was: Option<&str>, is: Option<&str>) -> Option<f64> {
    let number = |text: Option<&str>| text?.parse::<f64>().ok();
    let (was, is) = (number(was)?, number(is)?);
    (was != 0.0).then(|| (is / was - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(held: bool, rings: u64) -> Value {
        json!({
            "promises": [{ "name": "on time", "held": held }],
            "sandboxes": [{ "name": "a", "state": "running", "exits": { "steady": { "ring": rings } } }],
        })
    }

    #[test]
    fn a_report_differs_in_nothing_from_itself() {
        let compared = compare(&report(true, 3), &report(true, 3));
        assert!(compared.changes.is_empty() && compared.broken.is_empty());
        assert_eq!(compared.same, 4);
    }

    #[test]
    fn changes_and_broken_promises_are_found() {
        let compared = compare(&report(true, 4), &report(false, 6));
        assert_eq!(compared.broken, ["on time"]);
        let ring = compared.changes.iter().find(|change| change.0.ends_with("ring"));
        let Some((_, was, is)) = ring else { panic!("no change of rings") };
        assert_eq!(percent(was.as_deref(), is.as_deref()), Some(50.0));
        assert!(compare(&report(false, 1), &report(true, 1)).broken.is_empty());
        // One that is gone is one that does not hold, and a run that was not judged has none.
        let other = json!({ "promises": [{ "name": "another", "held": true }] });
        assert_eq!(compare(&report(true, 1), &other).broken, ["on time"]);
        assert!(compare(&report(true, 1), &json!({})).broken.is_empty());
    }
}
