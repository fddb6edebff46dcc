//! A lane for each sandbox: its lives, the answers to its failures, and the first access that each condition refused.

use super::{microseconds, text};
use crate::saved::list;
use crate::svg::escape;
use serde_json::Value;
use std::fmt::Write;

const WIDTH: f64 = 1200.0;
/// Where lanes begin, behind the names.
const LEFT: f64 = 150.0;
const RIGHT: f64 = 20.0;
const LANE: f64 = 34.0;
const BAR: f64 = 14.0;
const TOP: f64 = 24.0;
/// Marks on the scale.
const MARKS: u64 = 8;

/// The picture.
#[must_use]
pub fn svg(report: &Value) -> String {
    let sandboxes = list(&report["sandboxes"]);
    let end = report["end_us"].as_u64().unwrap_or(0).max(1);
    let x = |us: u64| LEFT + us.min(end) as f64 / end as f64 * (WIDTH - LEFT - RIGHT);
    let height = TOP + LANE * sandboxes.len() as f64 + 12.0;
    let mut out = format!(
        "<div class=\"wide\"><svg class=\"timeline\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"lives of the sandboxes\">\n"
    );
    let step = step(end);
    for us in (0..=end).step_by(step.try_into().unwrap_or(usize::MAX)) {
        let _ = writeln!(
            out,
            "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{TOP}\" y2=\"{height}\"/>\
             <text class=\"scale\" x=\"{0:.1}\" y=\"14\" text-anchor=\"middle\">{1}</text>",
            x(us),
            scale(us)
        );
    }
    for (lane, sandbox) in sandboxes.iter().enumerate() {
        let y = TOP + LANE * lane as f64 + LANE / 2.0;
        let _ = writeln!(
            out,
            "<text x=\"0\" y=\"{:.1}\">{}</text>",
            y + 5.0,
            escape(&text(&sandbox["name"]))
        );
        let Some(launched) = sandbox["launched_us"].as_u64() else { continue };
        let boot = report["boot"]["to_launch_us"].as_u64().unwrap_or(launched).min(launched);
        let state = text(&sandbox["state"]);
        let mut bar = |class: &str, from: u64, to: u64, words: &str| {
            let _ = writeln!(
                out,
                "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"3\">\
                 <title>{}</title></rect>",
                x(from),
                y - BAR / 2.0,
                (x(to) - x(from)).max(2.0),
                escape(words)
            );
        };
        let restarts = sandbox["restarts"].as_u64().unwrap_or(0);
        if restarts > 0 {
            bar("earlier", boot, launched, &format!("{restarts} earlier lives"));
        }
        let last = format!("last life since {}, {state}", microseconds(launched));
        bar("life", launched, end, &last);
        for refused in list(&sandbox["by_condition"]) {
            let Some(us) = refused["first"]["at_us"].as_u64() else { continue };
            let words = format!(
                "{}: {} first denied at {}",
                text(&refused["condition"]),
                text(&refused["first"]["access"]),
                microseconds(us)
            );
            let _ = writeln!(
                out,
                "<line class=\"denied\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{1:.1}\" y2=\"{2:.1}\"><title>{3}</title></line>",
                x(us),
                y - LANE / 2.0 + 3.0,
                y + LANE / 2.0 - 3.0,
                escape(&words)
            );
        }
        for deed in list(&sandbox["newest_deeds"]) {
            let Some(us) = deed["found_us"].as_u64() else { continue };
            let words = format!(
                "{}: {} at {}",
                text(&deed["condition"]),
                text(&deed["action"]),
                microseconds(us)
            );
            let _ = writeln!(
                out,
                "<circle class=\"answer\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>",
                x(us),
                escape(&words)
            );
        }
    }
    out += "</svg></div>\n<p class=\"dim\">Light: earlier lives. Lines: the first access that a condition refused. \
            Dots: answers to failures, the last 16. The pointer shows what each is.</p>\n";
    out
}

/// Microseconds between marks: a one, a two or a five with zeros.
fn step(end: u64) -> u64 {
    let mut decade = 1;
    loop {
        for step in [decade, 2 * decade, 5 * decade] {
            if end / step <= MARKS {
                return step;
            }
        }
        decade *= 10;
    }
}

/// A time on the scale, without digits that say nothing.
fn scale(us: u64) -> String {
    match us {
        0 => "0".into(),
        1..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{} ms", us as f64 / 1e3),
        _ => format!("{} s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_has_few_marks() {
        for end in [1, 9, 10, 999, 12_345, 7_000_000, u64::MAX / 10] {
            let step = step(end);
            assert!(end / step <= MARKS, "{end}: {step}");
            assert!(end / step >= 3 || end < 4, "{end}: {step}");
        }
    }
}
