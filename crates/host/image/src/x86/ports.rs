//! Ports that an unmodified Linux probes on any PC and that no sandbox owns. For it, they are absent (reads give the
//! value, writes go nowhere), without a record. The reasons are in docs/decisions/0005-absent-ports.md.

use bulkhead_arch_x86::config::Quiet;
use bulkhead_layout::x86::port::POWER_PORT;
use bulkhead_plan::{BarKind, Device, Plan};
use std::ops::RangeInclusive;

const ONES: u64 = u32::MAX as u64;

const ABSENT: &[(u32, u32, u64)] = &[
    (0x00, 0x1F, ONES),                            // DMA controller
    (0x20, 0x21, ONES),                            // PIC
    (0x2E, 0x2F, ONES),                            // super I/O
    (0x40, 0x43, ONES),                            // PIT
    (0x4E, 0x4F, ONES),                            // super I/O
    (0x60, 0x61, ONES),                            // keyboard controller, speaker gate
    (0x64, 0x64, ONES),                            // keyboard controller
    (0x70, 0x71, 0),      // RTC: all ones would read as "update in progress" for ever
    (0x80, 0x8F, ONES),   // DMA pages, delay port
    (0xA0, 0xA1, ONES),   // PIC
    (0xC0, 0xDF, ONES),   // DMA controller
    (0xED, 0xED, ONES),   // delay port
    (0xF0, 0xF1, ONES),   // x87 error
    (0x170, 0x177, ONES), // IDE
    (0x1F0, 0x1F7, ONES), // IDE
    (0x279, 0x279, ONES), // ISA PnP
    (0x2E8, 0x2EF, ONES), // serial
    (0x2F8, 0x2FF, ONES), // serial
    (0x376, 0x376, ONES), // IDE
    (0x3B0, 0x3DF, ONES), // VGA
    (0x3E8, 0x3EF, ONES), // serial
    (0x3F0, 0x3F7, ONES), // floppy, IDE
    (0x3F8, 0x3FF, ONES), // serial
    (0x4D0, 0x4D1, ONES), // PIC edge and level
    (POWER_PORT as u32, POWER_PORT as u32 + 1, 0), // sleep control and status
    (0xA79, 0xA79, ONES), // ISA PnP
    (0xCF8, 0xCF8, ONES), // PCI configuration; 0xCF9 is the reset port, denied
    (0xCFA, 0xCFF, ONES),
    (0x5658, 0x5659, ONES), // VMware's port: the clocks' frequencies
];

/// Tells if a sandbox owns a port.
fn owned(plan: &Plan, port: u32) -> bool {
    let mut devices = plan.sandboxes.iter().flat_map(|s| &s.devices);
    devices
        .any(|d| d.ports.iter().any(|p| (u32::from(p.first)..=u32::from(p.last)).contains(&port)))
        || given(plan, port)
}

/// Tells if a port is one of a function that a running Linux has given away.
fn given(plan: &Plan, port: u32) -> bool {
    let others = (0..plan.sandboxes.len()).filter(|n| plan.block.is_some() && !plan.runs(*n));
    let functions = others.flat_map(|n| &plan.sandboxes[n].functions);
    let mut bars = functions.flat_map(|granted| &granted.function.bars);
    bars.any(|bar| bar.kind == BarKind::Io && bar.span.contains(port.into()))
}

/// Ports that a Linux which runs already has no more: they reset the machine, put it to sleep, or call its firmware.
const WITHHELD: &[(u32, u32, u64)] = &[
    (0x64, 0x64, ONES),   // keyboard controller's command
    (0xB2, 0xB2, ONES),   // SMI command
    (0x604, 0x605, ONES), // power management control of QEMU's q35
    (0x660, 0x67F, ONES), // its TCO, a watchdog that resets the machine
    (0xCF9, 0xCF9, ONES), // reset control
];

/// A kernel that boots writes a byte there, and sees so if PCI is configured by ports. Without an IOMMU of the
/// monitors' the port is the Linux' own, and it does not begin anew.
const PROBED: (u32, u32, u64) = (0xCFB, 0xCFB, ONES);

/// Port of a delay, among those of a DMA controller.
const DELAY: u32 = 0x80;

/// Further ones, of devices that are nobody's. They reach memory by themselves, reset the machine, or take parts out of
/// it. Registers of power management that have an interrupt stay, as the Linux answers that.
fn withheld(plan: &Plan) -> Vec<(u32, u32)> {
    let taken = |device: &&Device| {
        let class = device.class.as_str();
        let dangerous = matches!(class, "dma" | "fw-cfg" | "reset" | "smi")
            || class == "acpi-pm" && device.irq.is_none();
        device.nobody.is_some() && dangerous
    };
    let machine = &plan.machine;
    let devices = machine.devices.iter().filter(taken).flat_map(|device| &device.ports);
    let chipset = machine.functions.iter().filter(|f| f.nobody.is_some() && f.bridge.is_none());
    let bars = chipset.flat_map(|f| &f.bars).filter(|bar| bar.kind == BarKind::Io);
    { devices.map(|ports| (ports.first.into(), ports.last.into())) }
        .chain(bars.map(|bar| (bar.span.start as u32, bar.span.end() as u32 - 1)))
        .flat_map(|(first, last)| match (first..=last).contains(&DELAY) {
            true => vec![(first, DELAY - 1), (DELAY + 1, last)],
            false => vec![(first, last)],
        })
        .filter(|(first, last)| first <= last)
        .collect()
}

/// Ports by which PCI is configured (PCI 3.0, 3.2.2.3.2).
const CONFIGURES: RangeInclusive<u16> = 0xCF8..=0xCFF;

/// Tells if a Linux that runs already keeps a port. It has no port of other sandboxes, none by which it asks its
/// monitor, and none of [`WITHHELD`]. Where its devices are confined it has none of [`CONFIGURES`]. It keeps
/// [`POWER_PORT`]: the registers of the machine's own power management can be there.
pub fn left(plan: &Plan, port: u16) -> bool {
    let mut answered = plan.machine.arch.facts().answered.iter();
    let asks = answered.any(|(p, _)| p.first != POWER_PORT && (p.first..=p.last).contains(&port));
    let has = |first: u32, last: u32| (first..=last).contains(&port.into());
    let taken =
        WITHHELD.iter().any(|w| has(w.0, w.1)) || withheld(plan).iter().any(|w| has(w.0, w.1));
    let configures = plan.machine.pci.is_some() && CONFIGURES.contains(&port);
    !asks && !configures && !taken && !owned(plan, port.into())
}

/// The absent ports of a Linux, without those that some sandbox owns. One that runs already has most of them.
pub fn absent(plan: &Plan, runs: bool) -> Vec<Quiet> {
    let mut ranges: Vec<Quiet> = Vec::new();
    let mut all = if runs { WITHHELD } else { ABSENT }.to_vec();
    if runs {
        all.extend(withheld(plan).into_iter().map(|(first, last)| (first, last, ONES)));
        if (0..plan.sandboxes.len()).any(|index| plan.begins_anew(index)) {
            all.push(PROBED);
        }
        all.sort_unstable();
    }
    for (first, last, value) in all {
        for port in (first..=last).filter(|&p| !owned(plan, p)) {
            match ranges.last_mut() {
                Some(r) if r.last + 1 == port && r.value == value => r.last = port,
                _ => ranges.push(Quiet { first: port, last: port, value }),
            }
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_plan::{Bar, Function, Granted, Guest, Sandbox, Span};

    #[test]
    fn a_running_linux_has_no_ports_of_functions_that_it_gave_away() {
        let of = |guest, start| {
            let bars = vec![Bar { number: 2, kind: BarKind::Io, span: Span { start, len: 0x20 } }];
            let function = Function { bars, ..Function::default() };
            let functions = vec![Granted { function, ..Granted::default() }];
            Sandbox { guest, functions, ..Sandbox::default() }
        };
        let sandboxes = vec![of(Guest::default(), 0xC000), of(Guest::Running, 0xD000)];
        let mut plan = Plan { sandboxes, block: Some(Span::default()), ..Plan::default() };
        for (port, has) in
            [(0xBFFF, true), (0xC000, false), (0xC01F, false), (0xC020, true), (0xD000, true)]
        {
            assert_eq!(left(&plan, port), has, "{port:#x}");
        }
        plan.block = None;
        assert!(!given(&plan, 0xC000));
    }

    #[test]
    fn a_kernel_that_boots_anew_may_look_how_pci_is_configured() {
        let linux = |again| Sandbox { guest: Guest::Running, again, ..Sandbox::default() };
        let quiet = |again| {
            let plan = Plan { sandboxes: vec![linux(again)], ..Plan::default() };
            Quiet::find(&absent(&plan, true), 0xCFB)
        };
        assert_eq!(quiet(None), None);
        assert_eq!(quiet(Some(Box::default())), Some(ONES));
    }
}
