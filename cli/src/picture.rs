//! A plan as a picture: the memory map on the left, cores, sandboxes and channels on the right, and kernels' programs
//! below. Heights in the memory map grow with the logarithm of the size, so that a page and a gibibyte can stand beside
//! each other.

use crate::kernel_picture;
use crate::pci::{self, Remark};
use crate::svg::{self, COLOURS, Canvas, MARGIN, colour, escape};
use crate::table::{self, Owner, memory_map, owner_name};
use crate::text::{about, count, joined, shorten, wrap};
use bulkhead_layout::monitor::Action;
use bulkhead_manifest::size::show;
use bulkhead_plan::{Plan, Sandbox, Span};
use std::fmt::Write;

const MAP_X: f64 = 190.0;
const MAP_WIDTH: f64 = 230.0;
const CARD_X: f64 = 520.0;
const CARD_WIDTH: f64 = 430.0;
const CARD_HEIGHT: f64 = 132.0;
const CARD_GAP: f64 = 22.0;
/// Width of the lanes in which channels run.
const LANES: f64 = 80.0;
const WIDTH: f64 = 1240.0;
const TOP: f64 = 112.0;
/// Characters of a line in a card.
const TEXT: usize = 52;

/// The picture.
#[must_use]
pub fn svg(plan: &Plan) -> String {
    let mut body = Canvas(String::new());
    let map_end = memory(&mut body, plan);
    let cards_top = cores(&mut body, plan);
    let cards_end = cards(&mut body, plan, cards_top);
    channels(&mut body, plan, cards_top);
    let shared_end =
        remarks(&mut body, "Still shared by all", &table::still_shared(plan), cards_end + 34.0);
    let open = pci::not_confined(plan);
    let shared_end = match open.is_empty() {
        true => shared_end,
        false => remarks(&mut body, "Not confined by hardware", &open, shared_end + 20.0),
    };
    let end = kernel_picture::panels(&mut body, plan, map_end.max(shared_end));
    let subtitle = format!(
        "{} on {}, {} of {} cores in use",
        count(plan.sandboxes.len(), "sandbox", "sandboxes"),
        plan.machine.name,
        plan.sandboxes.iter().map(|sandbox| sandbox.cores.len()).sum::<usize>(),
        plan.machine.core_ids.len()
    );
    let title = format!("{} on {}", plan.system, plan.machine.name);
    svg::document(&title, (&plan.system, &subtitle), (WIDTH, end + MARGIN), &body)
}

/// Height of a piece of memory.
fn height(span: Span, owner: Owner) -> f64 {
    let pages = (span.len / bulkhead_layout::PAGE).max(1) as f64;
    match owner {
        Owner::Reserved(_) => 20.0,
        Owner::Free => 18.0 + 1.6 * pages.log2(),
        _ => 22.0 + 2.6 * pages.log2(),
    }
}

/// The memory map; returns where it ends.
fn memory(out: &mut Canvas, plan: &Plan) -> f64 {
    out.text((MARGIN, TOP), "head", "Physical memory");
    let mut y = TOP + 18.0;
    let mut end = None;
    for (span, owner) in memory_map(plan) {
        if end.is_some_and(|end| end < span.start) {
            out.text((MAP_X + MAP_WIDTH / 2.0, y + 12.0), "mid dim", "⋮");
            y += 20.0;
        }
        let h = height(span, owner);
        let (fill, line) = match owner {
            Owner::Free => ("#ffffff", "#bbbbbb"),
            Owner::Reserved(_) => ("url(#hatch)", "#bbbbbb"),
            Owner::Image => ("#444a55", "#222222"),
            Owner::Sandbox(index) => colour(index),
            Owner::Channel(index) => colour(plan.channels[index].from),
            Owner::Link(number) => colour(plan.links[number].owner),
        };
        let dash = if matches!(owner, Owner::Channel(_) | Owner::Link(_)) {
            r#"stroke-dasharray="4 2""#
        } else {
            ""
        };
        out.rect((MAP_X, y), (MAP_WIDTH, h), fill, &format!(r#"stroke="{line}" {dash}"#));
        let middle = y + h / 2.0 + 4.0;
        let inside = match owner {
            Owner::Image => r#"style="fill:#fff""#,
            _ => "",
        };
        let name = owner_name(plan, owner);
        let _ = writeln!(
            out.0,
            r#"<text x="{:.1}" y="{middle:.1}" class="mid{}" {inside}>{}</text>"#,
            MAP_X + MAP_WIDTH / 2.0,
            if matches!(owner, Owner::Free | Owner::Reserved(_)) { " dim" } else { "" },
            escape(&name)
        );
        out.text((MAP_X - 10.0, y + 11.0), "mono right", &format!("{:#x}", span.start));
        out.text((MAP_X + MAP_WIDTH + 8.0, middle), "note", &about(span.len));
        y += h;
        end = Some(span.end());
    }
    if let Some(end) = end {
        out.text((MAP_X - 10.0, y + 11.0), "mono right", &format!("{end:#x}"));
    }
    y + 16.0
}

/// The row of cores; returns where the cards below start.
fn cores(out: &mut Canvas, plan: &Plan) -> f64 {
    out.text((CARD_X, TOP), "head", "Cores");
    let per_row = 16;
    let size = 38.0;
    let mut rows = 0;
    for core in 0..plan.machine.core_ids.len() {
        let (column, row) = (core % per_row, core / per_row);
        rows = row + 1;
        let x = CARD_X + column as f64 * (size + 6.0);
        let y = TOP + 18.0 + row as f64 * (size + 6.0);
        let owner = plan.sandboxes.iter().position(|sandbox| sandbox.cores.contains(&core));
        let (fill, line) = owner.map_or(("#ffffff", "#bbbbbb"), colour);
        out.rect(
            (x, y),
            (size, size),
            fill,
            &format!(r#"rx="5" stroke="{line}" stroke-width="1.5""#),
        );
        let class = if owner.is_some() { "mid" } else { "mid dim" };
        out.text((x + size / 2.0, y + size / 2.0 + 4.0), class, &core.to_string());
    }
    let top = TOP + 18.0 + rows as f64 * (size + 6.0) + 30.0;
    out.text((CARD_X, top), "head", "Sandboxes and channels");
    top + 16.0
}

fn card_y(top: f64, index: usize) -> f64 {
    top + index as f64 * (CARD_HEIGHT + CARD_GAP)
}

/// A card for each sandbox; returns where they end.
fn cards(out: &mut Canvas, plan: &Plan, top: f64) -> f64 {
    for (index, sandbox) in plan.sandboxes.iter().enumerate() {
        card(out, plan, sandbox, index, card_y(top, index));
    }
    card_y(top, plan.sandboxes.len()) - CARD_GAP
}

fn card(out: &mut Canvas, plan: &Plan, sandbox: &Sandbox, index: usize, y: f64) {
    let (fill, line) = colour(index);
    out.rect(
        (CARD_X, y),
        (CARD_WIDTH, CARD_HEIGHT),
        fill,
        &format!(r#"rx="8" stroke="{line}" stroke-width="1.5""#),
    );
    let left = CARD_X + 16.0;
    out.text((left, y + 26.0), "name", &sandbox.name);
    if sandbox.criticality.is_some() {
        let text = format!("{} criticality", table::criticality(sandbox));
        let width = 126.0;
        let x = CARD_X + CARD_WIDTH - width - 14.0;
        out.rect((x, y + 11.0), (width, 20.0), line, r#"rx="10""#);
        out.text((x + width / 2.0, y + 25.0), "badge", &text);
    }
    let names = |indices: &[usize]| {
        let names: Vec<&str> =
            indices.iter().map(|index| plan.sandboxes[*index].name.as_str()).collect();
        if names.is_empty() { "nobody".to_owned() } else { names.join(", ") }
    };
    let cores: Vec<String> = sandbox.cores.iter().map(ToString::to_string).collect();
    let devices: Vec<String> = sandbox
        .devices
        .iter()
        .map(|device| format!("{} ({})", device.name, table::ports(device)))
        .chain(sandbox.functions.iter().map(table::function))
        .collect();
    let memory: u64 = sandbox.ram.iter().map(|ram| ram.len).sum();
    let lives = match table::over_lives(plan, index) {
        none if none == "-" => "controls nobody".into(),
        some => format!("may {some}"),
    };
    let lines = [
        ("runs", table::guest(sandbox)),
        ("has", format!("core {}, {}", cores.join(", "), show(memory))),
        (
            "devices",
            match devices.join(", ") {
                none if none.is_empty() => "none".into(),
                long if long.chars().count() > TEXT => joined(table::owned(sandbox)),
                short => short,
            },
        ),
        ("rights", format!("{lives}, observes {}", names(&sandbox.observe))),
        ("on denial", denial(sandbox)),
    ];
    for (row, (label, text)) in lines.iter().enumerate() {
        let y = y + 48.0 + row as f64 * 18.0;
        out.text((left, y), "note", label);
        out.text((left + 72.0, y), "", &shorten(text, TEXT));
    }
}

/// The answer to denied accesses: to the memory violation, and the number of kinds that restart or stop the sandbox.
fn denial(sandbox: &Sandbox) -> String {
    let number = |action| sandbox.actions.iter().filter(|one| **one == action).count();
    let words = [(Action::Restart, "restart"), (Action::Stop, "stop"), (Action::Ignore, "ignore")];
    let ladder = |action: &&Action| matches!(action, Action::Ladder(_));
    let by_ladder = sandbox.actions.iter().filter(ladder).count();
    let parts: Vec<String> = words
        .iter()
        .map(|(action, word)| (number(*action), *word))
        .chain([(by_ladder, "ladder")])
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| format!("{word} for {}", count(number, "kind", "kinds")))
        .collect();
    parts.join(", ")
}

/// Where channels leave and enter the cards, so that no two meet there: the
/// heights of the writer's and the readers' ends of each channel.
fn ends(plan: &Plan, top: f64) -> Vec<(f64, Vec<f64>)> {
    let on_card = |sandbox: usize| {
        let ends = drawn(plan).map(|channel| {
            usize::from(channel.from == sandbox) + usize::from(channel.to.contains(&sandbox))
        });
        ends.sum::<usize>()
    };
    let mut used = vec![0; plan.sandboxes.len()];
    let mut next = |sandbox: usize| {
        let step = ((CARD_HEIGHT - 40.0) / on_card(sandbox).max(1) as f64).min(18.0);
        let y = card_y(top, sandbox) + 20.0 + used[sandbox] as f64 * step;
        used[sandbox] += 1;
        y
    };
    let both = |channel: &bulkhead_plan::Channel| {
        (next(channel.from), channel.to.iter().map(|reader| next(*reader)).collect())
    };
    drawn(plan).map(both).collect()
}

/// Channels as lines: receivers' own regions go without saying.
fn drawn(plan: &Plan) -> impl Iterator<Item = &bulkhead_plan::Channel> {
    plan.channels.iter().filter(|channel| channel.part != bulkhead_plan::Part::Rx)
}

/// Draws each channel as a line from its writer to its name. From there it goes on a lane of its own to the readers, in
/// the gutter right of the cards.
fn channels(out: &mut Canvas, plan: &Plan, top: f64) {
    let right = CARD_X + CARD_WIDTH;
    let step = (LANES / drawn(plan).count().max(1) as f64).min(16.0);
    let label = right + 26.0 + LANES;
    for (index, (channel, (from, to))) in drawn(plan).zip(ends(plan, top)).enumerate() {
        let (_, line) = colour(channel.from);
        let marker = channel.from % COLOURS.len();
        let lane = right + 26.0 + index as f64 * step;
        let stroke = format!(r#"fill="none" stroke="{line}" stroke-width="1.8""#);
        let _ = writeln!(out.0, r#"<path d="M{right},{from:.1} H{:.1}" {stroke}/>"#, label - 6.0);
        let _ = writeln!(out.0, r#"<circle cx="{lane:.1}" cy="{from:.1}" r="3.2" fill="{line}"/>"#);
        for to in to {
            let _ = writeln!(
                out.0,
                r#"<path d="M{lane:.1},{from:.1} V{to:.1} H{:.1}" {stroke} stroke-linejoin="round" marker-end="url(#arrow{marker})"/>"#,
                right + 1.0
            );
        }
        let _ = writeln!(
            out.0,
            r#"<text x="{label:.1}" y="{:.1}">{} <tspan class="note">{}</tspan></text>"#,
            from + 4.0,
            escape(&shorten(&channel.name, 16)),
            about(channel.len)
        );
    }
}

/// Draws a list of things that are shared or not confined, each with its effect, on a line below where it is long.
/// Returns the end.
fn remarks(out: &mut Canvas, title: &str, all: &[Remark], top: f64) -> f64 {
    const LINE: usize = 84;
    const INDENT: f64 = 190.0;
    out.text((CARD_X, top), "head", title);
    let mut y = top + 20.0;
    for (what, effect) in all {
        out.text((CARD_X, y), "", &shorten(what, 90));
        if what.chars().count() > 26 {
            y += 16.0;
        }
        for line in wrap(effect, LINE) {
            out.text((CARD_X + INDENT, y), "note", &line);
            y += 16.0;
        }
        y += 2.0;
    }
    y
}
