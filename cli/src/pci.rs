//! A plan's part about PCI functions and interrupt lines, and about things that are shared or not confined.

use crate::text::{Sheet, joined, port_range, table};
use bulkhead_manifest::rules::pci::nobody;
use bulkhead_manifest::size::show;
use bulkhead_plan::{Bar, BarKind, Function, Granted, Plan, Ports, Sandbox, Trigger};

/// Every function that is granted, with its owner.
fn granted(plan: &Plan) -> impl Iterator<Item = (&Sandbox, &Granted)> {
    plan.sandboxes.iter().flat_map(|owner| owner.functions.iter().map(move |one| (owner, one)))
}

/// A base address register: number, place, size.
fn bar(bar: &Bar) -> String {
    match bar.kind {
        BarKind::Io => {
            let (first, last) = (bar.span.start as u16, (bar.span.end() - 1) as u16);
            format!("{}: ports {}", bar.number, port_range(Ports { first, last }))
        }
        BarKind::Memory { .. } => {
            format!("{}: {:#x} {}", bar.number, bar.span.start, show(bar.span.len))
        }
    }
}

/// How it can signal.
fn interrupts(function: &Function, line: bool) -> String {
    let msix = function.msix.map(|msix| format!("{} MSI-X", msix.vectors));
    let msi = function.msi.map(|_| "MSI".to_owned());
    let line = function.irq.filter(|_| line).map(|irq| format!("line {irq}"));
    joined(msix.into_iter().chain(msi).chain(line))
}

/// How it is reset when its owner starts anew.
fn reset(function: &Function) -> &'static str {
    if function.pcie.or(function.af).is_some_and(|capability| capability.flr) {
        if function.reset.is_empty() { "FLR" } else { "registers, else FLR" }
    } else if function.pm.is_some_and(|pm| pm.resets) {
        "D3hot"
    } else if !function.reset.is_empty() {
        "registers"
    } else {
        "none"
    }
}

/// Lists all functions with their class, resources and owner.
pub fn functions(out: &mut Sheet, plan: &Plan) {
    let Some(root) = &plan.machine.pci else { return };
    let iommu = plan.machine.iommu.is_some();
    let row = |function: &Function| {
        let grant = granted(plan).find(|(_, one)| one.function.bdf == function.bdf);
        let dma = match (&grant, iommu) {
            (Some((_, one)), _) if one.unconfined => "unconfined",
            (Some((owner, one)), _) => &format!("memory of {}", plan.owner(owner, one)),
            (None, true) => "blocked",
            (None, false) => "switched off",
        };
        let (owner, why) = match (&grant, nobody(function)) {
            (Some((owner, one)), _) => (plan.owner(owner, one), format!("line {}", one.place.line)),
            (None, Some(why)) => ("nobody".into(), why.to_owned()),
            (None, None) => ("-".into(), "-".into()),
        };
        vec![
            function.bdf.to_string(),
            format!("{:04x}:{:04x}", function.vendor, function.device),
            format!("{:06x}", function.class),
            function.group.map_or("-".into(), |group| group.to_string()),
            joined(function.bars.iter().map(bar)),
            match &grant {
                // It sends none to anybody.
                Some((_, one)) if one.role.is_some() => "-".into(),
                grant => interrupts(function, grant.as_ref().is_some_and(|(_, one)| one.line)),
            },
            reset(function).into(),
            dma.to_owned(),
            owner,
            why,
        ]
    };
    let rows: Vec<Vec<String>> = plan.machine.functions.iter().map(row).collect();
    let heads = [
        "function",
        "vendor:device",
        "class",
        "group",
        "BARs",
        "interrupts",
        "reset",
        "DMA",
        "owner",
        "granted at, or why not",
    ];
    let title = format!(
        "PCI functions (ECAM at {:#x}; seen at their own addresses, with the bridges above)",
        root.ecam
    );
    table(out, &title, &heads, &rows);
}

/// An interrupt line that a sandbox owns.
pub struct Line<'a> {
    /// Its number.
    pub number: u32,
    /// How it signals.
    pub trigger: Trigger,
    /// The device that signals by it.
    pub device: String,
    /// Its owner.
    pub owner: &'a Sandbox,
}

/// All lines that sandboxes own, ascending.
#[must_use]
pub fn lines(plan: &Plan) -> Vec<Line<'_>> {
    let devices = plan.sandboxes.iter().flat_map(|owner| {
        owner.devices.iter().filter_map(move |device| {
            let (number, device, trigger) = (device.irq?, device.name.clone(), device.trigger);
            Some(Line { number, trigger, device, owner })
        })
    });
    let functions = granted(plan).filter(|(_, one)| one.line).filter_map(|(owner, one)| {
        let device = format!("pci:{}", one.function.bdf);
        Some(Line { number: one.function.irq?, trigger: Trigger::LevelLow, device, owner })
    });
    let mut all: Vec<Line<'_>> = devices.chain(functions).collect();
    all.sort_by_key(|line| line.number);
    all
}

/// The table of lines.
pub fn interrupt_lines(out: &mut Sheet, plan: &Plan) {
    let trigger = |trigger| match trigger {
        Trigger::Edge => "edge",
        Trigger::LevelHigh => "level, high",
        Trigger::LevelLow => "level, low",
    };
    let rows: Vec<Vec<String>> = lines(plan)
        .into_iter()
        .map(|line| {
            let signals = trigger(line.trigger).to_owned();
            vec![line.number.to_string(), signals, line.device, line.owner.name.clone()]
        })
        .collect();
    table(out, "Interrupt lines", &["line", "signals", "device", "owner"], &rows);
}

/// A thing that is shared, or that nothing confines, and the consequence.
pub type Remark = (String, String);

/// Lists the granted functions and lines that nothing confines, or only a monitor.
#[must_use]
pub fn not_confined(plan: &Plan) -> Vec<Remark> {
    let mut all: Vec<Remark> = Vec::new();
    let mut add = |what: String, effect: &str| all.push((what, effect.to_owned()));
    if plan.multikernel {
        add(
            "kernels".into(),
            "there are no monitors: each can reach all memory, devices and cores; a program is confined by its \
             kernel alone",
        );
    }
    let index =
        |of: &Sandbox| plan.sandboxes.iter().position(|one| one.name == of.name).unwrap_or(0);
    for (owner, one) in granted(plan) {
        let function = &one.function;
        let name = format!("pci:{} of {}", function.bdf, plan.owner(owner, one));
        // A role's is listed once.
        if !plan.counts(index(owner), one) {
            continue;
        }
        if one.unconfined {
            add(
                format!("DMA of {name}"),
                "nothing confines it: its owner can read and write all memory, and signal any core",
            );
        }
        if reset(function) == "none" {
            let effect = match one.unconfined {
                true => {
                    "it has no reset: what its owner told it goes on when the owner starts anew"
                }
                false => {
                    "it has no reset: its DMA is stopped and stays within its owner's memory, but \
                     it may remember what it was told before"
                }
            };
            add(format!("restart of {name}"), effect);
        }
        let group = |f: &&Function| f.group.is_some() && f.group == function.group;
        let own = |g: &&Granted| g.role == one.role;
        let foreign =
            |f: &&Function| !owner.functions.iter().filter(own).any(|g| g.function.bdf == f.bdf);
        let others = plan.machine.functions.iter().filter(group).filter(foreign);
        let others = joined(others.map(|f| f.bdf));
        if others != "-" {
            add(
                format!("{name} and {others}"),
                "one IOMMU group: the first can reach the others' registers without the IOMMU \
                 seeing it",
            );
        }
    }
    let confined = granted(plan).any(|(_, one)| !one.unconfined);
    if confined && plan.machine.iommu.is_some_and(|iommu| !iommu.remaps_interrupts) {
        add(
            "messages of PCI functions".into(),
            "the IOMMU does not remap interrupts: a DMA write can signal any vector to any core",
        );
    }
    let lines = lines(plan);
    let level = lines.iter().find(|line| line.trigger != Trigger::Edge);
    let seen = plan.machine.iommu.map_or(Some(false), |iommu| iommu.remaps_lines());
    let remaps_level = plan.machine.iommu.is_some_and(|iommu| iommu.is_vtd());
    let why = match (lines.first(), level, seen) {
        _ if plan.multikernel => None,
        (Some(_), _, Some(false)) => Some("no IOMMU sees the IOAPIC's messages"),
        (_, Some(_), _) if !remaps_level => {
            Some("a level-triggered line is owned, so no IOMMU remaps messages")
        }
        (Some(_), _, None) => {
            Some("the IOMMU may not see the IOAPIC's messages (found out at boot)")
        }
        _ => None,
    };
    if let Some((line, why)) = level.or(lines.first()).zip(why) {
        add(
            format!("IOAPIC (line {} of {})", line.number, line.owner.name),
            &format!("{why}: only the monitors' mediation keeps lines to their owners"),
        );
    }
    all
}

/// Lists the things that several sandboxes share because of functions and lines.
#[must_use]
pub fn shared(plan: &Plan) -> Vec<Remark> {
    let several = |mut owners: Vec<&str>| {
        owners.sort_unstable();
        owners.dedup();
        owners.len() > 1
    };
    let mut all: Vec<Remark> = Vec::new();
    let mut add = |what: &str, effect: &str| all.push((what.to_owned(), effect.to_owned()));
    if !plan.multikernel
        && several(lines(plan).iter().map(|line| line.owner.name.as_str()).collect())
    {
        add(
            "IOAPIC registers",
            "its index and window, under a lock that a monitor holds for four stores",
        );
    } else {
        add("interrupt controllers", "PIC: masked, nobody's; IOAPIC: one owner at most");
    }
    if several(granted(plan).map(|(owner, _)| owner.name.as_str()).collect()) {
        add(
            "PCI, IOMMU and its caches",
            "functions of one sandbox can slow those of others: their speed, not their data",
        );
    }
    all
}
