//! PCI of a machine description.

use super::View;
use crate::raw_machine::{BarEntry, BarKind, FunctionEntry, MsiEntry, PcieEntry};
use crate::source::{Step, k, n};
use bulkhead_plan::{self as plan, Bar, Bdf, Bridge, Function, Msi, Msix};
use bulkhead_plan::{PciRoot, Pm, Ports, ResetStep, Resettable, Span};

pub const RULE: &str = "machine-pci";

/// A pair of first address and the one after the last.
fn span([start, end]: [u64; 2]) -> Option<Span> {
    (start < end).then(|| Span { start, len: end - start })
}

/// The host bridge.
pub fn root(view: &mut View<'_, '_>, ram: &[Span]) -> Option<PciRoot> {
    let file = view.file;
    let entry = file.pci.as_ref()?;
    let root = PciRoot {
        ecam: entry.ecam,
        ecam_register: entry.ecam_register.map(|register| register.at.into()),
        last_bus: entry.last_bus,
        memory: entry.memory.iter().copied().filter_map(span).collect(),
        ports: entry.ports.iter().map(|&[first, last]| Ports { first, last }).collect(),
    };
    let space = root.space(view.facts);
    if !entry.ecam.is_multiple_of(1 << 20) || space.end() > 1 << 32 {
        let message = format!("the configuration space at {:#x} cannot be reached", entry.ecam);
        let help = "it starts at a multiple of 1 MiB and ends below 4 GiB";
        view.report(RULE, &[k("pci"), k("ecam")], message, help);
    }
    if let Some(register) = entry.ecam_register
        && (register.at < 0x40 || !register.at.is_multiple_of(8))
    {
        let message = format!("the address cannot be in a register at {:#x}", register.at);
        let help = "it is behind the header, from 0x40 on, at a multiple of 8";
        view.report(RULE, &[k("pci"), k("ecam_register"), k("at")], message, help);
    }
    if root.memory.len() != entry.memory.len() {
        let message = "a window of the host bridge is no range".to_owned();
        let help = "write pairs of the first address and the one after the last";
        view.report(RULE, &[k("pci"), k("memory")], message, help);
    }
    for (index, [first, last]) in entry.ports.iter().enumerate() {
        if first > last {
            let message = format!("{first:#x} to {last:#x} is no range of ports");
            let help = "the first port is at most the last one";
            view.report(RULE, &[k("pci"), k("ports"), n(index)], message, help);
        }
    }
    for piece in root.memory.iter().chain([&space]) {
        if let Some(ram) = ram.iter().find(|ram| ram.overlaps(*piece)) {
            let message = format!(
                "{:#x} to {:#x} overlaps the RAM from {:#x} to {:#x}",
                piece.start,
                piece.end(),
                ram.start,
                ram.end()
            );
            view.report(RULE, &[k("pci")], message, "take it out of `[[ram]]`");
        }
    }
    Some(root)
}

/// All functions, by address.
pub fn functions(view: &mut View<'_, '_>, root: Option<&PciRoot>) -> Vec<Function> {
    let file = view.file;
    let mut functions: Vec<Function> = Vec::new();
    for (index, entry) in file.function.iter().enumerate() {
        let Some(function) = function(view, entry, index, root) else {
            continue;
        };
        if functions.iter().any(|other| other.bdf == function.bdf) {
            let message = format!("function {} is described twice", function.bdf);
            let path = [k("function"), n(index), k("address")];
            view.report(RULE, &path, message, "every function has an address of its own");
        }
        functions.push(function);
    }
    functions.sort_by_key(|function| function.bdf);
    pins(&mut functions);
    functions
}

fn function(
    view: &mut View<'_, '_>,
    entry: &FunctionEntry,
    index: usize,
    root: Option<&PciRoot>,
) -> Option<Function> {
    let path = |key| [k("function"), n(index), k(key)];
    let bdf = address(view, &path("address"), &entry.address)?;
    match root {
        None => {
            let message = format!("function {bdf} has no host bridge");
            view.report(RULE, &path("address"), message, "describe it in `[pci]`");
        }
        Some(root) if bdf.bus() > root.last_bus => {
            let message = format!("bus {} is beyond `last_bus`", bdf.bus());
            view.report(RULE, &path("address"), message, "raise `last_bus`, or leave it out");
        }
        Some(_) => {}
    }
    let bars = bars(view, entry, index);
    let msix = entry.msix.as_ref().map(|msix| {
        let mut place = |key, [bar, offset]: [u32; 2], bytes: u64| {
            let bar =
                bars.iter().find(|b| u32::from(b.number) == bar && b.kind != plan::BarKind::Io);
            let place =
                bar.map(|bar| Span { start: bar.span.start + u64::from(offset), len: bytes });
            if !place.zip(bar).is_some_and(|(place, bar)| bar.span.encloses(place)) {
                let path = [k("function"), n(index), k("msix"), k(key)];
                let message = format!("the MSI-X {key} of {bdf} is not in one of its memory BARs");
                view.report(RULE, &path, message, "write the BAR's number and the offset in it");
            }
            place.map_or(0, |place| place.start)
        };
        let vectors = u64::from(msix.vectors);
        Msix {
            at: msix.at,
            vectors: msix.vectors,
            table: place("table", msix.table, vectors * 16),
            pba: place("pba", msix.pba, vectors.div_ceil(64) * 8),
        }
    });
    if msix.is_some_and(|msix| !(1..=2048).contains(&msix.vectors)) {
        let path = [k("function"), n(index), k("msix"), k("vectors")];
        view.report(RULE, &path, format!("{bdf} cannot have that many"), "write 1 to 2048");
    }
    if let Some(msix) = &entry.msix {
        let [table, pba] = [msix.table, msix.pba].map(|[bar, at]| (bar, u64::from(at)));
        let vectors = u64::from(msix.vectors);
        let apart = table.0 != pba.0
            || table.1 + vectors * 16 <= pba.1
            || pba.1 + vectors.div_ceil(64) * 8 <= table.1;
        if !apart || !table.1.is_multiple_of(8) || !pba.1.is_multiple_of(8) {
            let path = [k("function"), n(index), k("msix")];
            let message = format!("MSI-X table and pending bits of {bdf} cannot be there");
            view.report(RULE, &path, message, "multiples of 8, apart from each other");
        }
    }
    capabilities(view, entry, index);
    if let Some(acs) = entry.bridge.as_ref().and_then(|bridge| bridge.acs) {
        // Extended capabilities (PCIe 5.0, 7.6.1); this one has two words.
        if !(0x100..=0xFF8).contains(&acs) || !acs.is_multiple_of(4) {
            let path = [k("function"), n(index), k("bridge"), k("acs")];
            let message = format!("{acs:#x} is no place of an extended capability");
            view.report(RULE, &path, message, "a multiple of 4 from 0x100 to 0xff8");
        }
    }
    let reset = reset(view, entry, index, &bars);
    let requesters = entry.requesters.iter().enumerate();
    let requesters = requesters
        .filter_map(|(i, text)| {
            let path = [k("function"), n(index), k("requesters"), n(i)];
            address(view, &path, text)
        })
        .collect();
    let resettable = |e: &PcieEntry| Resettable { at: e.at, flr: e.flr };
    Some(Function {
        bdf,
        vendor: entry.vendor,
        device: entry.device,
        class: entry.class,
        requesters,
        group: entry.group,
        irq: entry.gsi,
        pin: 0,
        bars,
        pm: entry.pm.as_ref().map(|pm| Pm { at: pm.at, resets: pm.resets }),
        msi: entry.msi.as_ref().map(|m| Msi { at: m.at, wide: m.wide, masks: m.masks }),
        msix,
        pcie: entry.pcie.as_ref().map(resettable),
        af: entry.af.as_ref().map(resettable),
        reset,
        bridge: entry.bridge.as_ref().map(|bridge| Bridge {
            secondary: bridge.secondary,
            subordinate: bridge.subordinate,
            memory: bridge.memory.and_then(span),
            prefetchable: bridge.prefetchable.and_then(span),
            ports: bridge.ports.map(|[first, last]| Ports { first, last }),
            acs: bridge.acs,
        }),
        nobody: entry.nobody.clone(),
        place: view.document.at(&[k("function"), n(index)]).place(),
    })
}

/// The steps of a function's own reset, by registers in its memory BARs.
fn reset(
    view: &mut View<'_, '_>,
    entry: &FunctionEntry,
    index: usize,
    bars: &[Bar],
) -> Vec<ResetStep> {
    const MOST: u32 = 1000;
    let mut all = Vec::new();
    for (position, step) in entry.reset.iter().enumerate() {
        let memory = |b: &&Bar| b.number == step.bar && b.kind != plan::BarKind::Io;
        let (at, len) = (u64::from(step.at), u64::from(step.size));
        let inside = |b: &&Bar| at + len <= b.span.len;
        let bar = bars.iter().find(memory).filter(inside);
        let (sized, keep) = (matches!(step.size, 1 | 2 | 4), step.keep.unwrap_or(0));
        let bits = if sized { u32::MAX >> (32 - 8 * step.size) } else { u32::MAX };
        let wrong = if !sized {
            Some(("size", "a register has 1, 2 or 4 bytes".to_owned(), "write 1, 2 or 4"))
        } else if bar.is_none() || !at.is_multiple_of(len) {
            let message = format!("no register of that size is at {at:#x} of BAR {}", step.bar);
            Some(("at", message, "a multiple of `size`, in one of its memory BARs"))
        } else if (step.write.unwrap_or(0) | keep | step.mask) & !bits != 0 {
            let message = format!("a register of {len} bytes has no such bits");
            Some(("mask", message, "`write`, `keep` and `mask` have as many bits as the register"))
        } else if keep & step.write.unwrap_or(u32::MAX) != 0 {
            let message = "a bit is either written or left as it is".to_owned();
            Some(("keep", message, "`keep` goes with a `write` that has none of its bits"))
        } else if step.mask == 0 || step.value & !step.mask != 0 {
            let message = "it would never, or always, be at rest".to_owned();
            Some(("mask", message, "set the bits that are looked at; `value` has no others"))
        } else if !(1..=MOST).contains(&step.within) {
            let message = format!("{} ms is no time to wait for a reset", step.within);
            Some(("within", message, "write 1 to 1000"))
        } else {
            None
        };
        if let Some((key, message, help)) = wrong {
            let path = [k("function"), n(index), k("reset"), n(position), k(key)];
            view.report(RULE, &path, message, help);
        }
        all.extend(bar.map(|bar| ResetStep {
            at: bar.span.start + at,
            size: step.size,
            write: step.write,
            keep,
            mask: step.mask,
            value: step.value,
            within: step.within,
        }));
    }
    all
}

/// Pins for the lines of each device: a device has four of them (PCI 3.0, 2.2.6).
fn pins(functions: &mut [Function]) {
    let lines: Vec<_> = functions.iter().map(|f| (f.bdf.first(), f.irq)).collect();
    for function in functions {
        let of_device = |line: &&(Bdf, Option<u32>)| line.0 == function.bdf.first();
        let mut own: Vec<u32> = lines.iter().filter(of_device).filter_map(|l| l.1).collect();
        own.sort_unstable();
        own.dedup();
        let index = own.iter().position(|line| Some(*line) == function.irq);
        function.pin = index.filter(|index| *index < 4).map_or(0, |index| index as u8 + 1);
    }
}

/// Capabilities lie beyond the header and apart.
fn capabilities(view: &mut View<'_, '_>, entry: &FunctionEntry, index: usize) {
    let msi = |m: &MsiEntry| 10 + 4 * u16::from(m.wide) + 10 * u16::from(m.masks);
    // Lengths of those registers that every version has (PCI 3.0, 6.8; PCI PM 1.2, 3.2;
    // PCIe 3.0, 7.8, to the root control that endpoints lack).
    let all = [
        entry.pm.as_ref().map(|pm| ("pm", pm.at, 8)),
        entry.msi.as_ref().map(|m| ("msi", m.at, msi(m))),
        entry.msix.as_ref().map(|m| ("msix", m.at, 12)),
        entry.pcie.as_ref().map(|pcie| ("pcie", pcie.at, 20)),
        entry.af.as_ref().map(|af| ("af", af.at, 6)),
    ];
    let mut taken: Vec<(u16, u16)> = Vec::new();
    for (key, at, len) in all.into_iter().flatten() {
        let (start, end) = (u16::from(at), u16::from(at) + len);
        let clash = taken.iter().any(|(first, last)| start < *last && *first < end);
        if !(0x40..=0x100 - len).contains(&start) || !at.is_multiple_of(4) || clash {
            let path = [k("function"), n(index), k(key), k("at")];
            let message = format!("there is no room for a capability of {len} bytes at {at:#x}");
            let help = "multiples of 4 from 0x40 on, below 0x100, apart from each other";
            view.report(RULE, &path, message, help);
        }
        taken.push((start, end));
    }
}

pub fn address(view: &mut View<'_, '_>, path: &[Step<'_>], text: &str) -> Option<Bdf> {
    match text.parse() {
        Ok(bdf) => Some(bdf),
        Err(message) => {
            let help = "write two digits of the bus, two of the device and one of the function";
            view.report(RULE, path, message, help);
            None
        }
    }
}

fn bars(view: &mut View<'_, '_>, entry: &FunctionEntry, index: usize) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    let mut free = 0u8;
    for (position, bar) in entry.bars.iter().enumerate() {
        let path = [k("function"), n(index), k("bars"), n(position)];
        let kind = kind(bar.kind);
        let wide = matches!(kind, plan::BarKind::Memory { wide: true, .. });
        if bar.bar < free || bar.bar > 5 - u8::from(wide) {
            let message = format!("there is no base address register {} left", bar.bar);
            let help = "0 to 5, ascending; a 64-bit one takes two";
            view.report(RULE, &path, message, help);
        }
        free = bar.bar.saturating_add(1 + u8::from(wide));
        if let Some(help) = wrong(bar, kind) {
            let message = format!("{:#x} bytes at {:#x} are no BAR's", bar.size, bar.start);
            view.report(RULE, &path, message, help);
            continue;
        }
        bars.push(Bar { number: bar.bar, kind, span: Span { start: bar.start, len: bar.size } });
    }
    bars
}

/// Returns how to mend a base address register that is wrong.
fn wrong(bar: &BarEntry, kind: plan::BarKind) -> Option<&'static str> {
    let end = bar.start.checked_add(bar.size);
    let beyond = |limit: u64| end.is_none_or(|end| end > limit);
    if !bar.size.is_power_of_two() || !bar.start.is_multiple_of(bar.size.max(1)) {
        return Some("`size` is a power of two, `start` a multiple of it");
    }
    match kind {
        plan::BarKind::Io if beyond(1 << 16) => Some("ports end at 0xffff"),
        plan::BarKind::Memory { wide: false, .. } if beyond(1 << 32) => {
            Some("a 32-bit register reaches below 4 GiB")
        }
        plan::BarKind::Memory { .. } if beyond(1 << 52) => Some("addresses have 52 bits"),
        plan::BarKind::Memory { .. } if bar.size < 16 => Some("memory has at least 16 bytes"),
        _ => None,
    }
}

fn kind(kind: BarKind) -> plan::BarKind {
    let memory = |wide, prefetchable| plan::BarKind::Memory { wide, prefetchable };
    match kind {
        BarKind::Io => plan::BarKind::Io,
        BarKind::Memory => memory(false, false),
        BarKind::MemoryPrefetchable => memory(false, true),
        BarKind::Memory64 => memory(true, false),
        BarKind::Memory64Prefetchable => memory(true, true),
    }
}
