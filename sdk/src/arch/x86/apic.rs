//! The local APIC in x2APIC mode (APM volume 2, chapter 16). Timer, EOI, TPR
//! and self-IPI reach the hardware with no exit; ICR and LVT are mediated.

use super::cpu::{rdmsr, wrmsr};

/// x2APIC ID.
pub const ID: u32 = 0x802;
/// Task priority.
pub const TPR: u32 = 0x808;
/// End of interrupt.
pub const EOI: u32 = 0x80B;
/// Spurious interrupt vector, with the enable bit.
pub const SVR: u32 = 0x80F;
/// Interrupt command.
pub const ICR: u32 = 0x830;
/// Local vector of the timer.
pub const LVT_TIMER: u32 = 0x832;
/// Local vector of LINT0.
pub const LVT_LINT0: u32 = 0x835;
/// Timer's initial count.
pub const TMICT: u32 = 0x838;
/// Timer's current count; aborts QEMU with `-icount`: never read it.
pub const TMCCT: u32 = 0x839;
/// Timer's divider.
pub const DCR: u32 = 0x83E;
/// Self-IPI.
pub const SELF: u32 = 0x83F;
/// Deadline of the timer in TSC-deadline mode.
pub const TSC_DEADLINE: u32 = 0x6E0;

/// [`LVT_TIMER`]: masked.
pub const MASKED: u64 = 1 << 16;
/// [`LVT_TIMER`]: TSC-deadline mode.
pub const MODE_DEADLINE: u64 = 2 << 17;

/// Switches the local APIC on (by software) on this core.
pub(crate) fn enable() {
    const ON: u64 = 1 << 8;
    // SAFETY: interrupts are off or have handlers.
    unsafe {
        wrmsr(SVR, ON | u64::from(super::idt::SPURIOUS));
        wrmsr(TPR, 0);
    }
}

/// x2APIC ID of this core.
#[must_use]
pub fn id() -> u32 {
    // SAFETY: exists, x2APIC is on at entry.
    unsafe { rdmsr(ID) as u32 }
}

/// Ends the service of an interrupt.
pub(crate) fn eoi() {
    // SAFETY: exists; within a handler.
    unsafe { wrmsr(EOI, 0) }
}

/// Sends a fixed interrupt to the core with this x2APIC ID. To a core of
/// another sandbox it is denied.
pub fn ipi(apic_id: u32, vector: u8) {
    // SAFETY: the receiver has an entry for every vector.
    unsafe { wrmsr(ICR, u64::from(apic_id) << 32 | u64::from(vector)) }
}

/// Interrupts this core itself, with no exit.
pub fn ipi_self(vector: u8) {
    // SAFETY: every vector has an entry.
    unsafe { wrmsr(SELF, u64::from(vector)) }
}

/// Address, its upper half and data of a message: fixed, edge, physical destination
/// (APM volume 2, 16.12).
#[must_use]
pub const fn message(apic_id: u32, vector: u8) -> [u32; 3] {
    [0xFEE0_0000 | (apic_id & 0xFF) << 12, 0, vector as u32]
}

/// INIT to a core.
pub(crate) fn init(apic_id: u32) {
    // SAFETY: to a core of this sandbox that is to start anew (the callers').
    unsafe { wrmsr(ICR, u64::from(apic_id) << 32 | 0x4500) }
}

/// SIPI to a core: it starts at `page << 12` in real mode.
pub(crate) fn sipi(apic_id: u32, page: u8) {
    // SAFETY: the ICR is this core's, and start-up code lies in that page.
    unsafe { wrmsr(ICR, u64::from(apic_id) << 32 | 0x4600 | u64::from(page)) }
}
