//! Every rule has a manifest that breaks it, named after it, and the report that
//! it gets beside it. `BLESS=1 cargo test -p bulkhead-manifest` writes the
//! reports anew; read the difference before it is committed.

mod common;

use bulkhead_manifest::source::Source;
use bulkhead_manifest::{Diagnostics, Options, load, machine, render, rules, schema};
use bulkhead_plan::Span;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// From the crate's folder, so that reports name paths of the source tree only.
const MANIFESTS: &str = "../../../tests/manifests/bad";
const MACHINES: &str = "../../../tests/machines/bad";

fn files(folder: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    files
}

/// The rule after which a file is named: its name up to the first dot.
fn rule(path: &Path) -> String {
    let name = path.file_name().unwrap().to_str().unwrap();
    name.split('.').next().unwrap().to_owned()
}

fn judge(path: &Path, findings: &Diagnostics, artifacts: &Path, wrong: &mut Vec<String>) {
    let report = render::human(findings, false)
        .replace(artifacts.to_str().unwrap(), "ARTIFACTS")
        .replace("../../../tests/", "tests/");
    let expected = path.with_extension("txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&expected, &report).unwrap();
    }
    if !findings.shown.iter().any(|finding| finding.rule == rule(path)) {
        wrong.push(format!("{} does not break its rule:\n{report}", path.display()));
    }
    if std::fs::read_to_string(&expected).ok().as_deref() != Some(&report) {
        wrong.push(format!("{} gets another report:\n{report}", path.display()));
    }
    for finding in &findings.shown {
        if finding.help.is_empty() {
            wrong.push(format!(
                "{}: {} does not say what would be right",
                path.display(),
                finding.rule
            ));
        }
    }
}

#[test]
fn every_bad_manifest_gets_its_report() {
    let artifacts = common::artifacts("bad");
    let options = Options { artifacts: Some(artifacts.clone()), ..Options::default() };
    let mut wrong = Vec::new();
    for path in files(MANIFESTS) {
        match load(&path, &options) {
            Ok(_) => wrong.push(format!("{} is accepted", path.display())),
            Err(findings) => judge(&path, &findings, &artifacts, &mut wrong),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_bad_machine_gets_its_report() {
    let mut wrong = Vec::new();
    for path in files(MACHINES) {
        let text = std::fs::read_to_string(&path).unwrap();
        let source = Arc::new(Source::new(path.clone(), text));
        // Only a test has an architecture without a PC's words.
        let read = match &*rule(&path) {
            "machine-arch" => machine::read_as(&source, bulkhead_arch_fake::target::ARCH),
            _ => machine::read(&source),
        };
        match read {
            Ok(_) => wrong.push(format!("{} is accepted", path.display())),
            Err(findings) => {
                let findings = Diagnostics::new(findings);
                judge(&path, &findings, Path::new("ARTIFACTS"), &mut wrong);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A machine that is no PC, without a PC's words.
#[test]
fn a_machine_of_another_architecture_has_its_own_addresses() {
    use bulkhead_arch_fake::target::{ARCH, FACTS};
    let text = "name = \"odd\"\narch = \"x86-64-svm\"\ncores = [0x20000]\nmemory = { size = \"8 GiB\" }\n\
                ram = [{ start = 0x400000000, end = 0x600000000 }]\n";
    let source = |text: &str| Arc::new(Source::new("odd.toml".into(), text.to_owned()));
    let read = machine::read_as(&source(text), ARCH).expect("a machine");
    assert_eq!((read.core_ids, read.ram[0].start), (vec![0x20000], 0x4_0000_0000));
    assert!(read.ram[0].contains(FACTS.image));
    // Its pages are larger.
    let small = text.replace("0x600000000", "0x600001000");
    assert!(machine::read_as(&source(&small), ARCH).is_err_and(|e| e[0].rule == "machine-ram"));
    // Its RAM begins at an address of its own, and is in one piece.
    assert_eq!(read.banks, [Span { start: FACTS.ram, len: 8 << 30 }]);
    let low = text.replace("0x400000000", "0x3fff00000");
    assert!(machine::read_as(&source(&low), ARCH).is_err_and(|e| e[0].rule == "machine-ram"));
    // For the architecture that it names, nothing of it is right.
    assert!(machine::read(&source(text)).is_err());
}

#[test]
fn every_rule_has_a_bad_file() {
    let named: BTreeSet<String> =
        files(MANIFESTS).iter().chain(&files(MACHINES)).map(|path| rule(path)).collect();
    let rules: BTreeSet<String> = rules::NAMES.iter().map(ToString::to_string).collect();
    assert_eq!(named, rules);
    let functions = rules::ALL.len();
    assert!(functions <= rules.len(), "{functions} rules");
}

/// The good manifest, from which the bad ones are made, is accepted.
#[test]
fn the_good_manifest_is_accepted() {
    let artifacts = common::artifacts("good");
    let options = Options { artifacts: Some(artifacts), ..Options::default() };
    let checked = load(Path::new("../../../tests/manifests/good.toml"), &options)
        .unwrap_or_else(|findings| panic!("{findings}"));
    let plan = checked.plan(checked.image_estimate).unwrap();
    assert_eq!(plan.sandboxes.len(), 6);
    let links = plan.links.iter().map(|link| (link.owner, link.gpa));
    assert_eq!(links.collect::<Vec<_>>(), [(2, 0xDC00_0000), (2, 0xDC20_0000)]);
    assert_eq!(plan.sandboxes[1].ram[0].hpa, 0x1_0000_0000);
    assert_eq!(plan.channels[0].from, 1);
}

/// Keys of a schema's tables, as `table.key`, and those that a document has.
fn keys(schema: &Value, root: &Value, name: &str, found: &mut BTreeSet<String>) {
    let reference = schema.get("$ref").and_then(Value::as_str);
    if let Some(target) = reference.and_then(|path| root.pointer(path.trim_start_matches('#'))) {
        return keys(target, root, name, found);
    }
    for list in ["oneOf", "anyOf"] {
        for branch in schema.get(list).and_then(Value::as_array).into_iter().flatten() {
            keys(branch, root, name, found);
        }
    }
    if let Some(items) = schema.get("items") {
        keys(items, root, name, found);
    }
    for (key, value) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        found.insert(format!("{name}{key}"));
        keys(value, root, &format!("{name}{key}."), found);
    }
}

fn used(value: &toml::Value, name: &str, found: &mut BTreeSet<String>) {
    match value {
        toml::Value::Array(all) => all.iter().for_each(|value| used(value, name, found)),
        toml::Value::Table(table) => table.iter().for_each(|(key, value)| {
            found.insert(format!("{name}{key}"));
            used(value, &format!("{name}{key}."), found);
        }),
        _ => {}
    }
}

#[test]
fn the_good_manifest_uses_every_key() {
    let (mut known, mut there) = (BTreeSet::new(), BTreeSet::new());
    let schema = schema::manifest();
    keys(&schema, &schema, "", &mut known);
    let text = std::fs::read_to_string("../../../tests/manifests/good.toml").unwrap();
    used(&toml::Value::Table(text.parse().unwrap()), "", &mut there);
    let unused: Vec<_> = known.difference(&there).collect();
    assert!(unused.is_empty(), "{unused:?}");
}
