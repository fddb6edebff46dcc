//! Counters, records of denied accesses, and what follows them.

use crate::core::{Core, config, here, report};
use crate::outcome::Outcome;
use crate::{ioapic, life};
use ::core::ptr::{addr_of_mut, read_volatile, write_volatile};
use bulkhead_cpu_x86::rdtsc;
use bulkhead_resident::report::{
    CAUSES, CONDITIONS, Cause, Condition, DENIALS, Denial, FIRST, State,
};
use bulkhead_resident_x86::vmcb;

/// Counts an exit.
#[inline(always)]
pub fn count(core: Core, cause: usize) {
    // SAFETY: this core alone writes its counters; readers take any value.
    unsafe {
        let counter = addr_of_mut!((*core.counters()).exits[cause % CAUSES]);
        write_volatile(counter, read_volatile(counter) + 1);
    }
}

/// Records a denied access. The outcome is the one that the manifest demands; else `harmless`.
#[inline(never)]
pub fn deny(
    core: Core,
    condition: Condition,
    address: u64,
    info: u64,
    harmless: Outcome,
) -> Outcome {
    record(core, condition, address, info);
    match config().ends[condition.kind() as usize] {
        0 => harmless,
        state => Outcome::end(Cause::Denied, State::of(u32::from(state))),
    }
}

/// Records what was denied, or what went wrong: as the newest, among the first of its life, and as
/// the first that its condition has refused. No number of later ones overwrites the last of these
/// (docs/decisions/0032-evidence.md).
pub fn record(core: Core, condition: Condition, address: u64, info: u64) {
    let life = core.local().incarnation.get();
    let counters = core.counters();
    // SAFETY: this core alone writes its counters; all were zeros at the first launch.
    let (before, of_life) = unsafe {
        let before = read_volatile(addr_of_mut!((*counters).denials));
        if read_volatile(addr_of_mut!((*counters).life)) != life {
            write_volatile(addr_of_mut!((*counters).life), life);
            write_volatile(addr_of_mut!((*counters).life_denials), before);
        }
        (before, before - read_volatile(addr_of_mut!((*counters).life_denials)))
    };
    let denial = Denial {
        seq: before + 1,
        tsc: rdtsc(),
        rip: core.vmcb().get(vmcb::RIP),
        address,
        info,
        kind: condition.kind() as u16,
        condition: condition as u16,
        incarnation: life,
    };
    // SAFETY: as above; every index is below its array's size.
    unsafe {
        let tally = addr_of_mut!((*counters).tallies[condition as usize % CONDITIONS]);
        let count = read_volatile(addr_of_mut!((*tally).count));
        if count == 0 {
            keep(addr_of_mut!((*tally).first), &denial);
        }
        write_volatile(addr_of_mut!((*tally).count), count + 1);
        if of_life < FIRST as u64 {
            keep(addr_of_mut!((*counters).first[of_life as usize]), &denial);
        }
        keep(addr_of_mut!((*counters).ring[before as usize % DENIALS]), &denial);
        write_volatile(addr_of_mut!((*counters).denials), before + 1);
    }
}

/// Stores a record. Its `seq` is 0 while the rest is written (stores are not reordered, APM 7.2),
/// so a reader can tell.
///
/// # Safety
/// `slot` is one of this core's own, which no other core writes.
#[inline(never)]
unsafe fn keep(slot: *mut Denial, denial: &Denial) {
    // SAFETY: by the caller.
    unsafe {
        write_volatile(addr_of_mut!((*slot).seq), 0);
        write_volatile(slot, Denial { seq: 0, ..*denial });
        write_volatile(addr_of_mut!((*slot).seq), denial.seq);
    }
}

/// [`deny`], for a mediated device's register and what was written there, if anything was.
pub fn deny_register(
    core: Core,
    register: u64,
    written: Option<u64>,
    harmless: Outcome,
) -> Outcome {
    let condition = if written.is_some() { Condition::DeviceWrite } else { Condition::DeviceRead };
    deny(core, condition, register, written.unwrap_or(0), harmless)
}

/// An exception in the monitor: `stack` is what the processor pushed.
pub extern "C" fn fault(stack: &[u64; 6]) {
    let cr2: u64;
    // SAFETY: CR2 is readable at CPL 0. The report is this sandbox's own, and
    // this core goes no further.
    unsafe {
        ::core::arch::asm!("mov {}, cr2", out(reg) cr2, options(nomem, nostack));
        let report = report();
        write_volatile(addr_of_mut!((*report).fault), [stack[0], cr2]);
        write_volatile(addr_of_mut!((*report).fault_detail), [stack[1], stack[2]]);
    }
    life::state(State::Failed);
    // Others are not to wait for what will not come.
    ioapic::leave(here());
}
