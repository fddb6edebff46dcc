//! Interrupt lines: what the guest writes to its IOAPIC, and what of it goes to the
//! machine's, which all monitors with lines share (docs/decisions/0016-interrupt-lines.md).

use crate::core::{alone, config, shared_of, slice};
use crate::enforced;
use ::core::sync::atomic::AtomicU32;
use bulkhead_ioapic::{
    Aim, Entry, GPA, Lines, MASKED, Remapping, SELECT, Shadow, TABLE, WINDOW, Wrong,
};
use bulkhead_resident::PAGE;
use bulkhead_resident::lock::Lock;
use bulkhead_resident::map::IOAPIC_VA;

const WRITTEN_VA: u64 = IOAPIC_VA + PAGE;

/// What this sandbox has of the IOAPIC, if it has a line.
#[derive(Clone, Copy)]
struct Own {
    lines: &'static Lines,
    shadow: &'static Shadow,
    table: &'static [AtomicU32],
}

fn own() -> Option<Own> {
    let lines = slice::<Lines>(config().lines).first()?;
    // SAFETY: with lines, the host maps these pages, writable: what the guest has
    // written, and the remapping table, if messages may be remapped. All are atomics.
    unsafe {
        Some(Own {
            lines,
            shadow: &*(WRITTEN_VA as *const Shadow),
            table: match lines.table {
                0 => &[],
                table => (*(table as *const Remapping)).slots(),
            },
        })
    }
}

/// The lock of the machine's IOAPIC, for a sandbox that has a line of it.
fn lock() -> &'static Lock {
    // SAFETY: with such a line, the host maps it, writable; all of it is atomic.
    unsafe { &*(IOAPIC_VA as *const Lock) }
}

/// Whether an address is one of the sandbox's IOAPIC.
pub fn answers(address: u64) -> bool {
    config().lines.len != 0 && address & !(PAGE - 1) == GPA
}

/// An access of `size` bytes to the IOAPIC's page; what a read gives.
///
/// # Errors
/// The address to be recorded: of an entry the page's plus the register's index.
pub fn access(address: u64, size: u8, written: Option<u64>) -> Result<u64, u64> {
    let own = own().ok_or(address)?;
    let offset = address & (PAGE - 1);
    let result = match written {
        None => own.lines.read(own.shadow, offset, size).map(u64::from),
        Some(value) => write(own, offset, size, value as u32).map(|()| 0),
    };
    result.map_err(|wrong| match wrong {
        Wrong::Access => address,
        _ => GPA + u64::from(own.shadow.select()),
    })
}

fn write(own: Own, offset: u64, size: u8, value: u32) -> Result<(), Wrong> {
    match own.lines.write(own.shadow, offset, size, value, holds)? {
        Aim::Nothing => Ok(()),
        Aim::Entry { line, half } if own.lines.is_channel(line) => pin(own, line, half, value),
        // A broken lock: nothing can be programmed any more.
        Aim::Entry { line, half } => {
            alone(lock(), || change(own, line, half, value)).unwrap_or(Err(Wrong::Line))
        }
    }
}

/// Changes the entry of a pin of channels' ends, which no hardware has. Cores come one after the other, as for all that
/// decides on an aim: so halves that two of them write are looked at together. What goes to the upper half counts with
/// the next write of the lower one, which comes last: so nobody is sent where neither the old entry nor the new one
/// points.
fn pin(own: Own, line: u32, half: usize, value: u32) -> Result<(), Wrong> {
    let work = || {
        let old = own.shadow.entry(line);
        let (new, _) = own.lines.change(&config().own, line, half, old, value, holds)?;
        own.shadow.set(line, new);
        if half == 0 {
            crate::pci::aim(line);
        }
        Ok(())
    };
    alone(&shared_of(0).pci, work).unwrap_or(Err(Wrong::Line))
}

/// Where the guest's table sends a pin of channels' ends, as an ICR takes it; 0: nowhere.
pub fn sends(line: u32) -> u64 {
    let message = own().and_then(|own| bulkhead_ioapic::Message::of(own.shadow.entry(line)));
    message.map_or(0, |m| u64::from(m.core) << 32 | u64::from(m.vector))
}

/// Changes an entry; by the holder of the lock.
fn change(own: Own, line: u32, half: usize, value: u32) -> Result<(), Wrong> {
    let old = own.shadow.entry(line);
    let (new, message) = own.lines.change(&config().own, line, half, old, value, holds)?;
    let was_masked = bulkhead_ioapic::Message::of(old).is_none();
    if message.is_some() || !was_masked {
        store(own, line, own.lines.hardware(line, message, own.table)?);
    }
    own.shadow.set(line, new);
    Ok(())
}

/// Whether a rule is enforced.
fn holds(rule: Wrong) -> bool {
    match rule {
        Wrong::Access => enforced("ioapic-access"),
        Wrong::Line => enforced("ioapic-line"),
        Wrong::Mode => enforced("ioapic-mode"),
        Wrong::Destination => enforced("ioapic-destination"),
        Wrong::Vector => enforced("ioapic-vector"),
        Wrong::LevelVector => enforced("ioapic-level-vector"),
        Wrong::Slots => true,
    }
}

/// Writes an entry of the machine's table; by the holder of the lock.
fn store(own: Own, line: u32, [low, high]: Entry) {
    let registers = own.lines.registers;
    let (select, window) = (registers + SELECT, registers + WINDOW);
    let at = TABLE.wrapping_add(2 * line);
    for (register, value) in [(at.wrapping_add(1), high), (at, low)] {
        // SAFETY: the machine's IOAPIC, mapped where a sandbox has lines.
        unsafe {
            (select as *mut u32).write_volatile(register);
            (window as *mut u32).write_volatile(value);
        }
    }
}

/// Masks the sandbox's lines, as after a reset; no guest runs. With a broken lock they
/// stay as they are: what comes of them stays with this sandbox.
pub fn silence() {
    let Some(own) = own() else { return };
    let open = |line: &u32| own.shadow.entry(*line) != MASKED && !own.lines.is_channel(*line);
    for line in (0..own.lines.count).filter(open) {
        let _ = alone(lock(), || store(own, line, MASKED));
    }
    own.shadow.reset();
}
