//! The ACPI tables of a Linux guest: hardware-reduced (ACPI 6.5, 4.1), its own cores by x2APIC ID, its serial ports,
//! and power by two ports. PCI is there with the lines of its functions; an IOAPIC, if it has interrupt lines.

use super::ioapic;
use acpi_tables::mcfg::MCFG;
use acpi_tables::sdt::Sdt;
use acpi_tables::{Aml, AmlSink, aml};
use bulkhead_arch_x86::cmos::INDEX_PORT;
use bulkhead_ioapic::GPA;
use bulkhead_layout::map::{
    CHANNELS_END, CHANNELS_GPA, ECAM_GPA, FUNCTIONS_GPA, LINKS_END, REPORTS_GPA,
};
use bulkhead_layout::x86::port::{POWER_PORT, POWER_RESTART};
use bulkhead_plan::{Bdf, End, Function, Machine, PciRoot, RTC, Sandbox, Trigger};

const OEM: [u8; 6] = *b"BLKHD ";
const TABLE: [u8; 8] = *b"BULKHEAD";

/// The tables, to be placed at `base`; the root pointer (RSDP) comes first.
pub fn tables(sandbox: &Sandbox, machine: &Machine, ends: &[End], base: u64) -> Vec<u8> {
    let buses = buses(sandbox, ends);
    const RSDP: u64 = 64;
    let lines = ioapic::of(machine, sandbox);
    let dsdt = dsdt(sandbox, machine, &lines, buses.map(|last| (last, ends)));
    let dsdt_at = base + RSDP;
    let clock = sandbox.devices.iter().any(|d| d.class == RTC);
    let fadt = fadt(dsdt_at, buses.is_some(), clock);
    let fadt_at = align(dsdt_at + dsdt.len() as u64);
    let madt = madt(sandbox, !lines.is_empty() || ioapic::pins(ends) != 0);
    let madt_at = align(fadt_at + fadt.len() as u64);
    let mcfg = buses.map(mcfg).unwrap_or_default();
    let mcfg_at = align(madt_at + madt.len() as u64);
    let mut xsdt = Sdt::new(*b"XSDT", 36, 1, OEM, TABLE, 1);
    xsdt.append(fadt_at);
    xsdt.append(madt_at);
    if !mcfg.is_empty() {
        xsdt.append(mcfg_at);
    }
    let xsdt_at = align(mcfg_at + mcfg.len() as u64);

    let mut bytes = rsdp(xsdt_at);
    for (at, table) in [
        (dsdt_at, &dsdt[..]),
        (fadt_at, &fadt),
        (madt_at, &madt),
        (mcfg_at, &mcfg),
        (xsdt_at, xsdt.as_slice()),
    ] {
        bytes.resize((at - base) as usize, 0);
        bytes.extend(table);
    }
    bytes
}

fn align(at: u64) -> u64 {
    at.next_multiple_of(16)
}

fn rsdp(xsdt: u64) -> Vec<u8> {
    let mut bytes = b"RSD PTR \0".to_vec();
    bytes.extend(OEM);
    bytes.push(2);
    bytes.extend([0; 4]);
    bytes.extend(36u32.to_le_bytes());
    bytes.extend(xsdt.to_le_bytes());
    bytes.extend([0; 4]);
    bytes[8] = checksum(&bytes[..20]);
    bytes[32] = checksum(&bytes);
    bytes
}

fn checksum(bytes: &[u8]) -> u8 {
    0u8.wrapping_sub(bytes.iter().fold(0, |sum, b| sum.wrapping_add(*b)))
}

/// A generic address of one byte in I/O space (ACPI 6.5, 5.2.3.2).
fn port(sdt: &mut Sdt, offset: usize, port: u16) {
    const IO: u8 = 1;
    const BYTE_ACCESS: u8 = 1;
    for (i, byte) in [IO, 8, 0, BYTE_ACCESS].into_iter().enumerate() {
        sdt.write_u8(offset + i, byte);
    }
    sdt.write_u64(offset + 4, u64::from(port));
}

/// The last PCI bus that the sandbox sees something on, if it sees any.
fn buses(sandbox: &Sandbox, ends: &[End]) -> Option<u8> {
    let functions = sandbox.functions.iter().map(|granted| granted.function.bdf);
    functions.chain(ends.iter().map(|end| end.bdf)).map(Bdf::bus).max()
}

/// Where the configuration space is (PCI firmware specification 3.3, 4.1.2).
fn mcfg(last_bus: u8) -> Vec<u8> {
    let mut mcfg = MCFG::new(OEM, TABLE, 1);
    mcfg.add_ecam(ECAM_GPA, 0, 0, last_bus);
    let mut bytes = Vec::new();
    mcfg.to_aml_bytes(&mut bytes);
    bytes
}

/// The PCI host bridge: its buses, and what of the machine's windows a guest has
/// nothing else in; with ends of channels, theirs before those.
fn host_bridge(
    sandbox: &Sandbox,
    machine: &Machine,
    (last_bus, ends): (u8, &[End]),
    code: &mut Vec<u8>,
) {
    let none = PciRoot::default();
    let root = machine.pci.as_ref().unwrap_or(&none);
    let bus = aml::AddressSpace::new_bus_number(0u16, u16::from(last_bus));
    let ports: Vec<_> =
        root.ports.iter().map(|p| aml::AddressSpace::new_io(p.first, p.last, None)).collect();
    let not_cacheable = aml::AddressSpaceCacheable::NotCacheable;
    let windows = root.memory.iter().filter_map(|window| {
        let start = window.start.max(LINKS_END);
        (start < window.end()).then(|| (start, window.end() - 1))
    });
    let own = [(FUNCTIONS_GPA, REPORTS_GPA - 1), (CHANNELS_GPA, CHANNELS_END - 1)];
    let own = own.into_iter().filter(|_| !ends.is_empty());
    let memory: Vec<_> = own
        .chain(windows)
        .map(|(first, last)| aml::AddressSpace::new_memory(not_cacheable, true, first, last, None))
        .collect();
    let mut resources: Vec<&dyn Aml> = vec![&bus];
    resources.extend(ports.iter().map(|p| p as &dyn Aml));
    resources.extend(memory.iter().map(|m| m as &dyn Aml));
    let resources = aml::ResourceTemplate::new(resources);
    let (hid, cid) = (aml::EISAName::new("PNP0A08"), aml::EISAName::new("PNP0A03"));
    let names = [
        aml::Name::new("_HID".into(), &hid),
        aml::Name::new("_CID".into(), &cid),
        aml::Name::new("_UID".into(), &0u8),
        aml::Name::new("_SEG".into(), &0u8),
        aml::Name::new("_BBN".into(), &0u8),
        aml::Name::new("_CRS".into(), &resources),
    ];
    let lines = Bus { sandbox, machine, ends, number: 0 };
    let mut links = Vec::new();
    let pins = ioapic::pins(ends);
    (0..u32::BITS).filter(|line| pins >> line & 1 != 0).for_each(|line| edge(line, &mut links));
    let links = Raw(links);
    let mut children: Vec<&dyn Aml> = names.iter().map(|name| name as &dyn Aml).collect();
    children.push(&links);
    children.push(&lines);
    let body = aml::Device::new("PCI0".into(), children);
    aml::Scope::new("_SB_".into(), vec![&body]).to_aml_bytes(code);
    configuration_space(last_bus, code);
}

/// A bus of PCI: the lines of its devices' pins (_PRT; ACPI 6.5, 6.2.13), and the bridges on it that lead to more such
/// devices.
struct Bus<'a> {
    sandbox: &'a Sandbox,
    machine: &'a Machine,
    ends: &'a [End],
    number: u8,
}

impl Bus<'_> {
    /// Functions of the sandbox that use their line, here or behind bridges.
    fn with_lines(&self) -> impl Iterator<Item = &Function> {
        self.sandbox.functions.iter().filter(|g| g.line).map(|g| &g.function)
    }

    /// Device in the upper half, function in the lower one; of a _PRT all functions.
    fn address(bdf: Bdf, function: u16) -> u32 {
        u32::from(bdf.device()) << 16 | u32::from(function)
    }

    fn routing(&self, sink: &mut dyn AmlSink) {
        let here = self.with_lines().filter(|f| f.bdf.bus() == self.number && f.pin != 0);
        let mut entries: Vec<(u32, u8, u32)> =
            here.filter_map(|f| Some((Self::address(f.bdf, 0xFFFF), f.pin - 1, f.irq?))).collect();
        entries.sort_unstable();
        entries.dedup();
        // A source of 0 says that the index is a global system interrupt.
        let package = |(address, pin, gsi): &(u32, u8, u32)| {
            let mut bytes = Vec::new();
            aml::Package::new(vec![address, pin, &0u8, gsi]).to_aml_bytes(&mut bytes);
            Raw(bytes)
        };
        let mut packages: Vec<Raw> = entries.iter().map(package).collect();
        packages.extend(self.linked());
        if packages.is_empty() {
            return;
        }
        let all = aml::Package::new(packages.iter().map(|package| package as &dyn Aml).collect());
        aml::Name::new("_PRT".into(), &all).to_aml_bytes(sink);
    }
}

impl Bus<'_> {
    /// Lists the lines of ends of channels, which are on bus 0, in devices of their own.
    fn linked(&self) -> impl Iterator<Item = Raw> {
        let here = self.ends.iter().filter(|end| end.bdf.bus() == self.number);
        let mut all: Vec<(u32, u8, u32)> = here
            .filter_map(|end| Some((Self::address(end.bdf, 0xFFFF), end.pin()?)))
            .map(|(address, pin)| (address, pin.number - 1, pin.line))
            .collect();
        all.dedup();
        all.into_iter().map(|(address, pin, line)| {
            let (mut bytes, link) = (Vec::new(), aml::Path::new(&link(line)));
            aml::Package::new(vec![&address, &pin, &link, &0u8]).to_aml_bytes(&mut bytes);
            Raw(bytes)
        })
    }
}

/// The name of the interrupt link of a channel's line.
fn link(line: u32) -> String {
    format!("LN{line:02X}")
}

/// An interrupt link (ACPI 6.5, 6.2.13): PCI's lines are level-triggered unless such a device says otherwise.
/// Interrupts here are edges that another sandbox's monitor sends. A level could be taken back by nobody, and an edge
/// takes no access to the IOAPIC.
fn edge(line: u32, code: &mut Vec<u8>) {
    let interrupt = aml::Interrupt::new(true, true, false, true, line);
    let resources = aml::ResourceTemplate::new(vec![&interrupt]);
    let (hid, uid) = (aml::EISAName::new("PNP0C0F"), line as u8);
    let names = [
        aml::Name::new("_HID".into(), &hid),
        aml::Name::new("_UID".into(), &uid),
        aml::Name::new("_PRS".into(), &resources),
        aml::Name::new("_CRS".into(), &resources),
    ];
    let set = aml::Method::new("_SRS".into(), 1, true, vec![]);
    let mut children: Vec<&dyn Aml> = names.iter().map(|name| name as &dyn Aml).collect();
    children.push(&set);
    let name = link(line);
    aml::Device::new(name.as_str().into(), children).to_aml_bytes(code);
}

impl Aml for Bus<'_> {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        self.routing(sink);
        for function in &self.machine.functions {
            let Some(bridge) = function.bridge.filter(|_| function.bdf.bus() == self.number) else {
                continue;
            };
            let behind = bridge.secondary..=bridge.subordinate;
            if bridge.secondary <= self.number
                || !self.with_lines().any(|f| behind.contains(&f.bdf.bus()))
            {
                continue;
            }
            let address = Self::address(function.bdf, function.bdf.function().into());
            let address = aml::Name::new("_ADR".into(), &address);
            let beyond = Bus { number: bridge.secondary, ..*self };
            let name = format!("BR{:02X}", function.bdf.0 & 0xFF);
            aml::Device::new(name.as_str().into(), vec![&address, &beyond]).to_aml_bytes(sink);
        }
    }
}

/// AML as it is.
struct Raw(Vec<u8>);

impl Aml for Raw {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        self.0.iter().for_each(|byte| sink.byte(*byte));
    }
}

/// Describes the configuration space as a motherboard's resource (PCI firmware specification 3.3, 4.1.2). Linux 6.1
/// believes no MCFG without it, and then finds no PCI at all.
fn configuration_space(last_bus: u8, code: &mut Vec<u8>) {
    const BUS: u32 = 1 << 20;
    let space = aml::Memory32Fixed::new(true, ECAM_GPA as u32, (u32::from(last_bus) + 1) * BUS);
    let (hid, space) = (aml::EISAName::new("PNP0C02"), aml::ResourceTemplate::new(vec![&space]));
    let (hid, crs) = (aml::Name::new("_HID".into(), &hid), aml::Name::new("_CRS".into(), &space));
    let body = aml::Device::new("ECAM".into(), vec![&hid, &crs]);
    aml::Scope::new("_SB_".into(), vec![&body]).to_aml_bytes(code);
}

fn fadt(dsdt: u64, pci: bool, clock: bool) -> Vec<u8> {
    // Flags (ACPI 6.5, table 5.10): WBINVD works; power and sleep buttons are
    // not fixed hardware; the reset register is there; x2APIC physical
    // destinations; hardware-reduced.
    const FLAGS: u32 = 1 | 1 << 4 | 1 << 5 | 1 << 10 | 1 << 19 | 1 << 20;
    // No VGA, no PCIe ASPM; no RTC but for its owner, no MSI where there is no PCI (table 5.11).
    const BOOT_ARCH: u16 = 1 << 2 | 1 << 4;
    const NO_MSI: u16 = 1 << 3;
    const NO_RTC: u16 = 1 << 5;
    let mut sdt = Sdt::new(*b"FACP", 276, 6, OEM, TABLE, 1);
    let absent = if pci { 0 } else { NO_MSI } | if clock { 0 } else { NO_RTC };
    sdt.write_u16(109, BOOT_ARCH | absent);
    sdt.write_u32(112, FLAGS);
    port(&mut sdt, 116, POWER_PORT);
    sdt.write_u8(128, POWER_RESTART);
    sdt.write_u8(131, 5);
    sdt.write_u64(140, dsdt);
    port(&mut sdt, 244, POWER_PORT);
    port(&mut sdt, 256, POWER_PORT + 1);
    sdt.as_slice().to_vec()
}

fn madt(sandbox: &Sandbox, lines: bool) -> Vec<u8> {
    let mut sdt = Sdt::new(*b"APIC", 44, 5, OEM, TABLE, 1);
    sdt.write_u32(36, 0xFEE0_0000);
    for (uid, id) in sandbox.core_ids.iter().enumerate() {
        // Processor local x2APIC (ACPI 6.5, 5.2.12.12): type 9, enabled.
        sdt.append(9u8);
        sdt.append(16u8);
        sdt.append(0u16);
        sdt.append(*id);
        sdt.append(1u32);
        sdt.append(uid as u32);
    }
    if !lines {
        return sdt.as_slice().to_vec();
    }
    // IOAPIC (5.2.12.3): ID 0, at its address, from GSI 0 on.
    sdt.append_slice(&[1, 12, 0, 0]);
    sdt.append(GPA as u32);
    sdt.append(0u32);
    for device in &sandbox.devices {
        let Some(irq) = device.irq.filter(|irq| *irq < 16) else { continue };
        let line = ioapic::line(irq);
        if (line, device.trigger) != (irq, Trigger::Edge) {
            // Interrupt source override (5.2.12.5): bus ISA.
            sdt.append_slice(&[2, 10, 0, irq as u8]);
            sdt.append(line);
            sdt.append(wiring(device.trigger));
        }
    }
    sdt.as_slice().to_vec()
}

/// MPS INTI flags (table 5.26): polarity in bits 1:0, trigger mode in 3:2.
fn wiring(trigger: Trigger) -> u16 {
    match trigger {
        Trigger::Edge => 0b0101,
        Trigger::LevelHigh => 0b1101,
        Trigger::LevelLow => 0b1111,
    }
}

/// The real-time clock: two ports, and no interrupt, which its owner cannot switch on
/// (docs/decisions/0038-clock.md). A Linux that finds none described makes one with the PC's interrupt 8. Here there is
/// no such interrupt, and its driver gives up.
fn clock(code: &mut Vec<u8>) {
    const PORTS: u16 = INDEX_PORT as u16;
    let io = aml::IO::new(PORTS, PORTS, 1, 2);
    let (hid, io) = (aml::EISAName::new("PNP0B00"), aml::ResourceTemplate::new(vec![&io]));
    let (hid, crs) = (aml::Name::new("_HID".into(), &hid), aml::Name::new("_CRS".into(), &io));
    let body = aml::Device::new("RTC_".into(), vec![&hid, &crs]);
    aml::Scope::new("_SB_".into(), vec![&body]).to_aml_bytes(code);
}

fn dsdt(
    sandbox: &Sandbox,
    machine: &Machine,
    lines: &[(u32, Trigger)],
    buses: Option<(u8, &[End])>,
) -> Vec<u8> {
    let mut code = Vec::new();
    // S5 by sleep type 5.
    aml::Name::new("_S5_".into(), &aml::Package::new(vec![&5u8, &0u8, &0u8, &0u8]))
        .to_aml_bytes(&mut code);
    if let Some(buses) = buses {
        host_bridge(sandbox, machine, buses, &mut code);
    }
    let uarts = sandbox.devices.iter().filter(|d| d.class == "uart16550");
    for (uid, device) in uarts.enumerate() {
        let Some(ports) = device.ports.first() else {
            continue;
        };
        let len = (ports.last - ports.first + 1) as u8;
        let io = aml::IO::new(ports.first, ports.first, 1, len);
        // Without an interrupt the driver polls.
        let has = |irq: &u32| lines.iter().any(|(line, _)| *line == ioapic::line(*irq));
        let irq = device.irq.filter(has).map(|irq| {
            let edge = device.trigger == Trigger::Edge;
            let low = device.trigger == Trigger::LevelLow;
            let same = sandbox.devices.iter().filter(|other| other.irq == Some(irq)).count();
            aml::Interrupt::new(true, edge, low, same > 1, irq)
        });
        let mut resources: Vec<&dyn Aml> = vec![&io];
        resources.extend(irq.iter().map(|irq| irq as &dyn Aml));
        let resources = aml::ResourceTemplate::new(resources);
        let hid = aml::EISAName::new("PNP0501");
        let uid = uid as u8;
        let names = (
            aml::Name::new("_HID".into(), &hid),
            aml::Name::new("_UID".into(), &uid),
            aml::Name::new("_CRS".into(), &resources),
        );
        let name = format!("COM{uid}");
        let body = aml::Device::new(name.as_str().into(), vec![&names.0, &names.1, &names.2]);
        aml::Scope::new("_SB_".into(), vec![&body]).to_aml_bytes(&mut code);
    }
    if sandbox.devices.iter().any(|d| d.class == RTC) {
        clock(&mut code);
    }
    let mut sdt = Sdt::new(*b"DSDT", 36, 2, OEM, TABLE, 1);
    sdt.append_slice(&code);
    sdt.as_slice().to_vec()
}
