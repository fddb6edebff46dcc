//! PCI functions: their names, their owners, and how they are confined.

use super::{Context, Item};
use crate::diagnostic::{Diagnostic, join};
use crate::raw;
use crate::shape::brief;
use crate::source::{Location, k, n};
use bulkhead_plan::{BarKind, Bdf, Function, Machine, Span};

const PREFIX: &str = "pci:";

/// True if a device's name is that of a PCI function.
#[must_use]
pub fn is_pci(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// The functions that a name fits: `pci:01:00.0`, `pci:1af4:1042`, `pci:class:0108`.
pub fn matching<'m>(machine: &'m Machine, name: &str) -> Vec<&'m Function> {
    let Some(what) = name.strip_prefix(PREFIX) else {
        return Vec::new();
    };
    let what = &what.to_ascii_lowercase();
    let all = machine.functions.iter();
    if let Ok(bdf) = what.parse::<Bdf>() {
        return all.filter(|f| f.bdf == bdf).collect();
    }
    if let Some(digits) = what.strip_prefix("class:") {
        let class = |f: &&Function| format!("{:06x}", f.class).starts_with(digits);
        return all.filter(|f| !digits.is_empty() && nobody(f).is_none() && class(f)).collect();
    }
    all.filter(|f| format!("{:04x}:{:04x}", f.vendor, f.device) == *what).collect()
}

/// Returns the reason why no sandbox can own a function: the machine description's, or one that follows from its
/// class.
#[must_use]
pub fn nobody(function: &Function) -> Option<&str> {
    let by_class = match function.class >> 8 {
        0x0806 => Some("it confines the DMA of others"),
        class if class >> 8 == 0x06 => Some("it forwards for what lies behind it"),
        _ => function.bridge.map(|_| "it forwards for what lies behind it"),
    };
    function.nobody.as_deref().or(by_class)
}

/// True if a function that is granted so signals by its interrupt line.
#[must_use]
pub fn uses_line(function: &Function, grant: &raw::DeviceGrant) -> bool {
    let silent = function.msi.is_none() && function.msix.is_none();
    function.irq.is_some() && (silent || grant.detailed().line)
}

/// The function that a name fits, if it is one alone.
#[must_use]
pub fn the_one<'m>(machine: &'m Machine, name: &str) -> Option<&'m Function> {
    match matching(machine, name)[..] {
        [one] => Some(one),
        _ => None,
    }
}

struct Grant<'a> {
    /// Its owner; of a role, the one that has it at first.
    sandbox: &'a Item<raw::Sandbox>,
    role: Option<&'a Item<raw::Role>>,
    function: &'a Function,
    detailed: raw::DetailedGrant,
    at: Location,
}

impl Grant<'_> {
    /// The name of the sandbox or the role that has it.
    fn owner(&self) -> &str {
        self.role.map_or(&self.sandbox.name, |role| &role.name)
    }

    /// True if both functions are always one sandbox'.
    fn together(&self, other: &Self) -> bool {
        let role = |grant: &Self| grant.role.map(|role| role.index);
        self.sandbox.index == other.sandbox.index && role(self) == role(other)
    }
}

/// Every function that is granted, in the order of the file: those of sandboxes, then those of roles.
fn grants<'a>(cx: &'a Context<'_, '_>) -> Vec<Grant<'a>> {
    let Some(machine) = &cx.machine else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for sandbox in &cx.sandboxes {
        for (index, grant) in sandbox.devices.iter().enumerate() {
            if let Some(function) = the_one(machine, grant.name()) {
                let at = cx.at(sandbox, &[k("devices"), n(index)]);
                all.push(Grant { sandbox, role: None, function, detailed: grant.detailed(), at });
            }
        }
    }
    for role in &cx.roles {
        let first = role.holders.first().and_then(|first| cx.sandbox_index(first));
        let Some(sandbox) = first.map(|first| &cx.sandboxes[first]) else { continue };
        for (index, name) in role.devices.iter().enumerate() {
            if let Some(function) = the_one(machine, name) {
                let (role, at) = (Some(role), cx.at(role, &[k("devices"), n(index)]));
                let detailed = raw::DeviceGrant::Name(name.clone()).detailed();
                all.push(Grant { sandbox, role, function, detailed, at });
            }
        }
    }
    all
}

/// Lists functions for a sentence: a name by which each can be granted, and its kind.
fn show(functions: &[&Function]) -> String {
    let one = |f: &&Function| format!("`pci:{}` ({:04x}:{:04x})", f.bdf, f.vendor, f.device);
    join(&functions.iter().map(one).collect::<Vec<_>>())
}

/// A name fits one function.
pub fn pci_unknown(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Some(machine) = &cx.machine else {
        return;
    };
    let names = cx.sandboxes.iter().flat_map(|sandbox| {
        let names = sandbox.devices.iter().map(raw::DeviceGrant::name).enumerate();
        names.map(move |(index, name)| (name, cx.at(sandbox, &[k("devices"), n(index)])))
    });
    let of_roles = cx.roles.iter().flat_map(|role| {
        let names = role.devices.iter().enumerate();
        names.map(move |(index, name)| (&**name, cx.at(role, &[k("devices"), n(index)])))
    });
    for (name, at) in names.chain(of_roles).filter(|(name, _)| is_pci(name)) {
        let fitting = matching(machine, name);
        if fitting.len() == 1 {
            continue;
        }
        let (message, help) = if fitting.is_empty() {
            let own: Vec<_> = machine.functions.iter().filter(|f| nobody(f).is_none()).collect();
            let help = match own.is_empty() {
                true => "it has none that can be granted".to_owned(),
                false => format!("those that can be granted are {}", show(&own)),
            };
            let name = brief(name);
            (format!("machine `{}` has no PCI function `{name}`", machine.name), help)
        } else {
            let help = format!("name one by its address: {}", show(&fitting));
            (format!("`{}` fits {} functions", brief(name), fitting.len()), help)
        };
        found.push(Diagnostic::new("pci-unknown", at, message).help(help));
    }
}

/// Some functions would give their owner power over all the others.
pub fn pci_nobody(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let requester = cx.machine.as_ref().and_then(|machine| machine.iommu?.ioapic());
    for grant in grants(cx) {
        let ioapic = (Some(grant.function.bdf) == requester)
            .then_some("the IOAPIC's interrupts bear its address");
        if let Some(why) = nobody(grant.function).or(ioapic) {
            let message = format!("{} cannot belong to a sandbox: {why}", grant.function.bdf);
            let help = "leave it out; the bridges above a function are shown to its owner anyway";
            found.push(Diagnostic::new("pci-nobody", grant.at, message).help(help));
        }
    }
}

/// No function has two owners, by whatever names.
pub fn pci_twice(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let grants = grants(cx);
    for (index, grant) in grants.iter().enumerate() {
        let same = |other: &&Grant<'_>| other.function.bdf == grant.function.bdf;
        let Some(first) = grants[..index].iter().find(same) else {
            continue;
        };
        let message = format!(
            "PCI function {} belongs to `{}` and to `{}`",
            grant.function.bdf,
            first.owner(),
            grant.owner()
        );
        found.push(
            Diagnostic::new("pci-twice", grant.at.clone(), message)
                .label("given again")
                .related(first.at.clone(), "given here first")
                .help("a function has one owner; others can use it through a channel"),
        );
    }
}

/// DMA is confined, or the manifest says that it is not. A Linux needs confined DMA, which is translated: its drivers
/// take guest-physical addresses for the machine's.
pub fn pci_dma(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Some(machine) = &cx.machine else {
        return;
    };
    for grant in grants(cx) {
        let unconfined = grant.detailed.dma == raw::Dma::Unconfined;
        let (bdf, at, name) = (grant.function.bdf, grant.at.clone(), grant.owner());
        let linux = matches!(grant.sandbox.guest, raw::Guest::Linux { .. });
        let remaps = machine.iommu.is_some_and(|iommu| iommu.remaps_interrupts);
        let (message, help) = match (machine.iommu.is_some(), unconfined) {
            (true, _) if grant.role.is_some() && !remaps => (
                format!("{bdf} could signal any core, so it cannot move with a role"),
                "take a machine whose IOMMU remaps interrupts, or leave it out".to_owned(),
            ),
            (false, _) if linux => (
                format!(
                    "nothing translates the DMA of {bdf}: machine `{}` has no IOMMU, and the \
                     RAM of Linux `{name}` is not where its drivers take it to be, so the \
                     function would write to other sandboxes' memory",
                    machine.name
                ),
                format!(
                    "take it out of `devices`; a bare guest that computes the machine's \
                     addresses can have it with `{{ device = \"pci:{bdf}\", \
                     dma = \"unconfined\" }}`"
                ),
            ),
            (false, false) if grant.role.is_some() => (
                format!("nothing confines the DMA of {bdf}, so it cannot move with a role"),
                "take a machine with an IOMMU, or leave it out".to_owned(),
            ),
            (false, false) => (
                match cx.multikernel() {
                    true => {
                        format!("nothing confines the DMA of {bdf} in a system without monitors")
                    }
                    false => format!(
                        "nothing confines the DMA of {bdf}: machine `{}` has no IOMMU",
                        machine.name
                    ),
                },
                format!(
                    "if `{name}` may read and write all memory, write \
                     `{{ device = \"pci:{bdf}\", dma = \"unconfined\" }}`"
                ),
            ),
            (true, true) => (
                format!("the DMA of {bdf} is confined by the IOMMU of `{}`", machine.name),
                "leave out `dma = \"unconfined\"`".to_owned(),
            ),
            _ => continue,
        };
        found.push(Diagnostic::new("pci-dma", at, message).help(help));
    }
}

/// Functions that the IOMMU cannot tell apart have one owner.
pub fn pci_group(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let grants = grants(cx);
    for (index, grant) in grants.iter().enumerate() {
        let others = grants[..index].iter().filter(|other| !grant.together(other));
        let mut clashes = others.filter_map(|other| {
            let same = other.function.bdf == grant.function.bdf;
            // That has a rule of its own.
            Some((other, other.function.alike(grant.function).filter(|_| !same)?))
        });
        if let Some((first, how)) = clashes.next() {
            let message = format!(
                "{} and {} {how}: their DMA cannot be told apart",
                first.function.bdf, grant.function.bdf
            );
            found.push(
                Diagnostic::new("pci-group", grant.at.clone(), message)
                    .related(first.at.clone(), "given here to another sandbox")
                    .help("give all functions of a group to one sandbox"),
            );
        }
    }
}

/// No function can pass for another on the way to the IOMMU. Each port above a function refuses requests with a bus
/// number that is not behind it. On bus 0 the chipset itself makes requester IDs.
pub fn pci_source(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Some(machine) = cx.machine.as_ref().filter(|machine| machine.iommu.is_some()) else {
        return;
    };
    for grant in grants(cx) {
        let (bdf, bus) = (grant.function.bdf, grant.function.bdf.bus());
        let above = |f: &&Function| {
            f.bridge
                .is_some_and(|b| b.acs.is_none() && (b.secondary..=b.subordinate).contains(&bus))
        };
        let Some(port) = machine.functions.iter().find(above) else { continue };
        let message = format!(
            "{bdf} could pass for any other function: the port {} above it has no source validation",
            port.bdf
        );
        found.push(
            Diagnostic::new("pci-source", grant.at, message)
                .label("the IOMMU goes by requester IDs")
                .help(
                    "take a function behind a port that has access control services with it (`acs` in \
                     `[function.bridge]` of the machine description; `bulkhead-probe` finds them as root)",
                ),
        );
    }
}

/// Pages that a function's memory BARs touch.
fn pages(function: &Function, page: u64) -> impl Iterator<Item = (u8, Span)> + '_ {
    function
        .bars
        .iter()
        .filter(|bar| bar.kind != BarKind::Io)
        .map(move |bar| (bar.number, bar.span.pages_of(page)))
}

/// Those of them with its MSI-X table, by the number of the BAR.
fn trapped(function: &Function, page: u64) -> Option<(u8, Span)> {
    let (table, pages) = (function.msix?.table, function.trapped(page)?);
    let bar = function.bars.iter().find(|bar| bar.span.contains(table))?;
    Some((bar.number, pages))
}

/// No page holds registers of two functions, unless one sandbox owns both and neither of them is an MSI-X table. A
/// trapped page belongs to one function.
pub fn pci_page(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let grants = grants(cx);
    let Some(machine) = &cx.machine else {
        return;
    };
    let size = machine.arch.facts().page;
    for grant in &grants {
        let owned = |f: &Function| {
            grants.iter().any(|other| other.function.bdf == f.bdf && grant.together(other))
        };
        for other in machine.functions.iter().filter(|f| f.bdf != grant.function.bdf) {
            let together = owned(other);
            let mut own: Vec<_> = match together {
                true => trapped(grant.function, size).into_iter().collect(),
                false => pages(grant.function, size).collect(),
            };
            own.retain(|(_, page)| pages(other, size).any(|(_, span)| span.overlaps(*page)));
            let clash = own.first();
            if let Some((number, page)) = clash {
                let message = format!(
                    "BAR {number} of {} shares a page at {:#x} with {}",
                    grant.function.bdf, page.start, other.bdf
                );
                let help = match together {
                    true => {
                        "it holds an MSI-X table: give one of them another address in the \
                         machine description"
                    }
                    false => {
                        "give both functions to one sandbox, or one of them another address in \
                         the machine description"
                    }
                };
                found.push(Diagnostic::new("pci-page", grant.at.clone(), message).help(help));
            }
        }
    }
}

/// BARs lie in the host bridge's windows, where no guest has anything else.
/// Behind bridges the machine's own rule ([`crate::machine`]) sees to it.
pub fn pci_window(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Some(machine) = &cx.machine else {
        return;
    };
    let (windows, ports) =
        machine.pci.as_ref().map_or((&[][..], &[][..]), |pci| (&pci.memory, &pci.ports));
    let guest = machine.arch.facts().guest;
    let [low, high] = guest.ram;
    let own = Span { start: low.start, len: guest.links.end() - low.start };
    for grant in grants(cx) {
        for bar in &grant.function.bars {
            let high = Span { len: machine.ram_size().saturating_sub(low.len), ..high };
            let io = bar.kind == BarKind::Io;
            let decoded = match io {
                true => ports.iter().any(|ports| ports.span().encloses(bar.span)),
                false => windows.iter().any(|window| window.encloses(bar.span)),
            };
            let help = if !decoded {
                "`[pci]` of the machine description says where memory and ports of PCI \
                 functions can be"
            } else if !io && (bar.span.overlaps(own) || bar.span.overlaps(high)) {
                "a guest has its RAM, its channels and its configuration space there"
            } else {
                continue;
            };
            let message = format!(
                "BAR {} of {} cannot be at {:#x}",
                bar.number, grant.function.bdf, bar.span.start
            );
            found.push(Diagnostic::new("pci-window", grant.at.clone(), message).help(help));
        }
    }
}
