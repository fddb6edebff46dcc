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

/// Firmware tables with cores 5, 6 and 300, below a root of either width.
fn tables(old: bool) -> Bytes {
    let madt = [
        vec![0; 8],
        vec![0, 8, 0, 5, 1, 0, 0, 0],
        vec![0, 8, 1, 6, 3, 0, 0, 0],
        vec![1, 12, 0, 0, 0, 0, 0xC0, 0xFE, 0, 0, 0, 0],
        [vec![9, 16, 0, 0], words32(&[300, 1, 2])].concat(),
    ];
    let (madt, fadt) = (table(b"APIC", &madt.concat()), table(b"FACP", &[0; 44]));
    let len = if old { 20 } else { 36 };
    let (root_at, width) = (BASE + len, if old { 4 } else { 8 });
    let fadt_at = root_at + 36 + 2 * width;
    let entries = [fadt_at, fadt_at + fadt.len() as u64];
    let entries = entries.map(|at| at.to_le_bytes()[..width as usize].to_vec()).concat();
    let root = table(if old { b"RSDT" } else { b"XSDT" }, &entries);
    let mut rsdp = vec![0; len as usize];
    rsdp[..8].copy_from_slice(b"RSD PTR ");
    let field = if old { 16 } else { 24 };
    rsdp[field..field + width as usize].copy_from_slice(&root_at.to_le_bytes()[..width as usize]);
    rsdp[15] = if old { 0 } else { 2 };
    if !old {
        rsdp[16] = 0x77; // an RSDT that is out of date
    }
    Bytes([rsdp, root, fadt, madt].concat())
}

#[test]
fn a_copy_has_own_cores_alone_and_leads_to_the_other_tables() {
    let sum = |bytes: &[u8]| bytes.iter().fold(0u8, |sum, b| sum.wrapping_add(*b));
    for old in [true, false] {
        let Bytes(mut all) = tables(old);
        assert_eq!(acpi::parse(BASE, &Bytes(all.clone())).unwrap().cores(), [5, 6, 300]);
        let at = BASE + all.len() as u64;
        let mut copy = vec![0xAA; 0x200];
        let own = |id| [5, 300].contains(&id);
        acpi::only(BASE, &Bytes(all.clone()), &mut copy, at, own).unwrap();
        let rsdp = if old { 20 } else { 36 };
        assert_eq!((sum(&copy[..20]), sum(&copy[..rsdp])), (0, 0));
        // The old root table leads to the old cores, so it is not to be taken.
        assert!(old || copy[16..20] == [0; 4]);
        let root = if old { 44 } else { 52 };
        assert_eq!(sum(&copy[64..64 + root]), 0);
        let madt = 64 + root.next_multiple_of(16);
        assert_eq!((&copy[madt..madt + 4], sum(&copy[madt..madt + 88])), (&b"APIC"[..], 0));
        // A disabled core cannot be enabled later, either.
        assert_eq!(copy[madt + 44 + 8..][..8], [0, 8, 1, 6, 0, 0, 0, 0]);
        all.extend(copy);
        let seen = acpi::parse(at, &Bytes(all)).unwrap();
        assert_eq!((seen.cores(), seen.ioapics()), (&[5, 300][..], &[0xFEC0_0000][..]));
    }
}

#[test]
fn a_copy_needs_room_and_a_table_of_cores() {
    for len in [0, 19, 63, 100, 150] {
        let made = acpi::only(BASE, &tables(true), &mut vec![0; len], BASE, |_| true);
        assert_eq!(made, None, "{len}");
    }
    let Bytes(mut all) = tables(true);
    let at = all.windows(4).position(|four| four == b"APIC").unwrap();
    all[at] = b'x';
    assert_eq!(acpi::only(BASE, &Bytes(all), &mut [0; 0x200], BASE, |_| true), None);
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
        let _ = acpi::only(BASE, &memory, &mut [0; 256], BASE, |id| id % 2 == 0);
        let _ = acpi::find_rsdp(&memory);
    }

    #[test]
    fn a_damaged_map_is_parsed_or_refused(at in 0usize..124, value in any::<u8>()) {
        let mut bytes = multiboot1();
        bytes[at] = value;
        let _ = multiboot::parse(multiboot::MAGIC1, BASE, &Bytes(bytes));
    }
}
