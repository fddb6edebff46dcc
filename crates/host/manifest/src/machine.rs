//! From a machine description to a [`Machine`]: the rules that a machine has to
//! keep in itself.

use crate::diagnostic::{Diagnostic, list};
use crate::raw_machine::{self, DeviceEntry, MachineFile};
use crate::source::{Document, Source, Step, k, n};
use crate::{limits, schema, shape, size};
use bulkhead_plan::{Arch, Device, Emulator, Facts, Machine, Ports, Span, Trigger};
use serde::Deserialize;
use std::sync::Arc;
use toml::de::ValueDeserializer;

mod bus;
mod pci;
mod x86;

pub use x86::EXAMPLE;
use x86::{
    arch as named, banks as split, check as foreign, controller, emulated, hpet, iommu, units,
};

/// Reads and checks a machine description.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read(source: &Arc<Source>) -> Result<Machine, Vec<Diagnostic>> {
    let (document, file) = decode(source)?;
    convert(&document, &file, named(file.arch))
}

/// Reads and checks a machine description for an architecture that none can name: a test's. Its own `arch` has no
/// meaning.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read_as(source: &Arc<Source>, arch: Arch) -> Result<Machine, Vec<Diagnostic>> {
    let (document, file) = decode(source)?;
    convert(&document, &file, arch)
}

/// Reads a machine description and checks its shape; its content is not checked.
///
/// # Errors
/// Everything that is wrong with its shape.
pub fn parse(source: &Arc<Source>) -> Result<MachineFile, Vec<Diagnostic>> {
    decode(source).map(|(_, file)| file)
}

fn decode(source: &Arc<Source>) -> Result<(Document<'_>, MachineFile), Vec<Diagnostic>> {
    let (document, errors) = Document::parse(source, &source.text);
    let mut found = crate::check::unreadable(&document, &errors);
    if found.is_empty() {
        found = limits::check(&document);
    }
    if found.is_empty() {
        found = shape::check(&document, &schema::machine());
    }
    if !found.is_empty() {
        return Err(found);
    }
    match MachineFile::deserialize(ValueDeserializer::from(document.root().clone())) {
        Ok(file) => Ok((document, file)),
        Err(error) => Err(vec![crate::check::syntax(&document, &error)]),
    }
}

struct View<'a, 't> {
    document: &'a Document<'t>,
    file: &'a MachineFile,
    facts: &'static Facts,
    found: Vec<Diagnostic>,
}

impl View<'_, '_> {
    fn report(&mut self, rule: &'static str, path: &[Step<'_>], message: String, help: &str) {
        let at = self.document.at(path);
        self.found.push(Diagnostic::new(rule, at, message).help(help));
    }
}

fn convert(
    document: &Document<'_>,
    file: &MachineFile,
    arch: Arch,
) -> Result<Machine, Vec<Diagnostic>> {
    let mut view = View { document, file, facts: arch.facts(), found: Vec::new() };
    version(&mut view);
    foreign(&mut view);
    cores(&mut view);
    let banks = banks(&mut view);
    let ram = ram(&mut view, &banks);
    let reserved = reserved(&mut view, &ram);
    image_memory(&mut view, &ram);
    let devices = devices(&mut view);
    let console = console(&mut view);
    let pci = pci::root(&mut view, &ram);
    let functions = pci::functions(&mut view, pci.as_ref());
    let iommu = iommu(&mut view);
    emulator(&mut view);
    let controller = controller(&mut view);
    let hpet = hpet(&mut view);
    bus::check(&mut view, pci.as_ref(), &functions, &ram);
    if !view.found.is_empty() {
        return Err(view.found);
    }
    Ok(Machine {
        name: file.name.clone(),
        arch,
        emulator: match file.emulator.unwrap_or_default() {
            raw_machine::Emulator::Qemu => Emulator::Qemu,
            raw_machine::Emulator::Bochs => Emulator::Bochs,
            raw_machine::Emulator::None => Emulator::None,
        },
        core_ids: file.cores.clone(),
        ram,
        reserved,
        banks,
        devices,
        pci,
        functions,
        iommu,
        controller,
        hpet,
        console,
        debug_port: file.debug_port.unwrap_or(0),
        qemu: file.qemu.as_ref().map(|qemu| qemu.args.clone()).unwrap_or_default(),
        drives: file.qemu.as_ref().map(|qemu| qemu.drives.clone()).unwrap_or_default(),
        networks: file.qemu.as_ref().map(|qemu| qemu.networks.clone()).unwrap_or_default(),
    })
}

/// Not every emulator has each processor.
fn emulator(view: &mut View<'_, '_>) {
    let emulator = view.file.emulator.unwrap_or_default();
    emulated(view, emulator);
    if emulator != raw_machine::Emulator::Qemu && view.file.qemu.is_some() {
        let message = "a machine without QEMU has no arguments for it".to_owned();
        view.report("machine-emulator", &[k("qemu")], message, "remove `[qemu]`, or `emulator`");
    }
}

fn version(view: &mut View<'_, '_>) {
    if let Some(version) = view.file.version.filter(|version| *version != 1) {
        let message = format!("machine description version {version} is not known");
        view.report("machine-version", &[k("version")], message, "write `version = 1`");
    }
}

fn cores(view: &mut View<'_, '_>) {
    let (cores, Facts { core, last_core, .. }) = (&view.file.cores, view.facts);
    if cores.is_empty() {
        let message = "the machine has no core".to_owned();
        let help = format!("list the {core}s of its cores");
        view.report("machine-cores", &[k("cores")], message, &help);
    }
    for (index, id) in cores.iter().enumerate() {
        if cores[..index].contains(id) {
            let message = format!("{core} {id} is given twice");
            view.report(
                "machine-cores",
                &[k("cores"), n(index)],
                message,
                "every core has an ID of its own",
            );
        }
        if id > last_core {
            let message = format!("{core} {id} is above {last_core}");
            view.report("machine-cores", &[k("cores"), n(index)], message, "leave this core out");
        }
    }
}

/// All RAM, as an emulator's file has it.
fn banks(view: &mut View<'_, '_>) -> Vec<Span> {
    let size = bytes(view, "size", &view.file.memory.size);
    match view.facts.pc {
        true => split(view, size),
        false => vec![Span { start: view.facts.ram, len: size }],
    }
}

/// Reads a size of `[memory]`.
fn bytes(view: &mut View<'_, '_>, key: &str, text: &str) -> u64 {
    size::parse(text).unwrap_or_else(|why| {
        let message = format!("`{key}` is no size: {why}");
        let help = "write it like `\"6 GiB\"`";
        view.report("machine-memory", &[k("memory"), k(key)], message, help);
        0
    })
}

fn ram(view: &mut View<'_, '_>, banks: &[Span]) -> Vec<Span> {
    let page = view.facts.page;
    let mut pieces: Vec<Span> = Vec::new();
    for (index, range) in view.file.ram.iter().enumerate() {
        let path = [k("ram"), n(index)];
        let (start, end) = (range.start, range.end);
        if start >= end || !start.is_multiple_of(page) || !end.is_multiple_of(page) {
            let message = format!("{start:#x} to {end:#x} is no range of whole pages");
            view.report(
                "machine-ram",
                &path,
                message,
                &format!("`start` is below `end`, both multiples of {page:#x}"),
            );
            continue;
        }
        let piece = Span { start, len: end - start };
        if !banks.iter().any(|bank| bank.encloses(piece)) {
            let message = format!("{start:#x} to {end:#x} is outside of the machine's memory");
            let lie = |bank: &Span| format!("from {:#x} to {:#x}", bank.start, bank.end());
            let all: Vec<_> = banks.iter().map(lie).collect();
            let help = format!("with this `[memory]` it lies {}", all.join(" and "));
            view.report("machine-ram", &path, message, &help);
        }
        if let Some(last) = pieces.last().filter(|last| start < last.end()) {
            let message =
                format!("{start:#x} lies before the end of the range before it, {:#x}", last.end());
            view.report("machine-ram", &path, message, "ranges ascend and do not overlap");
        }
        pieces.push(piece);
    }
    pieces
}

fn reserved(view: &mut View<'_, '_>, ram: &[Span]) -> Vec<(String, Span)> {
    let mut all = Vec::new();
    for (index, entry) in view.file.reserved.iter().enumerate() {
        let path = [k("reserved"), n(index)];
        if entry.start >= entry.end {
            let message = format!("{:#x} to {:#x} is no range", entry.start, entry.end);
            view.report("machine-reserved", &path, message, "`start` is below `end`");
            continue;
        }
        let span = Span { start: entry.start, len: entry.end - entry.start };
        if let Some(piece) = ram.iter().find(|piece| piece.overlaps(span)) {
            let message = format!(
                "`{}` overlaps the RAM from {:#x} to {:#x}",
                entry.name,
                piece.start,
                piece.end()
            );
            view.report("machine-reserved", &path, message, "take it out of `[[ram]]`");
        }
        all.push((entry.name.clone(), span));
    }
    all
}

/// The image and the cores' start-up code have fixed places.
fn image_memory(view: &mut View<'_, '_>, ram: &[Span]) {
    let Facts { image, start_code, page, .. } = *view.facts;
    let start_code = start_code.map(|start| ("cores' start-up code", start));
    for (what, start) in [("image", image)].into_iter().chain(start_code) {
        let page = Span { start, len: page };
        if !ram.iter().any(|piece| piece.encloses(page)) {
            let message = format!("there is no RAM at {start:#x}, where the {what} goes");
            view.report("machine-image", &[k("ram")], message, "list the RAM there in `[[ram]]`");
        }
    }
}

/// Checks that devices have names of their own. Their ports may overlap: the reset port lies within those of PCI
/// configuration. A manifest cannot grant both to different sandboxes (`port-twice`).
fn devices(view: &mut View<'_, '_>) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    for (index, entry) in view.file.device.iter().enumerate() {
        let path = [k("device"), n(index)];
        let device = device(view, entry, index);
        if let Some(other) = devices.iter().find(|other| other.name == device.name) {
            let message = format!("device `{}` is described twice", other.name);
            view.report("machine-device", &path, message, "every device has a name of its own");
        }
        devices.push(device);
    }
    devices
}

fn device(view: &mut View<'_, '_>, entry: &DeviceEntry, index: usize) -> Device {
    for (position, [first, last]) in entry.ports.iter().enumerate() {
        if first > last {
            let path = [k("device"), n(index), k("ports"), n(position)];
            let message = format!("{first:#x} to {last:#x} is no range of ports");
            view.report("machine-device", &path, message, "the first port is at most the last one");
        }
    }
    Device {
        name: entry.name.clone(),
        class: entry.class.clone(),
        ports: entry
            .ports
            .iter()
            .map(|[first, last]| Ports { first: *first, last: *last })
            .collect(),
        mmio: pages(view, entry, index),
        irq: entry.irq,
        trigger: trigger(entry.trigger.unwrap_or_default()),
        nobody: entry.nobody.clone(),
        place: view.document.at(&[k("device"), n(index)]).place(),
    }
}

/// Whole pages, apart from RAM, from other devices' and from what gives power over all sandboxes.
fn pages(view: &mut View<'_, '_>, entry: &DeviceEntry, index: usize) -> Vec<Span> {
    let mut all = Vec::new();
    for (position, &[start, end]) in entry.mmio.iter().enumerate() {
        let path = [k("device"), n(index), k("mmio"), n(position)];
        let page = view.facts.page;
        if start >= end || !start.is_multiple_of(page) || !end.is_multiple_of(page) {
            let message = format!("{start:#x} to {end:#x} is no range of whole pages");
            let help = format!("write `[start, end]`, both multiples of {page:#x}");
            view.report("machine-device", &path, message, &help);
            continue;
        }
        let span = Span { start, len: end - start };
        if let Some(other) = taken(view, span, index) {
            let message = format!("{start:#x} to {end:#x} overlaps {other}");
            view.report("machine-device", &path, message, "one address has one device");
        }
        all.push(span);
    }
    all
}

/// Names what else has an address of a device's pages.
fn taken(view: &View<'_, '_>, span: Span, index: usize) -> Option<String> {
    let file = view.file;
    let range = |&[start, end]: &[u64; 2]| Span { start, len: end.saturating_sub(start) };
    let ram = file.ram.iter().map(|ram| range(&[ram.start, ram.end]));
    let ram = ram.map(|ram| ("RAM".to_owned(), ram));
    let ecam = file.pci.iter().map(|pci| {
        let len = (u64::from(pci.last_bus) + 1) * 256 * view.facts.function;
        ("the PCI configuration space".to_owned(), Span { start: pci.ecam, len })
    });
    let functions = file.function.iter().flat_map(|function| {
        let memory = function.bars.iter().filter(|bar| bar.kind != raw_machine::BarKind::Io);
        let name = format!("a register of {}", function.address);
        memory.map(move |bar| (name.clone(), Span { start: bar.start, len: bar.size }))
    });
    let others = file.device[..index].iter();
    let others = others.flat_map(|other| {
        other.mmio.iter().map(move |own| (format!("device `{}`", other.name), range(own)))
    });
    let units = units(view).into_iter();
    let mut all = ram.chain(ecam).chain(functions).chain(others).chain(units);
    all.find(|(_, other)| other.overlaps(span)).map(|(name, _)| name)
}

fn trigger(trigger: raw_machine::Trigger) -> Trigger {
    match trigger {
        raw_machine::Trigger::Edge => Trigger::Edge,
        raw_machine::Trigger::LevelHigh => Trigger::LevelHigh,
        raw_machine::Trigger::LevelLow => Trigger::LevelLow,
    }
}

/// True if two devices share a port.
#[must_use]
pub fn share_port(one: &Device, other: &Device) -> bool {
    one.ports.iter().any(|a| other.ports.iter().any(|b| a.overlaps(*b)))
}

fn console(view: &mut View<'_, '_>) -> u16 {
    let Some(name) = &view.file.console else {
        return 0;
    };
    let uarts = || view.file.device.iter().filter(|device| device.class == "uart16550");
    let port = uarts().find(|uart| uart.name == *name).and_then(|uart| uart.ports.first());
    match port {
        Some([first, _]) => *first,
        None => {
            let names: Vec<&String> = uarts().map(|uart| &uart.name).collect();
            let help = format!("name a device of class `uart16550` with ports: {}", list(&names));
            let message = format!("console `{name}` is no such device");
            view.report("machine-console", &[k("console")], message, &help);
            0
        }
    }
}
