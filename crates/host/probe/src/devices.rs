//! Devices of a PC that are no PCI functions. Most of their ports have not changed for decades; the others come from
//! `/proc/ioports` and the FADT.

use crate::acpi::Fixed;
use crate::resources::Resource;
use bulkhead_manifest::raw_machine::DeviceEntry;
use bulkhead_plan::{Ports, Span};

/// Serial ports by first port: name, interrupt.
const UARTS: [(u64, &str, u32); 4] =
    [(0x3F8, "uart0", 4), (0x2F8, "uart1", 3), (0x3E8, "uart2", 4), (0x2E8, "uart3", 3)];

fn device(name: &str, class: &str, ports: &[[u16; 2]], irq: Option<u32>) -> DeviceEntry {
    let (name, class) = (name.to_owned(), class.to_owned());
    DeviceEntry {
        name,
        class,
        ports: ports.to_vec(),
        mmio: Vec::new(),
        irq,
        trigger: None,
        nobody: None,
    }
}

fn nobodys(name: &str, class: &str, ports: &[[u16; 2]], why: &str) -> DeviceEntry {
    DeviceEntry { nobody: Some(why.to_owned()), ..device(name, class, ports, None) }
}

fn pair(span: Span) -> Option<[u16; 2]> {
    Some([u16::try_from(span.start).ok()?, u16::try_from(span.end() - 1).ok()?])
}

/// Returns all of them.
pub fn devices(ports: &[Resource], fixed: Option<&Fixed>) -> Vec<DeviceEntry> {
    let mut all = uarts(ports);
    let named = |name: &str| ports.iter().find(|resource| resource.name == name);
    let span = |name: &str, usual: [u16; 2]| {
        named(name).and_then(|resource| pair(resource.span)).unwrap_or(usual)
    };
    all.push(device("pit", "pit", &[span("timer0", [0x40, 0x43]), [0x61, 0x61]], Some(0)));
    all.push(device("rtc", "rtc", &[[0x70, 0x71]], Some(8)));
    if let Some(timer) = fixed.and_then(|fixed| fixed.timer) {
        all.push(device("pmtimer", "pmtimer", &[[timer.first, timer.last]], None));
    }
    all.push(nobodys(
        "pic",
        "pic",
        &[[0x20, 0x21], [0xA0, 0xA1], [0x4D0, 0x4D1]],
        "it steers the interrupts of all ISA devices",
    ));
    let dma =
        [span("dma1", [0x0, 0x1F]), span("dma page reg", [0x80, 0x8F]), span("dma2", [0xC0, 0xDF])];
    all.push(nobodys("isa-dma", "dma", &dma, "it reads and writes any memory below 16 MiB"));
    let why = "its command 0xfe resets the machine";
    let keyboard = nobodys("i8042", "i8042", &[[0x60, 0x60], [0x64, 0x64]], why);
    all.push(DeviceEntry { irq: Some(1), ..keyboard });
    all.push(nobodys("port92", "reset", &[[0x92, 0x92]], "it resets the machine"));
    if let Some(port) = fixed.and_then(|fixed| fixed.smi) {
        let why = "it enters the firmware's management mode on all cores";
        all.push(nobodys("smi", "smi", &[[port, port.saturating_add(1)]], why));
    }
    let why = "it moves and enables any PCI device";
    all.push(nobodys("pci-config", "pci-config", &[[0xCF8, 0xCFF]], why));
    all.push(nobodys("reset", "reset", &[[0xCF9, 0xCF9]], "it resets the machine"));
    let fw_cfg = |r: &&Resource| r.name.starts_with("QEMU0002") || r.name == "fw_cfg_io";
    if let Some(ports) = ports.iter().find(fw_cfg).and_then(|r| pair(r.span)) {
        let why = "its DMA reads and writes any memory";
        all.push(nobodys("fw_cfg", "fw-cfg", &[ports], why));
    }
    if let Some(fixed) = fixed {
        let why = "it switches the machine off";
        let pm = nobodys("acpi-pm", "acpi-pm", &power(ports, fixed), why);
        all.push(DeviceEntry { irq: Some(fixed.sci), ..pm });
    }
    all
}

fn uarts(ports: &[Resource]) -> Vec<DeviceEntry> {
    let mut all = Vec::new();
    let serial = |at: u64| ports.iter().find(|r| r.name == "serial" && r.span.start == at);
    for (at, name, irq) in UARTS {
        if let Some(ports) = serial(at).and_then(|resource| pair(resource.span)) {
            all.push(device(name, "uart16550", &[ports], Some(irq)));
        }
    }
    let other = |r: &&Resource| r.name == "serial" && UARTS.iter().all(|u| u.0 != r.span.start);
    let others = ports.iter().filter(other).filter_map(|resource| pair(resource.span));
    for (index, ports) in others.enumerate() {
        let name = format!("uart{}", UARTS.len() + index);
        all.push(device(&name, "uart16550", &[ports], None));
    }
    all
}

/// Returns the ports of power management without the timer: the FADT's blocks, and what the
/// chipset decodes around them, as Linux shows it.
fn power(ports: &[Resource], fixed: &Fixed) -> Vec<[u16; 2]> {
    let mut spans: Vec<Span> = Vec::new();
    for block in &fixed.blocks {
        let around = ports.iter().rev().find(|resource| {
            let chipset =
                !resource.name.starts_with("PCI Bus") && !resource.name.starts_with("ACPI");
            chipset && resource.span.encloses(block.span())
        });
        spans.push(around.map_or(block.span(), |resource| resource.span));
    }
    spans.sort_by_key(|span| span.start);
    let mut merged: Vec<Span> = Vec::new();
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start <= last.end() => {
                last.len = last.len.max(span.end() - last.start);
            }
            _ => merged.push(span),
        }
    }
    let mut all = Vec::new();
    for span in merged {
        match fixed.timer.map(Ports::span).filter(|timer| span.encloses(*timer)) {
            Some(timer) => {
                let low = Span { start: span.start, len: timer.start - span.start };
                let high = Span { start: timer.end(), len: span.end() - timer.end() };
                all.extend([low, high].into_iter().filter(|s| s.len > 0).filter_map(pair));
            }
            None => all.extend(pair(span)),
        }
    }
    all
}
