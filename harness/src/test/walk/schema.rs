//! The report of a run against its schema, which is generated from its types, and
//! against the list of fields that scripts rely on.

use super::super::driver::Job;
use super::super::system::{Manifest, run};
use serde_json::{Value, json};
use std::path::Path;

/// Fields by path; `[]` is every element, `*` every member.
const FIELDS: [&str; 22] = [
    "/version",
    "/system",
    "/arch",
    "/promises/[]/name",
    "/promises/[]/held",
    "/promises/[]/detail",
    "/sandboxes/[]/name",
    "/sandboxes/[]/cores",
    "/sandboxes/[]/state",
    "/sandboxes/[]/restarts",
    "/sandboxes/[]/exits/boot",
    "/sandboxes/[]/exits/steady",
    "/sandboxes/[]/exits/steady_seconds",
    "/sandboxes/[]/denials",
    "/sandboxes/[]/newest_denials",
    "/monitor/resident_text_bytes",
    "/monitor/resident_bytes",
    "/monitor/boot_bytes",
    "/boot/instructions",
    "/boot/to_launch_us",
    "/boot/waiting_us",
    "/boot/copying_us",
];

/// Checks that a report file obeys docs/schema/report.schema.json and has every field.
///
/// # Errors
/// The fault, and its place.
pub fn check(report: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(report).map_err(|e| format!("{}: {e}", report.display()))?;
    let value: Value =
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", report.display()))?;
    judge(&value).map_err(|why| format!("{}: {why}", report.display()))
}

fn judge(report: &Value) -> Result<(), String> {
    let path = crate::build::root().join("docs/schema/report.schema.json");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let schema: Value =
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    valid(&schema, &schema, report, "")?;
    FIELDS.iter().try_for_each(|field| present(report, field, field))
}

fn present(value: &Value, path: &str, whole: &str) -> Result<(), String> {
    let Some((first, rest)) = path
        .trim_start_matches('/')
        .split_once('/')
        .or(Some((path.trim_start_matches('/'), "")))
        .filter(|p| !p.0.is_empty())
    else {
        return Ok(());
    };
    match (first, value) {
        ("[]", Value::Array(all)) if all.is_empty() => Err(format!("{whole}: there is no element")),
        ("[]", Value::Array(all)) => all.iter().try_for_each(|v| present(v, rest, whole)),
        _ => match value.get(first) {
            Some(inner) => present(inner, rest, whole),
            None => Err(format!("there is no {whole}")),
        },
    }
}

/// The part of JSON Schema (2020-12) that the generated schemas use; a keyword
/// beyond it is an error, so that nothing is passed over.
fn valid(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let Some(rules) = schema.as_object() else {
        return match schema {
            Value::Bool(true) => Ok(()),
            _ => Err(format!("{at}: nothing is allowed here")),
        };
    };
    for (rule, how) in rules {
        match (rule.as_str(), value) {
            ("$schema" | "title" | "description" | "$defs" | "format" | "default", _) => {}
            ("$ref", _) => {
                let pointer = how.as_str().unwrap_or_default().trim_start_matches('#');
                let target =
                    root.pointer(pointer).ok_or_else(|| format!("the schema has no {pointer}"))?;
                valid(root, target, value, at)?;
            }
            ("type", _) => {
                let names = if how.is_array() { how.clone() } else { json!([how]) };
                let is = |name: &Value| is_a(value, name.as_str().unwrap_or_default());
                if !names.as_array().is_some_and(|n| n.iter().any(is)) {
                    return Err(format!("{at}: {value} is not {how}"));
                }
            }
            ("anyOf" | "oneOf", _) => {
                let all = how.as_array().into_iter().flatten();
                if !{ all }.any(|one| valid(root, one, value, at).is_ok()) {
                    return Err(format!("{at}: {value} is none of what is allowed"));
                }
            }
            ("const", _) if how != value => return Err(format!("{at}: {value} is not {how}")),
            ("enum", _) if !how.as_array().is_some_and(|a| a.contains(value)) => {
                return Err(format!("{at}: {value} is not one of {how}"));
            }
            ("const" | "enum", _) => {}
            ("minimum", _) => {
                if value.as_f64().zip(how.as_f64()).is_some_and(|(v, m)| v < m) {
                    return Err(format!("{at}: {value} is below {how}"));
                }
            }
            ("maximum", _) => {
                if value.as_f64().zip(how.as_f64()).is_some_and(|(v, m)| v > m) {
                    return Err(format!("{at}: {value} is above {how}"));
                }
            }
            ("required", Value::Object(object)) => {
                let names = how.as_array().into_iter().flatten().filter_map(Value::as_str);
                if let Some(name) = { names }.find(|n| !object.contains_key(*n)) {
                    return Err(format!("{at}: there is no {name}"));
                }
            }
            ("properties", Value::Object(object)) => {
                for (name, inner) in how.as_object().into_iter().flatten() {
                    if let Some(v) = object.get(name) {
                        valid(root, inner, v, &format!("{at}/{name}"))?;
                    }
                }
            }
            ("additionalProperties", Value::Object(object)) => {
                let known = |name: &String| schema["properties"].get(name).is_some();
                for (name, v) in object.iter().filter(|(name, _)| !known(name)) {
                    valid(root, how, v, &format!("{at}/{name}"))?;
                }
            }
            ("items", Value::Array(all)) => {
                for (n, v) in all.iter().enumerate() {
                    valid(root, how, v, &format!("{at}/{n}"))?;
                }
            }
            ("required" | "properties" | "additionalProperties" | "items", _) => {}
            (other, _) => return Err(format!("the schema has {other}, which is not known here")),
        }
    }
    Ok(())
}

fn is_a(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        _ => false,
    }
}

type Damage = fn(&mut Value);

/// Reports that are not right.
const BROKEN: [(&str, Damage); 9] = [
    ("no monitor", |r| drop(r.as_object_mut().map(|o| o.remove("monitor")))),
    ("no restarts", |r| drop(r["sandboxes"][0].as_object_mut().map(|o| o.remove("restarts")))),
    ("no boot instructions", |r| drop(r["boot"].as_object_mut().map(|o| o.remove("instructions")))),
    ("no boot", |r| r["boot"] = Value::Null),
    ("no promise", |r| r["promises"] = json!([])),
    ("a text for a number", |r| r["sandboxes"][0]["denials"] = json!("3")),
    ("a negative count", |r| r["sandboxes"][0]["exits"]["boot"]["cpuid"] = json!(-1)),
    ("a number for a promise", |r| r["promises"][0]["held"] = json!(1)),
    ("an unknown key", |r| r["monitor"]["unknown"] = json!(1)),
];

/// A real report is right, and each broken one is not.
pub fn job() -> Job {
    Job::one("walk/report-schema", 60, |bench| {
        let manifest =
            Manifest::new().bare("rogue", "rogue", "attack=write-image once", &[0], "4 MiB", "");
        let seen = run(&manifest, &bench.dir, |_| {})?;
        let outcome = seen.outcome.as_ref().map_err(Clone::clone)?;
        let mut report = serde_json::to_value(&outcome.report).map_err(|e| e.to_string())?;
        report["promises"] =
            serde_json::to_value(bulkhead_run::judge(outcome, true)).map_err(|e| e.to_string())?;
        if report["sandboxes"][0]["newest_denials"].as_array().is_none_or(Vec::is_empty) {
            return Err(seen.wrong("the report was to have a denial"));
        }
        judge(&report)?;
        for (name, damage) in BROKEN {
            let mut broken = report.clone();
            damage(&mut broken);
            if judge(&broken).is_ok() {
                return Err(format!("a report with {name} is taken for right"));
            }
        }
        Ok(format!("{} fields, {} broken reports refused", FIELDS.len(), BROKEN.len()))
    })
}
