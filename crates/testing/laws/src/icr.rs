//! Interrupts between cores (APM 16.5, 16.13, 16.14) and the local vector table (APM 16.4).

use crate::Lawful;
use bulkhead_monitor_abi::report::Condition;
use bulkhead_monitor_abi_x86::icr::{self, Ids, Ipi, To};
use bulkhead_monitor_abi_x86::msr::X2APIC_LVT;

const FIXED: u32 = 0;
const NMI: u32 = 4;
const INIT: u32 = 5;
const STARTUP: u32 = 6;
const LOGICAL: u32 = 1 << 11;
const ASSERT: u32 = 1 << 14;
const LEVEL: u32 = 1 << 15;
/// Vector, delivery mode, destination mode, level, trigger mode, shorthand: all that can be written.
const KNOWN: u32 = 0x000C_CFFF;

/// Tells if an ID is one of the sandbox's.
#[must_use]
pub fn owns(own: &Ids, id: u32) -> bool {
    id < 256 && own[id as usize / 64] >> (id % 64) & 1 != 0
}

/// A write of the ICR by the core `sender`, one of `own`. A message that leaves the core reaches the core `id` only if
/// that is the sandbox's. Its kind is one that a guest may send, and it faults nowhere. A message that an ordinary
/// kernel sends is sent.
///
/// # Errors
/// The law that is broken, in words.
pub fn sent(own: &Ids, sender: u32, icr: u64, id: u32) -> Lawful {
    let (low, destination) = (icr as u32, (icr >> 32) as u32);
    let (kind, shorthand) = (low >> 8 & 7, low >> 18 & 3);
    let decided = icr::decide(own, icr);
    let own_core = shorthand == 0 && low & LOGICAL == 0 && owns(own, destination);
    let simple = low & !(0xFF | 7 << 8 | ASSERT) == 0 && own_core;
    if icr::is_ordinary(own, icr) && decided != Ipi::Pass {
        return Err("ordinary, and does not pass");
    }
    let reached = match decided {
        Ipi::Pass if kind == FIXED => passed(sender, low, destination, id)?,
        Ipi::Fixed(to) if kind == FIXED && low & LEVEL == 0 => named(own, to, sender, id)?,
        Ipi::Nmi(to) if kind == NMI => named(own, to, sender, id)?,
        Ipi::Init(to) if kind == INIT && low & ASSERT != 0 => named(own, to, sender, id)?,
        Ipi::Startup(to, vector) if kind == STARTUP && vector == low as u8 => {
            named(own, to, sender, id)?
        }
        Ipi::Ignore if kind == INIT && low & ASSERT == 0 => false,
        Ipi::Denied(_) if simple && (kind == FIXED || kind >= NMI && kind != 7) => {
            return Err("denied, and harmless");
        }
        Ipi::Denied(why) if holds(why, low) => false,
        Ipi::Denied(_) => return Err("denied for what it is not"),
        _ => return Err("another kind than was written"),
    };
    let denied = matches!(decided, Ipi::Denied(_));
    if low & !KNOWN != 0 && !denied {
        return Err("a reserved bit goes through");
    }
    if reached && !owns(own, id) {
        return Err("it reaches a foreign core");
    }
    Ok(!denied)
}

/// Tells if a value's low word is as the condition says that refused it.
fn holds(why: Condition, low: u32) -> bool {
    let (kind, shorthand) = (low >> 8 & 7, low >> 18 & 3);
    let signal = matches!(kind, NMI | INIT | STARTUP);
    match why {
        Condition::IpiReserved => low & !KNOWN != 0,
        Condition::IpiLevel => kind == FIXED && low & LEVEL != 0,
        Condition::IpiMode => !signal && kind != FIXED,
        Condition::IpiShorthand => signal && shorthand != 0,
        Condition::IpiLogical => signal && shorthand == 0 && low & LOGICAL != 0,
        Condition::IpiDestination => (signal || kind == FIXED) && shorthand == 0,
        _ => false,
    }
}

/// Tells if a value that is written unchanged reaches a core.
fn passed(sender: u32, low: u32, destination: u32, id: u32) -> Lawful {
    if low & LEVEL != 0 {
        return Err("level-triggered: its EOI goes to the IOAPIC");
    }
    Ok(match (low >> 18 & 3, low & LOGICAL) {
        (1, _) => id == sender,
        (2 | 3, _) => true,
        _ if destination == icr::BROADCAST => true,
        (_, 0) => id == destination,
        _ => id >> 4 == destination >> 16 && destination >> (id & 15) & 1 != 0,
    })
}

/// Tells if a monitor that goes through its own cores sends it to a core.
fn named(own: &Ids, to: To, sender: u32, id: u32) -> Lawful {
    match to {
        To::One(only) if !owns(own, only) => Err("it names a foreign core"),
        To::Others if to.includes(sender, true) => Err("the sender is one of the others"),
        _ => Ok(owns(own, id) && to.includes(id, id == sender)),
    }
}

/// A value that another monitor asks this one to write. It takes exactly the fixed interrupts by an edge, to one core
/// of a set, with a vector that an APIC accepts.
///
/// # Errors
/// The law that is broken, in words.
pub fn aimed(cores: &Ids, icr: u64) -> Lawful {
    let (low, destination) = (icr as u32, (icr >> 32) as u32);
    let right = (16..=0xFF).contains(&low) && owns(cores, destination);
    let taken = icr::is_aim(cores, icr);
    if taken == right { Ok(taken) } else { Err("taken, and not right; or the other way round") }
}

/// A write to a register of the local vector table. The stored entry is open only if the guest asked for that, fixed,
/// and not on a pin. No reserved bit is set, and the vector is the written one.
///
/// # Errors
/// The law that is broken, in words.
pub fn stored(register: u32, written: u64, has_deadline: bool) -> Lawful {
    const MASK: u64 = 1 << 16;
    let stored = icr::lvt(register, written, has_deadline);
    let (timer, pin) = (register == X2APIC_LVT, matches!(register.wrapping_sub(X2APIC_LVT), 3 | 4));
    let may_open = !pin && written >> 8 & 7 == 0 && written & MASK == 0;
    let known = 0xFF | MASK | if timer { 3 << 17 } else { 0 };
    if stored & !known != 0 || stored >> 17 & 3 == 3 {
        Err("a reserved bit, or another kind")
    } else if stored & 1 << 18 != 0 && !has_deadline {
        Err("a mode that there is not")
    } else if (stored & MASK == 0) != may_open {
        Err("open, or masked, and should not be")
    } else if stored & 0xFF != written & 0xFF {
        Err("another vector")
    } else {
        Ok(may_open)
    }
}
