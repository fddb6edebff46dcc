//! The local APIC of the core that this code runs on, in the mode that the Linux has chosen.

use bulkhead_cpu_x86::{rdmsr, wrmsr};
use bulkhead_monitor_abi_x86::msr;
use bulkhead_monitor_abi_x86::xapic::{ICR, ICR_HIGH, PAGE, PENDING, halves};

/// Looks at a message that is on its way, at most.
const LOOKS: u32 = 10_000;

/// Tells if its registers are in a page: xAPIC mode.
pub fn in_page() -> bool {
    // SAFETY: each processor with SVM has the register.
    unsafe { rdmsr(msr::APIC_BASE) >> 10 & 3 == 0b10 }
}

/// Reads a register of the page.
pub fn load(offset: u64) -> u32 {
    // SAFETY: in xAPIC mode only, in which the page is there: the module's tables map it to itself.
    unsafe { ((PAGE + offset) as *const u32).read_volatile() }
}

fn store(offset: u64, value: u32) {
    // SAFETY: as for `load`; an interrupt command, decided on by the caller.
    unsafe { ((PAGE + offset) as *mut u32).write_volatile(value) }
}

/// Sends a message to a core that the Linux has put offline, and no sandbox has yet.
pub fn send(message: u64) {
    if !in_page() {
        // SAFETY: by the caller.
        unsafe { wrmsr(msr::X2APIC_ICR, message) };
        return;
    }
    // Checked: no core has an ID that this mode cannot name.
    let Some([high, low]) = halves(message) else { return };
    // A write before the last message has gone may be lost (APM 16.5).
    for _ in 0..LOOKS {
        if load(ICR) & PENDING == 0 {
            break;
        }
        core::hint::spin_loop();
    }
    // The Linux is not between two writes of its own: its interrupts are off for these, too.
    store(ICR_HIGH, high);
    store(ICR, low);
}
