//! Simulated schedules as a picture: a row for each context, the highest priority first, time to the right. Time below
//! all priorities is hatched, calls of passive servers are dark. A tick above a row is a release, a red bar the end of
//! a period in which a job did not end.

use super::Report;
use crate::kernel;
use crate::svg::{self, Canvas, MARGIN, colour};
use crate::text::shorten;
use bulkhead_manifest::time::show;
use bulkhead_plan::kernel::Policy;
use bulkhead_sched::simulate::Slice;

const LEFT: f64 = 300.0;
const PLOT: f64 = 900.0;
const WIDTH: f64 = LEFT + PLOT + MARGIN;
const TOP: f64 = 112.0;
const ROW: f64 = 44.0;
/// Height of a bar.
const BAR: f64 = 24.0;
/// More of them would be one line.
const MOST_RELEASES: u64 = 1_000;
/// Distance of times on the axis, at least.
const APART: f64 = 90.0;

/// The picture of a system, with lists of refills if they are asked for.
#[must_use]
pub fn svg(system: &str, reports: &[Report<'_>], refills: bool) -> String {
    let mut body = Canvas(String::new());
    let mut y = TOP;
    for report in reports {
        y = panel(&mut body, report, y) + 50.0;
        if refills {
            y = lists(&mut body, report, y) + 50.0;
        }
    }
    let served = reports.iter().any(|report| report.simulated.slices.iter().any(|s| s.served));
    let calls = if served { "; dark: in calls, at the server's priority" } else { "" };
    let note = format!(
        "simulated: everybody begins at once and uses its whole budget in each period{calls}"
    );
    let title = format!("Schedule of {system}");
    svg::document(&title, (&title, &note), (WIDTH, y - 50.0 + MARGIN), &body)
}

/// A kernel's rows; returns where they end.
fn panel(out: &mut Canvas, report: &Report<'_>, top: f64) -> f64 {
    let (kernel, simulated) = (report.kernel, &report.simulated);
    let mut heading = format!("{}, core {}", report.name, report.core);
    if simulated.end < simulated.asked {
        let (end, asked) = (show(simulated.end), show(simulated.asked));
        heading.push_str(&format!(" (the first {end} of {asked})"));
    }
    out.text((MARGIN, top), "head", &heading);
    let mut order: Vec<usize> = (0..kernel.contexts.len()).collect();
    order.sort_by_key(|context| std::cmp::Reverse(report.analysis.priorities(*context).1));
    let rows = top + 26.0;
    let end = rows + ROW * order.len() as f64;
    let scale = PLOT / simulated.end.max(1) as f64;
    axis(out, simulated.end, (rows, end));
    for (row, context) in order.into_iter().enumerate() {
        label(out, report, context, rows + ROW * row as f64);
        bars(out, report, context, (rows + ROW * row as f64, scale));
    }
    end + 18.0
}

/// Refill lists, each time that one is another; returns where they end.
fn lists(out: &mut Canvas, report: &Report<'_>, top: f64) -> f64 {
    const LINE: f64 = 18.0;
    const MOST: usize = 40;
    let lists = &report.simulated.lists;
    out.text(
        (MARGIN, top),
        "head",
        "Refill lists where they change: budget at the time of its refill",
    );
    let mut y = top;
    for list in lists.iter().take(MOST) {
        y += LINE;
        let refill =
            |(amount, time): &(u64, u64)| format!("({} at {})", show(*amount), show(*time));
        let refills: Vec<String> = list.refills.iter().map(refill).collect();
        let name = &report.kernel.contexts[list.context].name;
        out.text((MARGIN, y), "note", &format!("from {}", show(list.since)));
        out.text((MARGIN + 110.0, y), "note", &shorten(name, 26));
        out.text((LEFT, y), "note", &refills.join(" "));
    }
    if lists.len() > MOST {
        y += LINE;
        out.text((MARGIN, y), "note", &format!("and {} more", lists.len() - MOST));
    }
    y
}

/// Lines and times below the rows, at round distances.
fn axis(out: &mut Canvas, end: u64, (top, bottom): (f64, f64)) {
    let least = (end as f64 * APART / PLOT).ceil() as u64;
    let mut step = 1u64;
    while step < least {
        // 1, 2, 5, 10, …
        step = match step.to_string().as_bytes()[0] {
            b'2' => step / 2 * 5,
            _ => step.saturating_mul(2),
        };
    }
    for time in (0..=end / step).map(|n| n * step) {
        let x = LEFT + PLOT * time as f64 / end.max(1) as f64;
        out.rect((x, top), (0.6, bottom - top), "#cccccc", "");
        let label = if time == 0 { "0".to_owned() } else { show(time) };
        out.text((x, bottom + 14.0), "mid note", &label);
    }
}

fn label(out: &mut Canvas, report: &Report<'_>, index: usize, y: f64) {
    let kernel = report.kernel;
    let context = &kernel.contexts[index];
    let [budget, period] = kernel::budget(context);
    out.text((MARGIN, y + 16.0), "", &shorten(&context.name, 34));
    let priority = super::priority(report, index);
    let policy = kernel::policy(context.policy);
    let what = match context.policy {
        Policy::Pibs { .. } => format!("{policy}, {budget}, at its requester's priority"),
        Policy::Full { .. } => format!("{policy}, turns of {period}, priority {priority}"),
        _ => format!("{policy}, {budget} in {period}, priority {priority}"),
    };
    out.text((MARGIN, y + 32.0), "note", &shorten(&what, 44));
}

fn bars(out: &mut Canvas, report: &Report<'_>, context: usize, (y, scale): (f64, f64)) {
    let simulated = &report.simulated;
    let (fill, line) = colour(context);
    let x = |time: u64| LEFT + time as f64 * scale;
    let base = y + ROW - 6.0;
    out.rect((LEFT, base), (PLOT, 0.6), "#888888", "");
    let own = simulated.slices.iter().filter(|s| s.context.is_some_and(|c| c.index() == context));
    for slice in own {
        let width = x(slice.end) - x(slice.begin);
        let fill = match slice {
            Slice { background: true, .. } => "url(#hatch)",
            Slice { served: true, .. } => line,
            _ => fill,
        };
        let more = format!(r#"stroke="{line}" stroke-width="0.8""#);
        out.rect((x(slice.begin), base - BAR), (width, BAR), fill, &more);
    }
    let period = report.kernel.contexts[context].period();
    let releases = simulated.end.div_ceil(period.max(1));
    if !report.kernel.is_server(context) || releases > MOST_RELEASES {
        return;
    }
    for release in (0..releases).map(|n| n * period) {
        out.rect((x(release), base - BAR - 7.0), (1.0, 6.0), line, "");
        let deadline = release.saturating_add(period);
        if deadline <= simulated.end && !in_time(report, context, release) {
            out.rect((x(deadline) - 2.0, base - BAR - 4.0), (2.0, BAR + 8.0), "#cc0000", "");
        }
    }
}

/// Tells if a job ended within its period.
fn in_time(report: &Report<'_>, context: usize, release: u64) -> bool {
    let period = report.kernel.contexts[context].period();
    let mut jobs = report.simulated.jobs(context);
    jobs.any(|job| job.released == release && job.done - release <= period)
}
