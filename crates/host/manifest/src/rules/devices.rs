//! Devices: each has at most one owner, its ports and interrupts too. Ports and
//! the interrupt line of a PCI function count as a device's.

use super::{Context, Item};
use crate::diagnostic::{Diagnostic, list, nearest};
use crate::machine::share_port;
use crate::raw;
use crate::shape::brief;
use crate::source::{Location, k, n};
use bulkhead_plan::{BarKind, Device, Function, Iommu, Ports, Trigger};

struct Grant<'a> {
    sandbox: &'a Item<raw::Sandbox>,
    name: &'a str,
    pci: bool,
    device: Option<Device>,
    at: Location,
}

/// Makes a device of a PCI function's ports and interrupt line, for the rules about devices.
fn as_device(function: &Function, line: bool) -> Device {
    let io = function.bars.iter().filter(|bar| bar.kind == BarKind::Io);
    // Ports end at 0xffff, and no BAR is empty: the machine's own rule.
    let ports =
        io.map(|bar| Ports { first: bar.span.start as u16, last: (bar.span.end() - 1) as u16 });
    Device {
        name: format!("pci:{}", function.bdf),
        class: "pci".to_owned(),
        ports: ports.collect(),
        mmio: Vec::new(),
        irq: function.irq.filter(|_| line),
        trigger: Trigger::LevelLow,
        nobody: super::pci::nobody(function).map(str::to_owned),
        place: function.place.clone(),
    }
}

/// Every device that is granted, in the order of the file.
fn grants<'a>(cx: &'a Context<'_, '_>) -> Vec<Grant<'a>> {
    let devices = cx.machine.as_ref().map_or(&[][..], |machine| &machine.devices);
    let function = |grant: &raw::DeviceGrant| {
        let function = super::pci::the_one(cx.machine.as_ref()?, grant.name())?;
        Some(as_device(function, super::pci::uses_line(function, grant)))
    };
    let mut all = Vec::new();
    for sandbox in &cx.sandboxes {
        for (index, grant) in sandbox.devices.iter().enumerate() {
            let name = grant.name();
            let pci = super::pci::is_pci(name);
            let device = match pci {
                true => function(grant),
                false => devices.iter().find(|device| device.name == *name).cloned(),
            };
            let at = cx.at(sandbox, &[k("devices"), n(index)]);
            all.push(Grant { sandbox, name, pci, device, at });
        }
    }
    all
}

/// Devices are the machine's.
pub fn device_unknown(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Some(machine) = &cx.machine else {
        return;
    };
    for grant in grants(cx).iter().filter(|grant| grant.device.is_none() && !grant.pci) {
        let own = |device: &&Device| device.nobody.is_none();
        let names: Vec<&str> =
            machine.devices.iter().filter(own).map(|device| device.name.as_str()).collect();
        let help = if let Some(near) = nearest(grant.name, names.iter().copied()) {
            format!("did you mean `{near}`?")
        } else {
            format!("those that can be granted are {}", list(&names))
        };
        let message = format!("machine `{}` has no device `{}`", machine.name, brief(grant.name));
        found.push(Diagnostic::new("device-unknown", grant.at.clone(), message).help(help));
    }
}

/// Some devices would give their owner power over all the others, and some have nothing that a grant gives.
pub fn device_nobody(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let bare = |device: &Device| device.ports.is_empty() && device.irq.is_none();
    for grant in grants(cx).into_iter().filter(|grant| !grant.pci) {
        if grant.device.as_ref().is_some_and(|device| bare(device) && device.nobody.is_none()) {
            let message = format!("`{}` has neither a port nor a line to give", grant.name);
            let finding = Diagnostic::new("device-nobody", grant.at, message);
            found.push(finding.help("give pages of its registers by `[[shared_mmio]]`"));
        } else if let Some(why) = grant.device.and_then(|device| device.nobody) {
            let message = format!("`{}` cannot belong to a sandbox: {why}", grant.name);
            found.push(
                Diagnostic::new("device-nobody", grant.at, message)
                    .help("leave it out; what a guest needs of it, its monitor emulates"),
            );
        }
    }
}

/// No device has two owners.
pub fn device_twice(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let grants = grants(cx);
    for (index, grant) in grants.iter().enumerate() {
        let Some(first) =
            grants[..index].iter().find(|other| other.name == grant.name && !grant.pci)
        else {
            continue;
        };
        let message = format!(
            "device `{}` belongs to `{}` and to `{}`",
            brief(grant.name),
            first.sandbox.name,
            grant.sandbox.name
        );
        found.push(
            Diagnostic::new("device-twice", grant.at.clone(), message)
                .label("given again")
                .related(first.at.clone(), "given here first")
                .help("a device has one owner; others can use it through a channel"),
        );
    }
}

/// Pairs of different devices of different sandboxes.
fn pairs<'a, 'g>(
    grants: &'g [Grant<'a>],
) -> impl Iterator<Item = (&'g Grant<'a>, &'g Device, &'g Grant<'a>, &'g Device)> {
    grants.iter().enumerate().flat_map(move |(index, later)| {
        grants[..index].iter().filter_map(move |first| {
            let (one, other) = (first.device.as_ref()?, later.device.as_ref()?);
            let apart = one.name != other.name && first.sandbox.index != later.sandbox.index;
            apart.then_some((first, one, later, other))
        })
    })
}

/// No port has two owners, or is part of a device that no sandbox may own.
pub fn port_twice(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let grants = grants(cx);
    for (first, one, later, other) in pairs(&grants) {
        if share_port(one, other) {
            let message = format!("`{}` and `{}` have a port in common", one.name, other.name);
            found.push(
                Diagnostic::new("port-twice", later.at.clone(), message)
                    .related(first.at.clone(), "the port is given here first")
                    .help("give both devices to one sandbox"),
            );
        }
    }
    let Some(machine) = &cx.machine else {
        return;
    };
    let functions = machine.functions.iter().map(|function| as_device(function, false));
    let all: Vec<Device> = machine.devices.iter().cloned().chain(functions).collect();
    let owned = grants.iter().filter_map(|grant| Some((grant, grant.device.as_ref()?)));
    for (grant, device) in owned.filter(|(_, device)| device.nobody.is_none()) {
        for other in all.iter().filter(|other| share_port(other, device)) {
            let Some(why) = &other.nobody else { continue };
            let message = format!(
                "`{}` has a port of `{}`, which cannot belong to a sandbox: {why}",
                device.name, other.name
            );
            let help = "leave it out, or describe its ports without that one";
            found.push(Diagnostic::new("port-twice", grant.at.clone(), message).help(help));
        }
    }
}

/// No interrupt has two owners.
pub fn irq_twice(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for (first, one, later, other) in pairs(&grants(cx)) {
        let Some(irq) = one.irq.filter(|irq| other.irq == Some(*irq)) else {
            continue;
        };
        let message = format!(
            "interrupt {irq} belongs to `{}` of `{}` and to `{}` of `{}`",
            one.name, first.sandbox.name, other.name, later.sandbox.name
        );
        found.push(
            Diagnostic::new("irq-twice", later.at.clone(), message)
                .label("the same interrupt")
                .related(first.at.clone(), "given here first")
                .help("give both devices to one sandbox, or take a device with another interrupt"),
        );
    }
}

/// The vectors of level lines are unique in the machine. A bare guest's and a kernel's vectors are given to it; a
/// Linux chooses its own, which may be one that a kernel would need.
pub fn line_level(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let grants = grants(cx);
    let level = |grant: &&Grant<'_>| {
        let device = grant.device.as_ref().filter(|device| device.irq.is_some());
        matches!(grant.sandbox.guest, raw::Guest::Linux { .. })
            && device.is_some_and(|device| device.trigger != Trigger::Edge)
    };
    let mut all = grants.iter().filter(level);
    let Some(first) = all.next() else { return };
    for other in all.filter(|other| other.sandbox.index != first.sandbox.index) {
        let message = format!(
            "`{}` and `{}` are Linux, and both have level-triggered lines",
            first.sandbox.name, other.sandbox.name
        );
        found.push(
            Diagnostic::new("line-level", other.at.clone(), message)
                .label("signals by a level-triggered line")
                .related(first.at.clone(), "so does this one")
                .help("take a function with MSI or MSI-X, and leave out `line = true`"),
        );
    }
    let lines = super::kernel::programs::lines(cx);
    for other in lines.iter().filter(|line| line.trigger != Trigger::Edge) {
        let message = format!(
            "`{}` is a Linux, and both it and a program of `{}` have level-triggered lines",
            first.sandbox.name, other.sandbox
        );
        found.push(
            Diagnostic::new("line-level", other.at.clone(), message)
                .label("signals by a level-triggered line")
                .related(first.at.clone(), "so does this one")
                .help("take a function with MSI or MSI-X, and leave out `line = true`"),
        );
    }
}

/// No device can send interrupts in the IOAPIC's name. If the IOMMU sees the IOAPIC's messages, one level-triggered
/// line makes it pass all of them. The boot code stops there; if the description says so, this rule finds it earlier.
pub fn line_forged(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let iommu = cx.machine.as_ref().and_then(|machine| machine.iommu);
    // VT-d remaps level-triggered lines as it does others.
    let passes = |iommu: Iommu| !iommu.is_vtd() && iommu.remaps_lines() == Some(true);
    if !iommu.is_some_and(passes) || cx.sandboxes.len() < 2 {
        return;
    }
    let grants = grants(cx);
    let is_level = |device: &Device| device.irq.is_some() && device.trigger != Trigger::Edge;
    let level = grants.iter().find(|grant| grant.device.as_ref().is_some_and(is_level));
    let mut functions: Vec<_> = grants.iter().filter(|g| g.pci && g.device.is_some()).collect();
    let Some(level) = level else { return };
    // Another sandbox' before one of its own.
    functions.sort_by_key(|function| function.sandbox.index == level.sandbox.index);
    let Some(function) = functions.first() else { return };
    let message = format!(
        "`{}` could send any interrupt to any sandbox: with the level-triggered line of `{}` the IOMMU lets all \
         messages of lines pass",
        function.name, level.name
    );
    found.push(
        Diagnostic::new("line-forged", function.at.clone(), message)
            .label("reaches memory by DMA")
            .related(level.at.clone(), "signals by a level-triggered line")
            .help("take devices with edge-triggered lines, functions with MSI or MSI-X without `line = true`, or none"),
    );
}

/// A line that is asked for exists.
pub fn line_none(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Some(machine) = &cx.machine else {
        return;
    };
    for sandbox in &cx.sandboxes {
        let asked = |(_, grant): &(usize, &raw::DeviceGrant)| grant.detailed().line;
        for (index, grant) in sandbox.devices.iter().enumerate().filter(asked) {
            let function = super::pci::the_one(machine, grant.name());
            if super::pci::is_pci(grant.name()) && function.is_none_or(|f| f.irq.is_some()) {
                continue;
            }
            let at = cx.at(sandbox, &[k("devices"), n(index)]);
            let message = format!("`{}` has no line that could be asked for", brief(grant.name()));
            let help = "leave out `line`: a function's line is the `gsi` that the machine \
                        description gives, and another device's `irq` is part of it";
            found.push(Diagnostic::new("line-none", at, message).help(help));
        }
    }
}

/// The ports of power, doorbells and hypercalls are the monitor's, in every sandbox.
pub fn port_emulated(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for grant in grants(cx) {
        let Some(device) = &grant.device else { continue };
        for (own, what) in cx.facts().answered {
            let met = |ports: &Ports| {
                let first = ports.first.max(own.first);
                (first <= ports.last.min(own.last)).then_some(first)
            };
            if let Some(port) = device.ports.iter().find_map(met) {
                let message = format!("`{}` has port {port:#x}, {what}", device.name);
                let at = grant.at.clone();
                let finding = Diagnostic::new("port-emulated", at, message);
                found.push(finding.help("leave the device out"));
            }
        }
    }
}
