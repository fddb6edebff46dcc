//! The first fault of a VT-d unit. The unit has no log in memory: a fault stays in a register until software takes it
//! out, and no software does that.

use bulkhead_explain::dma::{Entry, of_vtd};
use bulkhead_plan::Plan;
use bulkhead_qemu::Running;

/// Capability register (VT-d specification, 11.4.2).
const CAPABILITIES: u64 = 0x08;

/// Returns the first fault of a running machine's unit.
pub fn first(running: &Running, plan: &Plan) -> Option<Entry> {
    let iommu = plan.machine.iommu.filter(|iommu| iommu.is_vtd())?;
    let mut qmp = running.qmp().ok()?;
    let mut word = |at: u64| {
        let said = qmp.ask(&format!("xp /1gx {at:#x}")).ok()?;
        u64::from_str_radix(said.trim().rsplit("0x").next()?, 16).ok()
    };
    // Fault recording registers begin at 16 times bits 33:24.
    let at = iommu.base + (word(iommu.base + CAPABILITIES)? >> 24 & 0x3FF) * 16;
    of_vtd([word(at)?, word(at + 8)?])
}
