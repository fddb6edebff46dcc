//! Parts: each gets the smallest bay that has all that it asks for, and is checked there as if it stood in the
//! system's manifest. Findings are placed in the part's file.

mod common;

use bulkhead_manifest::part::{self, Fit};
use bulkhead_manifest::{Options, render};
use std::path::{Path, PathBuf};

const SYSTEM: &str = r#"
[system]
name = "bays"
machine = "MACHINE"
[[sandbox]]
name = "ground"
guest = { kind = "bare", program = "not-here" }
cores = [0]
memory = "16 MiB"
[[sandbox]]
name = "large"
guest = { kind = "vacant" }
cores = [1]
memory = "16 MiB"
devices = ["uart2"]
[[sandbox]]
name = "small"
guest = { kind = "vacant" }
cores = [2]
memory = "4 MiB"
[[channel]]
name = "to-large"
from = "ground"
to = ["large"]
size = "64 KiB"
kind = "program"
[[channel]]
name = "to-small"
from = "ground"
to = ["small"]
size = "64 KiB"
kind = "program"
"#;

/// A folder of this test's own, with the system and a program in it.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("bulkhead-part-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let machine = std::path::absolute("../../../machines/qemu-q35.toml").unwrap();
    let system = SYSTEM.replace("MACHINE", machine.to_str().unwrap());
    std::fs::write(folder.join("system.toml"), system).unwrap();
    let program = common::artifacts(name).join("program");
    std::fs::copy(program, folder.join("camera")).unwrap();
    folder
}

fn load(folder: &Path, text: &str, taken: &[&str]) -> Result<Fit, String> {
    let file = folder.join("part.toml");
    std::fs::write(&file, text).unwrap();
    let taken = |bay: &str| taken.contains(&bay).then(|| "has `lidar`".to_owned());
    let found = part::load(&file, &folder.join("system.toml"), &Options::default(), taken);
    found.map_err(|found| {
        let report = render::human(&found, false);
        report.replace(&format!("{}/", folder.display()), "")
    })
}

fn text(memory: &str, more: &str) -> String {
    format!(
        "[part]\nname = \"camera\"\nguest = {{ kind = \"bare\", program = \"camera\", args = \"fast\" }}\nmemory = \"{memory}\"\n{more}"
    )
}

#[test]
fn a_part_gets_the_smallest_bay_that_has_all_it_asks_for() {
    let folder = folder("fits");
    let bay = |memory: &str, more: &str, taken: &[&str]| {
        load(&folder, &text(memory, more), taken).map(|fit| fit.bay)
    };
    assert_eq!(bay("4 MiB", "", &[]).as_deref(), Ok("small"));
    assert_eq!(bay("4 MiB", "", &["small"]).as_deref(), Ok("large"));
    assert_eq!(bay("5 MiB", "", &[]).as_deref(), Ok("large"));
    assert_eq!(bay("4 MiB", "devices = [\"uart2\"]", &[]).as_deref(), Ok("large"));
    assert_eq!(bay("4 MiB", "channels = [\"to-large\"]", &[]).as_deref(), Ok("large"));
    let fit = load(&folder, &text("4 MiB", ""), &[]).unwrap();
    assert_eq!((fit.name.as_str(), fit.args.as_str()), ("camera", "fast"));
    assert_eq!(fit.program, folder.join("camera"));
}

#[test]
fn each_bay_that_does_not_fit_says_why() {
    let folder = folder("room");
    let error = load(&folder, &text("8 MiB", ""), &["large"]).unwrap_err();
    assert!(error.contains("error[part-room]: no bay takes `camera`"), "{error}");
    assert!(error.contains("part.toml:2:8"), "{error}");
    assert!(error.contains("`large` has `lidar` and `small` has 4 MiB"), "{error}");
    let error = load(&folder, &text("4 MiB", "devices = [\"uart1\"]"), &[]).unwrap_err();
    let each = ["`large` has no device `uart1`", "`small` has no device `uart1`"];
    assert!(each.iter().all(|why| error.contains(why)), "{error}");
}

#[test]
fn findings_of_all_rules_are_placed_in_the_part() {
    let folder = folder("found");
    let cases = [
        (
            text("4 MiB", "").replace("program = \"camera\"", "program = \"camra\""),
            "file-missing",
            3,
        ),
        (text("4 MiB", "").replace("\"fast\"", "\"fa\\tst\""), "args-text", 3),
        (text("5000", ""), "memory-size", 4),
        (text("2 MiB", ""), "memory-small", 4),
        (text("4 MiB", "cores = 2"), "unknown-key", 5),
        (
            text("4 MiB", "")
                .replace("\"bare\", program", "\"linux\", kernel")
                .replace(", args = \"fast\"", ""),
            "part-guest",
            3,
        ),
        (text("4 MiB", "").replace("args = \"fast\"", "access = \"segments\""), "part-guest", 3),
        (text("4 MiB", "").replace("\"camera\"\n", "\"Camera\"\n"), "name-plain", 2),
        (text("4 MiB", "").replace("\"camera\"\n", "\"ground\"\n"), "name-twice", 2),
        ("name = 1".into(), "missing-key", 1),
        ("[part".into(), "syntax", 1),
    ];
    for (text, rule, line) in cases {
        let error = load(&folder, &text, &[]).expect_err(rule);
        assert!(error.contains(&format!("error[{rule}]")), "{rule}: {error}");
        assert!(error.contains(&format!("part.toml:{line}:")), "{rule}: {error}");
    }
}

#[test]
fn a_system_that_is_wrong_is_told_first() {
    let folder = folder("system");
    let system = folder.join("system.toml");
    let wrong = std::fs::read_to_string(&system).unwrap().replace("cores = [2]", "cores = [1]");
    std::fs::write(&system, wrong).unwrap();
    let error = load(&folder, &text("4 MiB", ""), &[]).unwrap_err();
    assert!(error.contains("core-twice") && error.contains("system.toml:"), "{error}");
}
