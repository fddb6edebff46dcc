//! The port by which an unmodified Linux learns its clocks' frequencies without
//! a kernel parameter: VMware's (Linux, arch/x86/kernel/cpu/vmware.c). It looks
//! there when the serial number in the SMBIOS tables says so
//! (docs/decisions/0009-clock-frequencies.md).

use crate::core::{Core, config};
use bulkhead_resident::monitor::Clock;
use bulkhead_resident_x86::vmcb;

/// The port.
pub const PORT: u32 = 0x5658;
const MAGIC: u32 = 0x564D_5868;
const GETVERSION: u32 = 10;
const GETHZ: u32 = 45;
const GETVCPU_INFO: u32 = 68;
/// GETVCPU_INFO: x2APIC without interrupt remapping.
const LEGACY_X2APIC: u64 = 1 << 3;

/// Answers a read with the magic in EAX and the command in CX; the new EAX.
pub fn call(core: Core) -> u64 {
    const UNKNOWN: u64 = u32::MAX as u64;
    let frame = core.frame;
    if core.vmcb().get(vmcb::RAX) as u32 != MAGIC {
        return UNKNOWN;
    }
    // SAFETY: the host maps the page; the boot code was done with it before any
    // guest started.
    let clock = unsafe { &*(config().clock_va as *const Clock) };
    match frame.rcx.get() as u32 & 0xFFFF {
        GETVERSION => {
            frame.rbx.set(u64::from(MAGIC));
            6
        }
        GETHZ => {
            frame.rbx.set(clock.tsc_hz >> 32);
            frame.rcx.set(clock.lapic_hz & 0xFFFF_FFFF);
            clock.tsc_hz & 0xFFFF_FFFF
        }
        GETVCPU_INFO => LEGACY_X2APIC,
        _ => UNKNOWN,
    }
}
