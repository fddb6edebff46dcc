//! Keeps facts of an older description that no Linux can know. They are its name, its console, its debug port,
//! `[qemu]`, `[hpet]`, further requester IDs of functions, and lines that Linux has not routed. Devices with ports
//! where Linux shows nothing are kept, too, and an IOMMU that does not see the IOAPIC's messages.

use crate::found::Found;
use bulkhead_manifest::raw_machine::{BarKind, DeviceEntry, MachineFile};
use bulkhead_plan::{Ports, Span};

/// Tells if something that was found has a port of that device.
fn shown(device: &DeviceEntry, file: &MachineFile) -> bool {
    let ports = |device: &DeviceEntry| {
        let ports = device.ports.clone().into_iter();
        ports.map(|[first, last]| Ports { first, last }.span())
    };
    let bars = file.function.iter().flat_map(|function| &function.bars);
    let io = bars.filter(|bar| bar.kind == BarKind::Io);
    let io = io.map(|bar| Span { start: bar.start, len: bar.size });
    let mut all = file.device.iter().flat_map(ports).chain(io);
    all.any(|one| ports(device).any(|other| one.overlaps(other)))
}

/// Completes what was found; returns the names of the devices that were kept.
pub fn keep(found: &mut Found, old: &MachineFile) -> Vec<String> {
    let file = &mut found.file;
    file.name.clone_from(&old.name);
    file.debug_port = old.debug_port;
    file.qemu.clone_from(&old.qemu);
    file.hpet.clone_from(&old.hpet);
    file.emulator = old.emulator.or(file.emulator);
    let is_there = |name: &&String| file.device.iter().any(|device| device.name == **name);
    if let Some(console) = old.console.as_ref().filter(is_there) {
        file.console = Some(console.clone());
    }
    // Under which IDs a function appears, depends on who looks.
    let kind = |file: &MachineFile| file.iommu.as_ref().map(|iommu| iommu.kind);
    let same_kind = kind(file) == kind(old);
    for function in &mut file.function {
        let same = old.function.iter().find(|other| other.address == function.address);
        function.gsi = function.gsi.or(same.and_then(|other| other.gsi));
        let ids = same.filter(|_| same_kind).map(|other| other.requesters.clone());
        function.requesters = ids.unwrap_or_default();
    }
    if let (Some(iommu), Some(old)) = (&mut file.iommu, &old.iommu) {
        iommu.remaps_lines = old.remaps_lines;
    }
    if let (Some(pci), Some(old)) = (&mut file.pci, &old.pci) {
        pci.ecam_register = old.ecam_register;
    }
    let unseen: Vec<DeviceEntry> =
        old.device.iter().filter(|device| !shown(device, file)).cloned().collect();
    let names = unseen.iter().map(|device| device.name.clone()).collect();
    file.device.extend(unseen);
    names
}
