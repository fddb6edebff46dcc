//! Everything that needs no machine: format, lints, unit tests, properties.

use super::driver::{Bench, Job};
use crate::build;
use crate::program::Program as _;
use bulkhead_layout::need::{CHECKED, MONITORS};
use std::process::Command;

/// Members that only exist on the bare machine.
const BARE: [&str; 6] = [
    "bulkhead-boot",
    "bulkhead-monitor-shell",
    "bulkhead-monitor-svm",
    "bulkhead-monitor-vmx",
    "bulkhead-kernel-image",
    "harness-bare",
];
const TARGET: &str = "x86_64-unknown-none";

/// One job, because cargo would make them wait for each other anyway.
pub fn jobs() -> Vec<Job> {
    let tests = ["format", "locks", "tests", "lints", "lints-bare", "no-panic"];
    vec![Job::new("host", tests.map(|name| format!("host/{name}")), 2700, run)]
}

fn run(bench: &Bench) {
    let excluded = BARE.iter().flat_map(|b| ["--exclude", b]);
    let workspace: Vec<_> = ["--locked", "--workspace"].into_iter().chain(excluded).collect();
    let deny = ["--", "-D", "warnings"];
    bench.result("host/format", cargo(&["fmt", "--all", "--check"]));
    bench.result("host/locks", locks());
    bench.result(
        "host/tests",
        cargo(&[&["test", "--no-fail-fast"], &workspace[..]].concat()).map(count),
    );
    let lints = cargo(&[&["clippy", "--all-targets"], &workspace[..], &deny].concat());
    bench.result("host/lints", lints);
    bench.result("host/no-panic", no_panic());
    let guests = guests();
    let packages = BARE.into_iter().chain(["bulkhead-sdk", "bulkhead-program"]);
    let packages = packages.chain(guests.iter().map(String::as_str));
    let packages: Vec<_> = packages.flat_map(|p| ["-p", p]).collect();
    let bare = ["clippy", "--locked", "--target", TARGET];
    let lints = cargo(&[&bare[..], &packages, &deny].concat());
    bench.result("host/lints-bare", lints);
}

/// Manifests outside of the workspace, with lock files that no build of the workspace looks at.
const BESIDE: [&str; 2] = ["fuzz/Cargo.toml", "plugin/Cargo.toml"];

/// Checks that these lock files are up to date: a crate of ours that gets a dependency changes them, too.
fn locks() -> Result<String, String> {
    for manifest in BESIDE {
        cargo(&["metadata", "--locked", "--format-version", "1", "--manifest-path", manifest])?;
    }
    Ok(format!("{} lock files", BESIDE.len()))
}

/// Packages of the bare guests and of the kernel's programs in Rust, by the folders' names.
fn guests() -> Vec<String> {
    let of = |folder: &str, kind: &str| {
        let folders = std::fs::read_dir(build::root().join(folder)).into_iter().flatten();
        let rust = folders.flatten().filter(|f| f.path().join("Cargo.toml").is_file());
        rust.map(|f| format!("{kind}-{}", f.file_name().to_string_lossy())).collect::<Vec<_>>()
    };
    [of("guests", "guest"), of("programs", "program")].concat()
}

/// Nothing in a linked monitor can panic: it has none of the standard library's code for it. The one that is built with
/// checks has some, and `checked/*`, `fuzz/checked` show that no guest comes there.
fn no_panic() -> Result<String, String> {
    let all = MONITORS[..CHECKED].iter().map(|(name, _)| no_panic_in(name));
    Ok(all.collect::<Result<Vec<_>, _>>()?.join(", "))
}

fn no_panic_in(name: &str) -> Result<String, String> {
    let monitor = super::system::artifacts().join(name);
    let out = Command::new("nm").arg(&monitor).printed()?;
    let symbols = String::from_utf8_lossy(&out.stdout);
    match symbols.lines().find(|s| s.contains("panic")) {
        _ if !symbols.contains("monitor_entry") => {
            Err(format!("no symbols in {}", monitor.display()))
        }
        Some(symbol) => Err(format!("{}: {symbol}", monitor.display())),
        None => Ok(format!("{} symbols", symbols.lines().count())),
    }
}

/// Settings that leave out products of a build: intermediate code that only the next build would use, and tables for a
/// debugger. A clean machine has no second build. A panic names its line without these products. A developer's own
/// builds keep them.
const ONCE: [(&str, &str); 3] = [
    ("CARGO_INCREMENTAL", "0"),
    ("CARGO_PROFILE_DEV_DEBUG", "false"),
    ("CARGO_PROFILE_TEST_DEBUG", "false"),
];

/// Its output; in an error, what it complained of.
pub fn cargo(arguments: &[&str]) -> Result<String, String> {
    let once = std::env::var_os("CI").map(|_| ONCE).into_iter().flatten();
    let out = Command::new("cargo")
        .args(arguments)
        .current_dir(build::root())
        .env("CARGO_TERM_COLOR", "never")
        .envs(once)
        .printed()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if out.status.success() {
        return Ok(text(&out.stdout));
    }
    let said = text(&out.stdout) + &text(&out.stderr);
    let noise = |line: &&str| {
        let line = line.trim_start();
        ["Compiling ", "Running ", "Doc-tests "].iter().any(|word| line.starts_with(word))
    };
    let lines: Vec<_> = said.lines().filter(|line| !noise(line)).collect();
    let from = lines.len().saturating_sub(60);
    let (what, said) = (arguments.join(" "), lines[from..].join("\n"));
    Err(format!("cargo {what} failed ({})\n{said}", out.status))
}

/// `test result: ok. 12 passed; ...` summed up.
fn count(output: String) -> String {
    let passed = |l: &str| -> Option<usize> {
        l.strip_prefix("test result: ok. ")?.split(' ').next()?.parse().ok()
    };
    let sum: usize = output.lines().filter_map(passed).sum();
    format!("{sum} tests of the crates")
}
