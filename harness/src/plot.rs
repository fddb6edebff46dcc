//! Plots of figures, from the rows: `bulkhead-harness plot DIR`.

use crate::Failure;
use crate::rows::{Row, Rows};
use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

/// A drawing's size, and the room that axes have, pixels.
const SIZE: (f64, f64) = (520.0, 360.0);
const MARGIN: (f64, f64) = (64.0, 52.0);
/// Lines, by series: Okabe and Ito's palette, which people with any colour vision can tell apart.
const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];

/// How far a value is along an axis.
#[derive(Clone, Copy)]
enum Scale {
    Linear,
    Logarithmic,
}

/// An axis: where it begins and ends, and into how many parts numbers divide it.
struct Axis {
    scale: Scale,
    from: f64,
    to: f64,
    parts: u32,
}

impl Axis {
    const fn linear(to: f64) -> Self {
        Self { scale: Scale::Linear, from: 0.0, to, parts: 5 }
    }

    const fn logarithmic(from: f64, to: f64, parts: u32) -> Self {
        Self { scale: Scale::Logarithmic, from, to, parts }
    }

    /// From 0 to 1.
    fn part(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Logarithmic => (value / self.from).ln() / (self.to / self.from).ln(),
        }
    }

    /// Returns the numbers beside it, and where they stand.
    fn numbers(&self) -> impl Iterator<Item = (f64, String)> {
        (0..=self.parts).map(|n| {
            let part = f64::from(n) / f64::from(self.parts);
            let value = match self.scale {
                Scale::Linear => self.from + part * (self.to - self.from),
                Scale::Logarithmic => self.from * (self.to / self.from).powf(part),
            };
            // No more digits than were meant.
            (part, format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned())
        })
    }
}

/// The line that the points should keep to.
enum Line {
    /// The diagonal.
    Diagonal(&'static str),
    /// Baselines beside the values, with their name.
    Baselines(&'static str),
    /// One value.
    Level(f64, &'static str),
    /// The series are compared with one another.
    None,
}

/// A plot's content: rows with names of `PREFIX` and a number, and a line that they should keep to.
struct Plot {
    file: Cow<'static, str>,
    title: Cow<'static, str>,
    /// Titles of the axes: for the numbers in the rows' names, and for their values.
    axes: [&'static str; 2],
    /// Prefixes of rows, and what they are called.
    series: Cow<'static, [(Cow<'static, str>, &'static str)]>,
    across: Axis,
    up: Axis,
    /// Divisor of the values.
    unit: f64,
    line: Line,
}

const PLOTS: [Plot; 6] = [
    Plot {
        file: Cow::Borrowed("kernel-hog.svg"),
        title: Cow::Borrowed("Worst answer of a thread below a hog"),
        axes: ["the hog's budget of 10 ms, ms", "latency, ms"],
        series: Cow::Borrowed(&[(Cow::Borrowed("kernel.hog_"), "worst of all phases")]),
        across: Axis::linear(10.0),
        up: Axis::linear(10.0),
        unit: 1_000.0,
        line: Line::Diagonal("the hog's budget"),
    },
    Plot {
        file: Cow::Borrowed("kernel-aes.svg"),
        title: Cow::Borrowed("Two clients of a server that encrypts"),
        axes: ["client's budget, % of the period", "throughput, % of the server's speed"],
        series: Cow::Borrowed(&[
            (Cow::Borrowed("kernel.aes_10_"), "period 10 ms"),
            (Cow::Borrowed("kernel.aes_100_"), "period 100 ms"),
            (Cow::Borrowed("kernel.aes_1000_"), "period 1,000 ms"),
        ]),
        across: Axis::linear(100.0),
        up: Axis::linear(100.0),
        unit: 1.0,
        line: Line::Diagonal("the client's share"),
    },
    Plot {
        file: Cow::Borrowed("channel-rate.svg"),
        title: Cow::Borrowed("A message to another kernel, and its answer"),
        axes: ["bytes", "microseconds"],
        series: Cow::Borrowed(&[
            (Cow::Borrowed("channel.rate_high_"), "50 %, highest priority"),
            (Cow::Borrowed("channel.rate_low_"), "40 %, below a shell"),
        ]),
        across: Axis::logarithmic(64.0, 1_048_576.0, 7),
        up: Axis::logarithmic(0.1, 10_000.0, 5),
        unit: 1.0,
        line: Line::Baselines("what the budgets allow"),
    },
    Plot {
        file: Cow::Borrowed("channel-isolation.svg"),
        title: Cow::Borrowed(
            "Messages to three receivers, and pings of the one that breaks at 2 s",
        ),
        axes: ["ms", "messages/s, echoes/s"],
        series: Cow::Borrowed(&[
            (Cow::Borrowed("channel.heard_zero_"), "breaks, looks every 100 ms"),
            (Cow::Borrowed("channel.heard_two_"), "every 800 ms"),
            (Cow::Borrowed("channel.heard_three_"), "every 1,000 ms"),
            (Cow::Borrowed("channel.echoes_"), "echoes of the one that breaks, every 500 ms"),
        ]),
        across: Axis::linear(5_000.0),
        up: Axis::linear(50.0),
        unit: 1.0,
        line: Line::Level(20.0, "one every 50 ms"),
    },
    Plot {
        file: Cow::Borrowed("recover-web.svg"),
        title: Cow::Borrowed("A web server whose network driver fails once"),
        axes: ["ms, by intervals of 500", "requests/s, answers/s"],
        series: Cow::Borrowed(&[
            (Cow::Borrowed("recover.web_local_asked_"), "requests"),
            (Cow::Borrowed("recover.web_local_answered_"), "answers"),
            (Cow::Borrowed("recover.web_local_failed_"), "the driver fails"),
        ]),
        across: Axis::linear(6_000.0),
        up: Axis::linear(250.0),
        unit: 1.0,
        line: Line::Level(120.0, "120 a second"),
    },
    Plot {
        file: Cow::Borrowed("recover-web-remote.svg"),
        title: Cow::Borrowed("A web server's sandbox hangs once, and another takes over"),
        axes: ["ms, by intervals of 500", "requests/s, answers/s"],
        series: Cow::Borrowed(&[
            (Cow::Borrowed("recover.web_remote_asked_"), "requests"),
            (Cow::Borrowed("recover.web_remote_answered_"), "answers"),
            (Cow::Borrowed("recover.web_remote_failed_"), "the sandbox hangs"),
        ]),
        across: Axis::linear(6_000.0),
        up: Axis::linear(250.0),
        unit: 1.0,
        line: Line::Level(120.0, "120 a second"),
    },
];

/// Ways by which the ends of a disk's channel are told of one another's work, and what they are called.
const NOTIFIED: [(&str, &str); 3] =
    [("doorbell", "doorbells"), ("poll", "both look"), ("adaptive", "looks that pay")];

/// Plots of a disk through the wall, as IDDR's figures 5.2 to 5.7. Each device and way of access has its throughput,
/// and the instructions of a request.
fn disks() -> impl Iterator<Item = Plot> {
    let accesses = [
        ("rndrd", "random reads"),
        ("rndwr", "random writes"),
        ("rndrw", "random reads and writes"),
        ("seqrd", "sequential reads"),
    ];
    let devices = [("ram", "a RAM disk"), ("loop", "a loop device"), ("sata", "an AHCI disk")];
    let all = move |(device, behind): (&'static str, &'static str)| {
        accesses.into_iter().flat_map(move |(access, what)| {
            [("", "requests/s, thousands", 1e3), ("cpu_", "instructions a request, thousands", 1e3)]
                .map(|(kind, axis, unit)| Plot {
                    file: format!("block-{kind}{device}-{access}.svg").into(),
                    title: format!("{what} of {behind}").into(),
                    axes: ["threads", axis],
                    series: NOTIFIED
                        .iter()
                        .map(|(way, name)| {
                            (format!("block.plots_{device}_{kind}{access}_{way}_").into(), *name)
                        })
                        .collect(),
                    across: Axis::logarithmic(1.0, 32.0, 5),
                    up: Axis::linear(if kind.is_empty() { 60.0 } else { 100.0 }),
                    unit,
                    line: Line::None,
                })
        })
    };
    devices.into_iter().flat_map(all)
}

/// Returns the numbers behind a prefix, and what of each row is wanted.
fn points(
    rows: &Rows,
    prefix: &str,
    unit: f64,
    of: impl Fn(&Row) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let numbered = rows.rows.iter().filter_map(|row| {
        let number: f64 = row.name.strip_prefix(prefix)?.parse().ok()?;
        Some((number, of(row)? / unit))
    });
    let mut points: Vec<_> = numbered.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

impl Plot {
    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        Self::at(self.across.part(x), self.up.part(y))
    }

    /// Places a point, given in parts of the axes.
    fn at(x: f64, y: f64) -> (f64, f64) {
        let (width, height) = (SIZE.0 - 1.5 * MARGIN.0, SIZE.1 - 2.0 * MARGIN.1);
        (MARGIN.0 + x * width, SIZE.1 - MARGIN.1 - y * height)
    }

    /// Returns the line that a series should keep to, where it has one of its own.
    fn baseline(&self, rows: &Rows, prefix: &str, colour: &str) -> String {
        if !matches!(self.line, Line::Baselines(_)) {
            return String::new();
        }
        let points = points(rows, prefix, self.unit, |row| row.baseline);
        let places = points.iter().map(|point| self.place(*point));
        let path: Vec<_> = places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        format!(
            "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"5 4\"/>\n",
            path.join(" L")
        )
    }

    /// Returns the file's text, if each series has points.
    fn draw(&self, rows: &Rows) -> Option<String> {
        let of = |(prefix, _): &(Cow<'_, str>, _)| {
            points(rows, prefix, self.unit, |row| Some(row.value))
        };
        let series: Vec<_> = self.series.iter().map(of).collect();
        if series.iter().any(Vec::is_empty) {
            return None;
        }
        let mut out = self.frame();
        for (n, points) in series.iter().enumerate() {
            // One inside the other, so that equal values can be seen.
            let radius = 6.0 - 1.5 * n as f64;
            out += &self.baseline(rows, &self.series[n].0, COLOURS[n % COLOURS.len()]);
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
        let ((left, bottom), (right, top)) = (Self::at(0.0, 0.0), Self::at(1.0, 1.0));
        let mut line = |(x1, y1): (f64, f64), (x2, y2): (f64, f64), style: &str| {
            let _ = writeln!(out, r#"<path d="M{x1:.1},{y1:.1} L{x2:.1},{y2:.1}" {style}/>"#);
        };
        const DASHED: &str = r##"stroke="#888888" stroke-dasharray="5 4""##;
        match self.line {
            Line::Diagonal(_) => line((left, bottom), (right, top), DASHED),
            Line::Level(value, _) => {
                let y = Self::at(0.0, self.up.part(value)).1;
                line((left, y), (right, y), DASHED);
            }
            Line::Baselines(_) | Line::None => {}
        }
        line((left, bottom), (right, bottom), r##"stroke="#222222""##);
        line((left, bottom), (left, top), r##"stroke="#222222""##);
        for (part, number) in self.across.numbers() {
            text(&mut out, (Self::at(part, 0.0).0, bottom + 18.0), "middle", &number);
        }
        for (part, number) in self.up.numbers() {
            text(&mut out, (left - 8.0, Self::at(0.0, part).1 + 4.0), "end", &number);
        }
        text(&mut out, ((left + right) / 2.0, height - 12.0), "middle", self.axes[0]);
        text(&mut out, (12.0, top - 12.0), "start", self.axes[1]);
        text(&mut out, (12.0, 18.0), "start", &self.title);
        out
    }

    fn legend(&self) -> String {
        let mut out = String::new();
        let (left, top) = Self::at(0.0, 1.0);
        let line = match self.line {
            Line::Diagonal(line) | Line::Baselines(line) | Line::Level(_, line) => Some(line),
            Line::None => None,
        };
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
        let Some(line) = line else { return out };
        let (x, y) = entry(self.series.len());
        let _ = writeln!(
            out,
            r##"<path d="M{:.1},{y_line:.1} H{:.1}" stroke="#888888" stroke-dasharray="5 4"/>"##,
            x - 24.0,
            x - 4.0,
            y_line = y - 4.0
        );
        text(&mut out, (x, y), "start", line);
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
pub fn draw(rows: &Rows, dir: &Path) -> Result<Vec<Cow<'static, str>>, Failure> {
    std::fs::create_dir_all(dir)?;
    let mut drawn = Vec::new();
    for plot in PLOTS.into_iter().chain(disks()) {
        if let Some(svg) = plot.draw(rows) {
            std::fs::write(dir.join(&*plot.file), svg)?;
            drawn.push(plot.file);
        }
    }
    Ok(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_plot_has_a_point_for_each_row_and_is_not_drawn_without() {
        let [hog, aes, rate, ..] = &PLOTS;
        let mut rows = Rows::default();
        rows.merge(
            &[1, 9].map(|n| Row::new(&format!("kernel.hog_{n}"), "us", 1000.0 * f64::from(n))),
        );
        let values = |row: &Row| Some(row.value);
        assert_eq!(points(&rows, "kernel.hog_", 1_000.0, values), [(1.0, 1.0), (9.0, 9.0)]);
        let svg = hog.draw(&rows).expect("rows");
        assert_eq!(svg.matches("r=\"6\"").count(), 2);
        let (x, y) = hog.place((9.0, 9.0));
        assert!(svg.contains(&format!("cx=\"{x:.1}\" cy=\"{y:.1}\"")));
        assert_eq!(aes.draw(&rows), None);
        assert_eq!(rate.draw(&rows), None);
    }

    #[test]
    fn a_logarithmic_axis_has_equal_steps_for_equal_ratios() {
        let [_, _, rate, ..] = &PLOTS;
        let numbers: Vec<_> = rate.up.numbers().map(|(_, number)| number).collect();
        assert_eq!(numbers, ["0.1", "1", "10", "100", "1000", "10000"]);
        let part = |value| rate.up.part(value);
        assert!((part(10.0) - part(1.0) - (part(1_000.0) - part(100.0))).abs() < 1e-9);
        let mut rows = Rows::default();
        for series in ["high", "low"] {
            let row = |n: u32| Row::new(&format!("channel.rate_{series}_{n}"), "us", 2.0);
            rows.merge(&[64, 1_048_576].map(|n| row(n).against(3.0)));
        }
        let svg = rate.draw(&rows).expect("rows");
        let [(x1, y), (x2, _)] = [64.0, 1_048_576.0].map(|x| rate.place((x, 3.0)));
        assert_eq!(svg.matches(&format!("M{x1:.1},{y:.1} L{x2:.1},{y:.1}")).count(), 2);
    }
}
