//! Limits come first. A list of 100,000 elements is reported as too long and not looked at further. A file without
//! end is not read, and a hundred findings are shown at most.

use bulkhead_manifest::source::Source;
use bulkhead_manifest::{Diagnostics, Options, limits, load, load_text, machine};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

const MANY: usize = 100_000;
const HEAD: &str = "version = 1\n[system]\nname = \"many\"\nmachine = \"m.toml\"\n";

fn found(text: String) -> Diagnostics {
    let options = Options { skip_files: true, ..Options::default() };
    let source = Arc::new(Source::new("many.toml".into(), text));
    load_text(&source, &options).map(|_| ()).expect_err("they are too many")
}

fn machine(text: String) -> Diagnostics {
    let source = Arc::new(Source::new("machine.toml".into(), text));
    Diagnostics::new(machine::read(&source).map(|_| ()).expect_err("they are too many"))
}

/// No rule has been asked, nor the shape: both would have had something to say of each of them.
fn only_limits(what: &str, findings: &Diagnostics) {
    let limit = |rule: &str| matches!(rule, "too-many" | "sandboxes-too-many");
    let other = findings.shown.iter().find(|finding| !limit(finding.rule));
    assert!(other.is_none(), "{what}: {other:?}");
    assert!((1..=2).contains(&findings.shown.len()) && findings.left_out == 0, "{what}");
}

#[test]
fn of_many_tables_nothing_is_looked_at() {
    let tables = [
        "sandbox",
        "channel",
        "health",
        "program",
        "thread",
        "context",
        "endpoint",
        "notification",
        "shared",
        "run.scenario",
        "run.drive",
        "unknown",
    ];
    for table in tables {
        only_limits(table, &found(HEAD.to_owned() + &format!("[[{table}]]\n").repeat(MANY)));
    }
}

#[test]
fn of_long_lists_nothing_is_looked_at() {
    let one = "[[sandbox]]\nname = \"a\"\n";
    for key in ["cores", "devices", "control", "observe"] {
        only_limits(key, &found(format!("{HEAD}{one}{key} = [{}]\n", "0,".repeat(MANY))));
    }
    let keys = (0..MANY).fold(HEAD.to_owned() + one, |mut text, n| {
        let _ = writeln!(text, "k{n} = 1");
        text
    });
    only_limits("keys", &found(keys));
    let lists = format!("list = [{}]\n", "0,".repeat(1_000)).repeat(1);
    let lists = (0..40).map(|n| format!("k{n}{lists}")).collect::<String>();
    only_limits("values", &found(format!("{HEAD}{one}{lists}")));
}

#[test]
fn of_large_machines_nothing_is_looked_at() {
    only_limits("cores", &machine(format!("version = 1\ncores = [{}]\n", "0,".repeat(1_000_000))));
    for table in ["ram", "reserved", "device", "pci.function"] {
        only_limits(table, &machine(format!("[[{table}]]\n").repeat(MANY)));
    }
}

/// Deep nesting is refused, and overflows no stack.
#[test]
fn what_lies_deep_is_refused() {
    let deep = |open: &str, close: &str| {
        format!("{HEAD}x = {}{}\n", open.repeat(MANY), close.repeat(MANY))
    };
    for text in [
        deep("[", "]"),
        deep("{ a = ", "}"),
        format!("{HEAD}{}b = 1\n", "a.".repeat(MANY)),
        format!("{HEAD}[{}b]\n", "a.".repeat(MANY)),
        format!("{HEAD}x = {}{}\n", "[".repeat(40), "]".repeat(40)),
    ] {
        let findings = found(text);
        let right = |rule: &str| matches!(rule, "syntax" | "too-many");
        assert!(findings.shown.iter().all(|finding| right(finding.rule)), "{findings}");
    }
}

#[test]
fn a_hundred_findings_are_shown_of_many() {
    let findings = found(HEAD.to_owned() + &"=\n".repeat(MANY));
    assert!(findings.shown.len() <= Diagnostics::MOST);
    let lists = format!("[[sandbox]]\n{}", "bad = [1]\nworse = 2\nworst = 3\n");
    let findings = found(HEAD.to_owned() + &lists.repeat(32));
    assert_eq!(findings.shown.len(), Diagnostics::MOST);
    assert!(findings.left_out > 0);
    assert!(findings.to_string().contains("of which these are the first 100"), "{findings}");
}

#[test]
fn what_has_no_end_is_not_read() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("limits");
    std::fs::create_dir_all(&folder).unwrap();
    let huge = folder.join("huge.toml");
    std::fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    let fifo = folder.join("fifo");
    let _ = std::fs::remove_file(&fifo);
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for path in [Path::new("/dev/zero"), &fifo, &huge, &folder] {
        let findings = load(path, &Options::default()).map(|_| ()).expect_err("it is no manifest");
        assert_eq!(findings.shown[0].rule, "file-unreadable", "{findings}");
        // A manifest may name that file as its machine, too.
        let system = folder.join("system.toml");
        let text = format!(
            "{}[[sandbox]]\nname = \"a\"\n",
            HEAD.replace("m.toml", path.to_str().unwrap())
        );
        std::fs::write(&system, text).unwrap();
        let findings =
            load(&system, &Options::default()).map(|_| ()).expect_err("it is no machine");
        assert!(findings.shown.iter().any(|f| f.rule == "machine-missing"), "{findings}");
    }
    assert!(limits::read(Path::new("../../../systems/demo.toml")).is_ok());
}
