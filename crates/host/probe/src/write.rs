//! A machine description as text, always in one order and form.

use bulkhead_manifest::raw_machine::{
    Arch, BarEntry, BarKind, DeviceEntry, Emulator, FunctionEntry, IommuKind, MachineFile,
    ResetEntry, Trigger,
};
use std::fmt::Write;

/// Returns a text in TOML's quotes.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

/// Items with commas between them.
fn list<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    let items: Vec<String> = items.iter().map(show).collect();
    format!("[{}]", items.join(", "))
}

fn pair(pair: &[u64; 2]) -> String {
    format!("[{:#x}, {:#x}]", pair[0], pair[1])
}

fn ports(ports: &[u16; 2]) -> String {
    format!("[{:#x}, {:#x}]", ports[0], ports[1])
}

/// Returns a name for each kind of BAR.
#[must_use]
pub fn kind(kind: BarKind) -> &'static str {
    match kind {
        BarKind::Io => "io",
        BarKind::Memory => "memory",
        BarKind::MemoryPrefetchable => "memory-prefetchable",
        BarKind::Memory64 => "memory64",
        BarKind::Memory64Prefetchable => "memory64-prefetchable",
    }
}

/// Lines of TOML.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn table(&mut self, name: &str) {
        let _ = writeln!(self.0, "\n{name}");
    }

    fn key(&mut self, key: &str, value: &str) {
        let _ = writeln!(self.0, "{key} = {value}");
    }

    fn some<T>(&mut self, key: &str, value: Option<T>, show: impl Fn(T) -> String) {
        if let Some(value) = value {
            self.key(key, &show(value));
        }
    }
}

/// Returns the whole description without `[qemu]`; `notes` become comments.
#[must_use]
pub fn toml(file: &MachineFile, notes: &[String]) -> String {
    let mut out = Lines::default();
    out.0.push_str("# Written by `bulkhead probe`.\n");
    for note in notes {
        let _ = writeln!(out.0, "# {note}.");
    }
    out.some("version", file.version, |version| version.to_string());
    out.key("name", &quoted(&file.name));
    let arch = match file.arch {
        Arch::X8664Svm => "x86-64-svm",
        Arch::X8664Vmx => "x86-64-vmx",
    };
    out.key("arch", &quoted(arch));
    out.some("emulator", file.emulator, |emulator| {
        let name = match emulator {
            Emulator::Qemu => "qemu",
            Emulator::Bochs => "bochs",
            Emulator::None => "none",
        };
        quoted(name)
    });
    out.key("cores", &format!("{} # x2APIC IDs", list(&file.cores, u32::to_string)));
    out.some("console", file.console.as_deref(), quoted);
    out.some("debug_port", file.debug_port, |port| format!("{port:#x}"));
    out.table("[memory]");
    out.key("size", &quoted(&file.memory.size));
    out.some("below_4g", file.memory.below_4g.as_deref(), quoted);
    for ram in &file.ram {
        out.table("[[ram]]");
        out.key("start", &format!("{:#x}", ram.start));
        out.key("end", &format!("{:#x}", ram.end));
    }
    for reserved in &file.reserved {
        out.table("[[reserved]]");
        out.key("name", &quoted(&reserved.name));
        out.key("start", &format!("{:#x}", reserved.start));
        out.key("end", &format!("{:#x}", reserved.end));
    }
    file.device.iter().for_each(|entry| device(&mut out, entry));
    if let Some(pci) = &file.pci {
        out.table("[pci]");
        out.key("ecam", &format!("{:#x}", pci.ecam));
        if let Some(register) = pci.ecam_register {
            out.key("ecam_register", &format!("{{ at = {:#x} }}", register.at));
        }
        out.key("last_bus", &pci.last_bus.to_string());
        out.key("memory", &list(&pci.memory, pair));
        if !pci.ports.is_empty() {
            out.key("ports", &list(&pci.ports, ports));
        }
    }
    if let Some(iommu) = &file.iommu {
        out.table("[iommu]");
        out.key(
            "kind",
            match iommu.kind {
                IommuKind::AmdVi => "\"amd-vi\"",
                IommuKind::VtD => "\"vt-d\"",
            },
        );
        out.key("base", &format!("{:#x}", iommu.base));
        out.key("remaps_interrupts", &iommu.remaps_interrupts.to_string());
        if let Some(remaps) = iommu.remaps_lines {
            out.key("remaps_lines", &remaps.to_string());
        }
        out.some("ioapic_requester", iommu.ioapic_requester.as_deref(), quoted);
    }
    if let Some(ioapic) = &file.ioapic {
        out.table("[ioapic]");
        out.key("base", &format!("{:#x}", ioapic.base));
        out.key("lines", &ioapic.lines.to_string());
    }
    if let Some(hpet) = &file.hpet {
        out.table("[hpet]");
        out.key("base", &format!("{:#x}", hpet.base));
        out.key("comparators", &hpet.comparators.to_string());
        out.key("period", &hpet.period.to_string());
    }
    file.function.iter().for_each(|entry| function(&mut out, entry));
    out.0
}

fn device(out: &mut Lines, device: &DeviceEntry) {
    out.table("[[device]]");
    out.key("name", &quoted(&device.name));
    out.key("class", &quoted(&device.class));
    if !device.ports.is_empty() {
        out.key("ports", &list(&device.ports, ports));
    }
    if !device.mmio.is_empty() {
        out.key("mmio", &list(&device.mmio, pair));
    }
    out.some("irq", device.irq, |irq| irq.to_string());
    out.some("trigger", device.trigger, |trigger| {
        let name = match trigger {
            Trigger::Edge => "edge",
            Trigger::LevelHigh => "level-high",
            Trigger::LevelLow => "level-low",
        };
        quoted(name)
    });
    out.some("nobody", device.nobody.as_deref(), quoted);
}

fn bar(bar: &BarEntry) -> String {
    let (number, kind) = (bar.bar, kind(bar.kind));
    let (start, size) = (bar.start, bar.size);
    format!("{{ bar = {number}, kind = \"{kind}\", start = {start:#x}, size = {size:#x} }}")
}

fn function(out: &mut Lines, function: &FunctionEntry) {
    out.table("[[function]]");
    out.key("address", &quoted(&function.address));
    out.key("vendor", &format!("{:#06x}", function.vendor));
    out.key("device", &format!("{:#06x}", function.device));
    out.key("class", &format!("{:#08x}", function.class));
    if !function.requesters.is_empty() {
        out.key("requesters", &list(&function.requesters, |id| quoted(id)));
    }
    out.some("group", function.group, |group| group.to_string());
    out.some("gsi", function.gsi, |gsi| gsi.to_string());
    match &function.bars[..] {
        [] => {}
        [one] => out.key("bars", &format!("[{}]", bar(one))),
        more => {
            let lines: String = more.iter().map(|one| format!("    {},\n", bar(one))).collect();
            out.key("bars", &format!("[\n{lines}]"));
        }
    }
    for (key, text) in capabilities(function) {
        out.key(key, &text);
    }
    out.some("nobody", function.nobody.as_deref(), quoted);
    if let Some(bridge) = &function.bridge {
        out.table("[function.bridge]");
        out.key("secondary", &bridge.secondary.to_string());
        out.key("subordinate", &bridge.subordinate.to_string());
        out.some("memory", bridge.memory.as_ref(), pair);
        out.some("prefetchable", bridge.prefetchable.as_ref(), pair);
        out.some("ports", bridge.ports.as_ref(), ports);
        out.some("acs", bridge.acs, |at| format!("{at:#x}"));
    }
}

/// Returns a function's capabilities: key, value.
#[must_use]
pub fn capabilities(function: &FunctionEntry) -> Vec<(&'static str, String)> {
    let pm = function
        .pm
        .as_ref()
        .map(|pm| ("pm", format!("{{ at = {:#x}, resets = {} }}", pm.at, pm.resets)));
    let msi = function.msi.as_ref().map(|msi| {
        let (at, wide, masks) = (msi.at, msi.wide, msi.masks);
        ("msi", format!("{{ at = {at:#x}, wide = {wide}, masks = {masks} }}"))
    });
    let msix = function.msix.as_ref().map(|msix| {
        let place = |[bar, at]: [u32; 2]| format!("[{bar}, {at:#x}]");
        let (table, pba) = (place(msix.table), place(msix.pba));
        let (at, vectors) = (msix.at, msix.vectors);
        let text = format!("{{ at = {at:#x}, vectors = {vectors}, table = {table}, pba = {pba} }}");
        ("msix", text)
    });
    let flr = |key, entry: Option<&bulkhead_manifest::raw_machine::PcieEntry>| {
        entry.map(|entry| (key, format!("{{ at = {:#x}, flr = {} }}", entry.at, entry.flr)))
    };
    let (pcie, af) = (flr("pcie", function.pcie.as_ref()), flr("af", function.af.as_ref()));
    let steps: Vec<String> = function.reset.iter().map(step).collect();
    let reset = match &steps[..] {
        [] => None,
        [one] => Some(("reset", format!("[{one}]"))),
        _ => Some(("reset", format!("[\n    {},\n]", steps.join(",\n    ")))),
    };
    [pm, msi, msix, pcie, af, reset].into_iter().flatten().collect()
}

fn step(step: &ResetEntry) -> String {
    let write = step.write.map_or(String::new(), |write| format!("write = {write:#x}, "));
    let keep = step.keep.map_or(String::new(), |keep| format!("keep = {keep:#x}, "));
    let (bar, at, size) = (step.bar, step.at, step.size);
    let (mask, value, within) = (step.mask, step.value, step.within);
    format!(
        "{{ bar = {bar}, at = {at:#x}, size = {size}, {write}{keep}mask = {mask:#x}, value = {value:#x}, \
         within = {within} }}"
    )
}
