//! Switches AMD's IOMMU on, with tables that the host has made.

use crate::stop::Stop;
use bulkhead_cpu_x86::rdtsc;
use bulkhead_handover::image::Range;
use bulkhead_handover::x86::Iommu;
use core::ptr::{read_volatile, write_volatile};

/// TSC ticks that a unit may take: a tenth of a second or so.
pub const PATIENCE: u64 = 300_000_000;
pub const SLOW: &str = "it does not do what it is told";

/// Registers (AMD IOMMU specification, 3.4).
mod register {
    pub const DEVICE_TABLE: u64 = 0x00;
    pub const COMMANDS: u64 = 0x08;
    pub const EVENTS: u64 = 0x10;
    pub const CONTROL: u64 = 0x18;
    pub const EXCLUSION_BASE: u64 = 0x20;
    pub const EXCLUSION_LIMIT: u64 = 0x28;
    pub const COMMANDS_HEAD: u64 = 0x2000;
    pub const COMMANDS_TAIL: u64 = 0x2008;
    pub const EVENTS_HEAD: u64 = 0x2010;
    pub const EVENTS_TAIL: u64 = 0x2018;
}

/// In [`register::CONTROL`]: it is on.
const ENABLE: u64 = 1 << 0;

/// Gives the IOMMU its tables and switches it on, with nothing in its caches.
///
/// # Errors
/// It does not answer.
pub fn confine(iommu: &Iommu) -> Result<(), Stop> {
    const EVENTS_ENABLE: u64 = 1 << 2;
    /// Its reads of tables see the processors' caches, where these are.
    const COHERENT: u64 = 1 << 10;
    const COMMANDS_ENABLE: u64 = 1 << 12;
    /// Rings of 512 entries.
    const RING_512: u64 = 9 << 56;
    if iommu.base == 0 {
        return Ok(());
    }
    let set = |register: u64, value: u64| {
        // SAFETY: the IOMMU's registers, by the machine description; identity-mapped.
        unsafe { write_volatile((iommu.base + register) as *mut u64, value) }
    };
    // SAFETY: the IOMMU's registers, as for a write; reads of these have no effect.
    let get = |register: u64| unsafe { read_volatile((iommu.base + register) as *const u64) };
    // Off while its tables are set: a firmware may have left it on, with tables of its own.
    set(register::CONTROL, 0);
    // The field has the size in pages, less one.
    let device_table = iommu.device_table.start | (iommu.device_table.len / 4096 - 1);
    set(register::DEVICE_TABLE, device_table);
    set(register::COMMANDS, iommu.commands.start | RING_512);
    set(register::EVENTS, iommu.events.start | RING_512);
    // Addresses in an exclusion range are not translated: a firmware's would be a hole.
    set(register::EXCLUSION_BASE, 0);
    set(register::EXCLUSION_LIMIT, 0);
    for index in [
        register::COMMANDS_HEAD,
        register::COMMANDS_TAIL,
        register::EVENTS_HEAD,
        register::EVENTS_TAIL,
    ] {
        set(index, 0);
    }
    set(register::CONTROL, ENABLE | EVENTS_ENABLE | COHERENT | COMMANDS_ENABLE);
    // Reads without an IOMMU give all ones or zeros: nothing else of it has to be believed.
    if get(register::DEVICE_TABLE) != device_table {
        return Err(Stop::Iommu("there is none at its address"));
    }
    // INVALIDATE_IOMMU_ALL, then COMPLETION_WAIT that stores into the buffer's end (2.4).
    let done = iommu.commands.start + iommu.commands.len - 8;
    for (index, word) in [8 << 60, 0, 1 << 60 | done | 1, 1].into_iter().enumerate() {
        // SAFETY: the verified command buffer, which nobody uses yet.
        unsafe { write_volatile((iommu.commands.start as *mut u64).add(index), word) };
    }
    set(register::COMMANDS_TAIL, 32);
    let begin = rdtsc();
    // SAFETY: the end of the verified command buffer; the IOMMU writes it.
    while unsafe { read_volatile(done as *const u64) } != 1 {
        if rdtsc() - begin > PATIENCE {
            return Err(Stop::Iommu(SLOW));
        }
        core::hint::spin_loop();
    }
    Ok(())
}

/// Tells if somebody has switched it on.
#[allow(dead_code)]
pub fn is_on(iommu: &Iommu) -> bool {
    // SAFETY: as for the registers above; a read of this one has no effect.
    iommu.base != 0
        && unsafe { read_volatile((iommu.base + register::CONTROL) as *const u64) } & ENABLE != 0
}

/// Switches it off, and leaves no address of the image in it. The table of zeros lets all through: QEMU's looks at a
/// table for messages even if it is off.
#[allow(dead_code)]
pub fn release(iommu: &Iommu, zeros: Range) {
    if iommu.base == 0 {
        return;
    }
    let table = zeros.start | (zeros.len / 4096).saturating_sub(1);
    for (at, value) in [
        (register::CONTROL, 0),
        (register::DEVICE_TABLE, table),
        (register::COMMANDS, 0),
        (register::EVENTS, 0),
    ] {
        // SAFETY: its registers, by the machine description. The first one switches it off.
        unsafe { write_volatile((iommu.base + at) as *mut u64, value) }
    }
}
