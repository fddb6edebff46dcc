//! Checks that a text is a SARIF 2.1.0 log as code-review tools take it. The table is written from the specification's
//! sections, which each object names. It has an object's properties, their types, and which of them there must be. A
//! property that is not in the table is told: the schema allows no others.

use super::driver::Job;
use super::verify::{bulkhead, files};
use serde_json::Value;

pub fn jobs() -> Vec<Job> {
    vec![Job::one("command/sarif", 60, |_| check())]
}

/// Type that a value has to have.
#[derive(Clone, Copy)]
enum Is {
    /// This text.
    Exactly(&'static str),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A text that says something.
    Text,
    /// A URI reference (RFC 3986): no character that has to be escaped.
    Uri,
    /// An integer from this one on.
    From(i64),
    /// An object of that name.
    An(&'static str),
    /// An array of objects of that name, and of no two alike where `true`.
    All(&'static str, bool),
}

/// A property: its name, what it is, whether it must be there.
type Property = (&'static str, Is, bool);

/// Objects, by the section of the specification.
const OBJECTS: &[(&str, &[Property])] = &[
    // 3.13
    (
        "sarifLog",
        &[
            ("$schema", Is::Uri, false),
            ("version", Is::Exactly("2.1.0"), true),
            ("runs", Is::All("run", false), true),
        ],
    ),
    // 3.14
    (
        "run",
        &[
            ("tool", Is::An("tool"), true),
            ("columnKind", Is::OneOf(&["utf16CodeUnits", "unicodeCodePoints"]), false),
            ("results", Is::All("result", false), false),
        ],
    ),
    // 3.18
    ("tool", &[("driver", Is::An("toolComponent"), true)]),
    // 3.19
    (
        "toolComponent",
        &[
            ("name", Is::Text, true),
            ("version", Is::Text, false),
            ("rules", Is::All("reportingDescriptor", true), false),
        ],
    ),
    // 3.49
    (
        "reportingDescriptor",
        &[("id", Is::Text, true), ("shortDescription", Is::An("multiformatMessageString"), false)],
    ),
    // 3.12
    ("multiformatMessageString", &[("text", Is::Text, true)]),
    // 3.27
    (
        "result",
        &[
            ("ruleId", Is::Text, false),
            ("ruleIndex", Is::From(0), false),
            ("level", Is::OneOf(&["none", "note", "warning", "error"]), false),
            ("message", Is::An("message"), true),
            ("locations", Is::All("location", false), false),
            ("relatedLocations", Is::All("location", true), false),
        ],
    ),
    // 3.11; its text is needed because there is no id
    ("message", &[("text", Is::Text, true)]),
    // 3.28
    (
        "location",
        &[
            ("id", Is::From(0), false),
            ("message", Is::An("message"), false),
            ("physicalLocation", Is::An("physicalLocation"), false),
        ],
    ),
    // 3.29; the artifact is needed because there is no address
    (
        "physicalLocation",
        &[
            ("artifactLocation", Is::An("artifactLocation"), true),
            ("region", Is::An("region"), false),
        ],
    ),
    // 3.4; the URI is needed because there is no index
    ("artifactLocation", &[("uri", Is::Uri, true)]),
    // 3.30
    (
        "region",
        &[
            ("startLine", Is::From(1), false),
            ("startColumn", Is::From(1), false),
            ("endLine", Is::From(1), false),
            ("endColumn", Is::From(1), false),
        ],
    ),
];

/// Tells if a viewer shows a line as it is: no control characters, nothing that turns the direction of text
/// (Unicode's UAX 9).
pub fn prints(line: &str) -> bool {
    let turns = |c| matches!(c, '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    !line.chars().any(|c| c.is_control() || turns(c))
}

/// Checks that it is a log; returns the number of its results.
///
/// # Errors
/// The fault, and its place in the text.
pub fn valid(text: &str) -> Result<usize, String> {
    let log: Value = serde_json::from_str(text).map_err(|e| format!("no JSON: {e}"))?;
    object("sarifLog", &log, "log")?;
    let mut results = 0;
    for (n, run) in log["runs"].as_array().into_iter().flatten().enumerate() {
        results += whole(run).map_err(|why| format!("log.runs[{n}]: {why}"))?;
    }
    Ok(results)
}

fn object(kind: &str, value: &Value, at: &str) -> Result<(), String> {
    let (_, properties) =
        OBJECTS.iter().find(|(name, _)| *name == kind).ok_or(format!("no object {kind}"))?;
    let map = value.as_object().ok_or(format!("{at} is no object"))?;
    if let Some(unknown) = map.keys().find(|key| !properties.iter().any(|p| p.0 == key.as_str())) {
        return Err(format!("{at}: a {kind} has no property {unknown}"));
    }
    for (name, is, required) in *properties {
        let at = format!("{at}.{name}");
        match map.get(*name) {
            Some(value) => property(*is, value, &at)?,
            None if *required => return Err(format!("{at} is missing")),
            None => {}
        }
    }
    Ok(())
}

fn property(is: Is, value: &Value, at: &str) -> Result<(), String> {
    let text = value.as_str();
    let escaped = |c: char| c.is_ascii_alphanumeric() || "-._~:/?#[]@!$&'()*+,;=%".contains(c);
    let right = match is {
        Is::Exactly(only) => text == Some(only),
        Is::OneOf(words) => text.is_some_and(|text| words.contains(&text)),
        Is::Text => text.is_some_and(|text| !text.trim().is_empty() && text.lines().all(prints)),
        Is::Uri => text.is_some_and(|text| !text.is_empty() && text.chars().all(escaped)),
        Is::From(least) => value.as_i64().is_some_and(|number| number >= least),
        Is::An(kind) => return object(kind, value, at),
        Is::All(kind, unique) => {
            let all = value.as_array().ok_or(format!("{at} is no array"))?;
            for (n, one) in all.iter().enumerate() {
                object(kind, one, &format!("{at}[{n}]"))?;
                if unique && all[..n].contains(one) {
                    return Err(format!("{at}[{n}] is there twice"));
                }
            }
            true
        }
    };
    if right { Ok(()) } else { Err(format!("{at} cannot be {value}")) }
}

/// Checks rules between objects. Rules are there once (3.19.23), and a result's index is its rule's (3.27.6). Regions
/// do not end before they begin (3.30.7), and the numbers of related locations are different (3.28.2).
fn whole(run: &Value) -> Result<usize, String> {
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let rules = array(&run["tool"]["driver"]["rules"]);
    let ids: Vec<_> = rules.iter().map(|rule| &rule["id"]).collect();
    if let Some(n) = (0..ids.len()).find(|n| ids[..*n].contains(&ids[*n])) {
        return Err(format!("the rule {} is there twice", ids[n]));
    }
    let results = array(&run["results"]);
    for (n, result) in results.iter().enumerate() {
        let index = result.get("ruleIndex").and_then(Value::as_u64);
        let named = index.map(|index| ids.get(index as usize).copied());
        if named.is_some_and(|named| named != Some(&result["ruleId"]))
            || !ids.contains(&&result["ruleId"])
        {
            return Err(format!("results[{n}] is of no rule, or of another one"));
        }
        let related = array(&result["relatedLocations"]);
        let numbers: Vec<_> = related.iter().map(|location| &location["id"]).collect();
        if (0..numbers.len()).any(|n| numbers[..n].contains(&numbers[n])) {
            return Err(format!("results[{n}] has two related locations of one number"));
        }
        for location in array(&result["locations"]).iter().chain(&related) {
            let region = &location["physicalLocation"]["region"];
            let number = |key: &str| region.get(key).and_then(Value::as_u64);
            let start = (number("startLine"), number("startColumn"));
            let end = (number("endLine").or(start.0), number("endColumn"));
            let same_line = start.0 == end.0 && end.1.is_some();
            if end.0 < start.0 || same_line && end.1 < start.1 {
                return Err(format!("results[{n}] ends before it begins: {region}"));
            }
        }
    }
    Ok(results.len())
}

/// Every good and bad manifest's findings are a log, by `bulkhead check`.
fn check() -> Result<String, String> {
    let mut results = 0;
    let bad = files("tests/manifests/bad", ".toml")?;
    for manifest in bad.iter().chain(&files("systems", ".toml")?) {
        let (_, out, err) = bulkhead(&["check", manifest, "--skip-files", "--format", "sarif"])?;
        results += valid(&out).map_err(|why| format!("{manifest}: {why}\n{out}{err}"))?;
    }
    if results < bad.len() / 2 {
        return Err(format!("only {results} results of {} bad manifests", bad.len()));
    }
    Ok(format!("{results} results"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_audit::claim::Place;
    use bulkhead_audit::{Finding, RULES, Report, render};
    use serde_json::json;

    fn report() -> Report {
        let finding = |rule, address| Finding {
            rule,
            message: "a reaches what it must not".into(),
            address,
            owner: "RAM of b".into(),
            place: Place { file: "sub dir/m\u{e4}.toml".into(), line: 0, column: 0 },
            right: "nothing".into(),
            on_its_way: false,
        };
        let findings = RULES.iter().map(|rule| finding(rule.name, Some(4096)));
        let findings = findings.chain([finding(RULES[0].name, None)]).collect();
        Report { system: "s".into(), findings, ..Report::default() }
    }

    #[test]
    fn an_audit_is_a_log() {
        assert_eq!(valid(&render::sarif(&report())), Ok(RULES.len() + 1));
        assert_eq!(valid(&render::sarif(&Report::default())), Ok(0));
    }

    #[test]
    fn what_is_no_log_is_told() {
        let good: Value = serde_json::from_str(&render::sarif(&report())).unwrap();
        let wrong = |place: &str, value: Value| {
            let mut log = good.clone();
            let (object, key) = place.rsplit_once('/').unwrap();
            let object = log.pointer_mut(object).unwrap().as_object_mut().unwrap();
            match value {
                Value::Null => object.remove(key),
                value => object.insert(key.into(), value),
            };
            valid(&log.to_string()).expect_err(place)
        };
        let region = "/runs/0/results/0/locations/0/physicalLocation/region";
        for (place, value, why) in [
            ("/version", json!("2.0.0"), "log.version cannot be"),
            ("/version", Value::Null, "log.version is missing"),
            ("/run", json!([]), "has no property run"),
            ("/runs", json!({}), "no array"),
            ("/runs/0/tool", Value::Null, "tool is missing"),
            ("/runs/0/columnKind", json!("bytes"), "columnKind cannot be"),
            ("/runs/0/tool/driver/name", json!(""), "name cannot be"),
            ("/runs/0/tool/driver/rules/1/id", json!(RULES[0].name), "twice"),
            ("/runs/0/results/0/ruleIndex", json!(1), "of another one"),
            ("/runs/0/results/0/ruleIndex", json!(-1), "ruleIndex cannot be"),
            ("/runs/0/results/0/ruleId", json!("none"), "of no rule"),
            ("/runs/0/results/0/level", json!("fatal"), "level cannot be"),
            ("/runs/0/results/0/message", json!("text"), "no object"),
            ("/runs/0/results/0/message/text", json!("a\u{1b}[2Kb"), "text cannot be"),
            ("/runs/0/results/0/message/text", json!("a\u{202e}b"), "text cannot be"),
            (&format!("{region}/startLine"), json!(0), "startLine cannot be"),
            (&format!("{region}/endColumn"), json!(0), "endColumn cannot be"),
            (
                "/runs/0/results/0/locations/0/physicalLocation/artifactLocation/uri",
                json!("a b"),
                "uri cannot be",
            ),
        ] {
            let told = wrong(place, value);
            assert!(told.contains(why), "{place}: {told}");
        }
        let mut log = good.clone();
        log.pointer_mut(region).unwrap()["startLine"] = json!(9);
        log.pointer_mut(region).unwrap()["endLine"] = json!(8);
        assert!(valid(&log.to_string()).unwrap_err().contains("ends before"));
    }
}
