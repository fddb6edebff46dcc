//! Conventions of all commands (docs/commands.md): help, exit statuses, streams, colours, forms. The help itself says
//! which commands there are, so a new one is judged, too.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const DEMO: &str = "systems/demo.toml";
const BAD: &str = "tests/manifests/bad/core-twice.toml";

/// Commands that print no table: they make files, or show a screen.
const NO_TABLE: [&str; 10] =
    ["new", "probe", "build", "pack", "run", "watch", "gdb", "report", "inject", "inject merge"];

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bulkhead"));
    command.args(arguments).current_dir(ROOT).env_remove("BULKHEAD_ARTIFACTS");
    command.env_remove("NO_COLOR");
    command
}

fn bulkhead(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Names below `Commands:` of a help text.
fn below(help: &str) -> Vec<String> {
    let below = help.split_once("Commands:\n").map_or("", |(_, below)| below);
    let entries = below.lines().take_while(|line| !line.is_empty());
    let names = entries.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// All commands, as they are typed.
fn all() -> Vec<String> {
    let mut all = below(&text(&bulkhead(&["--help"]).stdout));
    let nested = below(&text(&bulkhead(&["inject", "--help"]).stdout));
    all.extend(nested.iter().map(|name| format!("inject {name}")));
    all
}

#[test]
fn each_command_has_help_and_the_common_options() {
    let all = all();
    assert!(all.len() > 18, "{all:?}");
    for name in &all {
        let words: Vec<&str> = name.split(' ').chain(["--help"]).collect();
        let output = bulkhead(&words);
        assert_eq!(output.status.code(), Some(0), "{name}");
        assert!(output.stderr.is_empty(), "{name}");
        let help = text(&output.stdout);
        assert!(help.contains("--color <WHEN>"), "{name}: {help}");
        let tables = !NO_TABLE.contains(&name.as_str());
        assert_eq!(help.contains("--format <FORM"), tables, "{name}: {help}");
    }
}

#[test]
fn a_wrong_command_line_is_status_2_and_a_missing_file_is_status_1() {
    for name in all() {
        let words: Vec<&str> = name.split(' ').collect();
        let output = bulkhead(&[&words[..], &["--no-such-option"]].concat());
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{name}");
    }
    let missing: [&[&str]; 16] = [
        &["new", "No-Name"],
        &["check", "missing.toml"],
        &["plan", "missing.toml"],
        &["probe", "--root", "missing"],
        &["build", "missing.toml", "-o", "target/missing"],
        &["pack", "missing", "-o", "target/missing"],
        &["run", "missing.toml"],
        &["watch", "missing.toml"],
        &["exits", "missing.json"],
        &["top", "missing.toml", "--once"],
        &["report", "missing.json", "--html", "target/missing"],
        &["compare", "missing.json", "missing.json"],
        &["explain", "missing.toml", "one", "0x1000"],
        &["sched", "missing.toml"],
        &["trace", "missing.toml"],
        &["audit", "missing.toml"],
    ];
    let inject: [&[&str]; 2] = [&["inject", "missing.toml"], &["inject", "show", "missing.db"]];
    for words in missing.iter().chain(&inject) {
        let output = bulkhead(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{words:?}: {}", text(&output.stdout));
        assert!(!output.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn colours_are_where_they_are_asked_for() {
    let coloured = |arguments: &[&str], no_color: Option<&str>| {
        let mut command = command(arguments);
        command.envs(no_color.map(|value| ("NO_COLOR", value)));
        text(&command.output().unwrap().stderr).contains('\x1b')
    };
    let check = ["check", BAD, "--skip-files"];
    let with = |when| [&check[..], &["--color", when]].concat();
    assert!(!coloured(&check, None), "a pipe has no colours");
    assert!(coloured(&with("always"), None));
    assert!(coloured(&with("always"), Some("1")), "a word on the command line is stronger");
    assert!(!coloured(&with("never"), None) && !coloured(&with("auto"), Some("1")));
    // The command line's own errors.
    assert!(coloured(&["--color=always", "check"], None));
    assert!(!coloured(&["--color", "never", "check"], None));
}

#[test]
fn each_form_for_programs_is_one_object_with_a_version() {
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conventions.json");
    let exits =
        r#"{"system":"s","sandboxes":[{"name":"a","exits":{"boot":{"ring":1},"steady":{}}}]}"#;
    std::fs::write(&report, exits).unwrap();
    let report = report.to_str().unwrap();
    let json = |words: &[&str]| -> Value {
        let output = bulkhead(&[words, &["--format", "json"]].concat());
        let value: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{words:?}: {e}: {}", text(&output.stderr)));
        assert_eq!(value["version"], 1, "{words:?}");
        value
    };
    json(&["check", DEMO, "--skip-files"]);
    json(&["sched", "tests/manifests/sched.toml", "--skip-files"]);
    json(&["doctor"]);
    assert_eq!(json(&["exits", report])["sandboxes"][0]["exits"]["boot"]["ring"], 1);
    assert_eq!(json(&["compare", report, report])["broken"], Value::Array(Vec::new()));
    let explained = json(&["explain", "--skip-files", DEMO, "flight", "0x1000"]);
    assert_eq!(explained["sandbox"], "flight");
    let plan = json(&["plan", DEMO, "--skip-files"]);
    let tables = plan["tables"].as_array().unwrap();
    let sandboxes = tables.iter().find(|table| table["title"] == "Sandboxes").unwrap();
    assert_eq!(sandboxes["rows"].as_array().unwrap().len(), 5, "{sandboxes}");
}
