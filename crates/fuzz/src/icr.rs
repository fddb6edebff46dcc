//! Writes of the interrupt command register and of the local vector table: whatever a
//! guest writes, the interrupts that leave the core go to its sandbox's cores, are of a
//! kind that a guest may send, and make no monitor fault.
//!
//! What reaches whom is computed here from the manual (APM 16.5, 16.13, 16.14), not from
//! the code that decides.

use crate::{Input, Seen};
use bulkhead_pci_fake::Words;
use bulkhead_resident_x86::icr::{self, Ids, Ipi, To};
use bulkhead_resident_x86::msr::{X2APIC_LVT, X2APIC_LVT_LAST};

/// Writes of one sandbox's cores.
pub fn run(bytes: &[u8]) -> Result<Seen, String> {
    let mut input = Input::new(bytes);
    let mut seen = Seen::default();
    let mut own = Ids::default();
    let mut cores = Vec::new();
    for _ in 0..=input.below(8) {
        let id = u32::from(input.byte());
        own[id as usize / 64] |= 1 << (id % 64);
        cores.push(id);
    }
    while !input.is_empty() {
        let value = value(&mut input, &cores);
        let wrong = |what: &str| Err(format!("cores {cores:?}, ICR {value:#x}: {what}"));
        let decided = icr::decide(&own, value);
        if icr::is_ordinary(&own, value) && decided != Ipi::Pass {
            return wrong("ordinary, and does not pass");
        }
        let low = value as u32;
        let kind = low >> 8 & 7;
        let told = match decided {
            Ipi::Pass => passed(&cores, value),
            Ipi::Fixed(to) if kind == 0 => reaches(&cores, to),
            Ipi::Nmi(to) if kind == 4 => reaches(&cores, to),
            Ipi::Init(to) if kind == 5 && low & 1 << 14 != 0 => reaches(&cores, to),
            Ipi::Startup(to, vector) if kind == 6 && vector == low as u8 => reaches(&cores, to),
            Ipi::Ignore if kind == 5 && low & 1 << 14 == 0 => Ok(()),
            Ipi::Denied(_) => Ok(()),
            _ => Err("another kind"),
        };
        if let Err(what) = told {
            return wrong(&format!("{decided:?}: {what}"));
        }
        seen.add(!matches!(decided, Ipi::Denied(_)));
        vector_table(&mut input)?;
    }
    Ok(seen)
}

/// Near what kernels write, or anything.
fn value(input: &mut Input, cores: &[u32]) -> u64 {
    let destination = match input.below(8) {
        0 => input.next() as u32,
        1 => u32::MAX,
        // A cluster and some of its cores.
        2 => (input.byte() as u32) << 16 | input.below(0x1_0000) as u32,
        3 => u32::from(input.byte()),
        4 => {
            let id = input.pick(cores);
            id >> 4 << 16 | 1 << (id & 15)
        }
        _ => input.pick(cores),
    };
    let low = match input.below(4) {
        0 => input.next() as u32,
        _ => {
            let vector = u32::from(input.byte());
            let kind = input.pick(&[0, 0, 0, 4, 5, 6, 1, 2, 3, 7]);
            let bits = input.byte() & input.byte();
            // Destination mode, level, trigger mode, shorthand; delivery status and
            // what is reserved.
            vector
                | kind << 8
                | u32::from(bits & 0xF) << 11
                | u32::from(bits >> 4 & 3) << 14
                | u32::from(bits >> 6) << 18
        }
    };
    u64::from(destination) << 32 | u64::from(low)
}

/// What is written as it is.
fn passed(cores: &[u32], value: u64) -> Result<(), &'static str> {
    let (low, destination) = (value as u32, (value >> 32) as u32);
    // Vector, delivery mode, destination mode, level, trigger mode, shorthand.
    if low & !0x000C_CFFF != 0 {
        return Err("a reserved bit: the monitor faults");
    }
    if low >> 8 & 7 != 0 {
        return Err("not fixed");
    }
    if low & 1 << 15 != 0 {
        return Err("level-triggered: its EOI goes to the IOAPIC");
    }
    let reached = |id: u32| match (low >> 18 & 3, low >> 11 & 1) {
        // Itself.
        (1, _) => id == cores[0],
        (2 | 3, _) => true,
        _ if destination == u32::MAX => true,
        (_, 0) => id == destination,
        _ => id >> 4 == destination >> 16 && destination >> (id & 15) & 1 != 0,
    };
    // Every core that a machine of 16 clusters more than ours could have.
    match (0..512).any(|id| reached(id) && !cores.contains(&id)) {
        true => Err("a foreign core"),
        false => Ok(()),
    }
}

/// What the monitor sends core by core.
fn reaches(cores: &[u32], to: To) -> Result<(), &'static str> {
    for id in 0..512 {
        let (own, sender) = (cores.contains(&id), id == cores[0]);
        let right = match to {
            To::One(only) => id != only || own,
            To::Others => to.includes(id, true) != to.includes(id, false) && !to.includes(id, true),
            To::All => to.includes(id, sender),
        };
        if !right || matches!(to, To::One(_)) && to.includes(id, sender) && !own {
            return Err("a foreign core");
        }
    }
    Ok(())
}

/// An entry of the local vector table that is open is fixed, and its own.
fn vector_table(input: &mut Input) -> Result<(), String> {
    let register = X2APIC_LVT + input.below((X2APIC_LVT_LAST - X2APIC_LVT + 1) as usize) as u32;
    let written = match input.below(2) {
        0 => input.next(),
        _ => input.below(0x1_0000) as u64 | u64::from(input.byte() & 7) << 16,
    };
    let deadline = input.byte() % 2 == 0;
    let stored = icr::lvt(register, written, deadline);
    let (timer, lint) = (register == X2APIC_LVT, matches!(register - X2APIC_LVT, 3 | 4));
    let allowed = 0x1_00FF | if timer { 3 << 17 } else { 0 };
    let what = if stored & !allowed != 0 || stored >> 17 & 3 == 3 {
        "a reserved bit, or another kind"
    } else if timer && stored & 1 << 18 != 0 && !deadline {
        "a mode that there is not"
    } else if stored & 1 << 16 == 0 && (lint || written >> 8 & 7 != 0 || written & 1 << 16 != 0) {
        "open"
    } else if stored & 0xFF != written & 0xFF {
        "another vector"
    } else {
        return Ok(());
    };
    Err(format!("LVT {register:#x}: {written:#x} is stored as {stored:#x}: {what}"))
}
