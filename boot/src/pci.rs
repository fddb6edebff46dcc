//! Brings PCI to the state that the machine description has, and switches the
//! IOMMU on. Both are worked out on the host; here they are carried out.

use crate::stop::Stop;
use bulkhead_cpu_x86::{inl, outl, rdtsc};
use bulkhead_handover::image::ConfigOp;
use bulkhead_handover::x86::Iommu;
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

/// TSC ticks that a unit may take: a tenth of a second or so.
const PATIENCE: u64 = 300_000_000;

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

const SLOW: &str = "it does not do what it is told";

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

/// Gives the IOMMU its tables and switches it on, with nothing in its caches.
///
/// # Errors
/// It does not answer.
pub fn confine(iommu: &Iommu) -> Result<(), Stop> {
    const ENABLE: u64 = 1 << 0;
    const EVENTS_ENABLE: u64 = 1 << 2;
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
    set(register::CONTROL, ENABLE | EVENTS_ENABLE | COMMANDS_ENABLE);
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
