//! How the boot code brings PCI to the described state.

use super::{at, decode, halves, pcie};
use bulkhead_layout::image::ConfigOp;
use bulkhead_layout::pci::{COMMAND, INTX_OFF};
use bulkhead_plan::{BarKind, Bridge, Function, Guest, Machine, PciRoot, Plan, Ports, Span};

/// Returns the steps that bring PCI to the described state, from whatever the firmware made of it. Bridges come first,
/// so that functions behind them can be reached.
pub fn boot(machine: &Machine) -> Vec<ConfigOp> {
    let Some(root) = &machine.pci else { return Vec::new() };
    let page = |f: &Function| machine.arch.facts().configuration(root.ecam, f.bdf).start as u32;
    let mut ops: Vec<_> = root.ecam_register.iter().flat_map(|&at| move_space(root, at)).collect();
    for function in machine.functions.iter().filter(|f| f.bridge.is_some()) {
        bridge_setup(page(function), function, &mut ops);
    }
    for function in machine.functions.iter().filter(|f| f.bridge.is_none()) {
        let op = |kind, offset, value| ConfigOp { bdf: function.bdf.0, offset, kind, value };
        ops.push(op(ConfigOp::EXPECT, 0, ids(function)));
        // The chipset's own functions stay as they are; nobody can use them.
        if function.nobody.is_some() {
            continue;
        }
        ops.push(op(ConfigOp::WRITE, COMMAND, INTX_OFF));
        ops.push(op(ConfigOp::WRITE, at::ROM, 0));
        ops.extend(base(function, 6));
        ops.extend(quiet(function));
        ops.push(op(ConfigOp::WRITE, COMMAND, decode(function) | INTX_OFF));
    }
    ops.extend(machine.functions.first().map(|f| space(page(f), f)));
    ops
}

/// Returns steps for a Linux that runs: the machine's functions and buses are those that are described. Functions that
/// it gives away are where they are described, and silent.
pub fn running(plan: &Plan) -> Vec<ConfigOp> {
    let mut ops = Vec::new();
    for function in &plan.machine.functions {
        let op =
            |offset, value| ConfigOp { bdf: function.bdf.0, offset, kind: ConfigOp::EXPECT, value };
        ops.push(op(0, ids(function)));
        ops.extend(function.bridge.map(|bridge| op(at::BUSES, buses(function, bridge))));
    }
    let others = || plan.sandboxes.iter().filter(|sandbox| sandbox.guest != Guest::Running);
    let given: Vec<_> = others().flat_map(|sandbox| &sandbox.functions).collect();
    given.iter().for_each(|granted| taken(&granted.function, &mut ops));
    // The Linux' own functions cannot pass for them, either.
    let root = plan.machine.pci.as_ref().filter(|_| !given.is_empty());
    for (root, port) in
        root.into_iter().flat_map(|root| plan.machine.functions.iter().map(move |f| (root, f)))
    {
        let page = plan.machine.arch.facts().configuration(root.ecam, port.bdf).start as u32;
        let validate =
            |offset| ConfigOp { bdf: port.bdf.0, offset, kind: ConfigOp::VALIDATE, value: page };
        ops.extend(port.bridge.and_then(|bridge| bridge.acs).map(validate));
    }
    for device in
        others().flat_map(|sandbox| &sandbox.devices).filter(|device| device.irq.is_some())
    {
        let ports = |ports: &Ports| u32::from(ports.first) | u32::from(ports.last) << 16;
        let kind = ConfigOp::TAKE_PORTS;
        ops.extend(device.ports.iter().map(|p| ConfigOp {
            kind,
            value: ports(p),
            ..ConfigOp::default()
        }));
    }
    ops
}

/// Steps for a function that a running Linux gives away. Its addresses are the Linux' choice, and have to be those that
/// are described. They are written nevertheless: a reset forgets them.
fn taken(function: &Function, ops: &mut Vec<ConfigOp>) {
    let op = |kind, offset, value| ConfigOp { bdf: function.bdf.0, offset, kind, value };
    let bars: Vec<_> = function.bars.iter().flat_map(halves).collect();
    ops.extend(
        bars.iter().map(|(offset, start, _, low)| op(ConfigOp::EXPECT, *offset, start | low)),
    );
    ops.push(op(ConfigOp::TAKE, COMMAND, INTX_OFF));
    ops.push(op(ConfigOp::TAKE, at::ROM, 0));
    ops.extend(bars.iter().map(|(offset, start, ..)| op(ConfigOp::TAKE, *offset, *start)));
    let messages = [function.msi.map(|msi| msi.at), function.msix.map(|msix| msix.at)];
    ops.extend(messages.into_iter().flatten().map(|at| op(ConfigOp::TAKE, at.into(), 0)));
    ops.extend(quiet(function).map(|op| ConfigOp { kind: ConfigOp::TAKE, ..op }));
    ops.push(op(ConfigOp::TAKE, COMMAND, decode(function) | INTX_OFF));
}

/// A bridge's own bus and those behind it, as its register has them.
fn buses(function: &Function, bridge: Bridge) -> u32 {
    let primary = u32::from(function.bdf.bus());
    primary | u32::from(bridge.secondary) << 8 | u32::from(bridge.subordinate) << 16
}

/// Puts a function's BARs, of which there can be `count`, in their places. Each has
/// the size and the kind that are described, and there is no other: it would decode
/// somebody else's addresses.
fn base(function: &Function, count: u16) -> Vec<ConfigOp> {
    let op = |kind, offset, value| ConfigOp { bdf: function.bdf.0, offset, kind, value };
    let described: Vec<_> = function.bars.iter().flat_map(halves).collect();
    let mut ops = Vec::new();
    for offset in (at::BARS..at::BARS + 4 * count).step_by(4) {
        let bar = described.iter().find(|bar| bar.0 == offset);
        let (_, start, write, low) = bar.copied().unwrap_or_default();
        ops.push(op(ConfigOp::WRITE, offset, u32::MAX));
        // Ports may have 16 bits only (PCI 3.0, 6.2.5.1).
        if low != BarKind::Io.low_bits() {
            ops.push(op(ConfigOp::EXPECT, offset, write | low));
        }
        ops.push(op(ConfigOp::WRITE, offset, start));
    }
    ops
}

/// Reports of errors off (PCIe 5.0, 6.2.6); SERR# is off as long as nobody sets it in the command register.
fn quiet(function: &Function) -> Option<ConfigOp> {
    let offset = u16::from(function.pcie?.at) + pcie::DEVICE_CONTROL;
    Some(ConfigOp { bdf: function.bdf.0, offset, kind: ConfigOp::WRITE, value: pcie::RESET })
}

fn ids(function: &Function) -> u32 {
    u32::from(function.vendor) | u32::from(function.device) << 16
}

/// Brings the memory-mapped configuration space to its place, whatever the firmware has chosen: first the upper half,
/// which is 0 below 4 GiB.
fn move_space(root: &PciRoot, at: u16) -> [ConfigOp; 2] {
    const DECODED: u32 = 1;
    let op = |offset, value| ConfigOp { bdf: 0, offset, kind: ConfigOp::WRITE, value };
    [op(at + 4, 0), op(at, root.ecam as u32 | DECODED)]
}

/// The memory-mapped configuration space is where monitors look for it.
fn space(page: u32, function: &Function) -> ConfigOp {
    let kind = ConfigOp::EXPECT_AT;
    ConfigOp { bdf: function.bdf.0, offset: 0, kind, value: page }
}

fn bridge_setup(page: u32, function: &Function, ops: &mut Vec<ConfigOp>) {
    let Some(bridge) = function.bridge else { return };
    let op = |kind, offset, value| ConfigOp { bdf: function.bdf.0, offset, kind, value };
    ops.push(op(ConfigOp::EXPECT, 0, ids(function)));
    let mut write = |offset, value| ops.push(op(ConfigOp::WRITE, offset, value));
    // Base and limit in units of 1 MiB (4 KiB for ports); base above limit: closed.
    let window = |span: Option<Span>| match span {
        Some(span) => (span.start >> 16) as u32 & 0xFFF0 | (span.end() - 1) as u32 & 0xFFF0_0000,
        None => 0x0000_FFF0,
    };
    let ports = match bridge.ports {
        Some(p) => u32::from(p.first) >> 8 & 0xF0 | u32::from(p.last) & 0xF000,
        None => 0x00F0,
    };
    let upper = |address: Option<u64>| address.map_or(0, |address| (address >> 32) as u32);
    write(COMMAND, 0);
    write(at::BUSES, buses(function, bridge));
    write(at::PORTS, ports);
    write(at::MEMORY, window(bridge.memory));
    write(at::PREFETCHABLE, window(bridge.prefetchable));
    write(at::PREFETCHABLE_UPPER, upper(bridge.prefetchable.map(|p| p.start)));
    write(at::PREFETCHABLE_LIMIT_UPPER, upper(bridge.prefetchable.map(|p| p.end() - 1)));
    write(at::PORTS_UPPER, 0);
    write(at::BRIDGE_ROM, 0);
    // Bridge control in its upper half: SERR#, parity errors, master aborts and resets of the secondary bus are off.
    write(at::INTERRUPT, 0);
    if let Some(capability) = function.pcie {
        write(u16::from(capability.at) + pcie::ROOT_CONTROL, 0);
    }
    ops.extend(quiet(function));
    ops.extend(base(function, 2));
    // Before anything behind it can send a request.
    ops.extend(bridge.acs.map(|at| op(ConfigOp::VALIDATE, at, page)));
    ops.push(op(ConfigOp::WRITE, COMMAND, 0b111 | INTX_OFF));
}

#[cfg(test)]
mod tests {
    use super::super::samples::{function, grant, io, machine, memory, msix, port};
    use super::*;
    use bulkhead_plan::{Device, Resettable, Sandbox};

    #[test]
    fn a_bridge_gets_buses_and_windows() {
        let open = Bridge {
            secondary: 1,
            subordinate: 3,
            memory: Some(Span { start: 0xFE80_0000, len: 0x20_0000 }),
            prefetchable: Some(Span { start: 0xC1_0000_0000, len: 0x1_0000_0000 }),
            ports: Some(Ports { first: 0xC000, last: 0xDFFF }),
            acs: None,
        };
        let closed = Bridge { secondary: 2, subordinate: 2, acs: Some(0x148), ..Bridge::default() };
        let express = Some(Resettable { at: 0x60, flr: false });
        let ports = [port(0x10, open), port(0x108, closed)];
        let ops = boot(&machine(ports.map(|port| Function { pcie: express, ..port }).to_vec()));
        let written = |bdf: u16| -> Vec<_> {
            let of = ops.iter().filter(|op| op.bdf == bdf && op.kind == ConfigOp::WRITE);
            of.map(|op| (op.offset, op.value)).collect()
        };
        let rest = [
            (0x38, 0),
            (0x3C, 0),
            (0x7C, 0),
            (0x68, 0x2000),
            (0x10, u32::MAX),
            (0x10, 0xFEB0_0000),
            (0x14, u32::MAX),
            (0x14, 0),
            (0x04, 0x407),
        ];
        let windows = [
            (0x04, 0),
            (0x18, 0x03_0100),
            (0x1C, 0xD0C0),
            (0x20, 0xFE90_FE80),
            (0x24, 0xFFF0_0000),
            (0x28, 0xC1),
            (0x2C, 0xC1),
            (0x30, 0),
        ];
        assert_eq!(written(0x10), [&windows[..], &rest].concat());
        // Base above limit.
        let windows = [
            (0x04, 0),
            (0x18, 0x02_0201),
            (0x1C, 0x00F0),
            (0x20, 0xFFF0),
            (0x24, 0xFFF0),
            (0x28, 0),
            (0x2C, 0),
            (0x30, 0),
        ];
        assert_eq!(written(0x108), [&windows[..], &rest].concat());
        // Source validation is on before the port forwards requests.
        let validated = |op: &ConfigOp| op.kind == ConfigOp::VALIDATE;
        assert_eq!(ops.iter().filter(|op| validated(op)).count(), 1);
        let at = ops.iter().position(validated).unwrap();
        assert_eq!((ops[at].bdf, ops[at].offset, ops[at].value), (0x108, 0x148, 0xB010_8000));
        assert_eq!((ops[at + 1].bdf, ops[at + 1].offset, ops[at + 1].value), (0x108, 0x04, 0x407));
    }

    #[test]
    fn the_steps_of_the_boot_code() {
        let bars = vec![io(2, 0xC040, 0x20), memory(4, true, 0xC0_0000_4000, 0x4000)];
        let nobodys = Function { nobody: Some("of the chipset".into()), ..function(0) };
        let express = Some(Resettable { at: 0x80, flr: false });
        let behind = Function { bars, pcie: express, ..function(0x100) };
        let bridge = Bridge { secondary: 1, subordinate: 1, ..Bridge::default() };
        let ops = boot(&machine(vec![nobodys, port(0x10, bridge), behind]));
        let order: Vec<u16> = ops.iter().map(|op| op.bdf).collect();
        // The bridge before what lies behind it; first of all what it is.
        let at = |bdf: u16| order.iter().position(|other| *other == bdf).unwrap();
        assert!(at(0x10) < at(0x100));
        for bdf in [0, 0x10, 0x100] {
            let op = ops[at(bdf)];
            assert_eq!((op.kind, op.offset, op.value), (ConfigOp::EXPECT, 0, 0x1042_1AF4));
        }
        let steps: Vec<_> =
            ops[at(0x100)..].iter().map(|op| (op.kind, op.offset, op.value)).collect();
        let (expect, write) = (ConfigOp::EXPECT, ConfigOp::WRITE);
        let expected = [
            (expect, 0, 0x1042_1AF4),
            (write, 0x04, 0x400),
            (write, 0x30, 0),
            // There is no BAR 0, 1 and 3.
            (write, 0x10, u32::MAX),
            (expect, 0x10, 0),
            (write, 0x10, 0),
            (write, 0x14, u32::MAX),
            (expect, 0x14, 0),
            (write, 0x14, 0),
            (write, 0x18, u32::MAX),
            (write, 0x18, 0xC040),
            (write, 0x1C, u32::MAX),
            (expect, 0x1C, 0),
            (write, 0x1C, 0),
            // 64 bits: the size in both halves.
            (write, 0x20, u32::MAX),
            (expect, 0x20, 0xFFFF_C00C),
            (write, 0x20, 0x4000),
            (write, 0x24, u32::MAX),
            (expect, 0x24, 0xFFFF_FFFF),
            (write, 0x24, 0xC0),
            // It decodes ports and memory, and reports nothing.
            (write, 0x88, 0x2000),
            (write, 0x04, 0x403),
            (ConfigOp::EXPECT_AT, 0, 0xB000_0000),
        ];
        assert_eq!(steps, expected);
        // Nothing of the chipset's own is written.
        assert!(ops.iter().all(|op| op.bdf != 0 || op.kind != ConfigOp::WRITE));
    }

    #[test]
    fn a_running_linux_gives_functions_away_as_they_are_described() {
        let bars = vec![io(2, 0xC040, 0x20), memory(4, true, 0xC0_0000_4000, 0x4000)];
        let (msix, express) =
            (msix(0x98, 2, 0xC0_0000_4000), Some(Resettable { at: 0x80, flr: false }));
        let given = Function { bars, msix, pcie: express, ..function(0x100) };
        let closed = Bridge { secondary: 1, subordinate: 1, acs: Some(0x148), ..Bridge::default() };
        let machine = machine(vec![function(0), port(0x10, closed), given.clone()]);
        let serial = Device {
            irq: Some(3),
            ports: vec![Ports { first: 0x2F8, last: 0x2FF }],
            ..Device::default()
        };
        let of = |functions, devices| Sandbox { functions, devices, ..Sandbox::default() };
        let linux =
            Sandbox { guest: Guest::Running, ..of(vec![grant(function(0), false)], Vec::new()) };
        let none = of(Vec::new(), vec![Device { irq: None, ..serial.clone() }]);
        let plan = |sandboxes| Plan { machine: machine.clone(), sandboxes, ..Plan::default() };
        let known = running(&plan(vec![none, linux.clone()]));
        assert!(known.iter().all(|op| op.kind == ConfigOp::EXPECT) && known.len() == 4);
        let ops = running(&plan(vec![of(vec![grant(given, false)], vec![serial]), linux]));
        assert_eq!(ops[..4], known);
        let steps: Vec<_> =
            ops[4..].iter().map(|op| (op.bdf, op.kind, op.offset, op.value)).collect();
        let step = |kind, offset, value| (0x100, kind, offset, value);
        let (expect, take) = (ConfigOp::EXPECT, ConfigOp::TAKE);
        let expected = [
            step(expect, 0x18, 0xC041),
            step(expect, 0x20, 0x400C),
            step(expect, 0x24, 0xC0),
            // It reaches no memory while the rest is written.
            step(take, 0x04, 0x400),
            step(take, 0x30, 0),
            step(take, 0x18, 0xC040),
            step(take, 0x20, 0x4000),
            step(take, 0x24, 0xC0),
            step(take, 0x98, 0),
            step(take, 0x88, 0x2000),
            step(take, 0x04, 0x403),
            (0x10, ConfigOp::VALIDATE, 0x148, 0xB001_0000),
            (0, ConfigOp::TAKE_PORTS, 0, 0x02FF_02F8),
        ];
        assert_eq!(steps, expected);
    }
}
