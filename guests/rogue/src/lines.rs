//! Attacks through the IOAPIC, by a sandbox that has a line of its own. Without one it
//! has no IOAPIC either, and the first access is one of memory.

use crate::aim::Aim;
use crate::expect::Got;
use bulkhead_sdk::fault::catch;
use bulkhead_sdk::{apic, cpu, interrupt, line, time};
use core::sync::atomic::{AtomicU64, Ordering};

/// Address of the registers.
pub const REGISTERS: u64 = 0xFEC0_0000;
/// IOREGSEL.
pub const SELECT: u64 = REGISTERS;
/// IOWIN.
pub const WINDOW: u64 = REGISTERS + 0x10;
const MASKED: u32 = 1 << 16;
const VECTOR: u32 = 0x60;

/// Index of a line's low register.
#[must_use]
pub const fn low(line: u32) -> u32 {
    0x10 + 2 * line
}

/// Writes a register by its index.
pub fn write(index: u32, value: u32) -> Got {
    // SAFETY: an attack; the registers are the monitor's.
    unsafe { catch(|| line::write(index, value)) }.map(|()| 0)
}

/// Opens an own line with these two halves, from masked.
fn open(aim: &Aim, value: u32, high: u32) -> Got {
    write(low(aim.line()) + 1, high)?;
    write(low(aim.line()), value)?;
    provoke(aim);
    write(low(aim.line()), MASKED)
}

/// Lets the own serial port's transmitter raise its line.
fn provoke(aim: &Aim) {
    let Some(port) = aim.uart else { return };
    // SAFETY: the sandbox's own port, as its argument says.
    unsafe {
        cpu::outb(port + 4, 0xB);
        cpu::outb(port + 1, 0);
        cpu::outb(port + 1, 2);
    }
    time::sleep(1_000_000);
    // SAFETY: the sandbox's own port, as its argument says.
    unsafe { cpu::outb(port + 1, 0) };
}

/// To the own core, in the delivery mode `MODE`.
pub fn mode<const MODE: u32>(aim: &Aim) -> Got {
    open(aim, MODE << 8 | VECTOR, apic::id() << 24)
}

/// To the foreign core.
pub fn foreign_core(aim: &Aim) -> Got {
    open(aim, VECTOR, aim.foreign << 24)
}

/// To all cores.
pub fn broadcast(aim: &Aim) -> Got {
    open(aim, VECTOR, 0xFF << 24)
}

/// To all cores, as a logical destination.
pub fn logical(aim: &Aim) -> Got {
    open(aim, 1 << 11 | VECTOR, 0xFF << 24)
}

/// To the own core first, and then the destination alone is changed.
pub fn redirected(aim: &Aim) -> Got {
    write(low(aim.line()) + 1, apic::id() << 24)?;
    write(low(aim.line()), VECTOR)?;
    write(low(aim.line()) + 1, aim.foreign << 24)
}

/// With the vector of an exception.
pub fn low_vector(aim: &Aim) -> Got {
    open(aim, 15, apic::id() << 24)
}

/// A level-triggered line with a vector that may be another's.
pub fn level_vector(aim: &Aim) -> Got {
    write(low(aim.level_line()) + 1, apic::id() << 24)?;
    write(low(aim.level_line()), VECTOR)
}

/// Opens a line of others to the own core.
pub fn foreign_line<const LINE: u32>(_: &Aim) -> Got {
    write(low(LINE) + 1, apic::id() << 24)?;
    write(low(LINE), VECTOR)
}

/// Masks all lines, as a kernel does when it starts.
pub fn mask_all(_: &Aim) -> Got {
    for line in 0..120 {
        write(low(line) + 1, 0)?;
        write(low(line), MASKED)?;
    }
    Ok(0)
}

/// Reads all registers; how many show something of others.
pub fn read_all(aim: &Aim) -> Got {
    let own = low(aim.line());
    let shows = |index: u32| {
        let nothing = match index {
            1 => 0x0017_0011,
            0x10..=0x3F if index.is_multiple_of(2) => MASKED,
            _ => 0,
        };
        // SAFETY: as in `write`.
        let found = unsafe { catch(|| line::read(index)) }?;
        Ok(u64::from(found != nothing && index & !1 != own))
    };
    (0..=0xFF).map(shows).sum()
}

/// Opens and masks the own line two thousand times while it is raised.
pub fn storm(aim: &Aim) -> Got {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    interrupt::set(VECTOR as u8, |_, _| {
        COUNT.fetch_add(1, Ordering::Relaxed);
    });
    write(low(aim.line()) + 1, apic::id() << 24)?;
    for _ in 0..2_000 {
        write(low(aim.line()), VECTOR)?;
        write(low(aim.line()), MASKED)?;
    }
    Ok(0)
}
