//! Source text and places in it. A [`Document`] is a file's parsed tree. Every value is found by its path of keys and
//! indices, so that the decoded types ([`crate::raw`]) stay free of positions.

use bulkhead_plan::Place;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A file's text.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// The file, as the user named it.
    pub path: PathBuf,
    /// Its text; empty if it could not be read.
    pub text: String,
    /// Start of each line: a place is found without counting from the first line.
    lines: Vec<usize>,
}

impl Source {
    /// A file with its text.
    #[must_use]
    pub fn new(path: PathBuf, text: String) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        Self { path, text, lines }
    }

    /// Number of the line of a byte, from 0, and where it starts.
    fn line(&self, byte: usize) -> (usize, usize) {
        let number = self.lines.partition_point(|start| *start <= byte).saturating_sub(1);
        (number, self.lines[number])
    }
}

/// A range of a file's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file.
    pub source: Arc<Source>,
    /// Bytes of its text.
    pub range: Range<usize>,
}

impl Location {
    /// The start of a file.
    #[must_use]
    pub fn start(source: &Arc<Source>) -> Self {
        Self { source: Arc::clone(source), range: 0..0 }
    }

    /// The nearest character boundary at or before a byte.
    fn boundary(&self, byte: usize) -> usize {
        let mut byte = byte.min(self.source.text.len());
        while !self.source.text.is_char_boundary(byte) {
            byte -= 1;
        }
        byte
    }

    fn line_column(&self, byte: usize) -> (usize, usize) {
        let byte = self.boundary(byte);
        let (line, start) = self.source.line(byte);
        (line + 1, self.source.text[start..byte].chars().count() + 1)
    }

    /// Line and column of its first character, both from 1.
    #[must_use]
    pub fn first(&self) -> (usize, usize) {
        self.line_column(self.range.start)
    }

    /// Line and column after its last character, both from 1.
    #[must_use]
    pub fn last(&self) -> (usize, usize) {
        self.line_column(self.range.end.max(self.range.start))
    }

    /// The line in which it starts, without its end.
    #[must_use]
    pub fn line(&self) -> &str {
        let (_, start) = self.source.line(self.boundary(self.range.start));
        let rest = &self.source.text[start..];
        rest.split('\n').next().unwrap_or("").trim_end_matches('\r')
    }

    /// As the plan keeps it.
    #[must_use]
    pub fn place(&self) -> Place {
        let (line, column) = self.first();
        Place { file: self.source.path.clone(), line, column }
    }
}

/// A step of a path into a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Key of a table.
    Key(&'a str),
    /// Index of an array.
    Index(usize),
}

/// Step to a key.
#[must_use]
pub const fn k(key: &str) -> Step<'_> {
    Step::Key(key)
}

/// Step to an element.
#[must_use]
pub const fn n(index: usize) -> Step<'static> {
    Step::Index(index)
}

/// A parsed file.
pub struct Document<'t> {
    source: Arc<Source>,
    root: Spanned<DeValue<'t>>,
    /// Parts of other files in the place of its own.
    instead: Vec<Instead<'t>>,
}

/// A value of another file in the place of one of a document's.
struct Instead<'t> {
    /// Path of what is replaced.
    at: Vec<Step<'t>>,
    by: &'t Document<'t>,
    path: Vec<Step<'t>>,
}

impl<'t> Document<'t> {
    /// Parses a text, which has to be that of `source`. Returns the errors, and the tree of the parts that could be
    /// parsed.
    #[must_use]
    pub fn parse(source: &Arc<Source>, text: &'t str) -> (Self, Vec<toml::de::Error>) {
        let (table, errors) = DeTable::parse_recoverable(text);
        let span = table.span();
        let root = Spanned::new(span, DeValue::Table(table.into_inner()));
        (Self { source: Arc::clone(source), root, instead: Vec::new() }, errors)
    }

    /// The file.
    #[must_use]
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// Its tree.
    #[must_use]
    pub fn root(&self) -> &Spanned<DeValue<'t>> {
        &self.root
    }

    /// Puts another file's value in the place of one, so that findings are placed there.
    pub fn put(&mut self, at: Vec<Step<'t>>, by: &'t Document<'t>, path: Vec<Step<'t>>) {
        self.instead.push(Instead { at, by, path });
    }

    /// The other file that has the value at a path, and the path there.
    fn elsewhere<'a>(&self, path: &[Step<'a>]) -> Option<(&'t Document<'t>, Vec<Step<'a>>)>
    where
        't: 'a,
    {
        self.instead.iter().find_map(|instead| {
            let rest = path.strip_prefix(&instead.at[..])?;
            Some((instead.by, [&instead.path[..], rest].concat()))
        })
    }

    /// The value at a path.
    #[must_use]
    pub fn get(&self, path: &[Step<'_>]) -> Option<&Spanned<DeValue<'t>>> {
        if let Some((other, path)) = self.elsewhere(path) {
            return other.get(&path);
        }
        path.iter().try_fold(&self.root, |node, step| match step {
            Step::Key(key) => node.get_ref().get(*key),
            Step::Index(index) => node.get_ref().get(*index),
        })
    }

    /// Returns the place of the value at a path. If the value is missing, it is the place of the table that should
    /// hold it.
    #[must_use]
    pub fn at(&self, path: &[Step<'_>]) -> Location {
        if let Some((other, path)) = self.elsewhere(path) {
            return other.at(&path);
        }
        let range = (0..=path.len())
            .rev()
            .find_map(|len| self.get(&path[..len]))
            .map_or(0..0, Spanned::span);
        self.location(range)
    }

    /// A range of its text.
    #[must_use]
    pub fn location(&self, range: Range<usize>) -> Location {
        Location { source: Arc::clone(&self.source), range }
    }
}
