//! An audit as text, JSON and SARIF.

use crate::claim::Place;
use crate::report::{Finding, RULES, Reach, Report};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Findings of one rule that a person is shown.
const SHOWN: usize = 8;

/// For a person.
#[must_use]
pub fn human(report: &Report) -> String {
    let mut out = String::new();
    for access in &report.access {
        let _ = writeln!(out, "{}", access.sandbox);
        out += &reaches("memory", &access.memory);
        for (what, list) in [
            ("ports", &access.ports),
            ("MSRs read", &access.msrs_read),
            ("MSRs written", &access.msrs_written),
        ] {
            let _ = writeln!(out, "  {what:<13} {}", numbers(list));
        }
        for device in &access.devices {
            let _ = writeln!(out, "  device {}", device.function);
            out += &reaches("  DMA", &device.memory);
            let to = device.interrupts.iter().map(|(a, v)| format!("core ID {a} vector {v}"));
            let to: Vec<_> = to.collect();
            let _ = writeln!(out, "  {:<13} {}", "  interrupts", none(to.join(", ")));
        }
        for (pin, id, vector) in &access.lines {
            let _ = writeln!(out, "  line {pin:<8} core ID {id} vector {vector}");
        }
    }
    let _ = writeln!(out, "memory of the machine");
    for f in &report.frames {
        let end = f.start + f.len;
        let _ = writeln!(out, "  {:>12x}-{end:<12x} {:>10} KiB  {}", f.start, f.len >> 10, f.owner);
    }
    for remark in &report.remarks {
        let _ = writeln!(out, "note: {remark}");
    }
    out += &findings(report);
    let count = report.findings.len();
    let (rules, tables) = (RULES.len(), report.tables);
    let what = if count == 1 { "difference" } else { "differences" };
    let _ =
        writeln!(out, "{count} {what} from the manifest; {rules} rules, {tables} frames of tables");
    out
}

fn findings(report: &Report) -> String {
    let mut out = String::new();
    for rule in RULES {
        let all: Vec<_> = report.findings.iter().filter(|f| f.rule == rule.name).collect();
        for f in all.iter().take(SHOWN) {
            let _ = writeln!(out, "{}: error[{}]: {}", f.place, f.rule, f.message);
            if let Some(address) = f.address {
                let _ = writeln!(out, "  address {address:#x}: {}", f.owner);
            }
            let _ = writeln!(out, "  right: {}", f.right);
        }
        if all.len() > SHOWN {
            let _ = writeln!(out, "error[{}]: {} more", rule.name, all.len() - SHOWN);
        }
    }
    out
}

fn reaches(what: &str, all: &[Reach]) -> String {
    let mut out = String::new();
    for (n, r) in all.iter().enumerate() {
        let what = if n == 0 { what } else { "" };
        let end = r.address + r.len;
        let _ = writeln!(
            out,
            "  {what:<13} {:>9x}-{end:<9x} at {:>9x} {:<3} {}",
            r.address, r.frame, r.rights, r.owner
        );
    }
    if all.is_empty() {
        let _ = writeln!(out, "  {what:<13} none");
    }
    out
}

fn numbers(list: &[(u32, u32)]) -> String {
    let one = |(first, last): &(u32, u32)| match first == last {
        true => format!("{first:x}"),
        false => format!("{first:x}-{last:x}"),
    };
    none(list.iter().map(one).collect::<Vec<_>>().join(" "))
}

fn none(text: String) -> String {
    if text.is_empty() { "none".into() } else { text }
}

/// `{"version": 1, "system", "access", "frames", "findings", "remarks", …}`: the
/// fields of [`Report`].
#[must_use]
pub fn json(report: &Report) -> String {
    let mut value = json!(report);
    value["version"] = json!(1);
    format!("{value:#}\n")
}

/// SARIF 2.1.0.
#[must_use]
pub fn sarif(report: &Report) -> String {
    let rules: Vec<Value> = { RULES.iter() }
        .map(|r| json!({"id": r.name, "shortDescription": {"text": r.what}}))
        .collect();
    let results: Vec<Value> = report.findings.iter().map(result).collect();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "bulkhead audit",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    format!("{log:#}\n")
}

fn result(finding: &Finding) -> Value {
    let mut text = finding.message.clone();
    if let Some(address) = finding.address {
        let _ = write!(text, "; address {address:#x}: {}", finding.owner);
    }
    let _ = write!(text, "; right: {}", finding.right);
    let index = RULES.iter().position(|r| r.name == finding.rule);
    json!({
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": "error",
        "message": {"text": text},
        "locations": [location(&finding.place)],
    })
}

fn location(place: &Place) -> Value {
    json!({"physicalLocation": {
        "artifactLocation": {"uri": uri(&place.file)},
        "region": {"startLine": place.line.max(1), "startColumn": place.column.max(1)},
    }})
}

/// A path as a URI reference (RFC 3986): whatever is not plain is escaped.
fn uri(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let finding = |rule, n: u64| Finding {
            rule,
            message: format!("a reaches {n:#x}"),
            address: Some(n),
            owner: "RAM of b".into(),
            place: Place { file: "sub dir/m.toml".into(), line: 7, column: 3 },
            right: "nothing".into(),
            on_its_way: false,
        };
        let mut findings: Vec<_> = (0..10).map(|n| finding("nested-map", n)).collect();
        findings.push(finding("frames", 0x1000));
        Report { system: "s".into(), findings, ..Report::default() }
    }

    #[test]
    fn a_person_sees_rule_place_address_owner_and_right() {
        let text = human(&report());
        let one = "sub dir/m.toml:7:3: error[frames]: a reaches 0x1000\n  address 0x1000: RAM of b\n  right: nothing\n";
        assert!(text.contains(one), "{text}");
        assert!(text.contains("error[nested-map]: 2 more\n"), "{text}");
        assert!(text.contains("11 differences from the manifest"), "{text}");
    }

    #[test]
    fn sarif_has_what_its_readers_ask_for() {
        let log: Value = serde_json::from_str(&sarif(&report())).expect("JSON");
        assert_eq!(log["version"], "2.1.0");
        let run = &log["runs"][0];
        let results = run["results"].as_array().expect("results");
        assert_eq!(results.len(), 11);
        for result in results {
            let rule = &run["tool"]["driver"]["rules"]
                [result["ruleIndex"].as_u64().expect("an index") as usize];
            assert_eq!(rule["id"], result["ruleId"]);
            let place = &result["locations"][0]["physicalLocation"];
            assert_eq!(place["artifactLocation"]["uri"], "sub%20dir/m.toml");
            assert_eq!(
                (&place["region"]["startLine"], &place["region"]["startColumn"]),
                (&json!(7), &json!(3))
            );
        }
        let text = results[10]["message"]["text"].as_str().expect("a text");
        assert_eq!(text, "a reaches 0x1000; address 0x1000: RAM of b; right: nothing");
    }

    #[test]
    fn json_has_a_version_and_all_findings() {
        let value: Value = serde_json::from_str(&json(&report())).expect("JSON");
        assert_eq!(value["version"], 1);
        assert_eq!(value["findings"].as_array().map(Vec::len), Some(11));
        assert_eq!(value["findings"][10]["owner"], "RAM of b");
    }
}
