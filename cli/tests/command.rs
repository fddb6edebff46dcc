//! The command as its users see it: exit status, streams, forms of the report.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn bulkhead(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bulkhead"))
        .args(arguments)
        .current_dir(ROOT)
        .env_remove("BULKHEAD_ARTIFACTS")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

const DEMO: &str = "systems/demo.toml";
const GOOD: &str = "tests/manifests/good.toml";
const BAD: &str = "tests/manifests/bad/core-twice.toml";

#[test]
fn a_right_manifest_is_said_to_be_so() {
    let output = bulkhead(&["check", DEMO, "--skip-files"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        text(&output.stdout),
        "systems/demo.toml: ok (3 sandboxes, 1 channel on qemu-q35)\n"
    );
    assert!(output.stderr.is_empty());
}

#[test]
fn findings_go_to_standard_error_without_colours() {
    let output = bulkhead(&["check", BAD, "--skip-files"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let report = text(&output.stderr);
    assert!(report.contains("error[core-twice]: core 1 belongs to `one` and to `two`"), "{report}");
    assert!(report.contains(" --> tests/manifests/bad/core-twice.toml:15:10"), "{report}");
    assert!(!report.contains('\x1b'), "{report}");
}

#[test]
fn json_has_every_finding_with_its_place() {
    let output = bulkhead(&["check", BAD, "--skip-files", "--format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output);
    assert_eq!(report["version"], 1);
    assert_eq!(report["errors"], 2);
    let first = &report["diagnostics"][0];
    assert_eq!(first["rule"], "core-twice");
    assert_eq!(first["file"], BAD);
    assert_eq!((&first["line"], &first["column"]), (&15.into(), &10.into()));
    assert_eq!(first["related"][0]["line"], 9);

    let report = json(&bulkhead(&["check", DEMO, "--skip-files", "--format", "json"]));
    assert_eq!(report["errors"], 0);
}

#[test]
fn sarif_names_its_rules() {
    let output = bulkhead(&["check", BAD, "--skip-files", "--format", "sarif"]);
    assert_eq!(output.status.code(), Some(1));
    let log = json(&output);
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    assert_eq!(run["tool"]["driver"]["rules"][0]["id"], "core-twice");
    let place = &run["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], BAD);
    assert_eq!(place["region"]["startLine"], 15);
}

#[test]
fn a_missing_manifest_is_an_error_not_a_panic() {
    let output = bulkhead(&["check", "no-such.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot read no-such.toml"));
}

#[test]
fn a_wrong_command_line_has_a_status_of_its_own() {
    assert_eq!(bulkhead(&["chekc"]).status.code(), Some(2));
    assert_eq!(bulkhead(&["check"]).status.code(), Some(2));
}

/// `BLESS=1` writes the table anew.
#[test]
fn a_plan_has_everything() {
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plan.svg");
    let output = bulkhead(&["plan", GOOD, "--skip-files", "--svg", picture.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let expected = PathBuf::from(ROOT).join("tests/manifests/good.plan.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&expected, &output.stdout).unwrap();
    }
    assert_eq!(text(&output.stdout), std::fs::read_to_string(expected).unwrap());

    let picture = std::fs::read_to_string(picture).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    for name in ["ground", "flight", "telemetry", "uart1"] {
        assert!(picture.contains(name), "{name} is not in the picture");
    }
    assert!(!picture.contains("NaN"));
}

#[test]
fn a_picture_that_cannot_be_written_is_an_error() {
    let output = bulkhead(&["plan", GOOD, "--skip-files", "--svg", "/no/such/folder/plan.svg"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot write /no/such/folder/plan.svg"));
}
