//! The firmware parsers on what loaders and firmware really leave, and on
//! anything else.

use bulkhead_firmware::{Memory, acpi, multiboot};
use proptest::prelude::*;

/// Bytes from physical address `BASE` on.
struct Bytes(Vec<u8>);

const BASE: u64 = 0x1000;

impl Memory for Bytes {
    fn bytes(&self, pa: u64, len: usize) -> Option<&[u8]> {
        let at = usize::try_from(pa.checked_sub(BASE)?).ok()?;
        self.0.get(at..at.checked_add(len)?)
    }
}

fn words32(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Multiboot 1: information, then a map of two free ranges with a reserved one between.
fn multiboot1() -> Vec<u8> {
    let mut info = vec![0u32; 13];
    info[0] = 1 << 6;
    info[11] = 3 * 24;
    info[12] = BASE as u32 + 52;
    let entry = |start: u32, len: u32, kind: u32| words32(&[20, start, 0, len, 0, kind]);
    [
        words32(&info),
        entry(0, 0x9_F000, 1),
        entry(0x9_F000, 0x1000, 2),
        entry(0x10_0000, 0x70_0000, 1),
    ]
    .concat()
}

#[test]
fn multiboot1_ranges() {
    let info = multiboot::parse(multiboot::MAGIC1, BASE, &Bytes(multiboot1())).unwrap();
    assert_eq!(info.ram(), [(0, 0x9_F000), (0x10_0000, 0x70_0000)]);
    assert!(info.covers(0x10_0000, 0x70_0000));
    assert!(!info.covers(0x9_E000, 0x2000));
    assert!(!info.covers(u64::MAX, 2));
    assert!(info.covers(0x5000, 0));
}

#[test]
fn multiboot2_ranges_that_touch_are_one() {
    let entry = |start: u32, len: u32, kind: u32| words32(&[start, 0, len, 0, kind, 0]);
    let map = [
        words32(&[6, 16 + 3 * 24, 24, 0]),
        entry(0x1000, 0x1000, 1),
        entry(0x2000, 0x1000, 1),
        entry(0x3000, 0x1000, 3),
    ]
    .concat();
    let rsdp = words32(&[15, 8 + 36, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0]);
    let tags = [map, rsdp, words32(&[0, 8])].concat();
    let all = [words32(&[8 + tags.len() as u32, 0]), tags].concat();
    let info = multiboot::parse(multiboot::MAGIC2, BASE, &Bytes(all)).unwrap();
    assert!(info.covers(0x1800, 0x1800));
    assert!(!info.covers(0x1800, 0x1801));
    assert_eq!(info.rsdp, Some(BASE + 8 + 88 + 8));
}

#[test]
fn another_loader_is_refused() {
    assert!(multiboot::parse(0, BASE, &Bytes(multiboot1())).is_none());
}

/// A table: signature, length, 28 bytes of header, body.
fn table(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let len = 36 + body.len() as u32;
    [signature.to_vec(), len.to_le_bytes().to_vec(), vec![0; 28], body.to_vec()].concat()
}

#[test]
fn cores_io_apics_and_timer() {
    let madt = [
        vec![0; 8],
        vec![0, 8, 0, 5, 1, 0, 0, 0],
        vec![0, 8, 1, 6, 0, 0, 0, 0], // disabled
        vec![1, 12, 0, 0, 0, 0, 0xC0, 0xFE, 0, 0, 0, 0],
        [vec![9, 16, 0, 0], words32(&[300, 1, 2])].concat(),
    ]
    .concat();
    let madt = table(b"APIC", &madt);
    let mut fadt = vec![0; 44];
    fadt[40..44].copy_from_slice(&0x608u32.to_le_bytes());
    let fadt = table(b"FACP", &fadt);
    let rsdt_at = BASE as u32 + 20;
    let madt_at = rsdt_at + 44;
    let fadt_at = madt_at + madt.len() as u32;
    let rsdt = table(b"RSDT", &words32(&[madt_at, fadt_at]));
    let rsdp = [vec![0; 16], rsdt_at.to_le_bytes().to_vec()].concat();
    let all = Bytes([rsdp, rsdt, madt, fadt].concat());
    let tables = acpi::parse(BASE, &all).unwrap();
    assert_eq!(tables.cores(), [5, 300]);
    assert_eq!(tables.ioapics(), [0xFEC0_0000]);
    assert_eq!(tables.pm_timer, 0x608);
}

proptest! {
    #[test]
    fn anything_is_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2048), magic in any::<bool>()) {
        let memory = Bytes(bytes);
        let magic = if magic { multiboot::MAGIC1 } else { multiboot::MAGIC2 };
        if let Some(info) = multiboot::parse(magic, BASE, &memory) {
            prop_assert!(info.ram().len() <= multiboot::MAX_RANGES);
            prop_assert!(!info.covers(1, u64::MAX));
        }
        let _ = acpi::parse(BASE, &memory);
        let _ = acpi::find_rsdp(&memory);
    }

    #[test]
    fn a_damaged_map_is_parsed_or_refused(at in 0usize..124, value in any::<u8>()) {
        let mut bytes = multiboot1();
        bytes[at] = value;
        let _ = multiboot::parse(multiboot::MAGIC1, BASE, &Bytes(bytes));
    }
}
