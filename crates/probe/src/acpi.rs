//! The ACPI tables that a description needs (ACPI 6.5; PCI Firmware 3.2, 4.1.2;
//! AMD I/O Virtualization 3.08, 5.2; IA-PC HPET 1.0a, 3.2.4). Tables are claims:
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

/// Address of the configuration space of segment 0, and its last bus.
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

/// Length of a device entry: its type's two highest bits say it, but for ACPI
/// devices, whose names have a length of their own (5.2.2.5).
fn entry_len(rest: &[u8]) -> Option<usize> {
    match u8_at(rest, 0)? {
        0xF0 => Some(22 + usize::from(u8_at(rest, 21)?)),
        kind => Some(4 << (kind >> 6)),
    }
}

/// Address of the HPET's registers.
#[must_use]
pub fn hpet(table: &[u8]) -> Option<u64> {
    let memory = u8_at(table, 40)? == 0;
    u64_at(table, 44).filter(|address| memory && *address != 0)
}

/// What the FADT says of ports (ACPI 6.5, 5.2.9).
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
        }

        /// Lengths of zero and lengths beyond the end.
        #[test]
        fn no_lengths_panic(mut bytes in prop::collection::vec(0u8..0x50, 48..400), at in 48usize..60) {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = 0;
            }
            bytes[48..].chunks_mut(8).for_each(|chunk| chunk[0] = 0x10);
            let _ = (ecam(&bytes), ioapics(&bytes), iommus(&bytes), hpet(&bytes), fixed(&bytes));
        }
    }

    #[test]
    fn a_block_without_length_ends_the_walk() {
        assert!(iommus(&[0; 200]).is_empty());
        assert!(ioapics(&[0; 200]).is_empty());
    }
}
