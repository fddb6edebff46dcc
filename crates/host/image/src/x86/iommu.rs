//! AMD's IOMMU: a device table in which every requester has an entry, and I/O page tables for each sandbox that owns a
//! function. The route of messages is found here, too. Intel's unit is in [`vtd`].

use super::vtd;
use crate::Error;
use crate::devices::{Grant, Route};
use crate::pages::Pages;
use bulkhead_arch_x86::iommu::{ENTRY, Messages, Requester, device_entry};
use bulkhead_layout::PAGE;
use bulkhead_layout::image::Range;
use bulkhead_layout::x86;
use bulkhead_plan::{Bdf, IommuKind, Machine, Plan};

/// Bytes of command buffer and event log: 512 entries of 16 bytes each.
pub const RING: u64 = 2 * PAGE;

/// The route of a source's messages.
pub fn route(plan: &Plan, source: vtd::Source) -> Result<Route, Error> {
    match plan.machine.iommu {
        Some(iommu) if iommu.remaps_interrupts => match iommu.kind {
            IommuKind::VtD { .. } => {
                Ok(vtd::first(plan, source)?.map_or(Route::Direct, Route::Entries))
            }
            _ => Ok(Route::Table),
        },
        _ => Ok(Route::Direct),
    }
}

/// The device table with all grants, command buffer and event log. Requesters
/// beyond the table's end are refused by the hardware (2.2.2).
pub fn tables(
    pages: &mut Pages,
    machine: &Machine,
    grants: &[Grant],
    ioapic: Messages,
    commands: Option<u64>,
) -> x86::Iommu {
    let Some(iommu) = machine.iommu else { return x86::Iommu::default() };
    let requesters = machine
        .functions
        .iter()
        .flat_map(|f| [f.bdf.bus()].into_iter().chain(f.bridge.map(|bridge| bridge.subordinate)));
    let last_bus = requesters.chain(iommu.ioapic().map(Bdf::bus)).max().unwrap_or(0);
    let mut table = Vec::new();
    for bdf in 0..(usize::from(last_bus) + 1) << 8 {
        let bdf = Bdf(bdf as u16);
        let requester = match grants.iter().find(|grant| grant.requester == bdf) {
            Some(grant) => Requester {
                root: grant.root,
                domain: grant.domain,
                messages: match grant.messages {
                    _ if grant.silent => Messages::Abort,
                    None => Messages::Pass,
                    Some(table) => Messages::Remap(table),
                },
            },
            None if iommu.ioapic() == Some(bdf) => {
                Requester { messages: ioapic, ..Requester::default() }
            }
            None => Requester::default(),
        };
        let entry = device_entry(&requester);
        debug_assert_eq!(size_of_val(&entry), ENTRY);
        table.extend(entry.iter().flat_map(|word| word.to_le_bytes()));
    }
    let len = table.len() as u64;
    x86::Iommu {
        base: iommu.base,
        device_table: Range { start: pages.put(&table), len },
        commands: Range { start: commands.unwrap_or_else(|| pages.take(RING)), len: RING },
        events: Range { start: pages.take(RING), len: RING },
        ..x86::Iommu::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::Devices;
    use crate::space::Space;
    use crate::x86::devices::Pc;
    use bulkhead_arch::{Rights, walk};
    use bulkhead_arch_x86::iommu::IoPages;
    use bulkhead_plan::{Bridge, Function, Iommu, PciRoot};

    const OWN: Bdf = Bdf(0x0018);
    const ALIAS: Bdf = Bdf(0x0100);
    const IOAPIC: Bdf = Bdf(0x00A0);

    fn machine() -> Machine {
        let function = |bdf, bridge| Function { bdf, bridge, ..Function::default() };
        let bridge = Bridge { secondary: 1, subordinate: 2, ..Bridge::default() };
        let kind = IommuKind::AmdVi { ioapic: Some(IOAPIC), remaps_lines: None };
        let iommu = Iommu { base: 0xFED8_0000, kind, ..Iommu::default() };
        Machine {
            pci: Some(PciRoot { ecam: 0xB000_0000, last_bus: 255, ..PciRoot::default() }),
            functions: vec![function(OWN, None), function(Bdf(0x20), Some(bridge))],
            iommu: Some(iommu),
            ..Machine::default()
        }
    }

    /// An entry of the device table.
    fn entry(pages: &Pages, iommu: &x86::Iommu, bdf: Bdf) -> [u64; 4] {
        let at = iommu.device_table.start + u64::from(bdf.0) * ENTRY as u64;
        let words = pages.read(at, ENTRY as u64).chunks_exact(8);
        let mut words = words.map(|w| w.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b)));
        std::array::from_fn(|_| words.next().unwrap())
    }

    #[test]
    fn only_owners_have_rights() {
        let mut pages = Pages::new(&Plan::default());
        let grant = |requester| Grant {
            requester,
            root: Some(0x5000),
            domain: 3,
            messages: Some(0x7000),
            silent: false,
        };
        let grants = [grant(OWN), grant(ALIAS)];
        let made = tables(&mut pages, &machine(), &grants, Messages::Pass, None);
        assert_eq!(made.base, 0xFED8_0000);
        // All buses that there can be, also behind the bridge.
        assert_eq!(made.device_table.len, 3 * 256 * ENTRY as u64);
        for bdf in (0..3 * 256).map(Bdf) {
            let [first, second, third, fourth] = entry(&pages, &made, bdf);
            // Valid, and so are its translation and its interrupts; nothing else is set.
            assert_eq!((first & 3, third & 1, fourth), (3, 1, 0), "{bdf}");
            let (rights, root, messages) =
                (first >> 61, first & !(0x7F << 57) & !0xFFF, third >> 60);
            match bdf {
                OWN | ALIAS => {
                    assert_eq!((rights, root, second), (3, 0x5000, 3), "{bdf}");
                    assert_eq!((messages, third & 0xF_FFFF_FFFF_FFC0), (2, 0x7000), "{bdf}");
                }
                IOAPIC => assert_eq!((first, second, messages), (3, 0, 1)),
                _ => assert_eq!((first, second, third), (3, 0, 1), "{bdf}"),
            }
        }
        for range in [made.commands, made.events] {
            assert_eq!((range.len, range.start % PAGE), (8192, 0));
            assert!(pages.read(range.start, range.len).iter().all(|byte| *byte == 0));
        }
        assert!(made.commands.start >= made.device_table.start + made.device_table.len);
        assert!(made.events.start >= made.commands.start + made.commands.len);
    }

    #[test]
    fn a_machine_without_one_has_no_tables() {
        let mut pages = Pages::new(&Plan::default());
        let machine = Machine { iommu: None, ..machine() };
        let made = tables(&mut pages, &machine, &[], Messages::Abort, None);
        assert_eq!((made.base, made.device_table.len, pages.into_bytes().len()), (0, 0, 0));
    }

    #[test]
    fn devices_reach_what_the_guest_reaches() {
        let mut pages = Pages::new(&Plan::default());
        let mut memory = Space::default();
        memory.add(0x20_0000, 0x4020_0000, 0x20_0000, Rights::RW, "");
        memory.add(0x40_0000, 0x4040_0000, 0x3000, Rights::R, "");
        let root = Pc::tables(&mut pages, &machine(), &memory).unwrap().unwrap();
        let to = |at| walk::<IoPages>(&pages, root, at).map(|leaf| (leaf.pa, leaf.rights.write));
        assert_eq!(to(0x20_1234), Some((0x4020_1234, true)));
        assert_eq!(to(0x40_2FFF), Some((0x4040_2FFF, false)));
        for outside in [0, 0x1F_FFFF, 0x40_3000, 0x4020_0000, 0xFEE0_0000] {
            assert_eq!(to(outside), None, "{outside:#x}");
        }
        assert!(Pc::tables(&mut pages, &machine(), &Space::default()).unwrap().is_none());
    }
}
