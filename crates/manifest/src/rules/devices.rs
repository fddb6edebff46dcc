//! Devices: each has at most one owner, its ports and interrupts too.

use super::{Context, Item};
use crate::diagnostic::{Diagnostic, list, nearest};
use crate::machine::share_port;
use crate::raw;
use crate::shape::brief;
use crate::source::{Location, k, n};
use bulkhead_layout::hypercall::POWER_PORT;
use bulkhead_plan::Device;

struct Grant<'a> {
    sandbox: &'a Item<raw::Sandbox>,
    name: &'a str,
    pci: bool,
    device: Option<&'a Device>,
    at: Location,
}

/// Every device that is granted, in the order of the file.
fn grants<'a>(cx: &'a Context<'_, '_>) -> Vec<Grant<'a>> {
    let devices = cx.machine.as_ref().map_or(&[][..], |machine| &machine.devices);
    let mut all = Vec::new();
    for sandbox in &cx.sandboxes {
        for (index, grant) in sandbox.devices.iter().enumerate() {
            let name = grant.name();
            let device = devices.iter().find(|device| device.name == *name);
            let at = cx.at(sandbox, &[k("devices"), n(index)]);
            let pci = super::pci::is_pci(name);
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

/// Some devices would give their owner power over all the others.
pub fn device_nobody(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for grant in grants(cx) {
        if let Some(why) = grant.device.and_then(|device| device.nobody.as_ref()) {
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
) -> impl Iterator<Item = (&'g Grant<'a>, &'a Device, &'g Grant<'a>, &'a Device)> {
    grants.iter().enumerate().flat_map(move |(index, later)| {
        grants[..index].iter().filter_map(move |first| {
            let (one, other) = (first.device?, later.device?);
            let apart = one.name != other.name && first.sandbox.index != later.sandbox.index;
            apart.then_some((first, one, later, other))
        })
    })
}

/// No port has two owners, and none is part of a device that nobody may have.
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
    let owned = grants.iter().filter_map(|grant| Some((grant, grant.device?)));
    for (grant, device) in owned.filter(|(_, device)| device.nobody.is_none()) {
        for other in machine.devices.iter().filter(|other| share_port(other, device)) {
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

/// The power port is the monitor's, in every sandbox.
pub fn port_emulated(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for grant in grants(cx) {
        let Some(device) = grant.device else { continue };
        if device.ports.iter().any(|ports| (ports.first..=ports.last).contains(&POWER_PORT)) {
            let message = format!(
                "`{}` has port {POWER_PORT:#x}, through which every sandbox is switched off",
                device.name
            );
            found.push(
                Diagnostic::new("port-emulated", grant.at, message).help("leave the device out"),
            );
        }
    }
}
