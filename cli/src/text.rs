//! Texts: counts, sizes, lists, and tables in columns.

use bulkhead_manifest::size::show;
use bulkhead_plan::Ports;
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

/// Rows under a heading, in columns as wide as their widest cell.
pub fn table(out: &mut String, title: &str, heads: &[&str], rows: &[Vec<String>]) {
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
