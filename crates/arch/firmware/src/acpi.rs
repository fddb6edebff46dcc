//! The few ACPI tables that the boot code needs (ACPI 6.5, 5.2). Cores and I/O APICs come from the MADT, the PM timer's
//! port from the FADT.

use crate::{Memory, u8_at, u16_at, u32_at, u64_at};

/// Most cores kept.
pub const MAX_CORES: usize = 256;
/// Most I/O APICs kept.
pub const MAX_IOAPICS: usize = 8;
/// Bound of a length that a table claims.
const MAX_TABLE: usize = 1 << 20;

/// Facts of the tables.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    cores: [u32; MAX_CORES],
    core_count: usize,
    ioapics: [u32; MAX_IOAPICS],
    ioapic_count: usize,
    /// I/O port of the PM timer; 0 without one.
    pub pm_timer: u16,
}

impl Tables {
    /// x2APIC IDs of the enabled cores.
    #[must_use]
    pub fn cores(&self) -> &[u32] {
        &self.cores[..self.core_count]
    }

    /// Addresses of the I/O APICs.
    #[must_use]
    pub fn ioapics(&self) -> &[u32] {
        &self.ioapics[..self.ioapic_count]
    }
}

/// Finds the RSDP where a PC's BIOS leaves it (ACPI 6.5, 5.2.5.1).
pub fn find_rsdp(memory: &impl Memory) -> Option<u64> {
    let ebda = u64::from(u16_at(memory.bytes(0x40E, 2)?, 0)?) << 4;
    let areas = [(ebda, 0x400), (0xE_0000, 0x2_0000)];
    areas.into_iter().find_map(|(start, len)| {
        let bytes = memory.bytes(start, len)?;
        // Its own checksum keeps the signature in a BIOS' code or text from passing for it. It covers the 20 bytes of
        // version 1, which each later version begins with.
        (0..len / 16)
            .map(|i| i * 16)
            .find(|&at| {
                bytes
                    .get(at..at + 20)
                    .is_some_and(|rsdp| rsdp.starts_with(b"RSD PTR ") && sum(rsdp) == 0)
            })
            .map(|at| start + at as u64)
    })
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, b| sum.wrapping_add(*b))
}

/// Reads the tables below an RSDP. `None` when there is no MADT.
pub fn parse(rsdp: u64, memory: &impl Memory) -> Option<Tables> {
    let head = memory.bytes(rsdp, 20)?;
    // From revision 2 on the XSDT has 64-bit addresses. The RSDT beside it may be out of date (5.2.5.3).
    let (root, width) = match u8_at(head, 15)? {
        0 => (u64::from(u32_at(head, 16)?), 4),
        _ => (u64_at(memory.bytes(rsdp, 36)?, 24)?, 8),
    };
    let root = table(root, memory)?;
    let mut tables = Tables {
        cores: [0; MAX_CORES],
        core_count: 0,
        ioapics: [0; MAX_IOAPICS],
        ioapic_count: 0,
        pm_timer: 0,
    };
    for at in (36..root.len()).step_by(width) {
        let pa = match width {
            4 => u64::from(u32_at(root, at)?),
            _ => u64_at(root, at)?,
        };
        // A table above 4 GiB is not seen, and others may be all that is needed.
        let Some(found) = table(pa, memory) else {
            continue;
        };
        match found.get(..4)? {
            b"APIC" => madt(found, &mut tables)?,
            // PM_TMR_BLK (5.2.9). X_PM_TMR_BLK repeats the port on a PC, and version 1 lacks it.
            b"FACP" => tables.pm_timer = u32_at(found, 76)? as u16,
            _ => {}
        }
    }
    (tables.core_count > 0).then_some(tables)
}

/// Bytes before a table's first entry.
const HEAD: usize = 36;
/// Place of the root table in a copy, behind the RSDP.
const ROOT: usize = 64;

/// Copies the RSDP, the root table and the MADT to `to`, which will lie at the physical address `at`. Cores are enabled
/// if `own` has their x2APIC IDs. All other tables stay where they are. `None`: there is no MADT, or no room.
pub fn only(
    rsdp: u64,
    memory: &impl Memory,
    to: &mut [u8],
    at: u64,
    own: impl Fn(u32) -> bool,
) -> Option<()> {
    let old = u8_at(memory.bytes(rsdp, 20)?, 15)? == 0;
    let (len, field, width) = if old { (20, 16, 4) } else { (36, 24, 8) };
    let rsdp = memory.bytes(rsdp, len)?;
    let address = |bytes: &[u8], at: usize| match width {
        4 => u32_at(bytes, at).map(u64::from),
        _ => u64_at(bytes, at),
    };
    let root = table(address(rsdp, field)?, memory)?;
    let tables = (HEAD..root.len()).step_by(width);
    let mut tables = tables.filter_map(|at| Some((at, table(address(root, at)?, memory)?)));
    let (entry, madt) = tables.find(|(_, table)| table.starts_with(b"APIC"))?;
    let madt_at = (ROOT + root.len()).next_multiple_of(16);

    let copy = to.get_mut(madt_at..)?.get_mut(..madt.len())?;
    copy.copy_from_slice(madt);
    keep(copy, own)?;
    set_sum(copy, 9)?;
    let copy = to.get_mut(ROOT..)?.get_mut(..root.len())?;
    copy.copy_from_slice(root);
    put(copy, entry, width, at + madt_at as u64)?;
    set_sum(copy, 9)?;
    let copy = to.get_mut(..len)?;
    copy.copy_from_slice(rsdp);
    // The old root table has the old MADT: nobody is to take it.
    put(copy, 16, 4, 0)?;
    put(copy, field, width, at + ROOT as u64)?;
    set_sum(copy.get_mut(..20)?, 8)?;
    if old { Some(()) } else { set_sum(copy, 32) }
}

/// Disables all cores of a MADT but those.
fn keep(madt: &mut [u8], own: impl Fn(u32) -> bool) -> Option<()> {
    let mut at = 44;
    while let (Some(kind), Some(len)) = (u8_at(madt, at), u8_at(madt, at + 1)) {
        let (id, flags) = match kind {
            0 => (u32::from(u8_at(madt, at + 3)?), at + 4),
            9 => (u32_at(madt, at + 4)?, at + 8),
            _ => (0, 0),
        };
        if flags != 0 && !own(id) {
            // Neither enabled nor to be enabled.
            put(madt, flags, 4, 0)?;
        }
        if len < 2 {
            break;
        }
        at += usize::from(len);
    }
    Some(())
}

fn put(bytes: &mut [u8], at: usize, width: usize, value: u64) -> Option<()> {
    bytes.get_mut(at..at.checked_add(width)?)?.copy_from_slice(value.to_le_bytes().get(..width)?);
    Some(())
}

/// Makes the sum of all bytes 0, by the byte at a place.
fn set_sum(bytes: &mut [u8], at: usize) -> Option<()> {
    *bytes.get_mut(at)? = 0;
    let rest = sum(bytes);
    *bytes.get_mut(at)? = rest.wrapping_neg();
    Some(())
}

fn table(pa: u64, memory: &impl Memory) -> Option<&[u8]> {
    let len = u32_at(memory.bytes(pa, 36)?, 4)? as usize;
    (36..=MAX_TABLE).contains(&len).then(|| memory.bytes(pa, len))?
}

fn madt(madt: &[u8], tables: &mut Tables) -> Option<()> {
    const ENABLED: u32 = 1;
    let mut at = 44;
    while let (Some(kind), Some(len)) = (u8_at(madt, at), u8_at(madt, at + 1)) {
        // Local APIC (5.2.12.2) and, for IDs from 255 on, local x2APIC (5.2.12.12). A core that is not enabled would
        // never answer a start-up.
        let core = match kind {
            0 if u32_at(madt, at + 4)? & ENABLED != 0 => Some(u32::from(u8_at(madt, at + 3)?)),
            9 if u32_at(madt, at + 8)? & ENABLED != 0 => Some(u32_at(madt, at + 4)?),
            _ => None,
        };
        if let (Some(id), Some(slot)) = (core, tables.cores.get_mut(tables.core_count)) {
            *slot = id;
            tables.core_count += 1;
        }
        if let (1, Some(slot)) = (kind, tables.ioapics.get_mut(tables.ioapic_count)) {
            *slot = u32_at(madt, at + 4)?;
            tables.ioapic_count += 1;
        }
        // Less than an entry's own head: the next turn would come back here.
        if len < 2 {
            break;
        }
        at += usize::from(len);
    }
    Some(())
}
