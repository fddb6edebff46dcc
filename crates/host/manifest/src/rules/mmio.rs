//! Registers that sandboxes share: pages of a device, of which each has all, or a range.

use super::{Context, Item};
use crate::diagnostic::Diagnostic;
use crate::raw::{Guest, MmioAccess, MmioPart, SharedMmio};
use crate::size;
use crate::source::{k, n};
use bulkhead_plan::{self as plan, BarKind, Device, Machine, Span};

/// The pages of an entry, if it names some.
fn pages(cx: &Context<'_, '_>, item: &SharedMmio) -> Result<Span, (&'static str, String)> {
    let page = cx.facts().page;
    let number = |key, text| match size::parse(text) {
        Ok(value) if value.is_multiple_of(page) => Ok(value),
        Ok(value) => Err((key, format!("{value:#x} is no multiple of {page:#x}"))),
        Err(why) => Err((key, why.to_string())),
    };
    let span = Span { start: number("address", &item.address)?, len: number("size", &item.size)? };
    match span.len {
        0 => Err(("size", "it has no page".into())),
        len if len > u64::MAX - span.start => Err(("size", "it ends behind all memory".into())),
        _ => Ok(span),
    }
}

/// Registers are shared by whole pages: no table of a guest has less.
pub fn shared_mmio_page(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for item in &cx.mmios {
        let Err((key, why)) = pages(cx, item) else { continue };
        let message = format!("`{}` is no range of whole pages: {why}", item.name);
        let help = "write the first page's address, such as \"0xfed1d000\", and a multiple of 4 KiB; \
                    a part names registers in it by `offset` and `size`";
        found.push(Diagnostic::new("shared-mmio-page", cx.at(item, &[k(key)]), message).help(help));
    }
}

/// The device with all of these pages.
fn device(machine: &Machine, span: Span) -> Option<&Device> {
    let has = |device: &&Device| device.mmio.iter().any(|own| own.encloses(span));
    machine.devices.iter().find(has)
}

/// Names what lies at pages that are no device's.
fn there(machine: &Machine, span: Span) -> String {
    let facts = machine.arch.facts();
    let met = |other: &Span| other.overlaps(span);
    let is = |unit: Option<Span>| unit.is_some_and(|unit| unit.overlaps(span));
    let of = |f: &&plan::Function| {
        f.bars.iter().any(|bar| bar.kind != BarKind::Io && bar.span.overlaps(span))
    };
    if machine.ram.iter().chain(&machine.banks).any(met) {
        return "RAM".into();
    }
    if is(machine.iommu.map(|iommu| iommu.registers())) {
        return "the IOMMU, which confines all devices".into();
    }
    if is(machine.controller.map(|lines| Span { start: lines.base(), len: facts.page })) {
        return "the controller of interrupt lines, which the monitors divide".into();
    }
    if is(machine.pci.as_ref().map(|root| root.space(facts))) {
        return "the PCI configuration space, which the monitors divide".into();
    }
    if is(machine.hpet.map(|timer| Span { start: timer.base, len: facts.page })) {
        return "the timer that brings the monitors' ticks".into();
    }
    if let Some(function) = machine.functions.iter().find(of) {
        return format!("registers of pci:{}, which has one owner", function.bdf);
    }
    match machine.reserved.iter().find(|(_, other)| other.overlaps(span)) {
        Some((name, _)) => format!("the machine's {name}, and no device's registers"),
        None => "nothing that the machine description knows".into(),
    }
}

/// Pages are those of a device that sandboxes may own.
pub fn shared_mmio_device(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Some(machine) = &cx.machine else { return };
    let guest = machine.arch.facts().guest;
    let [low, high] = guest.ram;
    let own = Span { start: low.start, len: guest.links.end() - low.start };
    let high = Span { len: machine.ram_size().saturating_sub(low.len), ..high };
    for item in &cx.mmios {
        let Ok(span) = pages(cx, item) else { continue };
        let (why, help) = match device(machine, span) {
            None => {
                let devices = machine.devices.iter().filter(|device| device.nobody.is_none());
                let at = |device: &Device| {
                    let first = device.mmio.first()?;
                    Some(format!("`{}` from {:#x} to {:#x}", device.name, first.start, first.end()))
                };
                let all: Vec<String> = devices.filter_map(at).collect();
                let help = match all.is_empty() {
                    true => {
                        "give a `[[device]]` of the machine description its pages by `mmio`".into()
                    }
                    false => format!("the machine has {}", all.join(", ")),
                };
                (there(machine, span), help)
            }
            Some(Device { name, nobody: Some(why), .. }) => (
                format!("`{name}`, which cannot belong to a sandbox: {why}"),
                "leave it out".into(),
            ),
            Some(_) if span.overlaps(own) || span.overlaps(high) => {
                let help = "such a device can be no guest's".into();
                ("where a guest has its RAM, its channels and its configuration space".into(), help)
            }
            Some(_) => continue,
        };
        let end = span.end();
        let message = format!("from {:#x} to {end:#x} there is {why}", span.start);
        let at = cx.at(item, &[k("address")]);
        found.push(Diagnostic::new("shared-mmio-device", at, message).help(help));
    }
}

/// A page is shared once.
pub fn shared_mmio_twice(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for (index, item) in cx.mmios.iter().enumerate() {
        let Ok(span) = pages(cx, item) else { continue };
        let met = |other: &&Item<SharedMmio>| {
            other.name == item.name || pages(cx, other).is_ok_and(|other| other.overlaps(span))
        };
        let Some(other) = cx.mmios[..index].iter().find(met) else { continue };
        let (key, message) = match other.name == item.name {
            true => ("name", format!("registers `{}` are named twice", item.name)),
            false => {
                ("address", format!("`{}` and `{}` have a page in common", other.name, item.name))
            }
        };
        let finding = Diagnostic::new("shared-mmio-twice", cx.at(item, &[k(key)]), message)
            .related(cx.at(other, &[k(key)]), "here first");
        found.push(finding.help("give all parts of a page to one `[[shared_mmio]]`"));
    }
}

/// The range of a part, from the first page on.
fn range(part: &MmioPart) -> Option<Span> {
    Some(Span { start: part.offset?.into(), len: part.size?.into() })
}

/// A part is a sandbox', and its guest can use it. All parts have pages, or all have a range in one of them.
pub fn shared_mmio_part(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for item in &cx.mmios {
        if item.parts.is_empty() {
            let message = format!("no sandbox has a part of `{}`", item.name);
            let help = "write `parts = [{ sandbox = NAME, access = \"r\" }]`, or leave it out";
            let at = cx.at(item, &[k("parts")]);
            found.push(Diagnostic::new("shared-mmio-part", at, message).help(help));
        }
        for (index, part) in item.parts.iter().enumerate() {
            let at = |key| cx.at(item, &[k("parts"), n(index), k(key)]);
            if !cx.knows(&part.sandbox) {
                found.push(cx.unknown_sandbox("shared-mmio-part", at("sandbox"), &part.sandbox));
            } else if let Some((key, message, help)) = wrong(cx, item, index) {
                found.push(Diagnostic::new("shared-mmio-part", at(key), message).help(help));
            }
        }
    }
}

/// The mistake in a part, and its mend.
fn wrong(
    cx: &Context<'_, '_>,
    item: &SharedMmio,
    index: usize,
) -> Option<(&'static str, String, &'static str)> {
    let (part, page) = (&item.parts[index], cx.facts().page);
    let name = &part.sandbox;
    let sandbox = cx.sandboxes.get(cx.sandbox_index(name)?)?;
    let len = pages(cx, item).map_or(0, |span| span.len);
    let whole = |part: &MmioPart| part.offset.is_none() && part.size.is_none();
    let within = |range: Span| {
        range.len > 0 && range.end() <= len && range.start / page == (range.end() - 1) / page
    };
    if matches!(sandbox.guest, Guest::Kernel { .. }) {
        let help = "give the registers to a bare guest or a Linux, and programs a channel to it";
        return Some((
            "sandbox",
            format!("`{name}` is a kernel, whose programs have no such object"),
            help,
        ));
    }
    if whole(part) != whole(&item.parts[0]) {
        let message =
            format!("`{name}` and `{}` have a page and a range of it", item.parts[0].sandbox);
        return Some(("sandbox", message, "give a range to each, or all pages to each"));
    }
    if whole(part) {
        let twice = item.parts[..index].iter().any(|other| other.sandbox == *name);
        return twice.then(|| ("sandbox", format!("`{name}` stands here twice"), "name it once"));
    }
    match range(part) {
        None => {
            let key = if part.offset.is_none() { "size" } else { "offset" };
            let help = "a range has both, `offset` and `size`";
            Some((key, format!("`{name}` has half of a range"), help))
        }
        Some(range) if len > 0 && !within(range) => {
            let message =
                format!("{:#x} bytes at {:#x} are not in one page of it", range.len, range.start);
            Some(("offset", message, "take a range within one page, and one for each page"))
        }
        Some(_) => None,
    }
}

/// No register is in the ranges of two.
pub fn shared_mmio_overlap(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for item in &cx.mmios {
        for (index, part) in item.parts.iter().enumerate() {
            let Some(own) = range(part) else { continue };
            let met = |other: &MmioPart| range(other).is_some_and(|other| other.overlaps(own));
            let Some(first) = item.parts[..index].iter().position(met) else { continue };
            let at = |index| cx.at(item, &[k("parts"), n(index)]);
            let message =
                format!("ranges of `{}` and `{}` overlap", item.parts[first].sandbox, part.sandbox);
            let finding = Diagnostic::new("shared-mmio-overlap", at(index), message)
                .related(at(first), "the first range");
            found.push(finding.help("each register has one owner; or share the whole page"));
        }
    }
}

/// The shared registers of a manifest; what some rule refuses is left out.
pub fn shared(cx: &Context<'_, '_>) -> Vec<plan::SharedMmio> {
    let entry = |item: &Item<SharedMmio>| {
        let span = pages(cx, item).ok()?;
        let device = device(cx.machine.as_ref()?, span)?;
        let part = |(index, part): (usize, &MmioPart)| {
            Some(plan::MmioPart {
                sandbox: cx.sandbox_index(&part.sandbox)?,
                place: cx.at(item, &[k("parts"), n(index)]).place(),
                write: part.access == MmioAccess::Rw,
                range: range(part).map(|own| Span { start: span.start + own.start, ..own }),
            })
        };
        Some(plan::SharedMmio {
            name: item.name.clone(),
            place: cx.at(item, &[]).place(),
            device: device.name.clone(),
            span,
            parts: item.parts.iter().enumerate().filter_map(part).collect(),
        })
    };
    cx.mmios.iter().filter_map(entry).collect()
}
