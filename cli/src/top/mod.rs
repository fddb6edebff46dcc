//! A running machine at a glance: what differs between two looks at it.

pub mod screen;

use crate::text::{self, Sheet};
use bulkhead_explain::{SandboxSnapshot, Snapshot, Untrusted, explain, state};
use bulkhead_layout::report::{CAUSE_NAMES, MAGIC, State};
use bulkhead_plan::Plan;
use std::time::Duration;

/// Bytes of a console that are looked at for its last lines.
const TAIL: u64 = 2048;

/// A sandbox.
#[derive(Clone, Default)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its cores, by the machine's numbers.
    pub cores: String,
    /// Its state.
    pub state: &'static str,
    /// Launches after the first.
    pub restarts: u64,
    /// Exits with their rate a second, by cause; none that it never had.
    pub exits: Vec<(&'static str, u64, f64)>,
    /// Denied accesses, and their rate.
    pub denials: (u64, f64),
    /// Doorbells of other sandboxes' monitors, and their rate.
    pub rings: (u64, f64),
    /// The newest denied access with a record, explained.
    pub newest: Option<String>,
    /// The last that its first core has said.
    pub console: Untrusted,
}

impl Row {
    /// All exits, and their rate.
    #[must_use]
    pub fn all_exits(&self) -> (u64, f64) {
        let sum = |(count, rate), one: &(&str, u64, f64)| (count + one.1, rate + one.2);
        self.exits.iter().fold((0, 0.0), sum)
    }
}

/// Compares two looks, so much time apart.
#[must_use]
pub fn rows(plan: &Plan, before: &Snapshot, now: &Snapshot, apart: Duration) -> Vec<Row> {
    let seconds = apart.as_secs_f64().max(f64::EPSILON);
    let rate = |was: u64, is: u64| (is, is.saturating_sub(was) as f64 / seconds);
    let all = plan.sandboxes.iter().zip(&now.sandboxes).enumerate();
    all.map(|(index, (planned, seen))| {
        let (name, cores) = (planned.name.clone(), text::joined(&planned.cores));
        // Before its first launch, or in an image that is not this manifest's, there is no report.
        if seen.report.magic != MAGIC {
            return Row { name, cores, state: state(State::Absent), ..Row::default() };
        }
        let was = before.sandboxes.get(index).filter(|was| was.report.magic == MAGIC);
        let count = |look: Option<&SandboxSnapshot>, of: &dyn Fn(&SandboxSnapshot) -> u64| {
            look.map_or(0, of)
        };
        let both = |of: &dyn Fn(&SandboxSnapshot) -> u64| rate(count(was, of), of(seen));
        let exits = CAUSE_NAMES.into_iter().enumerate().map(|(cause, name)| {
            let (count, rate) =
                both(&|s: &SandboxSnapshot| s.cores.iter().map(|core| core.exits[cause]).sum());
            (name, count, rate)
        });
        // Its own entry counts what its own cores ring.
        let others = |s: &SandboxSnapshot| {
            let rung = s.rung.iter().enumerate().filter(|(from, _)| *from != index);
            rung.map(|(_, rings)| rings).sum()
        };
        let records = seen.cores.iter().enumerate();
        let records = records.flat_map(|(core, of)| of.kept.iter().map(move |one| (core, one)));
        let newest = records.max_by_key(|(_, denial)| denial.ticks);
        Row {
            name,
            cores,
            state: state(seen.state),
            restarts: seen.report.restarts,
            exits: exits.filter(|exit| exit.1 > 0).collect(),
            denials: both(&SandboxSnapshot::denials),
            rings: both(&others),
            newest: newest.map(|(core, one)| explain(plan, index, core, one).to_string()),
            console: console(seen),
        }
    })
    .collect()
}

/// The last that a sandbox' first core has said.
fn console(seen: &SandboxSnapshot) -> Untrusted {
    let last = seen
        .cores
        .first()
        .map(|core| core.console_since(core.console_written.saturating_sub(TAIL)));
    last.map(|(said, _)| said).unwrap_or_default()
}

/// Heads of the table.
pub const HEADS: [&str; 9] = [
    "sandbox",
    "cores",
    "state",
    "restarts",
    "exits",
    "a second",
    "denied",
    "a second",
    "rings a second",
];

/// A row's cells.
#[must_use]
pub fn cells(row: &Row) -> [String; 9] {
    let (exits, exits_rate) = row.all_exits();
    [
        row.name.clone(),
        row.cores.clone(),
        row.state.to_owned(),
        row.restarts.to_string(),
        exits.to_string(),
        format!("{exits_rate:.1}"),
        row.denials.0.to_string(),
        format!("{:.1}", row.denials.1),
        format!("{:.1}", row.rings.1),
    ]
}

/// All of it as a text.
#[must_use]
pub fn text(system: &str, rows: &[Row]) -> Sheet {
    let mut out = Sheet::default();
    let table: Vec<Vec<String>> = rows.iter().map(|row| cells(row).to_vec()).collect();
    text::table(&mut out, system, &HEADS, &table);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let exits = vec![("hypercall", 10, 2.0), ("ipi", 5, 0.5)];
        Row { name: "flight".into(), state: "running", exits, ..Row::default() }
    }

    #[test]
    fn a_text_has_a_line_for_each_sandbox() {
        let said = text("demo", &[row()]).text;
        let line = said.trim_start().lines().nth(2).unwrap_or_default();
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words[..5], ["flight", "running", "0", "15", "2.5"], "{said}");
    }

    #[test]
    fn a_screen_shows_the_chosen_sandbox_and_survives_a_small_terminal() {
        use ratatui::Terminal;
        use ratatui::backend::TestBackend;
        let other = Row {
            name: "rogue".into(),
            console: Untrusted::new(format!("{}newest denied access", "rogue: tries ".repeat(9))),
            newest: Some("write to what is flight's".into()),
            ..row()
        };
        let rows = [row(), other];
        for (width, height) in [(120, 40), (20, 3), (1, 1)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| screen::draw(frame, "demo", &rows, 1)).unwrap();
            let shown = terminal.backend().to_string();
            let whole = width == 120;
            // A guest's long line begins no row as a heading does.
            assert!(
                !whole
                    || !shown.contains("│newest denied access \n")
                        && !shown.contains("│newest denied access\n")
            );
            for what in ["flight", "rogue: tries", "hypercall", "write to what is flight's"] {
                assert!(!whole || shown.contains(what), "{what}: {shown}");
            }
        }
    }
}
