//! The plot of a campaign: a bar for each kind and place, with the share of each class.

use crate::svg::{COLOURS, Canvas, MARGIN, document};
use bulkhead_inject::judge::CLASSES;
use bulkhead_inject::{Cell, Row, cells};

const WIDTH: f64 = 1000.0;
/// Where bars begin, and how long all of them are.
const BARS: f64 = 380.0;
const LENGTH: f64 = 500.0;
const ROW: f64 = 24.0;
const TOP: f64 = 130.0;
/// Colour of each class: harm alone is the palette's red.
const FILLS: [usize; CLASSES.len()] = [7, 6, 5, 2, 0, 1];

/// Draws it.
#[must_use]
pub fn draw(rows: &[Row]) -> String {
    let mut cells = cells(rows);
    cells.sort_by_key(|cell| cell.apart);
    let mut canvas = Canvas(String::new());
    legend(&mut canvas);
    for (n, cell) in cells.iter().enumerate() {
        bar(&mut canvas, TOP + n as f64 * ROW, cell);
    }
    let height = TOP + cells.len() as f64 * ROW + MARGIN;
    let note = format!("{} faults by kind and place; those in monitors last", rows.len());
    document("Faults", ("Faults and what came of them", &note), (WIDTH, height), &canvas)
}

fn colour(class: usize) -> &'static str {
    COLOURS[FILLS[class]].1
}

fn legend(canvas: &mut Canvas) {
    for (n, (_, name)) in CLASSES.iter().enumerate() {
        let x = MARGIN + n as f64 * 120.0;
        canvas.rect((x, 90.0), (12.0, 12.0), colour(n), "");
        canvas.text((x + 18.0, 101.0), "", name);
    }
}

fn bar(canvas: &mut Canvas, y: f64, cell: &Cell) {
    canvas.text((MARGIN, y + 12.0), "", &format!("{}: {}", cell.kind, cell.place));
    let mut x = BARS;
    for (n, count) in cell.classes.iter().enumerate().filter(|(_, count)| **count > 0) {
        let width = LENGTH * *count as f64 / cell.all().max(1) as f64;
        canvas.rect((x, y), (width, 16.0), colour(n), "");
        x += width;
    }
    canvas.text((BARS + LENGTH + 10.0, y + 12.0), "", &cell.all().to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_a_colour_of_its_own() {
        let colours: std::collections::BTreeSet<_> = (0..CLASSES.len()).map(colour).collect();
        assert_eq!(colours.len(), CLASSES.len());
    }
}
