//! Findings: which rule was broken, where, why, and what would be right.

use crate::source::Location;
use std::fmt;

/// A finding. All of them are errors: what can be built is right.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// The rule's name, e.g. `core-twice`.
    pub rule: &'static str,
    /// What is wrong, with names and numbers.
    pub message: String,
    /// Where.
    pub at: Location,
    /// Short text under the marked source.
    pub label: String,
    /// What would be right.
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

    /// Adds what would be right.
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

/// Everything that was found in a manifest.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// In the order of the source, each finding once.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.0.sort_by(|a, b| {
            let key = |d: &Diagnostic| (d.at.source.path.clone(), d.at.range.start, d.rule);
            key(a).cmp(&key(b))
        });
        self.0.dedup_by(|a, b| a.rule == b.rule && a.at == b.at && a.message == b.message);
        self
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

/// Joins what is quoted already: a, b and c.
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

    #[test]
    fn near_names_are_found() {
        assert_eq!(nearest("core", ["name", "cores", "memory"]), Some("cores"));
        assert_eq!(nearest("memroy", ["name", "cores", "memory"]), Some("memory"));
        assert_eq!(nearest("quota", ["name", "cores", "memory"]), None);
    }

    #[test]
    fn lists_read_well() {
        assert_eq!(list(&["a", "b", "c"]), "`a`, `b` and `c`");
        assert_eq!(list(&["a"]), "`a`");
    }
}
