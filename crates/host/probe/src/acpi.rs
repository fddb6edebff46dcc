//! The ACPI tables that a description needs: ACPI 6.5; PCI Firmware 3.2, 4.1.2;
//! AMD I/O Virtualization 3.08, 5.2; VT-d 4.1, 8; IA-PC HPET 1.0a, 3.2.4. Tables are claims:
//! what does not fit is left out.

use crate::bytes::{u8_at, u16_at, u32_at, u64_at};
use bulkhead_plan::{Bdf, Ports};

/// Length of the header that every table has.
const HEADER: usize = 36;

/// Structures with a length of their own, one after the other: offset of the
/// first one, and how to tell the length of one.
fn pieces(
    table: &[u8],
    first: usize,
    len: impl Fn(&[u8]) -> Option<usize>,
) -> impl Iterator<Item = &[u8]> {
    let mut rest = table.get(first..).unwrap_or_default();
    std::iter::from_fn(move || {
        let len = len(rest).filter(|len| *len > 0)?;
        let (piece, more) = rest.split_at_checked(len)?;
        rest = more;
        Some(piece)
    })
}

/// Returns the address of the configuration space of segment 0, and its last bus.
#[must_use]
pub fn ecam(mcfg: &[u8]) -> Option<(u64, u8)> {
    pieces(mcfg, HEADER + 8, |rest| (rest.len() >= 16).then_some(16)).find_map(|entry| {
        let (segment, first) = (u16_at(entry, 8)?, u8_at(entry, 10)?);
        (segment == 0 && first == 0).then_some((u64_at(entry, 0)?, u8_at(entry, 11)?))
    })
}

/// IOAPICs: address and first line, by first line.
#[must_use]
pub fn ioapics(madt: &[u8]) -> Vec<(u64, u32)> {
    let entries = pieces(madt, HEADER + 8, |rest| u8_at(rest, 1).map(usize::from));
    let ioapic = |entry: &[u8]| {
        let kind = u8_at(entry, 0)?;
        (kind == 1).then_some((u64::from(u32_at(entry, 4)?), u32_at(entry, 8)?))
    };
    let mut all: Vec<_> = entries.filter_map(ioapic).collect();
    all.sort_by_key(|(_, line)| *line);
    all
}

/// An IOMMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iommu {
    /// Address of its registers.
    pub base: u64,
    /// As which function it sees an IOAPIC.
    pub ioapic: Option<Bdf>,
}

/// AMD's IOMMUs, each once: newer kinds of blocks repeat the older ones.
#[must_use]
pub fn iommus(ivrs: &[u8]) -> Vec<Iommu> {
    let mut all: Vec<Iommu> = Vec::new();
    for block in pieces(ivrs, HEADER + 12, |rest| u16_at(rest, 2).map(usize::from)) {
        let devices = match u8_at(block, 0) {
            Some(0x10) => 24,
            Some(0x11 | 0x40) => 40,
            _ => continue,
        };
        let Some(base) = u64_at(block, 8).filter(|_| block.len() >= devices) else { continue };
        let ioapic = pieces(block, devices, entry_len).find_map(|entry| {
            let special = u8_at(entry, 0)? == 0x48 && u8_at(entry, 7)? == 1;
            special.then_some(Bdf(u16_at(entry, 5)?))
        });
        match all.iter_mut().find(|iommu| iommu.base == base) {
            Some(known) => known.ioapic = known.ioapic.or(ioapic),
            None => all.push(Iommu { base, ioapic }),
        }
    }
    all
}

/// Finds the length of a device entry: its type's two highest bits say it. Only ACPI devices have names with a length
/// of their own (5.2.2.5).
fn entry_len(rest: &[u8]) -> Option<usize> {
    match u8_at(rest, 0)? {
        0xF0 => Some(22 + usize::from(u8_at(rest, 21)?)),
        kind => Some(4 << (kind >> 6)),
    }
}

/// The contents of the DMAR table (VT-d specification, 8.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dmar {
    /// Units of segment 0; first those that all functions are behind which no other unit names.
    pub units: Vec<Iommu>,
    /// The machine remaps interrupts.
    pub interrupts: bool,
    /// Memory that functions have reserved (RMRR): first address, the one after the last, and the functions.
    pub reserved: Vec<(u64, u64, Vec<Bdf>)>,
}

/// Reads the DMAR table.
#[must_use]
pub fn dmar(table: &[u8]) -> Dmar {
    let mut found = Dmar { interrupts: u8_at(table, 37).unwrap_or(0) & 1 != 0, ..Dmar::default() };
    let mut rest = Vec::new();
    for block in pieces(table, HEADER + 12, |rest| u16_at(rest, 2).map(usize::from)) {
        if u16_at(block, 6) != Some(0) {
            continue;
        }
        match (u16_at(block, 0), u64_at(block, 8), u64_at(block, 16)) {
            (Some(0), Some(base), _) => {
                const ALL: u8 = 1;
                let ioapic = scopes(block, 16, &[3]).first().copied();
                let is_all = u8_at(block, 4).unwrap_or(0) & ALL != 0;
                let to = if is_all { &mut found.units } else { &mut rest };
                to.push(Iommu { base, ioapic });
            }
            (Some(1), Some(first), Some(last)) if first <= last && last < u64::MAX => {
                found.reserved.push((first, last + 1, scopes(block, 24, &[1, 2])));
            }
            _ => {}
        }
    }
    found.units.extend(rest);
    found
}

/// Functions of a block's device scopes of these kinds (8.3.1). A path through bridges is left out: the table does not
/// say their buses.
fn scopes(block: &[u8], first: usize, kinds: &[u8]) -> Vec<Bdf> {
    let scope = |entry: &[u8]| {
        let kind = u8_at(entry, 0)?;
        let (bus, device, function) = (u8_at(entry, 5)?, u8_at(entry, 6)?, u8_at(entry, 7)?);
        let direct = kinds.contains(&kind) && entry.len() == 8 && device < 32 && function < 8;
        direct.then(|| Bdf(u16::from(bus) << 8 | u16::from(device) << 3 | u16::from(function)))
    };
    let all = pieces(block, first, |rest| u8_at(rest, 1).map(usize::from));
    all.filter_map(scope).collect()
}

/// Returns the address of the HPET's registers.
#[must_use]
pub fn hpet(table: &[u8]) -> Option<u64> {
    let memory = u8_at(table, 40)? == 0;
    u64_at(table, 44).filter(|address| memory && *address != 0)
}

/// Ports in the FADT (ACPI 6.5, 5.2.9).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fixed {
    /// The SCI's line.
    pub sci: u32,
    /// Port that enters management mode.
    pub smi: Option<u16>,
    /// The PM timer.
    pub timer: Option<Ports>,
    /// Event, control and general-purpose event blocks.
    pub blocks: Vec<Ports>,
}

/// Reads the FADT.
#[must_use]
pub fn fixed(fadt: &[u8]) -> Option<Fixed> {
    let ports = |start: u32, len: u8| {
        let first = u16::try_from(start).ok().filter(|first| *first != 0 && len != 0)?;
        Some(Ports { first, last: first.checked_add(u16::from(len) - 1)? })
    };
    // PM1a and PM1b events, their controls, PM2 control, GPE0 and GPE1.
    let blocks = [(56, 88), (60, 88), (64, 89), (68, 89), (72, 90), (80, 92), (84, 93)];
    let mut found = Fixed {
        sci: u16_at(fadt, 46)?.into(),
        smi: u32_at(fadt, 48).and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0),
        timer: ports(u32_at(fadt, 76)?, u8_at(fadt, 91)?),
        blocks: Vec::new(),
    };
    for (start, len) in blocks {
        found.blocks.extend(ports(u32_at(fadt, start)?, u8_at(fadt, len)?));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_table_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = (ecam(&bytes), ioapics(&bytes), iommus(&bytes), hpet(&bytes), fixed(&bytes));
            let _ = dmar(&bytes);
        }

        /// Lengths of zero and lengths beyond the end.
        #[test]
        fn no_lengths_panic(mut bytes in prop::collection::vec(0u8..0x50, 48..400), at in 48usize..60) {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = 0;
            }
            bytes[48..].chunks_mut(8).for_each(|chunk| chunk[0] = 0x10);
            let _ = (ecam(&bytes), ioapics(&bytes), iommus(&bytes), hpet(&bytes), fixed(&bytes));
            let _ = dmar(&bytes);
        }
    }

    #[test]
    fn a_block_without_length_ends_the_walk() {
        assert!(iommus(&[0; 200]).is_empty());
        assert!(ioapics(&[0; 200]).is_empty());
        assert_eq!(dmar(&[0; 200]), Dmar::default());
    }

    #[test]
    fn units_and_reserved_memory_are_read() {
        // As QEMU 10.0.2 writes it, with a unit for one function before it, and memory of a function.
        let mut table = vec![0; HEADER + 12];
        table[37] = 0b11;
        let scope = |kind, bus, device: u8, function: u8| [kind, 8, 0, 0, 0, bus, device, function];
        let mut block = |kind: u16, flags: u8, numbers: &[u64], scopes: &[[u8; 8]]| {
            let len = 8 + 8 * (numbers.len() + scopes.len()) as u16;
            table.extend(kind.to_le_bytes().into_iter().chain(len.to_le_bytes()));
            table.extend([flags, 0, 0, 0]);
            numbers.iter().for_each(|number| table.extend(number.to_le_bytes()));
            scopes.iter().for_each(|scope| table.extend(scope));
        };
        block(0, 0, &[0xFED9_0000], &[scope(1, 0, 2, 0)]);
        block(0, 1, &[0xFED9_1000], &[scope(1, 0, 3, 0), scope(3, 0xFF, 0, 0)]);
        block(1, 0, &[0x7D00_0000, 0x7D01_FFFF], &[scope(1, 0, 0x14, 0)]);
        block(2, 0, &[], &[]);
        let found = dmar(&table);
        let unit = |base, ioapic| Iommu { base, ioapic };
        let ioapic = Some(Bdf(0xFF00));
        assert_eq!(found.units, [unit(0xFED9_1000, ioapic), unit(0xFED9_0000, None)]);
        assert_eq!(found.reserved, [(0x7D00_0000, 0x7D02_0000, vec![Bdf(0xA0)])]);
        assert!(found.interrupts);
        // Cut anywhere: what is whole is read.
        for len in 0..table.len() {
            assert!(dmar(&table[..len]).units.len() <= 2);
        }
    }
}
