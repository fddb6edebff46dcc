//! Kernels' programs, as a part of a plan's picture. Each program has a box with its threads. To the right, on a lane
//! each, are the places where programs meet: endpoints, notifications, shared memory. Below its threads a box has the
//! memory that the program's devices reach.

use crate::kernel;
use crate::svg::{COLOURS, Canvas, MARGIN, colour, escape};
use crate::text::shorten;
use bulkhead_plan::kernel::{Driven, Kernel, Program};
use bulkhead_plan::{Plan, Sandbox};
use std::fmt::Write;

const BOX_WIDTH: f64 = 470.0;
const GAP: f64 = 16.0;
const LINE: f64 = 18.0;
/// From end to end of lanes at a box.
const STEP: f64 = 14.0;
/// Characters of a line in a box.
const TEXT: usize = 62;

/// Where programs meet.
struct Meeting {
    name: String,
    /// Its kind, for its label.
    what: &'static str,
    dashes: &'static str,
    /// Programs that call, signal or see.
    from: Vec<usize>,
    /// Programs that serve or wait.
    to: Vec<usize>,
}

fn meetings(kernel: &Kernel) -> Vec<Meeting> {
    let who = |has: &dyn Fn(&Program) -> bool| {
        let all = kernel.programs.iter().enumerate();
        all.filter(|(_, program)| has(program)).map(|(index, _)| index).collect::<Vec<_>>()
    };
    let endpoints = kernel.endpoints.iter().enumerate().map(|(index, endpoint)| Meeting {
        name: endpoint.name.clone(),
        what: "endpoint",
        dashes: "",
        from: who(&|program| program.calls.iter().any(|call| call.endpoint == index)),
        to: who(&|program| program.serves.contains(&index)),
    });
    let notifications = kernel.notifications.iter().enumerate().map(|(index, notification)| {
        let interrupts = |program: &Program| {
            let mut all = program.devices.iter().flat_map(|device| &device.interrupts);
            all.any(|interrupt| interrupt.notification == index)
        };
        Meeting {
            name: notification.name.clone(),
            what: match kernel.programs.iter().any(interrupts) {
                true => "notification, interrupts",
                false => "notification",
            },
            dashes: "6 3",
            from: who(&|program| program.signals.iter().any(|s| s.notification == index)),
            to: who(&|program| program.waits.contains(&index)),
        }
    });
    let shared = kernel.shared.iter().enumerate().map(|(index, shared)| {
        let sees = |write: bool| {
            who(&|program| program.maps.iter().any(|map| map.shared == index && map.write == write))
        };
        let (name, from, to) = (shared.name.clone(), sees(true), sees(false));
        Meeting { name, what: "shared memory", dashes: "2 3", from, to }
    });
    endpoints.chain(notifications).chain(shared).collect()
}

/// Draws a panel for each kernel below `end`, and returns the new end.
pub fn panels(out: &mut Canvas, plan: &Plan, mut end: f64) -> f64 {
    for (sandbox, kernel) in kernel::all(plan) {
        let top = end + 34.0;
        out.text((MARGIN, top), "head", &format!("Programs of {}", sandbox.name));
        // The sandboxes have the first colours.
        end = panel(out, plan, sandbox, kernel, top + 16.0);
    }
    end
}

fn panel(out: &mut Canvas, plan: &Plan, sandbox: &Sandbox, kernel: &Kernel, top: f64) -> f64 {
    let (meetings, colours) = (meetings(kernel), plan.sandboxes.len());
    let mut y = top;
    let mut ends: Vec<f64> = Vec::new();
    for (index, program) in kernel.programs.iter().enumerate() {
        let at = meetings.iter().flat_map(|one| one.from.iter().chain(&one.to));
        let at = at.filter(|program| **program == index).count();
        let mut rows = threads(kernel, index);
        rows.extend(reaches(plan, sandbox, kernel, program));
        let height = (38.0 + LINE * rows.len() as f64).max(24.0 + STEP * at as f64);
        program_box(out, &rows, index + colours, program, (y, height));
        ends.push(y + 16.0);
        y += height + GAP;
    }
    lanes(out, &meetings, colours, ends);
    y - GAP
}

/// A row for each thread of a program.
fn threads(kernel: &Kernel, program: usize) -> Vec<String> {
    let own = kernel.threads.iter().filter(|thread| thread.program == program);
    let row = |thread: &bulkhead_plan::kernel::Thread| {
        let time = match thread.context {
            None => kernel::without_time(kernel, thread).to_owned(),
            Some(context) => {
                let context = &kernel.contexts[context];
                let [budget, period] = kernel::budget(context);
                let policy = kernel::policy(context.policy);
                format!("on {}: {policy}, {budget} in {period}", context.name)
            }
        };
        format!("{}, priority {}, {time}", thread.name, thread.priority)
    };
    own.map(row).collect()
}

/// A row for each piece of memory that a program's functions reach.
fn reaches(plan: &Plan, sandbox: &Sandbox, kernel: &Kernel, program: &Program) -> Vec<String> {
    let functions = program.devices.iter().filter_map(|used| match used.device {
        Driven::Function(n) => Some(n),
        Driven::Device(_) => None,
    });
    let rows = functions.flat_map(|n| {
        let bdf = sandbox.functions[n].function.bdf;
        let all = kernel::reached(plan, sandbox, kernel, n).into_iter();
        all.map(move |what| format!("{bdf} reaches {what}"))
    });
    rows.collect()
}

fn program_box(
    out: &mut Canvas,
    rows: &[String],
    colours: usize,
    program: &Program,
    (y, height): (f64, f64),
) {
    let (fill, line) = colour(colours);
    let stroke = format!(r#"rx="8" stroke="{line}" stroke-width="1.5""#);
    out.rect((MARGIN, y), (BOX_WIDTH, height), fill, &stroke);
    out.text((MARGIN + 16.0, y + 22.0), "name", &program.name);
    for (n, row) in rows.iter().enumerate() {
        let y = y + 42.0 + LINE * n as f64;
        out.text((MARGIN + 16.0, y), "", &shorten(row, TEXT));
    }
}

/// Draws a lane for each meeting, from the programs that come to the programs that are there; its name stands right of
/// the lanes.
fn lanes(out: &mut Canvas, meetings: &[Meeting], colours: usize, mut ends: Vec<f64>) {
    let right = MARGIN + BOX_WIDTH;
    let label = right + 26.0 + STEP * meetings.len() as f64;
    let mut end = |program: usize| {
        ends[program] += STEP;
        ends[program] - STEP
    };
    for (index, meeting) in meetings.iter().enumerate() {
        let lane = right + 20.0 + STEP * index as f64;
        let owner = meeting.to.first().or(meeting.from.first()).copied().unwrap_or(0) + colours;
        let (_, line) = colour(owner);
        let dashes = match meeting.dashes {
            "" => String::new(),
            dashes => format!(r#" stroke-dasharray="{dashes}""#),
        };
        let stroke = format!(r#"fill="none" stroke="{line}" stroke-width="1.6"{dashes}"#);
        let arrow = format!(r#"marker-end="url(#arrow{})""#, owner % COLOURS.len());
        let to: Vec<f64> = meeting.to.iter().map(|program| end(*program)).collect();
        let from: Vec<f64> = meeting.from.iter().map(|program| end(*program)).collect();
        let Some(first) = to.first().or(from.first()).copied() else { continue };
        for y in &to {
            let _ = writeln!(
                out.0,
                r#"<path d="M{lane:.1},{first:.1} V{y:.1} H{:.1}" {stroke} {arrow}/>"#,
                right + 1.0
            );
        }
        for y in &from {
            let _ = writeln!(
                out.0,
                r#"<path d="M{right:.1},{y:.1} H{lane:.1} V{first:.1}" {stroke}/>"#
            );
        }
        let _ =
            writeln!(out.0, r#"<path d="M{lane:.1},{first:.1} H{:.1}" {stroke}/>"#, label - 6.0);
        let _ = writeln!(out.0, r#"<circle cx="{lane:.1}" cy="{first:.1}" r="3" fill="{line}"/>"#);
        let _ = writeln!(
            out.0,
            r#"<text x="{label:.1}" y="{:.1}">{} <tspan class="note">{}</tspan></text>"#,
            first + 4.0,
            escape(&shorten(&meeting.name, 31)),
            meeting.what
        );
    }
}
