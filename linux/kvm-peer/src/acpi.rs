//! ACPI tables (ACPI 6.5, chapter 5), the least that Linux needs to use its core's own timer and the IOAPIC. With the
//! PIT the comparison would be unfair, and Debian's cloud kernels don't read MultiProcessor tables.

use crate::Failure;
use crate::memory::Memory;

/// The last KiB of base memory, which the memory map leaves out.
pub const BASE: usize = 0x9_FC00;
const END: usize = 0xA_0000;

const LAPIC: u32 = 0xFEE0_0000;
const IOAPIC: u32 = 0xFEC0_0000;
const IOAPIC_ID: u8 = 1;
/// Ports at which no device is: they read all ones, so ACPI looks enabled and
/// nothing ever happens.
const PM1_EVENT: u32 = 0x600;
const PM1_CONTROL: u32 = 0x604;

/// Writes the tables; returns the address of the first one (RSDP).
pub fn write(memory: &Memory) -> Result<u64, Failure> {
    let mut next = BASE + 48;
    let mut put = |table: &[u8]| -> Result<u32, Failure> {
        let at = next;
        next = (at + table.len()).next_multiple_of(16);
        if next > END {
            return Err("the ACPI tables are too long".into());
        }
        memory.write(at, table)?;
        Ok(u32::try_from(at)?)
    };
    let dsdt = put(&table(b"DSDT", 2, &[]))?;
    let fadt = put(&table(b"FACP", 1, &fadt(dsdt)))?;
    let madt = put(&table(b"APIC", 1, &madt()))?;
    let pointers = [fadt.to_le_bytes(), madt.to_le_bytes()].concat();
    let rsdt = put(&table(b"RSDT", 1, &pointers))?;
    memory.write(BASE, &rsdp(rsdt))?;
    Ok(BASE as u64)
}

/// A table: the header of 5.2.6 before `body`.
fn table(signature: &[u8; 4], revision: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(36 + body.len()).expect("tables are short");
    let mut bytes = Vec::from(*signature);
    bytes.extend(length.to_le_bytes());
    bytes.extend([revision, 0]);
    bytes.extend(*b"BULKHDKVM-PEER");
    bytes.extend([1, 0, 0, 0]);
    bytes.extend(*b"BULK");
    bytes.extend([1, 0, 0, 0]);
    bytes.extend(body);
    seal(&mut bytes, 9);
    bytes
}

/// Fixed description of revision 1 (5.2.9), after its header.
fn fadt(dsdt: u32) -> [u8; 80] {
    let mut body = [0; 80];
    // Offsets are those of the specification, less the header.
    let mut put = |offset: usize, bytes: &[u8]| {
        body[offset - 36..][..bytes.len()].copy_from_slice(bytes);
    };
    put(40, &dsdt.to_le_bytes());
    put(46, &9u16.to_le_bytes()); // SCI
    put(56, &PM1_EVENT.to_le_bytes());
    put(64, &PM1_CONTROL.to_le_bytes());
    put(88, &[4, 2]); // lengths of the two
    body
}

/// Interrupt controllers (5.2.12): one core, one IOAPIC. There is no override for
/// the PIT: KVM's default routing has it on input 0, not on 2 as in PCs.
fn madt() -> Vec<u8> {
    let mut body = Vec::from(LAPIC.to_le_bytes());
    body.extend(1u32.to_le_bytes()); // there are 8259s too
    body.extend([0, 8, 0, 0, 1, 0, 0, 0]); // local APIC 0, enabled
    body.extend([1, 12, IOAPIC_ID, 0]);
    body.extend(IOAPIC.to_le_bytes());
    body.extend(0u32.to_le_bytes()); // first interrupt
    body
}

/// Root pointer of revision 0 (5.2.5.3).
fn rsdp(rsdt: u32) -> Vec<u8> {
    let mut bytes = Vec::from(*b"RSD PTR \0BULKHD\0");
    bytes.extend(rsdt.to_le_bytes());
    seal(&mut bytes, 8);
    bytes
}

/// Makes the bytes add up to 0 by the one at `place`.
fn seal(bytes: &mut [u8], place: usize) {
    bytes[place] = 0;
    let sum = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    bytes[place] = sum.wrapping_neg();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sealed_and_say_their_length() {
        for table in [table(b"FACP", 1, &fadt(0)), table(b"APIC", 1, &madt())] {
            assert_eq!(table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)), 0);
            assert_eq!(usize::from(table[4]), table.len());
        }
        assert_eq!(rsdp(0).len(), 20);
        assert_eq!(table(b"FACP", 1, &fadt(0)).len(), 116);
    }
}
