//! The book agrees with the code: every key, word and rule of manifests, every hypercall, address and layout. Every
//! link leads to a page, and every decision that code names exists.

mod english;
mod names;
mod portable;
mod sentences;

use bulkhead_layout::bell::MAX_BELLS;
use bulkhead_layout::x86::{self, port};
use bulkhead_layout::{hypercall, image, info, map, report};
use bulkhead_manifest::{rules, schema};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Fails with everything of `wanted` that the page lacks.
fn has(page: &str, wanted: impl IntoIterator<Item = String>) {
    let text = read(page);
    let lacks: Vec<String> = wanted.into_iter().filter(|w| !text.contains(w)).collect();
    assert!(lacks.is_empty(), "{page} does not say {lacks:?}");
}

/// Keys and words that a schema allows.
fn vocabulary(schema: &Value, words: &mut BTreeSet<String>) {
    if let Some(object) = schema.as_object() {
        if let Some(keys) = object.get("properties").and_then(Value::as_object) {
            words.extend(keys.keys().cloned());
        }
        words.extend(object.get("const").and_then(Value::as_str).map(str::to_owned));
        let list = object.get("enum").and_then(Value::as_array);
        words.extend(list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
        object.values().for_each(|value| vocabulary(value, words));
    } else if let Some(array) = schema.as_array() {
        array.iter().for_each(|value| vocabulary(value, words));
    }
}

fn quoted(words: impl IntoIterator<Item = String>) -> impl Iterator<Item = String> {
    words.into_iter().map(|word| format!("`{word}`"))
}

#[test]
fn references_have_every_key_and_word() {
    for (page, schema) in
        [("docs/manifest.md", schema::manifest()), ("docs/machine.md", schema::machine())]
    {
        let mut words = BTreeSet::new();
        vocabulary(&schema, &mut words);
        has(page, quoted(words));
    }
}

#[test]
fn references_have_every_rule() {
    let of_machine = |name: &&&str| name.starts_with("machine-") && **name != "machine-missing";
    let machine = rules::NAMES.iter().filter(of_machine);
    has("docs/machine.md", quoted(machine.map(|name| (*name).to_owned())));
    let others = rules::NAMES.iter().filter(|name| !of_machine(name));
    has("docs/manifest.md", quoted(others.map(|name| (*name).to_owned())));
}

#[test]
fn the_hypercall_reference_has_every_number() {
    let calls = [
        ("NULL", hypercall::NULL),
        ("CONSOLE", hypercall::CONSOLE),
        ("EXIT", hypercall::EXIT),
        ("READY", hypercall::READY),
        ("RESTART", hypercall::RESTART),
        ("CONTROL", hypercall::CONTROL),
        ("STATUS", hypercall::STATUS),
    ];
    let page = "docs/hypercalls.md";
    has(page, calls.map(|(name, number)| format!("| {number:#x} | `{name}` |")));
    let results = [
        ("NO_CALL", hypercall::NO_CALL),
        ("BAD_ARGUMENT", hypercall::BAD_ARGUMENT),
        ("DENIED", hypercall::DENIED),
        ("BUSY", hypercall::BUSY),
    ];
    let below = |value: u64| value.wrapping_neg();
    has(page, results.map(|(name, value)| format!("| `{name}` | 2^64 - {}", below(value))));
    has(page, [format!("| `OK` | {}", hypercall::OK)]);
    let requests = [
        ("CONTROL_STOP", hypercall::CONTROL_STOP),
        ("CONTROL_START", hypercall::CONTROL_START),
        ("CONTROL_RESTART", hypercall::CONTROL_RESTART),
    ];
    has(page, requests.map(|(name, number)| format!("{number} `{name}`")));
    let power = [port::POWER_OFF, port::POWER_RESTART];
    has(page, power.map(|value| format!("{value:#04x}")));
    has(page, [format!("port {:#x}", port::POWER_PORT)]);
    has(page, [format!("port {:#x}", port::CALL_PORT)]);
    has(page, [format!("port {:#x} + *n*, *n* below {MAX_BELLS}", port::BELL_PORT)]);
}

/// An address as the book writes it: groups of four digits.
fn address(value: u64) -> String {
    let digits = format!("{value:X}");
    let (head, tail) = digits.split_at((digits.len() - 1) % 4 + 1);
    let groups = tail.as_bytes().chunks(4);
    let groups: String = groups.map(|g| format!("_{}", String::from_utf8_lossy(g))).collect();
    format!("0x{head}{groups}")
}

#[test]
fn the_memory_layout_has_every_address() {
    let named = [
        ("GUEST_LOW_END", map::GUEST_LOW_END),
        ("GUEST_HIGH", map::GUEST_HIGH),
        ("INFO_GPA", map::INFO_GPA),
        ("FUNCTIONS_GPA", map::FUNCTIONS_GPA),
        ("FUNCTIONS_VA", map::FUNCTIONS_VA),
        ("REPORTS_GPA", map::REPORTS_GPA),
        ("REPORT_STRIDE", map::REPORT_STRIDE),
        ("CHANNELS_GPA", map::CHANNELS_GPA),
        ("CHANNELS_END", map::CHANNELS_END),
        ("TEXT_VA", map::TEXT_VA),
        ("CONFIG_VA", map::CONFIG_VA),
        ("VECTORS_VA", map::VECTORS_VA),
        ("REPORT_VA", map::REPORT_VA),
        ("MAILBOX_VA", map::MAILBOX_VA),
        ("CORES_VA", map::CORES_VA),
        ("CORE_STRIDE", map::CORE_STRIDE),
        ("GUEST_VA", map::GUEST_VA),
        ("PRISTINE_VA", map::PRISTINE_VA),
        ("IMAGE_PA", map::IMAGE_PA),
    ];
    has("docs/memory-layout.md", named.map(|(name, at)| format!("{} (`{name}`)", address(at))));
    let short = [
        ("TRAMPOLINE_PA", x86::TRAMPOLINE_PA),
        ("CORE_STACK", map::CORE_STACK),
        ("CORE_CONTROL", map::CORE_CONTROL),
        ("CORE_REPORT", map::CORE_REPORT),
    ];
    has("docs/memory-layout.md", short.map(|(name, at)| format!("{at:#x} (`{name}`)")));
}

/// A table's row for a field at an offset.
macro_rules! rows {
    ($type:ty: $($($field:ident).+),*) => {
        [$((core::mem::offset_of!($type, $($field).+), [$(stringify!($field)),+].last().unwrap())),*]
    };
}

#[test]
fn shared_pages_have_every_field_where_it_is() {
    let info = rows!(info::Info: magic, version, sandbox, name, clock.hz, clock.timer_hz, memory, cores,
        windows, core_ids, window, args, bells, monitors);
    let report = rows!(report::Report: magic, version, sandbox, state, exit_code, restarts, begin_ticks,
        played_ticks, launch_ticks, violation_ticks, state_ticks, fault, cores);
    let core = rows!(report::CoreReport: exits, denials, boot_exits, console_written, steady_ticks, ring, first,
        tallies, life_denials, life, console);
    let text = read("docs/shared-pages.md");
    for (offset, field) in info.into_iter().chain(report).chain(core) {
        let row = |line: &&str| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            cells.next() == Some(&offset.to_string())
                && cells.nth(1).is_some_and(|c| c.starts_with(&format!("`{field}`")))
        };
        assert!(text.lines().any(|l| row(&l)), "no row for {field} at {offset}");
    }
    has("docs/shared-pages.md", quoted(report::CAUSE_NAMES.map(str::to_owned)));
    has("docs/shared-pages.md", quoted(report::CONDITION_NAMES.map(str::to_owned)));
    let kinds = report::KIND_NAMES.iter().enumerate();
    has("docs/shared-pages.md", kinds.map(|(kind, name)| format!("| {kind} | `{name}` |")));
    let versions = [("8 | 4 | `version`", info::VERSION), ("8 | 4 | `version`", report::VERSION)];
    has("docs/shared-pages.md", versions.map(|(row, version)| format!("| {row} | {version} |")));
    assert_eq!(image::VERSION, 9);
}

/// All Markdown below a folder.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
}

/// The anchors that mdBook and others make of a page's headings.
fn anchors(page: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let words = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        words.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_lead_somewhere_and_the_summary_has_every_page() {
    let mut all = Vec::new();
    pages(&root().join("docs"), &mut all);
    let summary = read("docs/SUMMARY.md");
    for page in &all {
        let name = page.strip_prefix(root().join("docs")).unwrap().display().to_string();
        assert!(
            name == "SUMMARY.md" || summary.contains(&format!("({name})")),
            "docs/SUMMARY.md lacks {name}"
        );
    }
    all.extend(["README.md", "CONTRIBUTING.md"].map(|page| root().join(page)));
    for page in all {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            let there = file.is_empty()
                || link.contains("://")
                || page.parent().is_some_and(|folder| folder.join(file).exists());
            assert!(there, "{}: no {link}", page.display());
            if let Some((_, anchor)) = link.split_once('#').filter(|_| !link.contains("://")) {
                let target =
                    if file.is_empty() { page.clone() } else { page.with_file_name("").join(file) };
                assert!(
                    anchors(&target).contains(anchor),
                    "{}: no heading for {link}",
                    page.display()
                );
            }
        }
    }
}

/// Sources that may name a decision.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    const SKIPPED: [&str; 3] = ["target", ".git", "docs"];
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if !SKIPPED.iter().any(|skipped| name == *skipped) {
                sources(&path, found);
            }
        } else if path
            .extension()
            .is_some_and(|e| ["rs", "toml", "sh", "md", "h", "c"].iter().any(|x| e == *x))
        {
            found.push(path);
        }
    }
}

#[test]
fn decisions_that_code_names_exist() {
    let mut all = Vec::new();
    sources(&root(), &mut all);
    for path in all {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for rest in text.split(concat!("docs/", "decisions/")).skip(1) {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '.'));
            let name = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
            // `NNNN-name.md` is how one is to be called.
            let there = name.is_empty()
                || name.starts_with("NNNN")
                || root().join("docs/decisions").join(name).is_file();
            assert!(there, "{}: no docs/decisions/{name}", path.display());
        }
    }
}

/// `cargo fmt` sees to code, and leaves comments alone.
#[test]
fn comments_have_lines_of_120_characters_at_most() {
    const MOST: usize = 120;
    let mut all = Vec::new();
    sources(&root(), &mut all);
    let mut long = Vec::new();
    for path in all.iter().filter(|path| path.extension().is_some_and(|e| e != "md")) {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        for (n, line) in (1..).zip(text.lines()).filter(|(_, line)| line.chars().count() > MOST) {
            let words = line.trim_start();
            // A row of a table has one line.
            let row = words.trim_start_matches(['/', '!']).starts_with(" |");
            let comment = ["//", "/*", "* "].iter().any(|start| words.starts_with(start));
            if comment && !row {
                long.push(format!("{}:{n}", path.display()));
            }
        }
    }
    assert!(long.is_empty(), "more than {MOST} characters: {long:#?}");
}

#[test]
fn decisions_are_numbered_without_gaps() {
    let mut all = Vec::new();
    pages(&root().join("docs/decisions"), &mut all);
    let mut names: Vec<String> =
        all.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
    names.sort();
    for (index, name) in names.iter().enumerate() {
        let number = format!("{:04}-", index + 1);
        assert!(name.starts_with(&number), "{name} should begin with {number}");
        let title = read(&format!("docs/decisions/{name}"));
        assert!(title.starts_with(&format!("# {}. ", index + 1)), "{name}: title");
    }
}
