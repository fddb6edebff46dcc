//! Checks of the places of a machine's PCI functions: their buses are reached, windows lie within windows, and no
//! range overlaps another.

use super::View;
use super::x86::{line, units};
use crate::source::{k, n};
use bulkhead_plan::{Bar, BarKind, Bridge, Function, PciRoot, Span};

const RULE: &str = "machine-pci";
/// Granularity of a bridge's memory windows (PCI-to-PCI Bridge 1.2, 3.2.5.8).
const MEMORY_STEP: u64 = 1 << 20;
/// Granularity of a bridge's ports.
const PORT_STEP: u64 = 1 << 12;

/// Checks everything on and behind the host bridge.
pub fn check(
    view: &mut View<'_, '_>,
    root: Option<&PciRoot>,
    functions: &[Function],
    ram: &[Span],
) {
    let Some(root) = root else { return };
    for function in functions {
        let at = index(view, function);
        buses(view, root, functions, function, at);
        windows(view, root, functions, function, at);
        bars(view, functions, function, at);
    }
    overlaps(view, root, functions, ram);
    for (index, entry) in view.file.function.iter().enumerate() {
        if let Some(gsi) = entry.gsi {
            line(view, &[k("function"), n(index), k("gsi")], gsi);
        }
    }
    for (index, entry) in view.file.device.iter().enumerate() {
        if let Some(irq) = entry.irq {
            line(view, &[k("device"), n(index), k("irq")], irq);
        }
    }
}

/// Index of a function in the file.
fn index(view: &View<'_, '_>, function: &Function) -> usize {
    let same = |text: &str| text.parse() == Ok(function.bdf);
    view.file.function.iter().position(|entry| same(&entry.address)).unwrap_or(0)
}

/// The bridge to a bus, if one leads down to it.
fn above(functions: &[Function], bus: u8) -> Option<(&Function, Bridge)> {
    let leads =
        |f: &&Function| f.bdf.bus() < bus && f.bridge.is_some_and(|bridge| bridge.secondary == bus);
    functions.iter().find(leads).and_then(|f| Some((f, f.bridge?)))
}

/// A bus is reached by one bridge, and bridges lead down.
fn buses(
    view: &mut View<'_, '_>,
    root: &PciRoot,
    functions: &[Function],
    function: &Function,
    at: usize,
) {
    let bus = function.bdf.bus();
    if bus > 0 && above(functions, bus).is_none() {
        let message = format!("no bridge leads to bus {bus}, where {} is", function.bdf);
        let help = "describe the bridge with this bus as `secondary`";
        view.report(RULE, &[k("function"), n(at), k("address")], message, help);
    }
    let Some(bridge) = function.bridge else { return };
    let path = [k("function"), n(at), k("bridge")];
    let last = above(functions, bus).map_or(root.last_bus, |(_, above)| above.subordinate);
    let order = bus < bridge.secondary && bridge.secondary <= bridge.subordinate;
    if !order || bridge.subordinate > last {
        let message = format!(
            "{} cannot lead to buses {} to {}",
            function.bdf, bridge.secondary, bridge.subordinate
        );
        let help = format!("it is on bus {bus}, and what is above it ends with bus {last}");
        view.report(RULE, &path, message, &help);
    }
    let sibling = functions.iter().take_while(|f| f.bdf != function.bdf).find(|f| {
        let other = f.bridge.filter(|_| f.bdf.bus() == bus);
        other
            .is_some_and(|o| o.secondary <= bridge.subordinate && bridge.secondary <= o.subordinate)
    });
    if let Some(sibling) = sibling {
        let message = format!("{} and {} lead to the same bus", sibling.bdf, function.bdf);
        view.report(RULE, &path, message, "every bus has one bridge");
    }
}

/// The windows of a bridge: memory, prefetchable memory, ports.
fn spans(bridge: Bridge) -> [Option<Span>; 3] {
    [bridge.memory, bridge.prefetchable, bridge.ports.map(|ports| ports.span())]
}

const WINDOWS: [&str; 3] = ["memory", "prefetchable", "ports"];

/// A bridge's windows have its granularity and lie in those above it.
fn windows(
    view: &mut View<'_, '_>,
    root: &PciRoot,
    functions: &[Function],
    function: &Function,
    at: usize,
) {
    let Some(entry) = view.file.function.get(at).and_then(|entry| entry.bridge.clone()) else {
        return;
    };
    let Some(bridge) = function.bridge else { return };
    let above = above(functions, function.bdf.bus()).map(|(_, above)| spans(above));
    let written = [entry.memory.is_some(), entry.prefetchable.is_some(), entry.ports.is_some()];
    for (which, span) in spans(bridge).into_iter().enumerate() {
        if !written[which] {
            continue;
        }
        let path = [k("function"), n(at), k("bridge"), k(WINDOWS[which])];
        let step = if which == 2 { PORT_STEP } else { MEMORY_STEP };
        // The window for memory that is not prefetchable has 32 bits.
        let limit = [1 << 32, 1 << 52, 1 << 16][which];
        let whole =
            |s: &Span| s.len > 0 && s.start.is_multiple_of(step) && s.end().is_multiple_of(step);
        let Some(span) = span.filter(whole).filter(|span| span.end() <= limit) else {
            let message = format!("{} forwards no such range", function.bdf);
            let help = format!("it begins and ends at multiples of {step:#x}, up to {limit:#x}");
            view.report(RULE, &path, message, &help);
            continue;
        };
        let encloses = match above {
            Some(above) => above[which].is_some_and(|a| a.encloses(span)),
            None if which == 2 => root.ports.iter().any(|ports| ports.span().encloses(span)),
            None => root.memory.iter().any(|window| window.encloses(span)),
        };
        if !encloses {
            let message = format!("the bridge above {} does not forward this", function.bdf);
            view.report(RULE, &path, message, "windows lie in those of the bridge above");
        }
        let other = functions.iter().take_while(|f| f.bdf != function.bdf).find(|f| {
            let bridge = f.bridge.filter(|_| f.bdf.bus() == function.bdf.bus());
            bridge.is_some_and(|b| {
                spans(b).into_iter().enumerate().any(|(kind, s)| {
                    (kind == 2) == (which == 2) && s.is_some_and(|s| s.overlaps(span))
                })
            })
        });
        if let Some(other) = other {
            let message = format!("{} and {} both forward this", other.bdf, function.bdf);
            view.report(RULE, &path, message, "one address has one way");
        }
    }
}

/// Checks that a bridge forwards the ranges of each function behind it, and none of a function beside it.
fn bars(view: &mut View<'_, '_>, functions: &[Function], function: &Function, at: usize) {
    let entries = &view.file.function[at].bars;
    let path = |bar: &Bar| {
        let position = entries.iter().position(|entry| entry.bar == bar.number);
        [k("function"), n(at), k("bars"), n(position.unwrap_or(0))]
    };
    let beside = functions.iter().filter(|f| f.bdf.bus() == function.bdf.bus());
    for (other, bridge) in beside.filter_map(|f| Some((f, f.bridge?))) {
        for bar in &function.bars {
            let [memory, prefetchable, ports] = spans(bridge);
            let windows = match bar.kind {
                BarKind::Io => [ports, None],
                BarKind::Memory { .. } => [memory, prefetchable],
            };
            if windows.into_iter().flatten().any(|window| window.overlaps(bar.span)) {
                let message = format!(
                    "BAR {} of {} lies in what {} forwards",
                    bar.number, function.bdf, other.bdf
                );
                let help = "one address has one way: put it beside the bridge's windows";
                view.report(RULE, &path(bar), message, help);
            }
        }
    }
    let Some((above, bridge)) = above(functions, function.bdf.bus()) else {
        return;
    };
    let [memory, prefetchable, ports] = spans(bridge);
    let forwarded = |bar: &Bar| match bar.kind {
        BarKind::Io => [ports, None],
        BarKind::Memory { prefetchable: false, .. } => [memory, None],
        BarKind::Memory { prefetchable: true, .. } => [memory, prefetchable],
    };
    for bar in &function.bars {
        if !forwarded(bar).into_iter().flatten().any(|window| window.encloses(bar.span)) {
            let message = format!(
                "BAR {} of {} at {:#x} is not behind {}",
                bar.number, function.bdf, bar.span.start, above.bdf
            );
            let help = format!("the `bridge` of {} says what it forwards", above.bdf);
            view.report(RULE, &path(bar), message, &help);
        }
    }
}

/// Nothing lies on top of anything else.
fn overlaps(view: &mut View<'_, '_>, root: &PciRoot, functions: &[Function], ram: &[Span]) {
    let mut memory: Vec<(String, Span)> = ram.iter().map(|ram| ("RAM".to_owned(), *ram)).collect();
    memory.push(("the configuration space".to_owned(), root.space(view.facts)));
    memory.extend(units(view));
    let mut ports: Vec<(String, Span)> = Vec::new();
    for function in functions {
        let at = index(view, function);
        for bar in &function.bars {
            let taken = if bar.kind == BarKind::Io { &mut ports } else { &mut memory };
            let what = format!("BAR {} of {}", bar.number, function.bdf);
            if let Some((other, span)) = taken.iter().find(|(_, s)| s.overlaps(bar.span)) {
                let message = format!("{what} lies on {other}, at {:#x}", span.start);
                let path = [k("function"), n(at), k("bars")];
                view.report(RULE, &path, message, "give it an address of its own");
            }
            taken.push((what, bar.span));
        }
    }
}
