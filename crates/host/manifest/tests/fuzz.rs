//! No input makes the checker panic, and an accepted manifest can be planned. The inputs are random bytes, and good
//! manifests and machines with pieces deleted, doubled, swapped and overwritten.

mod common;

use bulkhead_manifest::source::Source;
use bulkhead_manifest::{Diagnostics, Options, load, load_text, machine, render};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

static ARTIFACTS: LazyLock<PathBuf> = LazyLock::new(|| common::artifacts("fuzz"));
const GOOD: &str = include_str!("../../../../tests/manifests/good.toml");
const MACHINE: &str = include_str!("../../../../machines/qemu-q35.toml");

/// Pieces that a careless or a hostile author writes.
const PIECES: &[&str] = &[
    "",
    "\"",
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "=",
    "\n",
    "#",
    ".",
    ",",
    "\0",
    "\u{1b}[31m",
    "ß",
    "🦀",
    "-1",
    "0",
    "9223372036854775807",
    "99999999999999999999999",
    "1e400",
    "nan",
    "1979-05-27",
    "\"0x\"",
    "\"0 B\"",
    "\"16777216 TiB\"",
    "\"0xffff_ffff_ffff_f000\"",
    "\"18446744073709551615\"",
    "true",
    "[]",
    "{}",
    "[[sandbox]]\n",
    "[[channel]]\n",
    "cores = [0]\n",
    "name = \"flight\"\n",
    "\"ground\"",
    "\"flight\"",
    "at = \"4 GiB\"",
    "\"linux\"",
    "\"bare\"",
    "\"artifact:huge.cpio\"",
    "start = 0x0\n",
    "end = 0x7fffffffffffffff\n",
    "[[ram]]\n",
    "sandbox",
    "memory",
    "\"kernel\"",
    "[[program]]\n",
    "[[thread]]\n",
    "[[context]]\n",
    "context = \"loop\"\n",
    "calls = [\"filter\", \"faults\"]\n",
    "priority = 255\n",
    "\"1 ns\"",
    "\"18446744073709551615 ns\"",
    "\"99.9999 %\"",
    "\"full\"",
    "\"pibs\"",
    "\"utilization\"",
    "\"thread:loop\"",
];

/// Makes one change: place, number of bytes to replace, new text.
fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, usize, String)>> {
    let piece = prop_oneof![
        prop::sample::select(PIECES).prop_map(String::from),
        prop::sample::select(PIECES).prop_map(String::from),
        any::<String>(),
    ];
    prop::collection::vec((any::<prop::sample::Index>(), 0usize..24, piece), 1..6)
}

fn changed(text: &str, changes: &[(prop::sample::Index, usize, String)]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for (at, len, piece) in changes {
        let start = at.index(chars.len() + 1);
        let end = (start + len).min(chars.len());
        chars.splice(start..end, piece.chars());
    }
    chars.into_iter().collect()
}

/// Renders in every form: places and texts are an input too.
fn show(findings: &Diagnostics) {
    assert!(!findings.shown.is_empty());
    let _ = (render::human(findings, true), render::json(findings), render::sarif(findings));
    for finding in &findings.shown {
        let (line, column) = finding.at.first();
        assert!(line >= 1 && column >= 1);
    }
}

fn check(text: String) {
    let path = Path::new("../../../tests/manifests/fuzzed.toml").to_owned();
    let options = Options { artifacts: Some(ARTIFACTS.clone()), ..Options::default() };
    match load_text(&Arc::new(Source::new(path, text)), &options) {
        Ok(checked) => {
            let plan =
                checked.plan(checked.image_estimate).expect("what is accepted can be placed");
            assert!(!plan.sandboxes.is_empty());
            if let Err(findings) = checked.plan(u64::MAX) {
                show(&findings);
            }
        }
        Err(findings) => show(&findings),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text: String) {
        check(text);
    }

    #[test]
    fn no_changed_manifest_panics(changes in changes()) {
        check(changed(GOOD, &changes));
    }

    #[test]
    fn no_changed_machine_panics(changes in changes()) {
        let path = PathBuf::from("machine.toml");
        let text = changed(MACHINE, &changes);
        if let Err(findings) = machine::read(&Arc::new(Source::new(path, text))) {
            show(&Diagnostics::new(findings));
        }
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bytes.toml");
        std::fs::write(&path, bytes).unwrap();
        if let Err(findings) = load(&path, &Options::default()) {
            show(&findings);
        }
    }
}

/// Nesting without end is refused, not followed.
#[test]
fn deep_nesting_is_refused() {
    for open in ["[", "{a=", "[{a="] {
        check(format!("{GOOD}\na = {}", open.repeat(50_000)));
    }
    check(format!("[{}a]", "a.".repeat(50_000)));
}
