//! PCI as a sandbox sees it, and as the boot code and a monitor set it up. All of it is worked out here, so that
//! neither parses anything.

mod boot;
mod reset;
#[cfg(test)]
mod samples;

pub use boot::{boot, running};
pub use reset::registers as reset_registers;

use bulkhead_layout::PAGE;
use bulkhead_layout::pci::{self, COMMAND, INTX_OFF, Register, Reset};
use bulkhead_plan::{Bar, BarKind, Bdf, End, Function, Granted, Machine, Plan, Span};
use reset::{forgets, resets};

/// Offsets in the configuration space (PCI 3.0, 6.1; PCI-to-PCI bridge 1.2, 3.2).
mod at {
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

/// Command register, of what a guest decides: ports, memory, bus master, no line interrupt.
const COMMAND_BITS: u32 = 0b111 | INTX_OFF;
/// Command register, of what stays 0: parity error response, SERR# (PCI 3.0, 6.2.2). Without them, and without the four
/// enables of [`pcie::REPORTS`], a function that its owner misuses tells the platform of no error (PCIe 5.0, 6.2.6). A
/// root port could turn an error into an interrupt that nobody masks, or a machine check for all.
const COMMAND_REPORTS: u32 = 1 << 6 | 1 << 8;

/// PCI Express capability.
pub mod pcie {
    /// Offset of device control.
    pub const DEVICE_CONTROL: u16 = 8;
    /// Device control: reports of correctable, non-fatal and fatal errors and of unsupported requests (PCIe 5.0,
    /// 7.5.3.4).
    pub const REPORTS: u32 = 0b1111;
    /// Device control after a reset: read requests of 512 bytes, payloads of 128.
    pub const RESET: u32 = 0b010 << 12;
    /// Offset of root control, reserved where a function is no root port.
    pub const ROOT_CONTROL: u16 = 0x1C;
}

/// A function that a sandbox sees.
pub enum Seen<'a> {
    /// Its own.
    Own(&'a Granted),
    /// A bridge above one of its own.
    Bridge(&'a Function),
    /// One without an owner that a Linux which runs already has seen. It stays as it is.
    Fixed(&'a Function),
    /// Something at function 0, so that a kernel looks at the others.
    Placeholder(Bdf),
}

impl Seen<'_> {
    /// Its address.
    pub fn bdf(&self) -> Bdf {
        match self {
            Self::Own(granted) => granted.function.bdf,
            Self::Bridge(function) | Self::Fixed(function) => function.bdf,
            Self::Placeholder(bdf) => *bdf,
        }
    }
}

/// Everything that a Linux sees that runs already, by address: functions of other sandboxes are gone.
pub fn found(plan: &Plan, index: usize) -> Vec<Seen<'_>> {
    let functions = |n: usize| &plan.sandboxes[n].functions;
    let others = (0..plan.sandboxes.len()).filter(|n| *n != index);
    let taken: Vec<Bdf> = others.flat_map(functions).map(|granted| granted.function.bdf).collect();
    fn seen<'a>(own: &'a [Granted], function: &'a Function) -> Seen<'a> {
        let granted = own.iter().find(|own| own.function.bdf == function.bdf);
        granted.map_or(Seen::Fixed(function), Seen::Own)
    }
    let left = plan.machine.functions.iter().filter(|f| !taken.contains(&f.bdf));
    left.map(|function| seen(functions(index), function)).collect()
}

/// Everything that the owner of these functions sees, by address.
pub fn seen<'a>(machine: &'a Machine, functions: &'a [Granted]) -> Vec<Seen<'a>> {
    let mut all: Vec<Seen> = functions.iter().map(Seen::Own).collect();
    let above = |function: &&Function| {
        let Some(bridge) = function.bridge else { return false };
        let behind = bridge.secondary..=bridge.subordinate;
        functions.iter().any(|own| behind.contains(&own.function.bdf.bus()))
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

/// The addresses on the buses that it sees at which it sees nothing.
pub fn absent(machine: &Machine, functions: &[Granted], ends: &[End]) -> Vec<Bdf> {
    let functions = if machine.pci.is_some() { functions } else { &[] };
    let mut seen: Vec<Bdf> = seen(machine, functions).iter().map(Seen::bdf).collect();
    seen.extend(ends.iter().map(|end| end.bdf));
    let Some(last_bus) = seen.iter().map(|bdf| bdf.bus()).max() else { return Vec::new() };
    let all = (0..=u16::from(last_bus) << 8 | 0xFF).map(Bdf);
    all.filter(|bdf| !seen.contains(bdf)).collect()
}

/// Words of shadow, while they are handed out.
#[derive(Default)]
pub struct Shadow {
    /// Value of each word at the launch.
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

/// A function as its monitor knows it.
#[derive(Default)]
pub struct Described {
    /// It, but for its places in the monitor's address space and in its tables.
    pub function: pci::Function,
    /// Its particular registers.
    pub registers: Vec<Register>,
    /// Resets that stop it.
    pub resets: Vec<Reset>,
}

/// Describes an own function; its words of shadow are taken.
pub fn own(granted: &Granted, shadow: &mut Shadow, page: u64) -> Described {
    let described = &granted.function;
    let mut function = pci::Function::default();
    let (registers, msi_shadow) = registers(granted, shadow);
    function.msi_shadow = msi_shadow;
    if let Some(msi) = described.msi {
        function.msi = u16::from(msi.at);
        function.msi_data = msi_data(function.msi, msi.wide);
    }
    if let Some(msix) = described.msix {
        const MASKED: [u32; 4] = [0, 0, 0, 1];
        let trap = trap(described, page);
        function.shadow = shadow.take(&MASKED.repeat(usize::from(msix.vectors)));
        (function.trap, function.trap_len) = (trap.start, trap.len);
        (function.table, function.vectors) = (msix.table, u32::from(msix.vectors));
    }
    let mut resets = resets(described);
    if granted.role.is_some() {
        resets.extend(forgets(described));
    }
    Described { function, registers, resets }
}

/// The particular registers of an own function; its MSI's words of shadow come
/// with them.
fn registers(granted: &Granted, shadow: &mut Shadow) -> (Vec<Register>, u32) {
    let function = &granted.function;
    // A line that is not the sandbox's may be somebody else's as well.
    let line = if granted.line { 0 } else { INTX_OFF };
    // The owner's tables map the BARs for ever, so the function always decodes them. An access that nobody answers is
    // an error, which some platforms report to all (XSA-120).
    let decode = decode(function);
    let hold = 0xFFFF & !(COMMAND_BITS | COMMAND_REPORTS);
    let command = plain(COMMAND, COMMAND_BITS & !decode, hold);
    let mut all = vec![Register { kind: Register::COMMAND, set: line | decode, ..command }];
    all.extend(bars(function, shadow));
    all.push(zero(at::ROM));
    // The line register is a note of software's. A pin shows only where the line belongs to the sandbox: the pin that
    // the guest's firmware tables name.
    let set = if granted.line { u32::from(function.pin) << 8 } else { 0 };
    all.push(Register { keep: !0xFF00, set, ..plain(at::INTERRUPT, 0xFF, 0) });
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
        let hold = 0x7FFF & !(write | pcie::REPORTS);
        all.push(plain(u16::from(pcie.at) + pcie::DEVICE_CONTROL, write, hold));
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

/// The command register's bits with which a function decodes its BARs: ports, memory.
fn decode(function: &Function) -> u32 {
    let bit = |bar: &Bar| match bar.kind {
        BarKind::Io => 0b01,
        BarKind::Memory { .. } => 0b10,
    };
    function.bars.iter().map(bit).fold(0, |all, bit| all | bit)
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
fn msi_data(at: u16, wide: bool) -> u16 {
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

/// Pages with a function's MSI-X table; none without.
pub fn trap(function: &Function, page: u64) -> Span {
    function.trapped(page).unwrap_or_default()
}

/// Pages of memory BARs that the functions' owner maps: all but the trapped ones,
/// each once.
pub fn mapped(functions: &[Granted], page: u64) -> Vec<Span> {
    let traps: Vec<Span> = functions.iter().map(|granted| trap(&granted.function, page)).collect();
    let bars = functions.iter().flat_map(|granted| &granted.function.bars);
    let mut all: Vec<Span> = Vec::new();
    for bar in bars.filter(|bar| bar.kind != BarKind::Io) {
        let mut pieces = vec![bar.span.pages_of(page)];
        for hole in traps.iter().chain(&all).filter(|hole| hole.len > 0) {
            pieces = pieces.into_iter().flat_map(|piece| piece.without(*hole)).collect();
        }
        all.extend(pieces);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::samples::{function, grant, io, machine, memory, msix, port};
    use super::*;
    use bulkhead_plan::{Bridge, Msi, Pm, Resettable};

    /// The particular registers, one a line: offset, kind, and the masks.
    fn show(granted: &Granted) -> Vec<String> {
        let own = own(granted, &mut Shadow::default(), PAGE);
        let mut registers = own.registers;
        registers.sort_by_key(|r| r.offset);
        let kind = |r: &Register| match r.kind {
            Register::PLAIN => "plain",
            Register::BAR => "bar",
            Register::COMMAND => "command",
            Register::FIXED => "fixed",
            Register::MESSAGE => "message",
            _ => "msi",
        };
        let one = |r: &Register| {
            let [w, k, s, h] = [r.write, r.keep, r.set, r.hold];
            format!("{:02x} {} w {w:x} k {k:x} s {s:x} h {h:x} {}", r.offset, kind(r), r.shadow)
        };
        registers.iter().map(one).collect()
    }

    #[test]
    fn registers_of_an_express_function() {
        let granted = grant(
            Function {
                bars: vec![memory(0, true, 0xC0_0000_4000, 0x4000), io(3, 0xC040, 0x20)],
                pm: Some(Pm { at: 0x60, resets: false }),
                msi: Some(Msi { at: 0x70, wide: true, masks: true }),
                msix: msix(0x40, 65, 0xC0_0000_6000),
                pcie: Some(Resettable { at: 0x80, flr: true }),
                ..function(0x38)
            },
            false,
        );
        let expected = [
            "04 command w 404 k ffffffff s 403 h fab8 0",
            "10 bar w ffffc000 k 4000 s c h 0 0",
            "14 bar w ffffffff k c0 s 0 h 0 1",
            "18 plain w 0 k 0 s 0 h 0 0",
            "1c bar w ffffffe0 k c040 s 1 h 0 2",
            "20 plain w 0 k 0 s 0 h 0 0",
            "24 plain w 0 k 0 s 0 h 0 0",
            "30 plain w 0 k 0 s 0 h 0 0",
            "3c plain w ff k ffff00ff s 0 h 0 0",
            "40 plain w c0000000 k ffffffff s 0 h 0 0",
            "64 plain w 3 k ffffffff s 0 h 0 0",
            "70 msi w 10000 k ff81ffff s 0 h 0 0",
            "74 message w ffffffff k ffffffff s 0 h 0 3",
            "78 message w ffffffff k ffffffff s 0 h 0 4",
            "7c message w ffffffff k ffffffff s 0 h 0 5",
            "80 plain w ffffffff k ffffffff s 0 h 0 0",
            "88 plain w f810 k ffffffff s 0 h 7e0 0",
        ];
        assert_eq!(show(&granted), expected);
    }

    #[test]
    fn registers_of_a_conventional_function_with_its_line() {
        let granted = grant(
            Function {
                bars: vec![memory(5, false, 0xFEB0_7000, 0x1000)],
                msi: Some(Msi { at: 0x80, wide: false, masks: false }),
                af: Some(Resettable { at: 0x90, flr: true }),
                pcie: Some(Resettable { at: 0xA0, flr: false }),
                pin: 2,
                ..function(0xFA)
            },
            true,
        );
        let expected = [
            "04 command w 405 k ffffffff s 2 h fab8 0",
            "10 plain w 0 k 0 s 0 h 0 0",
            "14 plain w 0 k 0 s 0 h 0 0",
            "18 plain w 0 k 0 s 0 h 0 0",
            "1c plain w 0 k 0 s 0 h 0 0",
            "20 plain w 0 k 0 s 0 h 0 0",
            "24 bar w fffff000 k feb07000 s 0 h 0 0",
            "30 plain w 0 k 0 s 0 h 0 0",
            "3c plain w ff k ffff00ff s 200 h 0 0",
            "80 msi w 10000 k ff81ffff s 0 h 0 0",
            "84 message w ffffffff k ffffffff s 0 h 0 1",
            "88 message w ffffffff k ffffffff s 0 h 0 3",
            "94 plain w 1 k ffffffff s 0 h 0 0",
            "a8 plain w 7810 k ffffffff s 0 h 7e0 0",
        ];
        assert_eq!(show(&granted), expected);
    }

    #[test]
    fn shadow_begins_with_addresses_and_masked_entries() {
        let bars = vec![memory(0, true, 0xC0_0000_4000, 0x4000)];
        let msi = Some(Msi { at: 0x70, wide: true, masks: false });
        let f = Function { bars, msi, msix: msix(0x40, 2, 0xC0_0000_6000), ..function(0x38) };
        let mut shadow = Shadow { words: vec![7] };
        let own = own(&grant(f, false), &mut shadow, PAGE);
        let expected = [7, 0x4000, 0xC0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
        assert_eq!(shadow.words, expected);
        let f = own.function;
        assert_eq!((f.msi, f.msi_data, f.msi_shadow, f.shadow), (0x70, 0x7C, 3, 6));
        assert_eq!((f.trap, f.trap_len), (0xC0_0000_6000, 0x1000));
        assert_eq!((f.table, f.vectors), (0xC0_0000_6000, 2));
    }

    #[test]
    fn no_page_with_a_table_is_mapped() {
        // Two small BARs beside the table, the second in its second page.
        let f = Function {
            bars: vec![
                memory(0, false, 0xFEB0_0000, 0x4000),
                memory(1, false, 0xFEB0_6000, 0x800),
                memory(2, false, 0xFEB0_6800, 0x800),
                io(3, 0xC040, 0x20),
            ],
            msix: msix(0x40, 64, 0xFEB0_0E00),
            ..function(0x38)
        };
        assert_eq!(trap(&f, PAGE), Span { start: 0xFEB0_0000, len: 0x2000 });
        // One of another function that begins amid the trapped pages.
        let other = Function {
            bars: vec![memory(0, false, 0xFEB0_1800, 0x800), memory(1, true, 0x40_0000_0000, 16)],
            ..function(0x39)
        };
        let mapped = mapped(&[grant(f, false), grant(other, false)], PAGE);
        let span = |start, len| Span { start, len };
        let rest = [span(0xFEB0_2000, 0x2000), span(0xFEB0_6000, 0x1000)];
        assert_eq!(mapped, [&rest[..], &[span(0x40_0000_0000, 0x1000)]].concat());
        let whole = span(0x1000, 0x3000);
        let cut = |start, len| whole.without(span(start, len)).collect::<Vec<_>>();
        assert_eq!(cut(0x2000, 0x1000), [span(0x1000, 0x1000), span(0x3000, 0x1000)]);
        assert_eq!(cut(0, 0x1000), [whole]);
        assert_eq!(cut(0x4000, 0x1000), [whole]);
        assert_eq!(cut(0x1000, 0x3000), []);
    }

    #[test]
    fn a_sandbox_sees_its_functions_bridges_and_placeholders() {
        let upper = Bridge { secondary: 1, subordinate: 3, ..Bridge::default() };
        let lower = Bridge { secondary: 2, subordinate: 3, ..Bridge::default() };
        let other = Bridge { secondary: 4, subordinate: 4, ..Bridge::default() };
        let ports = [port(0x10, upper), port(0x11, other), port(0x100, lower)];
        let machine = machine(ports.into_iter().chain([function(0x20), function(0x22)]).collect());
        let own = [grant(function(0x22), false), grant(function(0x203), false)];
        let shown: Vec<_> = seen(&machine, &own)
            .iter()
            .map(|seen| match seen {
                Seen::Own(f) => ("own", f.function.bdf.0),
                Seen::Bridge(f) => ("bridge", f.bdf.0),
                Seen::Fixed(f) => ("fixed", f.bdf.0),
                Seen::Placeholder(bdf) => ("placeholder", bdf.0),
            })
            .collect();
        let expected = [
            ("bridge", 0x10),
            ("placeholder", 0x20),
            ("own", 0x22),
            ("bridge", 0x100),
            ("placeholder", 0x200),
            ("own", 0x203),
        ];
        assert_eq!(shown, expected);
        let absent = absent(&machine, &own, &[]);
        assert_eq!(absent.len(), 3 * 256 - expected.len());
        assert!(expected.iter().all(|(_, bdf)| !absent.contains(&Bdf(*bdf))));
        assert!(absent.contains(&Bdf(0x11)) && absent.contains(&Bdf(0x21)));
        let page = placeholder();
        assert_eq!((page[0x0E], page[0x0B], page.len()), (0x80, 0xFF, 4096));
    }
}
