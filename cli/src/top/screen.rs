//! The screen of `bulkhead top`.

use super::{HEADS, Row, cells};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Paragraph, Row as Cells, Table, TableState, Wrap};

/// Keys, in words.
const KEYS: &str = "up, down: another sandbox   q: leave";

/// Lines of a console that are shown.
const LINES: usize = 8;
/// Columns of a block's borders.
const BORDERS: u16 = 2;

/// Rows of the table at least: borders, heads, a sandbox.
const LEAST: u16 = 4;

/// Draws sandboxes, and details of the chosen one.
pub fn draw(frame: &mut Frame, system: &str, rows: &[Row], chosen: usize) {
    let height = rows.len().saturating_add(3).try_into().unwrap_or(u16::MAX);
    let [table, details, keys] = Layout::vertical([
        Constraint::Max(height.min((frame.area().height / 2).max(LEAST))),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let widths = [
        Constraint::Fill(2),
        Constraint::Fill(1),
        Constraint::Length(10),
        Constraint::Length(9),
        Constraint::Length(12),
        Constraint::Length(10),
        Constraint::Length(9),
        Constraint::Length(10),
        Constraint::Length(14),
    ];
    let shown = rows.iter().enumerate().map(|(index, row)| {
        let style = match (index == chosen, row.state) {
            (true, _) => Style::new().add_modifier(Modifier::REVERSED),
            (_, "failed") => bold,
            _ => Style::new(),
        };
        Cells::new(cells(row).map(Cell::from)).style(style)
    });
    let block = Block::bordered().title(format!(" {system} "));
    let all = Table::new(shown, widths).header(Cells::new(HEADS).style(bold)).block(block);
    // It scrolls so far that the chosen one is to be seen.
    let mut state = TableState::new().with_selected(Some(chosen));
    frame.render_stateful_widget(all, table, &mut state);
    if let Some(row) = rows.get(chosen) {
        let mut lines: Vec<Line> = Vec::new();
        lines.push(Line::styled("exits by cause", bold));
        for (cause, count, rate) in &row.exits {
            lines.push(Line::raw(format!("  {cause:<12}{count:>12}{rate:>12.1} a second")));
        }
        if let Some(newest) = &row.newest {
            lines.push(Line::styled("newest denied access", bold));
            lines.push(Line::raw(format!("  {newest}")));
        }
        if !row.console.is_empty() {
            lines.push(Line::styled("console", bold));
            // Cut here, and never wrapped: a guest's line looks like no line of ours.
            let columns = usize::from(details.width.saturating_sub(BORDERS));
            lines.extend(
                row.console.last_rows(LINES, "  ", Some(columns)).into_iter().map(Line::raw),
            );
        }
        let block = Block::bordered().title(format!(" {} ", row.name));
        let text = Paragraph::new(lines).wrap(Wrap { trim: false }).block(block);
        frame.render_widget(text, details);
    }
    frame.render_widget(Paragraph::new(KEYS), keys);
}
