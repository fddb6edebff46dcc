//! What a sandbox sees of PCI, and how the boot code sets PCI up: all of it
//! worked out here, so that neither parses anything.

use bulkhead_layout::PAGE;
use bulkhead_layout::image::ConfigOp;
use bulkhead_layout::pci::{Register, Reset};
use bulkhead_plan::{Bar, BarKind, Bdf, Function, Granted, Machine, PciRoot, Sandbox, Span};

/// Offsets in the configuration space (PCI 3.0, 6.1; PCI-to-PCI bridge 1.2, 3.2).
mod at {
    pub const COMMAND: u16 = 0x04;
    pub const BARS: u16 = 0x10;
    pub const ROM: u16 = 0x30;
    pub const INTERRUPT: u16 = 0x3C;
    pub const BUSES: u16 = 0x18;
    pub const PORTS: u16 = 0x1C;
    pub const MEMORY: u16 = 0x20;
    pub const PREFETCHABLE: u16 = 0x24;
    pub const PREFETCHABLE_UPPER: u16 = 0x28;
    pub const PREFETCHABLE_LIMIT_UPPER: u16 = 0x2C;
    pub const PORTS_UPPER: u16 = 0x30;
    pub const BRIDGE_ROM: u16 = 0x38;
}

/// Command register: ports, memory, bus master, no line interrupt.
const COMMAND_BITS: u32 = 0b111 | 1 << 10;

/// A function that a sandbox sees.
pub enum Seen<'a> {
    /// Its own.
    Own(&'a Granted),
    /// A bridge above one of its own.
    Bridge(&'a Function),
    /// Something at function 0, so that a kernel looks at the others.
    Placeholder(Bdf),
}

impl Seen<'_> {
    /// Its address.
    pub fn bdf(&self) -> Bdf {
        match self {
            Self::Own(granted) => granted.function.bdf,
            Self::Bridge(function) => function.bdf,
            Self::Placeholder(bdf) => *bdf,
        }
    }
}

/// Everything that a sandbox sees, by address.
pub fn seen<'a>(machine: &'a Machine, sandbox: &'a Sandbox) -> Vec<Seen<'a>> {
    let mut all: Vec<Seen> = sandbox.functions.iter().map(Seen::Own).collect();
    let above = |function: &&Function| {
        let Some(bridge) = function.bridge else { return false };
        let behind = bridge.secondary..=bridge.subordinate;
        sandbox.functions.iter().any(|own| behind.contains(&own.function.bdf.bus()))
    };
    all.extend(machine.functions.iter().filter(above).map(Seen::Bridge));
    let firsts: Vec<Bdf> = all.iter().map(|seen| seen.bdf().first()).collect();
    for first in firsts {
        if !all.iter().any(|seen| seen.bdf() == first) {
            all.push(Seen::Placeholder(first));
        }
    }
    all.sort_by_key(Seen::bdf);
    all
}

/// The addresses on the buses that a sandbox sees at which it sees nothing.
pub fn absent(machine: &Machine, sandbox: &Sandbox) -> Vec<Bdf> {
    let seen: Vec<Bdf> = seen(machine, sandbox).iter().map(Seen::bdf).collect();
    let Some(last_bus) = seen.iter().map(|bdf| bdf.bus()).max() else { return Vec::new() };
    let all = (0..=u16::from(last_bus) << 8 | 0xFF).map(Bdf);
    all.filter(|bdf| !seen.contains(bdf)).collect()
}

/// Words of shadow, while they are handed out.
#[derive(Default)]
pub struct Shadow {
    /// What each holds at the launch.
    pub words: Vec<u32>,
}

impl Shadow {
    /// Takes words with these values; the number of the first one.
    pub fn take(&mut self, values: &[u32]) -> u32 {
        let first = self.words.len() as u32;
        self.words.extend(values);
        first
    }
}

const fn plain(offset: u16, write: u32, hold: u32) -> Register {
    Register { offset, kind: Register::PLAIN, write, keep: u32::MAX, set: 0, hold, shadow: 0 }
}

const fn zero(offset: u16) -> Register {
    Register { keep: 0, ..plain(offset, 0, 0) }
}

/// The particular registers of an own function; its MSI's words of shadow come
/// with them.
pub fn own(granted: &Granted, shadow: &mut Shadow) -> (Vec<Register>, u32) {
    let function = &granted.function;
    let mut all = vec![Register {
        kind: Register::COMMAND,
        ..plain(at::COMMAND, COMMAND_BITS, 0xFFFF & !COMMAND_BITS)
    }];
    all.extend(bars(function, shadow));
    all.push(zero(at::ROM));
    // The line register is a note of software's; the pin shows only where the
    // line belongs to the sandbox.
    let pin = if granted.line { u32::MAX } else { !0xFF00 };
    all.push(Register { keep: pin, ..plain(at::INTERRUPT, 0xFF, 0) });
    if let Some(pm) = function.pm {
        const POWER_STATE: u32 = 0b11;
        all.push(plain(u16::from(pm.at) + 4, POWER_STATE, 0));
    }
    if let Some(pcie) = function.pcie {
        // Relaxed ordering, no snoop, read request size; the status half is
        // cleared by ones.
        const TUNING: u32 = 1 << 4 | 1 << 11 | 0b111 << 12;
        const FLR: u32 = 1 << 15;
        let write = TUNING | if pcie.flr { FLR } else { 0 };
        all.push(plain(u16::from(pcie.at) + 8, write, 0x7FFF & !write));
    }
    if let Some(af) = function.af.filter(|af| af.flr) {
        all.push(plain(u16::from(af.at) + 4, 1, 0));
    }
    if let Some(msix) = function.msix {
        const ENABLE_AND_MASK: u32 = 0b11 << 30;
        all.push(plain(u16::from(msix.at), ENABLE_AND_MASK, 0));
    }
    let msi_shadow = msi(function, shadow, &mut all);
    (all, msi_shadow)
}

/// MSI: one message at most, address and data in shadow.
fn msi(function: &Function, shadow: &mut Shadow, all: &mut Vec<Register>) -> u32 {
    let Some(msi) = function.msi else { return 0 };
    let at = u16::from(msi.at);
    let first = shadow.take(&[0; 3]);
    const SEVERAL: u32 = 0b11_1111 << 17;
    all.push(Register { kind: Register::MSI, keep: !SEVERAL, ..plain(at, 1 << 16, 0) });
    let message = |offset, word| Register {
        kind: Register::MESSAGE,
        shadow: first + word,
        ..plain(offset, u32::MAX, 0)
    };
    all.push(message(at + 4, 0));
    if msi.wide {
        all.push(message(at + 8, 1));
    }
    let data = msi_data(at, msi.wide);
    all.push(message(data, 2));
    if msi.masks {
        all.push(plain(data + 4, u32::MAX, 0));
    }
    first
}

/// Where the MSI's data is.
pub fn msi_data(at: u16, wide: bool) -> u16 {
    at + if wide { 12 } else { 8 }
}

/// A value for each 32-bit half of a base address register.
fn halves(bar: &Bar) -> Vec<(u16, u32, u32, u32)> {
    let offset = at::BARS + 4 * u16::from(bar.number);
    let (low, mask) = (bar.kind.low_bits(), !(bar.span.len - 1));
    let fixed = match bar.kind {
        BarKind::Io => 0b11,
        BarKind::Memory { .. } => 0xF,
    };
    let mut all = vec![(offset, bar.span.start as u32, mask as u32 & !fixed, low)];
    if let BarKind::Memory { wide: true, .. } = bar.kind {
        all.push((offset + 4, (bar.span.start >> 32) as u32, (mask >> 32) as u32, 0));
    }
    all
}

fn bars(function: &Function, shadow: &mut Shadow) -> Vec<Register> {
    let mut all: Vec<Register> = Vec::new();
    for (offset, start, write, set) in function.bars.iter().flat_map(halves) {
        let shadow = shadow.take(&[start]);
        let kind = Register::BAR;
        all.push(Register { offset, kind, write, keep: start, set, hold: 0, shadow });
    }
    for offset in (at::BARS..at::BARS + 24).step_by(4) {
        if !all.iter().any(|register| register.offset == offset) {
            all.push(zero(offset));
        }
    }
    all
}

/// The particular registers of a bridge that is only shown: without memory of
/// its own; its buses stay and nothing behind it is reset.
pub fn bridge() -> Vec<Register> {
    const SECONDARY_BUS_RESET: u32 = 1 << 22;
    let fixed = |offset, write| Register { kind: Register::FIXED, ..plain(offset, write, 0) };
    vec![
        zero(at::BARS),
        zero(at::BARS + 4),
        fixed(at::BUSES, 0x00FF_FFFF),
        zero(at::BRIDGE_ROM),
        Register { keep: !0xFF00, ..fixed(at::INTERRUPT, SECONDARY_BUS_RESET) },
    ]
}

/// The configuration page of a placeholder: no class, several functions.
pub fn placeholder() -> Vec<u8> {
    // Red Hat's ID, under which QEMU has its own devices, and a number that it
    // has not given.
    const IDS: u32 = 0x00BD_1B36;
    const NO_CLASS: u32 = 0xFF00_0000;
    const SEVERAL_FUNCTIONS: u32 = 1 << 23;
    let mut page = vec![0; PAGE as usize];
    for (at, value) in [(0, IDS), (8, NO_CLASS), (12, SEVERAL_FUNCTIONS)] {
        page[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    page
}

/// What stops a function for good: no DMA first, no messages, then its reset.
pub fn resets(function: &Function) -> Vec<Reset> {
    /// Milliseconds until a function has reset itself (PCIe 5.0, 6.6.2).
    const FLR_TIME: u32 = 100;
    /// And has changed between D0 and D3hot (PM 1.2, 5.6.1).
    const POWER_TIME: u32 = 10;
    let step = |offset: u16, value, wait| Reset { offset: u32::from(offset), value, wait };
    let mut all = vec![step(at::COMMAND, 0, 0)];
    all.extend(function.msix.map(|msix| step(u16::from(msix.at), 0, 0)));
    all.extend(function.msi.map(|msi| step(u16::from(msi.at), 0, 0)));
    match (function.pcie, function.af, function.pm) {
        (Some(pcie), _, _) if pcie.flr => {
            all.push(step(u16::from(pcie.at) + 8, 1 << 15, FLR_TIME));
        }
        (_, Some(af), _) if af.flr => all.push(step(u16::from(af.at) + 4, 1, FLR_TIME)),
        (_, _, Some(pm)) if pm.resets => {
            all.push(step(u16::from(pm.at) + 4, 3, POWER_TIME));
            all.push(step(u16::from(pm.at) + 4, 0, POWER_TIME));
        }
        _ => {}
    }
    all
}

/// Pages with a function's MSI-X table.
pub fn trap(function: &Function) -> Span {
    let Some(msix) = function.msix else { return Span::default() };
    let end = (msix.table + u64::from(msix.vectors) * 16).next_multiple_of(PAGE);
    let start = msix.table / PAGE * PAGE;
    Span { start, len: end - start }
}

/// Pages of a function's memory BARs that its owner maps: all but the trapped ones.
pub fn mapped(function: &Function) -> Vec<Span> {
    let trap = trap(function);
    let mut all = Vec::new();
    for bar in function.bars.iter().filter(|bar| bar.kind != BarKind::Io) {
        let start = bar.span.start / PAGE * PAGE;
        let end = bar.span.end().next_multiple_of(PAGE);
        let (first, second) = match trap.len > 0 && trap.start >= start && trap.end() <= end {
            true => ((start, trap.start), (trap.end(), end)),
            false => ((start, end), (end, end)),
        };
        let pieces = [first, second].into_iter().filter(|(start, end)| start < end);
        all.extend(pieces.map(|(start, end)| Span { start, len: end - start }));
    }
    all
}

/// The steps that bring PCI to the described state, from whatever the firmware
/// made of it: bridges first, so that what lies behind them can be reached.
pub fn boot(machine: &Machine) -> Vec<ConfigOp> {
    let Some(root) = &machine.pci else { return Vec::new() };
    let mut ops = Vec::new();
    for function in machine.functions.iter().filter(|f| f.bridge.is_some()) {
        bridge_setup(function, &mut ops);
    }
    for function in machine.functions.iter().filter(|f| f.bridge.is_none()) {
        let op = |kind, offset, value| ConfigOp { bdf: function.bdf.0, offset, kind, value };
        ops.push(op(ConfigOp::EXPECT, 0, ids(function)));
        // The chipset's own functions stay as they are; nobody can use them.
        if function.nobody.is_some() {
            continue;
        }
        ops.push(op(ConfigOp::WRITE, at::COMMAND, 0));
        for (offset, start, _, _) in function.bars.iter().flat_map(halves) {
            ops.push(op(ConfigOp::WRITE, offset, start));
        }
    }
    ops.extend(machine.functions.first().map(|f| space(root, f)));
    ops
}

fn ids(function: &Function) -> u32 {
    u32::from(function.vendor) | u32::from(function.device) << 16
}

/// The memory-mapped configuration space is where monitors look for it.
fn space(root: &PciRoot, function: &Function) -> ConfigOp {
    let kind = ConfigOp::EXPECT_AT;
    ConfigOp { bdf: function.bdf.0, offset: 0, kind, value: root.config(function.bdf) as u32 }
}

fn bridge_setup(function: &Function, ops: &mut Vec<ConfigOp>) {
    let Some(bridge) = function.bridge else { return };
    let op = |kind, offset, value| ConfigOp { bdf: function.bdf.0, offset, kind, value };
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
    write(at::COMMAND, 0);
    let primary = u32::from(function.bdf.bus());
    let buses = primary | u32::from(bridge.secondary) << 8 | u32::from(bridge.subordinate) << 16;
    write(at::BUSES, buses);
    write(at::PORTS, ports);
    write(at::MEMORY, window(bridge.memory));
    write(at::PREFETCHABLE, window(bridge.prefetchable));
    write(at::PREFETCHABLE_UPPER, upper(bridge.prefetchable.map(|p| p.start)));
    write(at::PREFETCHABLE_LIMIT_UPPER, upper(bridge.prefetchable.map(|p| p.end() - 1)));
    write(at::PORTS_UPPER, 0);
    for (offset, start, _, _) in function.bars.iter().flat_map(halves) {
        write(offset, start);
    }
    write(at::COMMAND, 0b111);
    ops.insert(ops.len() - 1, op(ConfigOp::EXPECT, 0, ids(function)));
}
