//! A core's timer: the local APIC's. Arming costs no exit: only the count (or the deadline) is
//! written, the local vector once.

use super::{apic, cpu};
use bulkhead_guest::{Here, Instructions, scale};
use bulkhead_layout::info::Info;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Timer ticks for one TSC tick, 32 fraction bits.
static TICKS: AtomicU64 = AtomicU64::new(1 << 32);
static DEADLINE: AtomicBool = AtomicBool::new(false);

pub(crate) fn setup(info: &Info) {
    let ticks = crate::time::ratio(info.clock.timer_hz, info.clock.hz.max(1));
    TICKS.store(ticks, Ordering::Relaxed);
    let deadline = cpu::cpuid(1, 0)[2] & 1 << 24 != 0;
    DEADLINE.store(deadline, Ordering::Relaxed);
}

/// A vector that is in use already costs no exit: only a write of it is mediated.
pub(crate) fn use_vector(vector: u8) {
    const DIVIDE_BY_1: u64 = 0b1011;
    const DELIVERY_STATUS: u64 = 1 << 12;
    let mode = if DEADLINE.load(Ordering::Relaxed) { apic::MODE_DEADLINE } else { 0 };
    let entry = mode | u64::from(vector);
    // SAFETY: the timer is this core's own, and every vector has an entry.
    unsafe {
        cpu::wrmsr(apic::DCR, DIVIDE_BY_1);
        if cpu::rdmsr(apic::LVT_TIMER) & !DELIVERY_STATUS != entry {
            cpu::wrmsr(apic::LVT_TIMER, entry);
        }
    }
}

/// It fires early if the time is beyond the 32-bit counter.
pub(crate) fn arm(due: u64) {
    if DEADLINE.load(Ordering::Relaxed) {
        // SAFETY: the timer is this core's own. 0 would disarm it.
        unsafe { cpu::wrmsr(apic::TSC_DEADLINE, due.max(1)) }
    } else {
        let left = due.saturating_sub(Here::ordered_counter());
        let ticks = TICKS.load(Ordering::Relaxed);
        let count = scale(left, ticks).clamp(1, u64::from(u32::MAX));
        // SAFETY: the timer is this core's own.
        unsafe { cpu::wrmsr(apic::TMICT, count) }
    }
}

pub(crate) fn disarm() {
    let register = if DEADLINE.load(Ordering::Relaxed) { apic::TSC_DEADLINE } else { apic::TMICT };
    // SAFETY: the timer is this core's own.
    unsafe { cpu::wrmsr(register, 0) }
}
