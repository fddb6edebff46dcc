//! Counters, records of denied accesses, and what follows them.

use crate::core::{Core, config, report};
use crate::life;
use ::core::ptr::{addr_of_mut, read_volatile, write_volatile};
use bulkhead_cpu_x86::rdtsc;
use bulkhead_resident::report::{Cause, DENIALS, Denial, Kind, State};
use bulkhead_resident_x86::vmcb;

/// Counts an exit.
#[inline(always)]
pub fn count(core: Core, cause: Cause) {
    // SAFETY: this core alone writes its counters; readers take any value.
    unsafe {
        let counter = addr_of_mut!((*core.counters()).exits[cause as usize]);
        write_volatile(counter, read_volatile(counter) + 1);
    }
}

/// Records a denied access and does what the manifest says. True: the guest
/// starts afresh. False: the caller makes the access harmless.
pub fn deny(core: Core, kind: Kind, address: u64, info: u64) -> bool {
    count(core, Cause::Denied);
    record(core, kind, address, info);
    match config().ends[kind as usize] {
        0 => false,
        then => life::end(core, u32::from(then), 0),
    }
}

/// Records what was denied, or what went wrong.
pub fn record(core: Core, kind: Kind, address: u64, info: u64) {
    let denial = Denial {
        seq: 0,
        tsc: rdtsc(),
        rip: core.vmcb().get(vmcb::RIP),
        address,
        info,
        kind: kind as u32,
        incarnation: core.local().incarnation.get(),
    };
    let counters = core.counters();
    // SAFETY: this core alone writes its records. `seq` is 0 while the rest is
    // written (stores are not reordered, APM 7.2), so a reader can tell.
    unsafe {
        let number = read_volatile(addr_of_mut!((*counters).denials)) + 1;
        let slot = addr_of_mut!((*counters).ring[(number as usize).wrapping_sub(1) % DENIALS]);
        write_volatile(addr_of_mut!((*slot).seq), 0);
        write_volatile(slot, denial);
        write_volatile(addr_of_mut!((*slot).seq), number);
        write_volatile(addr_of_mut!((*counters).denials), number);
    }
}

/// As [`deny`], and for the guest an exception in place of the instruction.
pub fn refuse(core: Core, kind: Kind, address: u64, info: u64, exception: u64) -> bool {
    let ended = deny(core, kind, address, info);
    if !ended {
        core.vmcb().set(vmcb::EVENT_INJ, exception);
    }
    ended
}

/// As [`deny`], for what cannot be made harmless: `ignore` stops the sandbox.
pub fn deny_hard(core: Core, kind: Kind, address: u64, info: u64) -> bool {
    deny(core, kind, address, info) || life::end(core, State::Stopped as u32, 0)
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
    life::state(State::Failed as u32);
}
