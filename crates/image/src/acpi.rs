//! The ACPI tables of a Linux guest: hardware-reduced (ACPI 6.5, 4.1), its own
//! cores by x2APIC ID, its serial ports without an interrupt, power by two ports.

use acpi_tables::sdt::Sdt;
use acpi_tables::{Aml, aml};
use bulkhead_layout::hypercall::{POWER_PORT, POWER_RESTART};
use bulkhead_plan::Sandbox;

const OEM: [u8; 6] = *b"BLKHD ";
const TABLE: [u8; 8] = *b"BULKHEAD";

/// The tables, to be placed at `base`; the root pointer (RSDP) comes first.
pub fn tables(sandbox: &Sandbox, base: u64) -> Vec<u8> {
    const RSDP: u64 = 64;
    let dsdt = dsdt(sandbox);
    let dsdt_at = base + RSDP;
    let fadt = fadt(dsdt_at);
    let fadt_at = align(dsdt_at + dsdt.len() as u64);
    let madt = madt(sandbox);
    let madt_at = align(fadt_at + fadt.len() as u64);
    let mut xsdt = Sdt::new(*b"XSDT", 36, 1, OEM, TABLE, 1);
    xsdt.append(fadt_at);
    xsdt.append(madt_at);
    let xsdt_at = align(madt_at + madt.len() as u64);

    let mut bytes = rsdp(xsdt_at);
    for (at, table) in
        [(dsdt_at, &dsdt[..]), (fadt_at, &fadt), (madt_at, &madt), (xsdt_at, xsdt.as_slice())]
    {
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

fn fadt(dsdt: u64) -> Vec<u8> {
    // Flags (ACPI 6.5, table 5.10): WBINVD works; power and sleep buttons are
    // not fixed hardware; the reset register is there; x2APIC physical
    // destinations; hardware-reduced.
    const FLAGS: u32 = 1 | 1 << 4 | 1 << 5 | 1 << 10 | 1 << 19 | 1 << 20;
    // No VGA, no MSI, no PCIe ASPM, no RTC (table 5.11).
    const BOOT_ARCH: u16 = 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5;
    let mut sdt = Sdt::new(*b"FACP", 276, 6, OEM, TABLE, 1);
    sdt.write_u16(109, BOOT_ARCH);
    sdt.write_u32(112, FLAGS);
    port(&mut sdt, 116, POWER_PORT);
    sdt.write_u8(128, POWER_RESTART);
    sdt.write_u8(131, 5);
    sdt.write_u64(140, dsdt);
    port(&mut sdt, 244, POWER_PORT);
    port(&mut sdt, 256, POWER_PORT + 1);
    sdt.as_slice().to_vec()
}

fn madt(sandbox: &Sandbox) -> Vec<u8> {
    let mut sdt = Sdt::new(*b"APIC", 44, 5, OEM, TABLE, 1);
    sdt.write_u32(36, 0xFEE0_0000);
    for (uid, id) in sandbox.apic_ids.iter().enumerate() {
        // Processor local x2APIC (ACPI 6.5, 5.2.12.12): type 9, enabled.
        sdt.append(9u8);
        sdt.append(16u8);
        sdt.append(0u16);
        sdt.append(*id);
        sdt.append(1u32);
        sdt.append(uid as u32);
    }
    sdt.as_slice().to_vec()
}

fn dsdt(sandbox: &Sandbox) -> Vec<u8> {
    let mut code = Vec::new();
    // S5 by sleep type 5.
    aml::Name::new("_S5_".into(), &aml::Package::new(vec![&5u8, &0u8, &0u8, &0u8]))
        .to_aml_bytes(&mut code);
    let uarts = sandbox.devices.iter().filter(|d| d.class == "uart16550");
    for (uid, device) in uarts.enumerate() {
        let Some(ports) = device.ports.first() else {
            continue;
        };
        // Without an interrupt, so the driver polls.
        let len = (ports.last - ports.first + 1) as u8;
        let io = aml::IO::new(ports.first, ports.first, 1, len);
        let resources = aml::ResourceTemplate::new(vec![&io]);
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
    let mut sdt = Sdt::new(*b"DSDT", 36, 2, OEM, TABLE, 1);
    sdt.append_slice(&code);
    sdt.as_slice().to_vec()
}
