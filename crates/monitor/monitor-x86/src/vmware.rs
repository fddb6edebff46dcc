//! The port by which an unmodified Linux learns its clocks' frequencies without
//! a kernel parameter: VMware's (Linux, arch/x86/kernel/cpu/vmware.c). It looks
//! there when the serial number in the SMBIOS tables says so
//! (docs/decisions/0009-clock-frequencies.md).

use crate::X86;
use crate::contract::{RAX, RBX, RCX};

/// The port.
pub const PORT: u32 = 0x5658;
const MAGIC: u32 = 0x564D_5868;
const GETVERSION: u32 = 10;
const GETHZ: u32 = 45;
const GETVCPU_INFO: u32 = 68;
/// GETVCPU_INFO: x2APIC without interrupt remapping.
const LEGACY_X2APIC: u64 = 1 << 3;

/// Answers a read with the magic in EAX and the command in CX; the new EAX.
pub fn call<M: X86>(m: &M) -> u64 {
    const UNKNOWN: u64 = u32::MAX as u64;
    if m.register(RAX) as u32 != MAGIC {
        return UNKNOWN;
    }
    let clock = m.clock();
    match m.register(RCX) as u32 & 0xFFFF {
        GETVERSION => {
            // Linux believes the port only with the magic in EBX, and takes any version but all ones.
            m.set_register(RBX, u64::from(MAGIC));
            6
        }
        GETHZ => {
            // The frequency of the TSC in EBX and EAX, that of the APIC timer in ECX, where Linux looks for them.
            m.set_register(RBX, clock.hz >> 32);
            m.set_register(RCX, clock.timer_hz & 0xFFFF_FFFF);
            clock.hz & 0xFFFF_FFFF
        }
        GETVCPU_INFO => LEGACY_X2APIC,
        _ => UNKNOWN,
    }
}
