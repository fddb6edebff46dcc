//! SMBIOS tables of a Linux guest (SMBIOS 3.6, 5.2.2 and 7.2): maker, product and a serial number. The number makes
//! Linux ask for its clocks' frequencies at the port that the monitor answers
//! (`crates/monitor/monitor-x86/src/vmware.rs`).

/// Entry point and tables, to be placed at `base` (on 16 bytes, in the last
/// 64 KiB below 1 MiB).
pub fn tables(base: u64) -> Vec<u8> {
    const ENTRY: usize = 24;
    const STRINGS: &[u8] = b"Bulkhead\0sandbox\0VMware-Bulkhead\0\0";
    // Type 1, system information: manufacturer, product, version, serial by
    // string number, then UUID, wake-up type, SKU, family.
    let mut system = vec![1, 27, 0, 0, 1, 2, 0, 3];
    system.extend([0; 16]);
    system.extend([6, 0, 0]);
    system.extend(STRINGS);
    // Type 127, end of table.
    system.extend([127, 4, 1, 0, 0, 0]);

    let mut bytes = b"_SM3_".to_vec();
    bytes.extend([0, ENTRY as u8, 3, 6, 0, 1, 0]);
    bytes.extend((system.len() as u32).to_le_bytes());
    bytes.extend((base + 32).to_le_bytes());
    bytes[5] = 0u8.wrapping_sub(bytes.iter().fold(0, |sum, b| sum.wrapping_add(*b)));
    bytes.resize(32, 0);
    bytes.extend(system);
    bytes
}
