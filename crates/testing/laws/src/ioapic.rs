//! Interrupt lines (Intel 82093AA, 3.2.4; AMD IOMMU specification, 2.2.5).

use crate::Lawful;
use crate::icr::owns;
use bulkhead_ioapic::{Aim, Entry, Lines, SELECT, Shadow, TABLE, WINDOW, Wrong};
use bulkhead_monitor_abi_x86::icr::Ids;

const MASK: u32 = 1 << 16;

/// A write of one half of a line's entry, which was `old`. If the machine's entry is to be open then, these hold:
/// * it sends a fixed interrupt by physical destination to one of the sandbox's cores;
/// * the line is the sandbox's, and wired as the host says;
/// * an APIC accepts the vector, which is the sandbox's own if it is level-triggered.
///
/// Messages aren't remapped. `enforced` leaves a rule out, for tests of this.
///
/// # Errors
/// The law that is broken, in words.
pub fn written(
    (lines, cores): (&Lines, &Ids),
    (line, half): (u32, usize),
    old: Entry,
    value: u32,
    enforced: impl Fn(Wrong) -> bool + Copy,
) -> Lawful {
    let shadow = Shadow::default();
    shadow.set(line, old);
    let Ok(Aim::Nothing) =
        lines.write(&shadow, SELECT, 4, TABLE + 2 * line + half as u32, enforced)
    else {
        return Err("the index register refuses, or does more");
    };
    let aim = match lines.write(&shadow, WINDOW, 4, value, enforced) {
        Ok(Aim::Entry { line: to, half: which }) if (to, which) == (line, half) => (to, which),
        Ok(Aim::Entry { .. }) => return Err("another entry"),
        Ok(Aim::Nothing) => return Ok(false),
        Err(_) if lines.own >> line & 1 == 0 => return Ok(false),
        Err(_) => return Err("an own line is refused"),
    };
    if lines.own >> line & 1 == 0 {
        return Err("a line of another's is changed");
    }
    let (line, half) = aim;
    let changed = lines.change(cores, line, half, old, value, |_| None, enforced);
    let Ok((new, message)) = changed else { return Ok(false) };
    if new[1 - half] != old[1 - half] {
        return Err("the other half is changed");
    }
    let Ok([low, high]) = lines.hardware(cores, line, message, &[], None) else {
        return Err("no slot is needed here");
    };
    if (low & MASK == 0) != (new[0] & MASK == 0) {
        return Err("open in one table and not in the other");
    }
    if low & MASK != 0 {
        return Ok(false);
    }
    let is = |set: u32| set >> line & 1 != 0;
    let (vector, core) = (low & 0xFF, high >> 24);
    if low & 0x0001_5F00 != 0 || high & 0x00FF_FFFF != 0 {
        Err("not a fixed interrupt by physical destination, or a reserved bit")
    } else if (low >> 15 & 1 != 0, low >> 13 & 1 != 0) != (is(lines.level), is(lines.low)) {
        Err("another wiring")
    } else if core == 255 || !owns(cores, core) {
        Err("a foreign core")
    } else if vector < 16 {
        Err("a vector that no APIC accepts")
    } else if is(lines.level) && !owns(&lines.level_vectors, vector) {
        Err("a level-triggered line with another's vector")
    } else {
        Ok(true)
    }
}
