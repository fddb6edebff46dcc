//! Interrupt lines: what the guest writes to its IOAPIC, and what of it goes to the
//! machine's, which all monitors with lines share (docs/decisions/0016-interrupt-lines.md).

use crate::core::{PACE, alone, config, shared_of, slice};
use crate::enforced;
use ::core::sync::atomic::AtomicU32;
use bulkhead_cpu_x86::rdtsc;
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

/// An access of `size` bytes to the IOAPIC's page; what a read gives. `None`: the turn has not come, nothing is done.
///
/// # Errors
/// The address to be recorded: of an entry the page's plus the register's index.
pub fn access(address: u64, size: u8, written: Option<u64>) -> Option<Result<u64, u64>> {
    let Some(own) = own() else { return Some(Err(address)) };
    let offset = address & (PAGE - 1);
    let result = match written {
        None => own.lines.read(own.shadow, offset, size).map(u64::from),
        Some(value) => write(own, offset, size, value as u32)?.map(|()| 0),
    };
    Some(result.map_err(|wrong| match wrong {
        Wrong::Access => address,
        _ => GPA + u64::from(own.shadow.select()),
    }))
}

fn write(own: Own, offset: u64, size: u8, value: u32) -> Option<Result<(), Wrong>> {
    match own.lines.write(own.shadow, offset, size, value, holds) {
        Ok(Aim::Nothing) => Some(Ok(())),
        Ok(Aim::Entry { line, half }) => alone(|| change(own, line, half, value))?,
        Err(wrong) => Some(Err(wrong)),
    }
}

/// Changes an entry. Cores come one after the other, as for all that decides on an aim: so halves that two of them
/// write are looked at together. `None` as for [`access`].
fn change(own: Own, line: u32, half: usize, value: u32) -> Option<Result<(), Wrong>> {
    let old = own.shadow.entry(line);
    let (new, message) = match own.lines.change(&config().own, line, half, old, value, holds) {
        Ok(changed) => changed,
        Err(wrong) => return Some(Err(wrong)),
    };
    let channel = own.lines.is_channel(line);
    let was_masked = bulkhead_ioapic::Message::of(old).is_none();
    if !channel && (message.is_some() || !was_masked) {
        match own.lines.hardware(line, message, own.table) {
            Ok(entry) => store(own, line, entry)?,
            Err(wrong) => return Some(Err(wrong)),
        }
    }
    own.shadow.set(line, new);
    // A pin of channels' ends, which no hardware has. What goes to the upper half counts with the next write of the
    // lower one, which comes last: so nobody is sent where neither the old entry nor the new one points.
    if channel && half == 0 {
        crate::pci::aim(line);
    }
    Some(Ok(()))
}

/// Where the guest's table sends a pin of channels' ends, as an ICR takes it; 0: nowhere.
pub fn sends(line: u32) -> u64 {
    let message = own().and_then(|own| bulkhead_ioapic::Message::of(own.shadow.entry(line)));
    message.map_or(0, |m| u64::from(m.core) << 32 | u64::from(m.vector))
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

/// Writes an entry of the machine's table; by the core that has its sandbox's. `None` as for [`access`].
fn store(own: Own, line: u32, [low, high]: Entry) -> Option<()> {
    let registers = own.lines.registers;
    let (select, window) = (registers + SELECT, registers + WINDOW);
    let at = TABLE.wrapping_add(2 * line);
    let work = || {
        for (register, value) in [(at.wrapping_add(1), high), (at, low)] {
            // SAFETY: the machine's IOAPIC, mapped where a sandbox has lines.
            unsafe {
                (select as *mut u32).write_volatile(register);
                late();
                (window as *mut u32).write_volatile(value);
            }
        }
    };
    lock().with(config().sandbox, PACE, rdtsc, work)
}

/// Keeps the core in the middle of a write, in a monitor that the tests have made late. Others then wait for it, and
/// nothing else becomes of that. A monitor that ships has nothing of it: its rules are all enforced.
#[inline(always)]
fn late() {
    /// TSC ticks: several times the patience of who waits.
    const LATE: u64 = 20_000_000;
    if enforced("line-prompt") {
        return;
    }
    let begin = rdtsc();
    while rdtsc().wrapping_sub(begin) < LATE {}
}

/// Gives back what a core has that will never go on: its writes are whole or half, and the next one sets the index
/// anew. Half an entry sends to its own core, or to the one before, of this sandbox.
pub fn leave(core: u32) {
    if own().is_some() && shared_of(0).own.has(core) {
        lock().leave(config().sandbox);
    }
}

/// Masks the sandbox's lines, as after a reset; no guest runs. One whose turn does not come, because another sandbox'
/// core is late, stays as it is in both tables: what comes of it stays with this sandbox.
pub fn silence() {
    /// Each a [`PACE`]: a second or so.
    const TURNS: u32 = 1000;
    let Some(own) = own() else { return };
    own.shadow.reset(|line| {
        let open = own.shadow.entry(line) != MASKED && !own.lines.is_channel(line);
        open && (0..TURNS).all(|_| store(own, line, MASKED).is_none())
    });
}
