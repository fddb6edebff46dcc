//! Plots of figures, from the rows: `bulkhead-harness plot DIR`.

use crate::Failure;
use crate::rows::Rows;
use std::fmt::Write;
use std::path::Path;

/// A drawing's size, and the room that axes have, pixels.
const SIZE: (f64, f64) = (520.0, 360.0);
const MARGIN: (f64, f64) = (64.0, 52.0);
/// Lines, by series: Okabe and Ito's palette, which people with any colour vision can tell apart.
const COLOURS: [&str; 3] = ["#0072b2", "#d55e00", "#009e73"];

/// What a plot shows: rows of the names `PREFIX` and a number, and a line that they should keep to.
struct Plot {
    file: &'static str,
    title: &'static str,
    /// What the numbers in the rows' names, and their values, are.
    axes: [&'static str; 2],
    /// Prefixes of rows, and what they are called.
    series: &'static [(&'static str, &'static str)],
    /// Where the axes end.
    most: (f64, f64),
    /// What values are divided by.
    unit: f64,
    line: &'static str,
}

const PLOTS: [Plot; 2] = [
    Plot {
        file: "kernel-hog.svg",
        title: "Worst answer of a thread below a hog",
        axes: ["the hog's budget of 10 ms, ms", "latency, ms"],
        series: &[("kernel.hog_", "worst of all phases")],
        most: (10.0, 10.0),
        unit: 1_000.0,
        line: "the hog's budget",
    },
    Plot {
        file: "kernel-aes.svg",
        title: "Two clients of a server that encrypts",
        axes: ["client's budget, % of the period", "throughput, % of the server's speed"],
        series: &[
            ("kernel.aes_10_", "period 10 ms"),
            ("kernel.aes_100_", "period 100 ms"),
            ("kernel.aes_1000_", "period 1,000 ms"),
        ],
        most: (100.0, 100.0),
        unit: 1.0,
        line: "the client's share",
    },
];

/// The numbers behind a prefix, and the values.
fn points(rows: &Rows, prefix: &str, unit: f64) -> Vec<(f64, f64)> {
    let numbered = rows.rows.iter().filter_map(|row| {
        let number: f64 = row.name.strip_prefix(prefix)?.parse().ok()?;
        Some((number, row.value / unit))
    });
    let mut points: Vec<_> = numbered.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

impl Plot {
    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let (width, height) = (SIZE.0 - 1.5 * MARGIN.0, SIZE.1 - 2.0 * MARGIN.1);
        (MARGIN.0 + x / self.most.0 * width, SIZE.1 - MARGIN.1 - y / self.most.1 * height)
    }

    /// The file's text, if each series has points.
    fn draw(&self, rows: &Rows) -> Option<String> {
        let of = |(prefix, _): &(&str, _)| points(rows, prefix, self.unit);
        let series: Vec<_> = self.series.iter().map(of).collect();
        if series.iter().any(Vec::is_empty) {
            return None;
        }
        let mut out = self.frame();
        for (n, points) in series.iter().enumerate() {
            // One inside the other, so that equal values can be seen.
            let radius = 6.0 - 2.0 * n as f64;
            for (x, y) in points.iter().map(|point| self.place(*point)) {
                let colour = COLOURS[n % COLOURS.len()];
                let _ = writeln!(
                    out,
                    r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius}" fill="none" stroke="{colour}" stroke-width="2"/>"#
                );
            }
        }
        Some(out + &self.legend() + "</svg>\n")
    }

    /// Axes, their numbers, and the line.
    fn frame(&self) -> String {
        let (width, height) = SIZE;
        let mut out = format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="sans-serif" font-size="13">
<title>{}</title>
<rect width="{width}" height="{height}" fill="#ffffff"/>
"##,
            self.title
        );
        let (left, bottom) = self.place((0.0, 0.0));
        let (right, top) = self.place(self.most);
        let mut line = |(x1, y1): (f64, f64), (x2, y2): (f64, f64), style: &str| {
            let _ = writeln!(out, r#"<path d="M{x1:.1},{y1:.1} L{x2:.1},{y2:.1}" {style}/>"#);
        };
        line((left, bottom), (right, top), r##"stroke="#888888" stroke-dasharray="5 4""##);
        line((left, bottom), (right, bottom), r##"stroke="#222222""##);
        line((left, bottom), (left, top), r##"stroke="#222222""##);
        for n in 0..=5 {
            let part = f64::from(n) / 5.0;
            let (x, y) = self.place((part * self.most.0, part * self.most.1));
            text(&mut out, (x, bottom + 18.0), "middle", &(part * self.most.0).to_string());
            text(&mut out, (left - 8.0, y + 4.0), "end", &(part * self.most.1).to_string());
        }
        text(&mut out, ((left + right) / 2.0, height - 12.0), "middle", self.axes[0]);
        text(&mut out, (12.0, top - 12.0), "start", self.axes[1]);
        text(&mut out, (12.0, 18.0), "start", self.title);
        out
    }

    fn legend(&self) -> String {
        let mut out = String::new();
        let (left, top) = self.place((0.0, self.most.1));
        let entry = |n: usize| (left + 34.0, top + 18.0 + 18.0 * n as f64);
        for (n, (_, name)) in self.series.iter().enumerate() {
            let ((x, y), colour) = (entry(n), COLOURS[n % COLOURS.len()]);
            let (x_mark, y_mark) = (x - 14.0, y - 4.0);
            let _ = writeln!(
                out,
                r#"<circle cx="{x_mark:.1}" cy="{y_mark:.1}" r="4" fill="none" stroke="{colour}" stroke-width="2"/>"#
            );
            text(&mut out, (x, y), "start", name);
        }
        let (x, y) = entry(self.series.len());
        let _ = writeln!(
            out,
            r##"<path d="M{:.1},{y_line:.1} H{:.1}" stroke="#888888" stroke-dasharray="5 4"/>"##,
            x - 24.0,
            x - 4.0,
            y_line = y - 4.0
        );
        text(&mut out, (x, y), "start", self.line);
        out
    }
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let _ = writeln!(out, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#);
}

/// Draws what the rows have, into files of a folder; returns their names.
///
/// # Errors
/// A file that can't be written.
pub fn draw(rows: &Rows, dir: &Path) -> Result<Vec<&'static str>, Failure> {
    std::fs::create_dir_all(dir)?;
    let mut drawn = Vec::new();
    for plot in &PLOTS {
        if let Some(svg) = plot.draw(rows) {
            std::fs::write(dir.join(plot.file), svg)?;
            drawn.push(plot.file);
        }
    }
    Ok(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Row;

    #[test]
    fn a_plot_has_a_point_for_each_row_and_is_not_drawn_without() {
        let [hog, aes] = &PLOTS;
        let mut rows = Rows::default();
        rows.merge(
            &[1, 9].map(|n| Row::new(&format!("kernel.hog_{n}"), "us", 1000.0 * f64::from(n))),
        );
        assert_eq!(points(&rows, "kernel.hog_", 1_000.0), [(1.0, 1.0), (9.0, 9.0)]);
        let svg = hog.draw(&rows).expect("rows");
        assert_eq!(svg.matches("r=\"6\"").count(), 2);
        let (x, y) = hog.place((9.0, 9.0));
        assert!(svg.contains(&format!("cx=\"{x:.1}\" cy=\"{y:.1}\"")));
        assert_eq!(aes.draw(&rows), None);
    }
}
