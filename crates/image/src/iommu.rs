//! The IOMMU's tables: a device table in which every requester has an entry, and
//! I/O page tables for each sandbox that owns a function.

use crate::Error;
use crate::pages::Pages;
use bulkhead_arch::map;
use bulkhead_arch_x86::iommu::{ENTRY, IoPages, Messages, Requester, device_entry};
use bulkhead_layout::PAGE;
use bulkhead_layout::image::{self, Range};
use bulkhead_plan::{Bdf, Machine};

/// A function and what it may do.
pub type Grant = (Bdf, Requester);

/// I/O page tables that map what the sandbox's nested tables map of its own
/// memory and channels; their root.
pub fn io_pages(
    pages: &mut Pages,
    memory: &[crate::monitor::Mapping],
) -> Result<Option<u64>, Error> {
    let mut root = None;
    for m in memory {
        root = Some(map::<IoPages>(pages, root, m.gpa, m.hpa, m.len, m.rights)?);
    }
    Ok(root)
}

/// The device table with all grants, command buffer and event log. Requesters
/// beyond the table's end are refused by the hardware (2.2.2).
pub fn tables(
    pages: &mut Pages,
    machine: &Machine,
    grants: &[Grant],
    ioapic: Messages,
) -> image::Iommu {
    let Some(iommu) = machine.iommu else { return image::Iommu::default() };
    let requesters = machine
        .functions
        .iter()
        .flat_map(|f| [f.bdf.bus()].into_iter().chain(f.bridge.map(|bridge| bridge.subordinate)));
    let last_bus = requesters.chain(iommu.ioapic_requester.map(Bdf::bus)).max().unwrap_or(0);
    let mut table = Vec::new();
    for bdf in 0..(usize::from(last_bus) + 1) << 8 {
        let bdf = Bdf(bdf as u16);
        let requester = match grants.iter().find(|grant| grant.0 == bdf) {
            Some(grant) => grant.1,
            None if iommu.ioapic_requester == Some(bdf) => {
                Requester { messages: ioapic, ..Requester::default() }
            }
            None => Requester::default(),
        };
        let entry = device_entry(&requester);
        debug_assert_eq!(size_of_val(&entry), ENTRY);
        table.extend(entry.iter().flat_map(|word| word.to_le_bytes()));
    }
    let len = table.len() as u64;
    /// 512 entries of 16 bytes, each of command buffer and event log.
    const RING: u64 = 2 * PAGE;
    image::Iommu {
        base: iommu.base,
        device_table: Range { start: pages.put(&table), len },
        commands: Range { start: pages.take(RING), len: RING },
        events: Range { start: pages.take(RING), len: RING },
    }
}
