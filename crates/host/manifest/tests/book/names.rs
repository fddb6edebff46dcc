//! Names in backticks: a path, a crate, a file or a `module::item` that README or the book names is in the tree.

use super::{pages, root, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Files that a run makes, or a Linux guest has.
const MADE: [&str; 3] = ["not-reached.txt", "said.txt", "system.toml"];
/// Modules of Rust's own libraries, and of crates from outside.
const OUTSIDE: [&str; 3] = ["std", "core", "alloc"];

/// Names in the tree.
struct Tree {
    /// Paths of files and folders, from the root.
    paths: BTreeSet<String>,
    packages: BTreeSet<String>,
    /// The harness' source, which names its tests.
    harness: String,
    /// Words of each Rust file, comments left out.
    words: BTreeMap<String, BTreeSet<String>>,
}

impl Tree {
    fn read() -> Self {
        let mut tree = Self {
            paths: BTreeSet::new(),
            packages: BTreeSet::new(),
            harness: String::new(),
            words: BTreeMap::new(),
        };
        tree.walk(&root());
        let mut all = Vec::new();
        sources(&root(), &mut all);
        for path in all {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if path.ends_with("Cargo.toml") {
                let name = text.lines().find_map(|line| line.strip_prefix("name = \""));
                tree.packages
                    .extend(name.and_then(|rest| rest.split('"').next()).map(str::to_owned));
            } else if path.extension().is_some_and(|e| e == "rs") {
                if path.starts_with(root().join("harness")) {
                    tree.harness += &text;
                }
                // This file names what is not there.
                if !path.ends_with("book/names.rs") {
                    tree.words.insert(relative(&path), identifiers(&text));
                }
            }
        }
        tree
    }

    fn walk(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if hidden || path == root().join("target") {
                continue;
            }
            self.paths.insert(relative(&path));
            if path.is_dir() && !path.is_symlink() {
                self.walk(&path);
            }
        }
    }

    /// Looks a name up. A span of code that can be no name passes.
    fn has(&self, name: &str) -> bool {
        let other = |c: char| c.is_whitespace() || "<>{}…$=,;\"'|".contains(c);
        if name.contains(other) || MADE.contains(&name) || placeholder(name) {
            return true;
        }
        let package = name.strip_prefix("bulkhead-").filter(|rest| !rest.contains(['.', '/']));
        if package.is_some_and(|rest| !rest.is_empty()) {
            return self.packages.contains(name);
        }
        match name.split_once('/') {
            Some((first, _)) if self.paths.contains(first) => {
                self.path(name.trim_end_matches('/')) || self.test(name)
            }
            Some(_) => true,
            None if name.contains("::") => self.item(name),
            None => !file(name) || self.ends_a_path(name),
        }
    }

    /// A path from the root or from a crate, with `*` for any part of a name, and perhaps a line's number behind it.
    fn path(&self, name: &str) -> bool {
        let name = name.split(':').next().unwrap_or(name);
        match name.split_once('*') {
            Some((before, after)) => {
                self.paths.iter().any(|path| path.starts_with(before) && path.ends_with(after))
            }
            None => self.paths.contains(name) || file(name) && self.ends_a_path(name),
        }
    }

    fn ends_a_path(&self, name: &str) -> bool {
        let end = format!("/{name}");
        self.paths.contains(name) || self.paths.iter().any(|path| path.ends_with(&end))
    }

    /// A test of the harness, the start of some tests' names, a system of a test, or a fuzz target.
    fn test(&self, name: &str) -> bool {
        let target = name.strip_prefix("fuzz/").unwrap_or_default();
        let named = ["\"", "-"].iter().any(|end| self.harness.contains(&format!("\"{name}{end}")));
        let made = [format!("tests/{name}.toml"), format!("fuzz/corpus/{target}")];
        named || made.iter().any(|path| self.paths.contains(path))
    }

    /// An item and its holder: one file has both as words, or the file or its crate is called like the holder.
    fn item(&self, name: &str) -> bool {
        let name = name.split(['(', '!']).next().unwrap_or(name);
        let mut parts = name.rsplit("::");
        let (Some(item), Some(holder)) = (parts.next(), parts.next()) else { return false };
        if OUTSIDE.contains(&name.split("::").next().unwrap_or_default()) {
            return true;
        }
        let of_crate = holder.strip_prefix("bulkhead_").map(|name| name.replace('_', "-"));
        let holders = [holder, of_crate.as_deref().unwrap_or(holder)];
        let called = |path: &str| path.split(['/', '.']).any(|part| holders.contains(&part));
        let mut files = self.words.iter();
        files.any(|(path, words)| words.contains(item) && (words.contains(holder) || called(path)))
    }
}

/// `RULE` in a path stands for any rule, and so on.
fn placeholder(name: &str) -> bool {
    const STANDS: [&str; 3] = ["RULE", "NNNN", "NAME"];
    name.split(['/', '.', '-']).any(|part| STANDS.contains(&part))
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

fn file(name: &str) -> bool {
    const ENDS: [&str; 8] = ["rs", "toml", "md", "sh", "c", "h", "svg", "txt"];
    let end = name.rsplit_once('.').filter(|(before, _)| !before.is_empty());
    end.is_some_and(|(before, end)| ENDS.contains(&end) && !before.contains('*'))
}

fn identifiers(text: &str) -> BTreeSet<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let words = code.flat_map(|line| line.split(|c: char| !(c.is_alphanumeric() || c == '_')));
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Spans of code outside of blocks, with their lines.
fn spans(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut fenced) = (Vec::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        fenced ^= line.starts_with("```");
        if !fenced {
            found.extend(line.split('`').skip(1).step_by(2).map(|span| (number, span)));
        }
    }
    found
}

#[test]
fn names_are_in_the_tree() {
    let tree = Tree::read();
    let mut all: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md"].map(|page| root().join(page)).into();
    pages(&root().join("docs"), &mut all);
    let mut wrong = Vec::new();
    for page in all {
        let text = std::fs::read_to_string(&page).unwrap();
        let unknown = spans(&text).into_iter().filter(|(_, name)| {
            !tree.has(name) && !text.contains(&format!("<!-- made: {name} -->"))
        });
        wrong.extend(unknown.map(|(line, name)| format!("{}:{line}: {name}", relative(&page))));
    }
    assert!(wrong.is_empty(), "not in the tree:\n{}", wrong.join("\n"));
}

/// README's map: each group of crates has a row that names its crates, and nothing else.
#[test]
fn the_map_has_every_crate() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let mut named = BTreeSet::new();
    for row in readme.lines().filter(|line| line.starts_with("| `crates/")) {
        let mut names = row.split('`').skip(1).step_by(2);
        let group = names.next().unwrap();
        named.extend(names.map(|name| format!("{group}/{name}")));
    }
    let mut there = BTreeSet::new();
    for group in std::fs::read_dir(root().join("crates")).unwrap().flatten() {
        let crates = std::fs::read_dir(group.path()).unwrap().flatten();
        there.extend(crates.map(|c| c.path().strip_prefix(root()).unwrap().display().to_string()));
    }
    assert_eq!(named, there, "README.md's map of crates/ (left) and the folder");
}

#[test]
fn names_that_are_not_there_are_seen() {
    let tree = Tree::read();
    for name in [
        "crates/nothing",
        "tests/bad",
        "bulkhead-nothing",
        "nothing.rs",
        "rules::no_such_thing",
        "no_such_thing::NAMES",
        "docs/*.nothing",
    ] {
        assert!(!tree.has(name), "{name}");
    }
    for name in [
        "crates/host/manifest",
        "tests/",
        "bulkhead-manifest",
        "english.rs",
        "rules::NAMES",
        "core::fmt",
        "docs/*.md",
        "a b.rs",
    ] {
        assert!(tree.has(name), "{name}");
    }
}
