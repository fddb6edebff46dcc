//! Texts: counts, sizes, lists, and tables in columns.

use bulkhead_manifest::size::show;
use bulkhead_plan::Ports;
use serde_json::{Value, json};
use std::fmt::Write;

/// `1 sandbox`, `2 sandboxes`.
#[must_use]
pub fn count(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

/// A size in at most four digits: exact if that is short, else rounded.
#[must_use]
pub fn about(bytes: u64) -> String {
    let exact = show(bytes);
    if exact.find(' ').is_some_and(|digits| digits <= 4) {
        return exact;
    }
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let (shift, unit) = units.into_iter().find(|(shift, _)| bytes >> shift > 0).unwrap_or((0, "B"));
    format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64)
}

/// A text with tables, and these once more for programs.
#[derive(Default)]
pub struct Sheet {
    /// All of it, for a person.
    pub text: String,
    tables: Vec<Value>,
}

impl Sheet {
    /// Begins with a text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self { text, tables: Vec::new() }
    }

    /// Adds a text that is no table.
    pub fn push_str(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Returns the tables: title and rows, each an object by the heads of its columns. Cells are the texts that a
    /// person sees.
    #[must_use]
    pub fn tables(&self) -> Value {
        Value::Array(self.tables.clone())
    }
}

/// Takes tables.
pub trait Tables {
    /// The text.
    fn text(&mut self) -> &mut String;
    /// Notes a table for programs.
    fn note(&mut self, _title: &str, _heads: &[&str], _rows: &[Vec<String>]) {}
}

impl Tables for String {
    fn text(&mut self) -> &mut String {
        self
    }
}

impl Tables for Sheet {
    fn text(&mut self) -> &mut String {
        &mut self.text
    }

    fn note(&mut self, title: &str, heads: &[&str], rows: &[Vec<String>]) {
        let cells =
            |row: &Vec<String>| heads.iter().map(|head| (*head).to_owned()).zip(row.clone());
        let object = |row| cells(row).map(|(head, cell)| (head, Value::String(cell))).collect();
        let rows: Vec<Value> = rows.iter().map(|row| Value::Object(object(row))).collect();
        self.tables.push(json!({ "title": title, "rows": rows }));
    }
}

/// Rows under a heading, in columns as wide as their widest cell.
pub fn table(out: &mut impl Tables, title: &str, heads: &[&str], rows: &[Vec<String>]) {
    out.note(title, heads, rows);
    let out = out.text();
    let _ = writeln!(out, "\n{title}");
    if rows.is_empty() {
        out.push_str("  none\n");
        return;
    }
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heads[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let heads: Vec<String> = heads.iter().map(ToString::to_string).collect();
    for row in std::iter::once(&heads).chain(rows) {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(out, "  {}", cells.join("  ").trim_end());
    }
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".into() } else { text }
}

/// Items with commas between them, or a dash.
pub fn joined<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    or_dash(items.join(", "))
}

/// A port, or the first and the last one.
#[must_use]
pub fn port_range(ports: Ports) -> String {
    if ports.first == ports.last {
        format!("{:#x}", ports.first)
    } else {
        format!("{:#x}-{:#x}", ports.first, ports.last)
    }
}

/// A text of at most so many characters.
#[must_use]
pub fn shorten(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let kept: String = text.chars().take(limit - 1).collect();
    format!("{kept}…")
}

/// A text in lines of at most so many characters, words kept whole.
#[must_use]
pub fn wrap(text: &str, limit: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= limit => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
