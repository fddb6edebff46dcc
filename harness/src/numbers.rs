//! `docs/numbers.md` and the rows of `make bench`: the page's tables have what was measured.
//!
//! `bulkhead-harness numbers` says where they differ, with `--write` it writes the rows into the page. Figures that
//! `make test` measures itself are compared there, too ([`said`]): an outdated page is a failed test.

use crate::rows::{Row, Rows};
use crate::{Failure, build};
use std::path::PathBuf;

/// Returns the page.
fn file() -> PathBuf {
    build::root().join("docs/numbers.md")
}

/// Differences, and the page as it should be.
#[derive(Debug, Default, PartialEq)]
pub struct Compared {
    /// Lines of tables, in words: the row, what the page has, what was measured.
    pub differ: Vec<String>,
    /// Measured, and in no table.
    pub missing: Vec<String>,
    /// The page with what was measured.
    pub text: String,
}

/// Compares the page with rows, and writes them into it.
///
/// # Errors
/// The page cannot be read or written.
pub fn compare(rows: &Rows, write: bool) -> Result<Compared, Failure> {
    let compared = compared(&std::fs::read_to_string(file())?, rows);
    if write {
        std::fs::write(file(), &compared.text)?;
    }
    Ok(compared)
}

/// Returns the value of a row in the page.
///
/// # Errors
/// The page cannot be read, or has no such row.
pub fn said(name: &str) -> Result<f64, Failure> {
    let value = column(&std::fs::read_to_string(file())?, name, "value")?;
    Ok(value.replace(',', "").parse().map_err(|_| format!("{value} of {name} is no number"))?)
}

/// Returns the bound of a row in the page, in words.
///
/// # Errors
/// The page cannot be read, or has no such row.
pub fn bound(name: &str) -> Result<String, Failure> {
    Ok(column(&std::fs::read_to_string(file())?, name, "must be")?)
}

/// Returns the cell of a row, by the column's heading.
fn column(text: &str, name: &str, what: &str) -> Result<String, String> {
    let mut heading = Vec::new();
    for cells in text.lines().filter_map(cells) {
        if cells.first() == Some(&"row") {
            heading = cells;
        } else if named(&cells) == Some(name) {
            let at = heading.iter().position(|heading| *heading == what);
            let cell = at.and_then(|at| cells.get(at)).map(|cell| (*cell).to_owned());
            return cell.ok_or_else(|| format!("docs/numbers.md has no column {what} for {name}"));
        }
    }
    Err(format!("docs/numbers.md has no row {name}"))
}

/// Returns the cells of a line of a table.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inside = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(inside.split('|').map(str::trim).collect())
}

fn named<'a>(cells: &[&'a str]) -> Option<&'a str> {
    cells.first()?.strip_prefix('`')?.strip_suffix('`')
}

fn compared(text: &str, rows: &Rows) -> Compared {
    let (mut all, mut heading) = (Compared::default(), Vec::new());
    let mut seen = Vec::new();
    for line in text.lines() {
        let cells = cells(line).unwrap_or_default();
        if cells.first() == Some(&"row") {
            heading.clone_from(&cells);
        }
        let row = named(&cells).and_then(|name| rows.rows.iter().find(|row| row.name == name));
        match row.filter(|_| cells.len() == heading.len()) {
            None => all.text += line,
            Some(row) => {
                let new: Vec<_> =
                    heading.iter().zip(&cells).map(|(what, old)| cell(what, old, row)).collect();
                let joined = new.iter().map(|cell| format!(" {cell} |"));
                let new = format!("|{}", joined.collect::<String>());
                if new.replace(' ', "") != line.replace(' ', "") {
                    all.differ.push(format!("{line}\n{new}"));
                    all.text += &new;
                } else {
                    all.text += line;
                }
                seen.push(&row.name);
            }
        }
        all.text.push('\n');
    }
    let missing = rows.rows.iter().filter(|row| !seen.contains(&&row.name));
    all.missing =
        missing.map(|row| format!("{}: {} {}", row.name, number(row.value), row.unit)).collect();
    all
}

/// Finds a column's text for a row.
fn cell(what: &str, old: &str, row: &Row) -> String {
    let optional = |value: Option<f64>| value.map(number).unwrap_or_default();
    let ratio = |value: Option<f64>| value.map(|r| format!("{r:.4}")).unwrap_or_default();
    match what {
        "value" => number(row.value),
        "bare" | "baseline" => optional(row.baseline),
        "ratio" => ratio(row.ratio),
        "KVM" => optional(row.peer),
        "its ratio" => ratio(row.peer_ratio),
        "unit" => row.unit.clone(),
        "must be" => row.bound.clone().unwrap_or_else(|| "reported".into()),
        "reached" => match row.reached {
            Some(true) => "yes".into(),
            Some(false) => "**no**".into(),
            None => String::new(),
        },
        _ => old.to_owned(),
    }
}

/// Returns a number with three digits behind the point, and commas between thousands.
fn number(value: f64) -> String {
    let rounded = format!("{value:.3}");
    let (whole, rest) = rounded.split_once('.').unwrap_or((&rounded, ""));
    let rest = rest.trim_end_matches('0');
    let mut grouped = String::new();
    for (n, digit) in whole.chars().enumerate() {
        if n > 0 && (whole.len() - n).is_multiple_of(3) && grouped != "-" {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if rest.is_empty() { grouped } else { format!("{grouped}.{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0.0, 999.0, 1_000.0].map(number), ["0", "999", "1,000"]);
        assert_eq!(number(1_234_567.25), "1,234,567.25");
        assert_eq!([-1_000.5, -100.0].map(number), ["-1,000.5", "-100"]);
    }

    #[test]
    fn a_table_gets_what_was_measured() {
        let page = "# x\n| row | value | bare | ratio | must be | reached | `bench` |\n|---|---|---|---|---|---|---|\n| `a` | 5 | 2 | 2.5000 | at most 6 | yes | `a` |\n| `b` | 1 |  |  | reported |  | `b` |\n";
        let mut a = Row::new("a", "ns", 7_000.0).against(2.0);
        (a.bound, a.reached) = (Some("at most 6".into()), Some(false));
        let rows = Rows { rows: vec![a, Row::new("b", "ns", 1.0), Row::new("c", "ns", 3.0)] };
        let all = compared(page, &rows);
        assert_eq!(all.differ.len(), 1, "{all:?}");
        assert!(all.text.contains("| `a` | 7,000 | 2 | 3500.0000 | at most 6 | **no** | `a` |\n"));
        assert!(all.text.contains("| `b` | 1 |  |  | reported |  | `b` |\n"));
        assert_eq!(all.missing, ["c: 3 ns"]);
        assert_eq!(compared(&all.text, &rows).differ, Vec::<String>::new());
        assert_eq!(column(page, "a", "must be").as_deref(), Ok("at most 6"));
        assert!(column(page, "c", "must be").is_err() && column(page, "a", "KVM").is_err());
    }

    /// Its table names the row that a size is of.
    #[test]
    fn the_readme_has_the_pages_sizes() {
        let readme = std::fs::read_to_string(build::root().join("README.md")).expect("readable");
        let rows = [
            ("text of a monitor", "monitor.text"),
            ("text of one without devices", "monitor.text_plain"),
            ("lines of all crates that a monitor links", "monitor.lines"),
            ("lines that the boot code adds", "boot.lines"),
        ];
        for (what, row) in rows {
            let line = readme.lines().filter_map(cells).find(|cells| cells[0] == what);
            let line = line.unwrap_or_else(|| panic!("README.md says nothing of `{what}`"));
            let shown = line[1].split(' ').next().expect("a word").replace(',', "");
            assert_eq!(shown.parse(), Ok(said(row).expect("a row")), "{what}");
        }
    }
}
