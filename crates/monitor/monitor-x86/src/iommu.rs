//! Commands to AMD's IOMMU (AMD IOMMU specification, 2.4). Only the monitor of a Linux that runs already sends some. So
//! it shares the ring with nobody, and its cores come one after the other.

use crate::X86;
use bulkhead_monitor_abi::map::COMMANDS_VA;
use bulkhead_monitor_abi::need;

/// Milliseconds until a unit has carried out what it was told: it takes microseconds.
pub const PATIENCE: u32 = 1;
/// Bytes of the ring.
const RING: u64 = 512 * 16;

/// Registers, from the unit's third page on (3.4.12).
mod register {
    pub const TAIL: u64 = 0x08;
    pub const STATUS: u64 = 0x20;
}

/// In [`register::STATUS`]: a command has waited until those before it were done. A 1 clears it.
const WAITED: u64 = 1 << 2;

/// Finds the registers, if the unit takes commands of this monitor.
#[inline(always)]
pub fn own<M: X86>(m: &M) -> Option<u64> {
    // A constant: no other monitor has the ring.
    let lines = if M::has(need::RUNNING) { m.lines() } else { None };
    lines.map(|lines| lines.unit).filter(|unit| *unit != 0)
}

/// Tells it to forget what it holds of two requesters' remapping tables.
pub fn forget<M: X86>(m: &M, unit: u64, requesters: [u32; 2]) {
    const INVALIDATE_INTERRUPT_TABLE: u64 = 5 << 60;
    /// COMPLETION_WAIT that sets [`WAITED`]. No interrupt of the unit is on.
    const WAIT: u64 = 1 << 60 | 1 << 1;
    let [first, second] = requesters.map(|bdf| INVALIDATE_INTERRUPT_TABLE | u64::from(bdf));
    m.store(unit + register::STATUS, 8, WAITED);
    let mut tail = m.load(unit + register::TAIL, 8);
    for command in [first, second, WAIT] {
        let at = COMMANDS_VA + tail % RING;
        m.store(at, 8, command);
        m.store(at + 8, 8, 0);
        tail = (tail + 16) % RING;
    }
    m.store(unit + register::TAIL, 8, tail);
}

/// Tells if it has done so.
pub fn has_forgotten<M: X86>(m: &M, unit: u64) -> bool {
    m.load(unit + register::STATUS, 8) & WAITED != 0
}
