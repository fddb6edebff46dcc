//! PCI functions and the host bridge, as Linux shows them. Groups are numbered anew, and windows that nothing uses are
//! left out. So a description does not depend on the drivers that Linux tried, nor on their order.

use crate::config::{self, Config};
use crate::lines::{self, Line};
use crate::reset;
use crate::resources::Resource;
use crate::tree::Tree;
use bulkhead_manifest::raw_machine::{BarEntry, BarKind, BridgeEntry, FunctionEntry, PciRoot};
use bulkhead_plan::{Bdf, Bridge, Ports, Span};

const FOLDER: &str = "sys/bus/pci/devices";

/// A function with what is not part of its description.
struct Seen {
    bdf: Bdf,
    config: Config,
    /// Name of its IOMMU group.
    group: Option<String>,
    bars: Vec<BarEntry>,
    line: Line,
}

/// Tells why no sandbox can own a function of that class (PCI Code and ID 1.11).
fn nobody(class: u32) -> Option<&'static str> {
    Some(match class >> 8 {
        0x0600 => "it decodes the machine's memory",
        0x0601 => "the ISA devices are behind it, and it routes interrupts",
        0x0800 => "it routes interrupts or counts time for all",
        0x0806 => "it confines the DMA of all others",
        0x0C05 => "it reaches the memory modules' registers",
        class if class >> 8 == 0x06 => "it forwards for what lies behind it",
        _ => return None,
    })
}

/// Flags of Linux's resources (include/linux/ioport.h is their definition).
mod flags {
    pub const IO: u64 = 0x100;
    pub const MEMORY: u64 = 0x200;
    pub const PREFETCH: u64 = 0x2000;
    pub const WIDE: u64 = 0x10_0000;
    pub const UNSET: u64 = 0x2000_0000;
}

/// Returns the base address registers that have an address.
fn bars(resource: &str, config: &Config, bdf: Bdf, notes: &mut Vec<String>) -> Vec<BarEntry> {
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let registers = if config.bridge.is_some() { 2 } else { 6 };
    let mut all = Vec::new();
    for (bar, line) in resource.lines().take(registers).enumerate() {
        let mut words = line.split_whitespace().map_while(number);
        let (Some(start), Some(last), Some(flags)) = (words.next(), words.next(), words.next())
        else {
            break;
        };
        let (io, wide) = (flags & flags::IO != 0, flags & flags::WIDE != 0);
        if flags & (flags::IO | flags::MEMORY) == 0 {
            continue;
        }
        let upper = config.bars.get(bar + 1).copied().filter(|_| wide).unwrap_or(0);
        // Compatible IDE has fixed ports and no registers for them.
        let fixed = config.bars[bar] & !0xF == 0 && upper == 0;
        let size = last.checked_sub(start).and_then(|len| len.checked_add(1));
        let size =
            size.filter(|size| start != 0 && flags & flags::UNSET == 0 && !fixed && *size > 0);
        let Some(size) = size else {
            notes.push(format!("BAR {bar} of {bdf} has no address and is left out"));
            continue;
        };
        let kind = match (io, wide, flags & flags::PREFETCH != 0) {
            (true, ..) => BarKind::Io,
            (_, false, false) => BarKind::Memory,
            (_, false, true) => BarKind::MemoryPrefetchable,
            (_, true, false) => BarKind::Memory64,
            (_, true, true) => BarKind::Memory64Prefetchable,
        };
        all.push(BarEntry { bar: bar as u8, kind, start, size });
    }
    all
}

/// Everything in segment 0 that answers.
fn seen(tree: &Tree, notes: &mut Vec<String>) -> Vec<Seen> {
    let mut all = Vec::new();
    for name in tree.names(FOLDER) {
        let folder = format!("{FOLDER}/{name}");
        let Some(bdf) = name.strip_prefix("0000:").and_then(|name| name.parse().ok()) else {
            notes.push(format!("{name} is not in PCI segment 0 and is left out"));
            continue;
        };
        if tree.has(&format!("{folder}/physfn")) {
            notes.push(format!("{bdf} is a virtual function and is left out"));
            continue;
        }
        let bytes = tree.bytes(&format!("{folder}/config")).unwrap_or_default();
        let Some(config) = config::read(&bytes) else {
            notes.push(format!("{bdf} does not answer and is left out"));
            continue;
        };
        if bytes.len() < 256 {
            notes.push(format!("the capabilities of {bdf} cannot be read: only root may"));
        }
        let resource = tree.text(&format!("{folder}/resource")).unwrap_or_default();
        let bars = bars(&resource, &config, bdf, notes);
        let group = tree.link(&format!("{folder}/iommu_group"));
        let line = lines::of(tree, &folder, &config);
        all.push(Seen { bdf, config, group, bars, line });
    }
    all.sort_by_key(|seen| seen.bdf);
    unreached(&mut all, notes);
    all
}

/// Leaves out what is behind another host bridge: a description has one.
fn unreached(all: &mut Vec<Seen>, notes: &mut Vec<String>) {
    let buses: Vec<(u8, u8)> = all
        .iter()
        .filter_map(|seen| Some((seen.bdf.bus(), seen.config.bridge?.secondary)))
        .collect();
    // Bridges lead down, so that as many steps as there are bridges are enough.
    let mut reached = vec![0];
    for _ in 0..buses.len() {
        let next = |(bus, secondary): &(u8, u8)| {
            reached.contains(bus) && !reached.contains(secondary) && *secondary > *bus
        };
        let more: Vec<u8> = buses.iter().filter(|b| next(b)).map(|b| b.1).collect();
        reached.extend(more);
    }
    all.retain(|seen| {
        let kept = reached.contains(&seen.bdf.bus());
        if !kept {
            notes.push(format!("{} is behind another host bridge and is left out", seen.bdf));
        }
        kept
    });
}

fn pair(span: Span) -> [u64; 2] {
    [span.start, span.end()]
}

fn place(bar: &BarEntry) -> Span {
    Span { start: bar.start, len: bar.size }
}

/// Tells if a window holds a BAR of a function behind the bridge.
fn used(all: &[Seen], windows: &Bridge, window: Span, io: bool) -> bool {
    let behind = |seen: &&Seen| (windows.secondary..=windows.subordinate).contains(&seen.bdf.bus());
    let inside = |bar: &BarEntry| (bar.kind == BarKind::Io) == io && window.encloses(place(bar));
    all.iter().filter(behind).any(|seen| seen.bars.iter().any(inside))
}

fn bridge(all: &[Seen], windows: &Bridge) -> BridgeEntry {
    let memory =
        |window: Option<Span>| window.filter(|window| used(all, windows, *window, false)).map(pair);
    let ports = windows.ports.filter(|ports| used(all, windows, ports.span(), true));
    BridgeEntry {
        secondary: windows.secondary,
        subordinate: windows.subordinate,
        memory: memory(windows.memory),
        prefetchable: memory(windows.prefetchable),
        ports: ports.map(|ports| [ports.first, ports.last]),
        acs: windows.acs,
    }
}

/// Groups with more than one function, numbered from 1 by their first one.
fn groups(all: &[Seen]) -> Vec<Option<u32>> {
    let mut numbers: Vec<&str> = Vec::new();
    let mut group = |seen: &Seen| {
        let name = all.iter().find(|other| other.group == seen.group)?.group.as_deref()?;
        if all.iter().filter(|other| other.group == seen.group).count() < 2 {
            return None;
        }
        let index = numbers.iter().position(|known| *known == name).unwrap_or_else(|| {
            numbers.push(name);
            numbers.len() - 1
        });
        Some(index as u32 + 1)
    };
    all.iter().map(&mut group).collect()
}

/// Returns all functions, by address.
pub fn functions(tree: &Tree, notes: &mut Vec<String>) -> Vec<FunctionEntry> {
    let all = seen(tree, notes);
    let groups = groups(&all);
    for seen in all.iter().filter(|s| s.line == Line::Unknown && nobody(s.config.class).is_none()) {
        notes.push(format!(
            "Linux has not routed the line of {}: with `pci=routeirq` it does",
            seen.bdf
        ));
    }
    all.iter()
        .zip(groups)
        .map(|(seen, group)| {
            let config = &seen.config;
            let why = nobody(config.class)
                .or(config.bridge.map(|_| "it forwards for what lies behind it"));
            // A function that no sandbox can own needs no capabilities.
            let own = why.is_none();
            FunctionEntry {
                address: seen.bdf.to_string(),
                vendor: config.vendor,
                device: config.device,
                class: config.class,
                requesters: Vec::new(),
                group,
                gsi: match seen.line {
                    Line::Gsi(gsi) if own => Some(gsi),
                    _ => None,
                },
                bars: seen.bars.clone(),
                pm: config.pm.clone().filter(|_| own),
                msi: config.msi.clone().filter(|_| own),
                msix: config.msix.clone().filter(|_| own),
                // With a bridge's the boot code switches off its reports of errors.
                pcie: config.pcie.clone().filter(|_| own || config.bridge.is_some()),
                af: config.af.clone().filter(|_| own),
                reset: if own { reset::steps(config, &seen.bars) } else { Vec::new() },
                bridge: config
                    .bridge
                    .filter(|b| b.secondary > seen.bdf.bus())
                    .map(|windows| bridge(&all, &windows)),
                nobody: why.map(str::to_owned),
            }
        })
        .collect()
}

/// Tells if Linux knows IOMMU groups at all.
pub fn knows_groups(tree: &Tree) -> bool {
    let link = |name: &String| tree.has(&format!("{FOLDER}/{name}/iommu_group"));
    tree.names(FOLDER).iter().any(link)
}

/// Ranges that the host bridge decodes.
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    /// Memory above the first MiB.
    pub memory: Vec<Span>,
    /// Ports.
    pub ports: Vec<Ports>,
}

/// Returns the host bridge's windows, ascending.
pub fn windows(memory: &[Resource], ports: &[Resource]) -> Decoded {
    let root = |resource: &&Resource| resource.name == "PCI Bus 0000:00";
    let mut all = Decoded::default();
    let memory = memory.iter().filter(root).map(|resource| resource.span);
    all.memory.extend(memory.filter(|span| span.start >= 1 << 20));
    for span in ports.iter().filter(root).map(|resource| resource.span) {
        if let (Ok(first), Ok(last)) = (u16::try_from(span.start), u16::try_from(span.end() - 1)) {
            all.ports.push(Ports { first, last });
        }
    }
    all.memory.sort_by_key(|span| span.start);
    all.ports.sort_by_key(|ports| ports.first);
    all
}

/// Returns the host bridge, with those windows that something on bus 0 uses.
pub fn root(ecam: (u64, u8), windows: &Decoded, functions: &[FunctionEntry]) -> PciRoot {
    let mut memory: Vec<Span> = Vec::new();
    let mut ports: Vec<Span> = Vec::new();
    for function in functions {
        for bar in &function.bars {
            match bar.kind {
                BarKind::Io if function.nobody.is_none() => ports.push(place(bar)),
                BarKind::Io => {}
                _ => memory.push(place(bar)),
            }
        }
    }
    let memory_used = windows.memory.iter().filter(|w| memory.iter().any(|m| w.encloses(*m)));
    let ports_used = windows.ports.iter().filter(|w| ports.iter().any(|p| w.span().encloses(*p)));
    PciRoot {
        ecam: ecam.0,
        ecam_register: None,
        last_bus: ecam.1,
        memory: memory_used.map(|window| pair(*window)).collect(),
        ports: ports_used.map(|ports| [ports.first, ports.last]).collect(),
    }
}
