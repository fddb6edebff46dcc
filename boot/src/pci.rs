//! Brings PCI to the state that the machine description has. It is worked out on the host; here it is carried out.

use crate::iommu::{PATIENCE, SLOW};
use crate::stop::Stop;
use bulkhead_cpu_x86::{inl, outl, rdtsc};
use bulkhead_handover::image::ConfigOp;
use core::ptr::{read_volatile, write_volatile};

/// Ports of PCI's configuration mechanism #1 (PCI 3.0, 3.2.2.3.2). They work on any firmware; the memory-mapped space
/// may be elsewhere until a step has set its address.
const ADDRESS: u16 = 0xCF8;
const DATA: u16 = 0xCFC;

/// Carries out the steps, without the last ones or only these.
///
/// # Errors
/// A function is not what the machine description says.
pub fn set_up(ops: &[ConfigOp], last: bool) -> Result<(), Stop> {
    let mut registers = 0;
    for op in ops {
        // This kind names the registers of a unit for the steps behind it.
        if op.kind == ConfigOp::AT {
            registers = u64::from(op.value);
        }
        if (op.kind == ConfigOp::LAST) != last {
            continue;
        }
        if op.kind >= ConfigOp::AT {
            unit(registers + u64::from(op.offset), op)?;
            continue;
        }
        let found = match op.kind {
            ConfigOp::VALIDATE if validate(op) => continue,
            ConfigOp::VALIDATE => return Err(Stop::Source(op.bdf)),
            // SAFETY: the host checked that it is in the configuration space, in
            // the identity-mapped first 4 GiB; a read there changes nothing.
            ConfigOp::EXPECT_AT => unsafe { read_volatile(u64::from(op.value) as *const u32) },
            // SAFETY: nothing else uses these ports; before the launch nobody
            // depends on what the host decided to write.
            _ => unsafe {
                outl(ADDRESS, 1 << 31 | u32::from(op.bdf) << 8 | u32::from(op.offset));
                if op.kind == ConfigOp::WRITE {
                    outl(DATA, op.value);
                    continue;
                }
                inl(DATA)
            },
        };
        let expected = match op.kind {
            // The first step with this function said what it is.
            ConfigOp::EXPECT_AT => {
                let same = |o: &&ConfigOp| o.bdf == op.bdf && o.kind == ConfigOp::EXPECT;
                ops.iter().find(same).map_or(0, |o| o.value)
            }
            _ => op.value,
        };
        // Another function than the one described: a grant would go to the wrong device.
        if found != expected {
            return Err(Stop::Function(op.bdf, expected, found));
        }
    }
    Ok(())
}

/// Switches on those of a port's access control services that keep requests on their way to the IOMMU (PCIe 5.0,
/// 7.7.8). Returns true if source validation is on then.
fn validate(op: &ConfigOp) -> bool {
    const ACS: u32 = 0x000D;
    const SOURCE_VALIDATION: u32 = 1;
    /// And translation blocking, redirection of requests and completions, upstream forwarding.
    const ALL: u32 = 0b1_1111;
    let at = u64::from(op.value) + u64::from(op.offset);
    let (header, register) = (at as *const u32, (at + 4) as *mut u32);
    // SAFETY: as for what is expected there: the port's configuration page, identity-mapped; the host checked that the
    // offset is in it. Nothing behind the port is used yet.
    unsafe {
        if read_volatile(header) & 0xFFFF != ACS {
            return false;
        }
        // Capability in the lower half, control in the upper one: what it can do is switched on.
        let has = read_volatile(register) & ALL;
        write_volatile(register, has << 16);
        read_volatile(register) >> 16 & has & SOURCE_VALIDATION != 0
    }
}

/// Carries out a step with the register of an IOMMU or a timer.
fn unit(at: u64, op: &ConfigOp) -> Result<(), Stop> {
    // SAFETY: the unit's registers, by the machine description; the host checked that they are in the identity-mapped
    // first 4 GiB. A read there changes nothing.
    let read = || unsafe { read_volatile(at as *const u32) };
    let begin = rdtsc();
    let in_time = || rdtsc() - begin < PATIENCE;
    match op.kind {
        // SAFETY: its registers, too; the host decided on the value, and the unit is not in use yet.
        ConfigOp::SET | ConfigOp::LAST => unsafe { write_volatile(at as *mut u32, op.value) },
        ConfigOp::NEED if read() & op.value != op.value => {
            return Err(Stop::Unit(
                at & !0xFFF,
                "it is another one, or lacks what the image needs",
            ));
        }
        ConfigOp::AWAIT => while read() & op.value != op.value && in_time() {},
        ConfigOp::CLEAR => while read() & op.value != 0 && in_time() {},
        // SAFETY: writes the caches to memory and empties them.
        ConfigOp::FLUSH => unsafe { core::arch::asm!("wbinvd", options(nostack, preserves_flags)) },
        _ => {}
    }
    match op.kind {
        ConfigOp::AWAIT if read() & op.value != op.value => Err(Stop::Unit(at & !0xFFF, SLOW)),
        ConfigOp::CLEAR if read() & op.value != 0 => Err(Stop::Unit(at & !0xFFF, SLOW)),
        _ => Ok(()),
    }
}
