//! Writes of the interrupt command register and of the local vector table. For any value of a guest, three things hold
//! of the interrupts that leave the core. They go to its sandbox's cores, are of a kind that a guest may send, and make
//! no monitor fault.
//!
//! [`bulkhead_laws::icr`] says what that means.

use crate::{Input, Seen};
use bulkhead_laws::icr;
use bulkhead_monitor_abi_x86::icr::Ids;
use bulkhead_monitor_abi_x86::msr::{X2APIC_LVT, X2APIC_LVT_LAST};
use bulkhead_pci_fake::Words;

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
        let wrong = |what| format!("cores {cores:?}, ICR {value:#x}: {what}");
        let law = |id| icr::sent(&own, cores[0], value, id).map_err(wrong);
        let through = law(0)?;
        // Every core that a machine of 16 clusters more than ours could have.
        let reached = if through { 512 } else { 1 };
        (1..reached).try_for_each(|id| law(id).map(|_| ()))?;
        seen.add(through);
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

/// An entry of the local vector table that is open is fixed, and its own.
fn vector_table(input: &mut Input) -> Result<(), String> {
    let register = X2APIC_LVT + input.below((X2APIC_LVT_LAST - X2APIC_LVT + 1) as usize) as u32;
    let written = match input.below(2) {
        0 => input.next(),
        _ => input.below(0x1_0000) as u64 | u64::from(input.byte() & 7) << 16,
    };
    let deadline = input.byte() % 2 == 0;
    match icr::stored(register, written, deadline) {
        Ok(_) => Ok(()),
        Err(what) => Err(format!("LVT {register:#x}: {written:#x} {deadline}: {what}")),
    }
}
