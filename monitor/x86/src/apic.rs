//! This core's local APIC: by registers of x2APIC mode, or in the page of a core that a running Linux has left in xAPIC
//! mode.

use crate::{Frame, Shell};
use bulkhead_cpu_x86::{rdmsr, wrmsr};
use bulkhead_monitor::Monitor;
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi_x86::msr::X2APIC_ICR;
use bulkhead_monitor_abi_x86::xapic::{ICR, ICR_HIGH, PENDING, halves, offset};
use bulkhead_monitor_x86::X86;
use bulkhead_monitor_x86::xapic::{AT, on};

/// Looks at a message that is on its way, at most. Each takes tens of cycles, and a message arrives in a microsecond.
const LOOKS: u32 = 10_000;

/// Writes a register, by its number in x2APIC mode.
#[inline(always)]
pub fn write<S: Shell>(frame: &Frame<S>, register: u32, value: u64) {
    // A constant: no other monitor has a second way.
    if Frame::<S>::has(need::RUNNING) {
        return either(frame, register, value);
    }
    // SAFETY: callers have decided on the value: a message that this monitor may send, or this core's own register.
    unsafe { wrmsr(register, value) }
}

/// Reads one likewise.
#[inline(always)]
pub fn read<S: Shell>(frame: &Frame<S>, register: u32) -> u64 {
    if on(frame) {
        return frame.load(AT + offset(register), 4);
    }
    // SAFETY: a register of this core's own, of which reading changes nothing.
    unsafe { rdmsr(register) }
}

#[inline(never)]
fn either<S: Shell>(frame: &Frame<S>, register: u32, value: u64) {
    if !on(frame) {
        // SAFETY: as for `write`.
        return unsafe { wrmsr(register, value) };
    }
    if register != X2APIC_ICR {
        return frame.store(AT + offset(register), 4, value);
    }
    // A core with such an ID is never asked for: the late code has refused it.
    let Some([high, low]) = halves(value) else { return };
    let before = frame.load(AT + ICR_HIGH, 4);
    // A write before the last message has gone may be lost (APM 16.5).
    for _ in 0..LOOKS {
        if frame.load(AT + ICR, 4) as u32 & PENDING == 0 {
            break;
        }
    }
    frame.store(AT + ICR_HIGH, 4, u64::from(high));
    frame.store(AT + ICR, 4, u64::from(low));
    // The guest may be between its own two writes.
    frame.store(AT + ICR_HIGH, 4, before);
}
