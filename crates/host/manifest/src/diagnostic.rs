//! Findings: the broken rule, its place, the reason, and how to mend it.

use crate::source::Location;
use std::fmt;
use std::path::Path;

/// A finding. All findings are errors: a manifest that can be built is right.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// The rule's name, e.g. `core-twice`.
    pub rule: &'static str,
    /// The mistake, with names and numbers.
    pub message: String,
    /// Its place.
    pub at: Location,
    /// Short text under the marked source.
    pub label: String,
    /// Ways to mend it.
    pub help: Vec<String>,
    /// Other places that belong to it, each with its label.
    pub related: Vec<(Location, String)>,
}

impl Diagnostic {
    /// A finding of `rule` at a place.
    #[must_use]
    pub fn new(rule: &'static str, at: Location, message: impl Into<String>) -> Self {
        Self {
            rule,
            message: message.into(),
            at,
            label: String::new(),
            help: Vec::new(),
            related: Vec::new(),
        }
    }

    /// Adds the text under the marked source.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Adds a way to mend it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// Adds another place.
    #[must_use]
    pub fn related(mut self, at: Location, label: impl Into<String>) -> Self {
        self.related.push((at, label.into()));
        self
    }
}

/// Findings in a manifest: the first [`Diagnostics::MOST`].
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    /// Findings in the order of the source, each once.
    pub shown: Vec<Diagnostic>,
    /// Number of further findings.
    pub left_out: usize,
}

impl Diagnostics {
    /// Most findings that are shown.
    pub const MOST: usize = 100;

    /// From findings in any order.
    #[must_use]
    pub fn new(mut all: Vec<Diagnostic>) -> Self {
        fn key(d: &Diagnostic) -> (&Path, usize, &str) {
            (&d.at.source.path, d.at.range.start, d.rule)
        }
        all.sort_by(|a, b| key(a).cmp(&key(b)));
        all.dedup_by(|a, b| a.rule == b.rule && a.at == b.at && a.message == b.message);
        let left_out = all.len().saturating_sub(Self::MOST);
        all.truncate(Self::MOST);
        Self { shown: all, left_out }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::render::human(self, false))
    }
}

impl std::error::Error for Diagnostics {}

/// Joins names for a sentence: `a`, `b` and `c`.
#[must_use]
pub fn list<S: AsRef<str>>(names: &[S]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{}`", name.as_ref())).collect();
    join(&quoted)
}

/// Joins pieces that are quoted already: a, b and c.
#[must_use]
pub fn join(pieces: &[String]) -> String {
    match pieces.split_last() {
        None => "none".into(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// The name that was probably meant: the nearest one by edit distance, if it is near.
#[must_use]
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A long text is no typing error, and the distance costs its square.
    if wrong.len() > 64 {
        return None;
    }
    names
        .into_iter()
        .map(|name| (distance(wrong, name), name))
        .filter(|(distance, name)| *distance <= name.chars().count().max(3) / 3)
        .min()
        .map(|(_, name)| name)
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use std::sync::Arc;

    #[test]
    fn near_names_are_found() {
        assert_eq!(nearest("core", ["name", "cores", "memory"]), Some("cores"));
        assert_eq!(nearest("memroy", ["name", "cores", "memory"]), Some("memory"));
        assert_eq!(nearest("quota", ["name", "cores", "memory"]), None);
    }

    #[test]
    fn a_hundred_findings_are_shown() {
        let source = Arc::new(Source::new("x".into(), "x".repeat(300)));
        let finding = |at| {
            let at = Location { source: Arc::clone(&source), range: at..at };
            Diagnostic::new("rule", at.clone(), format!("{}", at.range.start))
        };
        let all = |count| Diagnostics::new((0..count).rev().chain(0..count).map(finding).collect());
        assert_eq!((all(100).shown.len(), all(100).left_out), (100, 0));
        assert_eq!((all(250).shown.len(), all(250).left_out), (100, 150));
        assert_eq!(all(250).shown[7].message, "7");
    }

    #[test]
    fn lists_read_well() {
        assert_eq!(list(&["a", "b", "c"]), "`a`, `b` and `c`");
        assert_eq!(list(&["a"]), "`a`");
    }
}
