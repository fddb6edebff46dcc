//! How a machine differs from an older description of it, in words.

use crate::found::Found;
use crate::write;
use bulkhead_manifest::raw_machine::{DeviceEntry, FunctionEntry, MachineFile, PciRoot};
use bulkhead_manifest::size;
use bulkhead_plan::{Ports, Span};

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The difference, in words.
    pub text: String,
    /// An image built for the older description may not run, or not confine what
    /// it should.
    pub matters: bool,
}

struct List(Vec<Difference>);

impl List {
    fn matters(&mut self, text: String) {
        self.0.push(Difference { text, matters: true });
    }

    fn harmless(&mut self, text: String) {
        self.0.push(Difference { text, matters: false });
    }

    /// One value that both have.
    fn value<T: PartialEq>(&mut self, what: &str, old: T, new: T, show: impl Fn(T) -> String) {
        if old != new {
            self.matters(format!("{what} is {}, not {}", show(new), show(old)));
        }
    }
}

/// Returns all differences; those that matter first.
#[must_use]
pub fn differences(old: &MachineFile, found: &Found) -> Vec<Difference> {
    let new = &found.file;
    let mut all = List(Vec::new());
    cores(&mut all, old, new);
    memory(&mut all, old, found);
    devices(&mut all, &old.device, &new.device);
    host_bridge(&mut all, old.pci.as_ref(), found);
    functions(&mut all, &old.function, &new.function);
    let there = |there: bool| if there { "there" } else { "missing" }.to_owned();
    all.value("the IOMMU", old.iommu.is_some(), new.iommu.is_some(), there);
    if let (Some(old), Some(new)) = (&old.iommu, &new.iommu) {
        all.value("the IOMMU's address", old.base, new.base, |base| format!("{base:#x}"));
        all.value("the IOMMU's kind", old.kind, new.kind, |kind| format!("{kind:?}"));
        let remaps = |remaps: bool| if remaps { "there" } else { "missing" }.to_owned();
        let (was, is) = (old.remaps_interrupts, new.remaps_interrupts);
        all.value("interrupt remapping", was, is, remaps);
        let id = |id: Option<&String>| id.map_or("none".to_owned(), Clone::clone);
        let (was, is) = (old.ioapic_requester.as_ref(), new.ioapic_requester.as_ref());
        all.value("the IOAPIC's requester ID", was, is, id);
    }
    all.value("the IOAPIC", old.ioapic.is_some(), new.ioapic.is_some(), there);
    if let (Some(old), Some(new)) = (&old.ioapic, &new.ioapic) {
        all.value("the IOAPIC's address", old.base, new.base, |base| format!("{base:#x}"));
        all.value("the number of its lines", old.lines, new.lines, |lines| lines.to_string());
    }
    let mut all = all.0;
    all.sort_by_key(|difference| !difference.matters);
    all
}

fn cores(all: &mut List, old: &MachineFile, new: &MachineFile) {
    for id in old.cores.iter().filter(|id| !new.cores.contains(id)) {
        all.matters(format!("there is no core with x2APIC ID {id}"));
    }
    for id in new.cores.iter().filter(|id| !old.cores.contains(id)) {
        all.harmless(format!("there is one more core, with x2APIC ID {id}"));
    }
}

fn memory(all: &mut List, old: &MachineFile, found: &Found) {
    let low = |file: &MachineFile| file.memory.below_4g.clone().unwrap_or_default();
    for (what, was, is) in [
        ("all RAM", &old.memory.size, &found.file.memory.size),
        ("the RAM below 4 GiB", &low(old), &low(&found.file)),
    ] {
        let bytes = |text: &str| size::parse(text).unwrap_or(0);
        if bytes(is) < bytes(was) {
            all.matters(format!("{what} is {is}, not {was}"));
        } else if bytes(is) > bytes(was) {
            all.harmless(format!("{what} is {is}, more than {was}"));
        }
    }
    for ram in &old.ram {
        let span = Span { start: ram.start, len: ram.end.saturating_sub(ram.start) };
        if !found.free.iter().any(|free| free.encloses(span)) {
            all.matters(format!("the RAM from {:#x} to {:#x} is not all free", ram.start, ram.end));
        }
    }
}

fn devices(all: &mut List, old: &[DeviceEntry], new: &[DeviceEntry]) {
    let ports = |device: &DeviceEntry| format!("{:x?}", device.ports);
    let irq = |irq: Option<u32>| irq.map_or("none".to_owned(), |irq| irq.to_string());
    for device in old {
        let name = &device.name;
        // A device that Linux does not show was kept, so it is always there.
        match new.iter().find(|other| other.name == *name) {
            None => all.matters(format!("there is no device `{name}`")),
            Some(other) => {
                if ports(device) != ports(other) {
                    let (is, was) = (ports(other), ports(device));
                    all.matters(format!("`{name}` has ports {is}, not {was}"));
                }
                all.value(&format!("the interrupt of `{name}`"), device.irq, other.irq, irq);
            }
        }
    }
    for device in new.iter().filter(|device| old.iter().all(|other| other.name != device.name)) {
        all.harmless(format!("there is a device `{}` that is not described", device.name));
    }
}

fn host_bridge(all: &mut List, old: Option<&PciRoot>, found: &Found) {
    let Some(old) = old else { return };
    let Some(new) = &found.file.pci else {
        return all.matters("there is no PCI configuration space in memory".into());
    };
    all.value("the configuration space", old.ecam, new.ecam, |ecam| format!("at {ecam:#x}"));
    all.value("its last bus", old.last_bus, new.last_bus, |bus| bus.to_string());
    for [start, end] in &old.memory {
        let span = Span { start: *start, len: end.saturating_sub(*start) };
        if !found.decoded.memory.iter().any(|window| window.encloses(span)) {
            all.matters(format!("the host bridge does not decode all of {start:#x} to {end:#x}"));
        }
    }
    for [first, last] in &old.ports {
        let span = Ports { first: *first, last: *last }.span();
        if !found.decoded.ports.iter().any(|window| window.span().encloses(span)) {
            all.matters(format!(
                "the host bridge does not decode all ports {first:#x} to {last:#x}"
            ));
        }
    }
}

fn functions(all: &mut List, old: &[FunctionEntry], new: &[FunctionEntry]) {
    for function in old {
        let Some(other) = new.iter().find(|other| other.address == function.address) else {
            let (vendor, device) = (function.vendor, function.device);
            let address = &function.address;
            all.matters(format!("function {address} ({vendor:04x}:{device:04x}) is missing"));
            continue;
        };
        compare(all, function, other);
        let (was, is) = (partners(old, function), partners(new, other));
        let at = &function.address;
        all.value(&format!("what shares an IOMMU group with {at}"), was, is, |list| list);
    }
    for function in new.iter().filter(|one| old.iter().all(|other| other.address != one.address)) {
        // Its registers may lie where the description has another's.
        let (vendor, device, address) = (function.vendor, function.device, &function.address);
        all.matters(format!("function {address} ({vendor:04x}:{device:04x}) is not described"));
    }
}

/// Returns the other functions of a function's group: the numbers say nothing.
fn partners(all: &[FunctionEntry], function: &FunctionEntry) -> String {
    let same = |other: &&FunctionEntry| {
        other.group.is_some() && other.group == function.group && other.address != function.address
    };
    let all: Vec<&str> = all.iter().filter(same).map(|other| other.address.as_str()).collect();
    if all.is_empty() { "nothing".into() } else { all.join(", ") }
}

fn compare(all: &mut List, old: &FunctionEntry, new: &FunctionEntry) {
    let at = &old.address;
    let ids = |one: &FunctionEntry| format!("{:04x}:{:04x}", one.vendor, one.device);
    if ids(old) != ids(new) {
        // Nothing else is worth comparing then.
        return all.matters(format!("function {at} is {}, not {}", ids(new), ids(old)));
    }
    all.value(&format!("the class of {at}"), old.class, new.class, |class| format!("{class:06x}"));
    let shape = |one: &FunctionEntry| {
        let bar = |b: &bulkhead_manifest::raw_machine::BarEntry| {
            format!("{}: {} {:#x}", b.bar, write::kind(b.kind), b.size)
        };
        let bars: Vec<String> = one.bars.iter().map(bar).collect();
        if bars.is_empty() { "none".to_owned() } else { bars.join(", ") }
    };
    if shape(old) != shape(new) {
        all.matters(format!("the BARs of {at} are {}, not {}", shape(new), shape(old)));
    } else {
        for (old, new) in old.bars.iter().zip(&new.bars).filter(|(old, new)| old.start != new.start)
        {
            // The boot code puts them where the description says.
            let (bar, was, is) = (old.bar, old.start, new.start);
            all.harmless(format!("BAR {bar} of {at} is at {is:#x} now, not at {was:#x}"));
        }
    }
    let nobodys = old.nobody.is_some() != new.nobody.is_some();
    let (was, is) = (write::capabilities(old), write::capabilities(new));
    let keys = ["pm", "msi", "msix", "pcie", "af"];
    let of = |list: &[(&str, String)], key: &str| {
        list.iter().find(|(other, _)| *other == key).map(|(_, text)| text.clone())
    };
    // Nobody's functions are described without capabilities.
    for key in keys.into_iter().filter(|_| !nobodys) {
        let show = |text: Option<String>| text.unwrap_or_else(|| "missing".into());
        all.value(&format!("the {key} capability of {at}"), of(&was, key), of(&is, key), show);
    }
    match (&old.bridge, &new.bridge) {
        (Some(old), Some(new)) => {
            let buses = |buses: (u8, u8)| format!("{} to {}", buses.0, buses.1);
            let (was, is) = ((old.secondary, old.subordinate), (new.secondary, new.subordinate));
            if old.acs != new.acs {
                let show =
                    |acs: Option<u16>| acs.map_or("missing".into(), |at| format!("at {at:#x}"));
                all.matters(format!(
                    "the source validation of {at} is {}, not {}",
                    show(new.acs),
                    show(old.acs)
                ));
            }
            if was != is {
                // So does the boot code with buses.
                all.harmless(format!("{at} leads to buses {} now, not {}", buses(is), buses(was)));
            }
        }
        (None, None) => {}
        (was, _) => {
            let is = if was.is_some() { "no bridge any more" } else { "a bridge" };
            all.matters(format!("{at} is {is}"));
        }
    }
}
