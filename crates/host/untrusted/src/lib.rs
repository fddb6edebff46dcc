//! Text of a guest. It is a claim. It may move a terminal's cursor, hide other text, set the title, or look like a line
//! of another's. So it leaves this type escaped, in lines, or as bytes for a file or another program that is
//! responsible for them (docs/decisions/0032-evidence.md).
//!
//! | in the text | shown as |
//! |---|---|
//! | a character that is printed as one letter or sign in its place | itself |
//! | `\` | `\\` |
//! | `CR` before `LF`, or at the end | nothing: they are one end of a line |
//! | `TAB` | blanks up to the next column that is a multiple of 8 |
//! | other controls, C1 controls, bidirectional overrides, other formats, separators, accents that combine, letters for private use or of no meaning | `\0`, `\r`, `\u{1b}` |
//! | bytes that are not UTF-8 | `\xff` |
//!
//! The form can be undone: two texts that differ in more than tabs and ends of lines are shown differently.
#![forbid(unsafe_code)]

use serde::{Serialize, Serializer};
use std::fmt;

/// See the module.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Untrusted(Vec<u8>);

impl Untrusted {
    /// Text of a guest, as it came.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Adds the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The bytes as they came: for a file, another guest, a search. Not for a screen.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells if it has these letters somewhere.
    #[must_use]
    pub fn contains(&self, part: &str) -> bool {
        part.is_empty() || self.0.windows(part.len()).any(|at| at == part.as_bytes())
    }

    /// Its lines, escaped.
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = String> {
        let whole = self.0.strip_suffix(b"\n").unwrap_or(&self.0);
        let none = self.0.is_empty();
        whole.split(|byte| *byte == b'\n').filter(move |_| !none).map(line)
    }

    /// Its last lines, at most so many, escaped.
    #[must_use]
    pub fn last(&self, most: usize) -> Vec<String> {
        let mut last: Vec<_> = self.lines().rev().take(most).collect();
        last.reverse();
        last
    }

    /// [`Self::rows`] of its last lines.
    #[must_use]
    pub fn last_rows(&self, most: usize, mark: &str, columns: Option<usize>) -> Vec<String> {
        let last = self.last(most);
        last.iter().flat_map(|line| rows(line, mark, columns)).collect()
    }

    /// All of it, escaped but for the ends of lines.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.lines().collect::<Vec<_>>().join("\n");
        if self.0.ends_with(b"\n") {
            text.push('\n');
        }
        text
    }

    /// Its lines for a screen, each piece behind `mark`. A line that would go on in the next row of a terminal with so
    /// many columns is cut before. Otherwise the rest could look like another's line.
    #[must_use]
    pub fn rows(&self, mark: &str, columns: Option<usize>) -> Vec<String> {
        self.lines().flat_map(|line| rows(&line, mark, columns)).collect()
    }

    /// Takes its whole lines, or all of it once it is longer than `most` bytes without an end of a line.
    pub fn take_lines(&mut self, most: usize) -> Self {
        let whole = match self.0.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            None if self.0.len() > most => self.0.len() - unsettled(&self.0),
            None => 0,
        };
        self.take(whole)
    }

    /// Takes all but the beginning of a letter, and a CR, since the rest may be on its way.
    pub fn take_settled(&mut self) -> Self {
        self.take(self.0.len() - unsettled(&self.0))
    }

    /// Drops its beginning so that at most so many bytes are left; how many were dropped.
    pub fn keep_last(&mut self, most: usize) -> usize {
        let excess = self.0.len().saturating_sub(most);
        self.0.drain(..excess);
        excess
    }

    fn take(&mut self, len: usize) -> Self {
        let rest = self.0.split_off(len);
        Self(std::mem::replace(&mut self.0, rest))
    }
}

/// Bytes at the end that may go on: up to three of a letter in UTF-8, or a CR.
fn unsettled(bytes: &[u8]) -> usize {
    if bytes.ends_with(b"\r") {
        return 1;
    }
    let tail = (1..=bytes.len().min(3)).find(|back| bytes[bytes.len() - back] & 0xC0 != 0x80);
    let Some(back) = tail else { return 0 };
    let first = bytes[bytes.len() - back];
    let wanted = match first {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    };
    if wanted > back { back } else { 0 }
}

/// Columns from one tabulator stop to the next.
const TAB: usize = 8;

/// A line without its end, escaped.
fn line(bytes: &[u8]) -> String {
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '"' | '\'' => out.push(letter),
                '\t' => out += &" ".repeat(TAB - width(&out) % TAB),
                // Everything that is no letter in its place is escaped: the standard library has Unicode's tables.
                other => out.extend(other.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            out += &format!("\\x{byte:02x}");
        }
    }
    out
}

/// Columns that text takes at most: terminals show some letters in two.
fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

fn columns(letter: char) -> usize {
    if letter.is_ascii() { 1 } else { 2 }
}

/// An escaped line's rows.
fn rows(line: &str, mark: &str, columns: Option<usize>) -> Vec<String> {
    let room = columns.map_or(usize::MAX, |all| all.saturating_sub(width(mark)).max(2));
    pieces(line, room).into_iter().map(|piece| format!("{mark}{piece}")).collect()
}

/// A line in pieces of at most so many columns.
fn pieces(line: &str, room: usize) -> Vec<String> {
    let (mut all, mut used) = (vec![String::new()], 0);
    for letter in line.chars() {
        if used + columns(letter) > room {
            all.push(String::new());
            used = 0;
        }
        used += columns(letter);
        if let Some(piece) = all.last_mut() {
            piece.push(letter);
        }
    }
    all
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl fmt::Debug for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text())
    }
}

impl Serialize for Untrusted {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text())
    }
}
