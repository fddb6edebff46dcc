//! The table of a campaign, by kind and place.

use crate::Row;
use crate::fault::KINDS;
use crate::judge::CLASSES;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A line of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Kind of the faults.
    pub kind: String,
    /// Kind of the place.
    pub place: String,
    /// They are in what confines the guest.
    pub apart: bool,
    /// Faults by class, in the order of [`CLASSES`].
    pub classes: [u64; CLASSES.len()],
    /// Worst time to a record, ns.
    pub after_ns: Option<u64>,
    /// Worst time until the service was right again, ns.
    pub right_ns: Option<u64>,
}

impl Cell {
    /// All its faults.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.classes.iter().sum()
    }
}

/// Sums rows up by kind and place: kinds in their order, those of monitors last.
#[must_use]
pub fn cells(rows: &[Row]) -> Vec<Cell> {
    let order = |kind: &str| KINDS.iter().position(|(_, name)| *name == kind);
    let mut cells: BTreeMap<(Option<usize>, &str), Cell> = BTreeMap::new();
    for row in rows {
        let cell = cells.entry((order(&row.kind), &row.place)).or_insert_with(|| Cell {
            kind: row.kind.clone(),
            place: row.place.clone(),
            apart: row.apart,
            ..Cell::default()
        });
        if let Some(n) = CLASSES.iter().position(|(_, name)| *name == row.class) {
            cell.classes[n] += 1;
        }
        cell.after_ns = cell.after_ns.max(row.after_ns);
        cell.right_ns = cell.right_ns.max(row.right_ns);
    }
    cells.into_values().collect()
}

/// The table, as Markdown has it.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let cells = cells(rows);
    let mut out = String::from("| fault | place | faults |");
    CLASSES.iter().for_each(|(_, name)| {
        let _ = write!(out, " {name} |");
    });
    out += " found within | right within |\n|---|---|";
    out += &"---|".repeat(CLASSES.len() + 3);
    out.push('\n');
    for apart in [false, true] {
        let own: Vec<&Cell> = cells.iter().filter(|cell| cell.apart == apart).collect();
        own.iter().for_each(|cell| out += &line(&cell.kind, &cell.place, cell));
        if !own.is_empty() {
            let name = if apart { "all in monitors" } else { "all in guests" };
            out += &line(name, "", &sum(&own));
        }
    }
    out
}

fn sum(cells: &[&Cell]) -> Cell {
    cells.iter().fold(Cell::default(), |mut all, cell| {
        all.classes.iter_mut().zip(cell.classes).for_each(|(all, own)| *all += own);
        all.after_ns = all.after_ns.max(cell.after_ns);
        all.right_ns = all.right_ns.max(cell.right_ns);
        all
    })
}

fn line(kind: &str, place: &str, cell: &Cell) -> String {
    let mut out = format!("| {kind} | {place} | {} |", cell.all());
    cell.classes.iter().for_each(|count| {
        let _ = write!(out, " {count} |");
    });
    let time =
        |ns: Option<u64>| ns.map_or(String::new(), |ns| format!("{:.2} ms", ns as f64 / 1e6));
    let _ = writeln!(out, " {} | {} |", time(cell.after_ns), time(cell.right_ns));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitors_are_listed_apart() {
        let row = |id, kind: &str, class: &str, apart, after_ns| Row {
            id,
            kind: kind.into(),
            place: "place".into(),
            apart,
            sandbox: String::new(),
            core: 0,
            instant: 0,
            detail: String::new(),
            class: class.into(),
            caught_by: String::new(),
            after_ns,
            right_ns: None,
            harm: String::new(),
            wall_ms: 0,
        };
        let rows = [
            row(1, "monitor-data", "harm", true, None),
            row(2, "text", "caught", false, Some(2_500_000)),
            row(3, "text", "no effect", false, None),
        ];
        let table = table(&rows);
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(lines[0], "| text | place | 2 | 1 | 0 | 1 | 0 | 0 | 0 | 2.50 ms |  |");
        assert!(lines[1].starts_with("| all in guests |  | 2 |"));
        assert_eq!(lines[3], "| all in monitors |  | 1 | 0 | 0 | 0 | 0 | 0 | 1 |  |  |");
    }
}
