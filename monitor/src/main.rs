//! The monitor of one sandbox: an exit handler and nothing else.
//!
//! Each sandbox has its own copy, with page tables that map this text, its own
//! data, its own sandbox's memory, and the monitors' mailboxes (read-only but
//! for its own). Of tables that confine the guest
//! it maps those alone that hold nothing but entries of slots ([`link`]). There is
//! no lock and no shared cache line on an exit's path: each core has its state
//! ([`core::Local`]), its counters and its records.
//!
//! A guest's values are claims; none is used as an address here. Nothing in
//! this crate panics: slices are read with `get`, arithmetic wraps.
#![no_std]
#![no_main]
// A monitor without devices has no use for some of what is shared; the linker drops it.
#![cfg_attr(not(feature = "devices"), allow(dead_code))]

mod core;
mod cpuid;
mod exit;
mod hypercall;
#[cfg(feature = "devices")]
mod ioapic;
mod ipi;
mod life;
mod link;
mod mail;
mod memory;
#[cfg(feature = "devices")]
mod mmio;
mod msr;
mod outcome;
#[cfg(feature = "devices")]
mod pci;
#[cfg(not(feature = "devices"))]
mod plain;
mod port;
mod record;
#[cfg(feature = "devices")]
mod rtc;
mod vmrun;
mod vmware;

#[cfg(not(feature = "devices"))]
use plain::{ioapic, mmio, pci, rtc};

// Says to the image builder that this monitor has them.
#[cfg(feature = "devices")]
::core::arch::global_asm!(".global monitor_devices", ".set monitor_devices, 1");

/// Whether a rule is enforced: always, in ordinary builds. One for the mutation gate (`BULKHEAD_MUTANTS` is set) leaves
/// out the rule that its word names, so that the attack named after the rule succeeds.
#[inline(always)]
fn enforced(rule: &str) -> bool {
    #[unsafe(link_section = ".rodata.mutant")]
    static MUTANT: u64 = bulkhead_resident::mutant::NONE;
    if option_env!("BULKHEAD_MUTANTS").is_none() {
        return true;
    }
    // SAFETY: a reference to a word of this binary. It is volatile because the gate writes it after the build.
    let word = unsafe { ::core::ptr::read_volatile(&raw const MUTANT) };
    word != bulkhead_resident::mutant::number(rule)
}

#[panic_handler]
fn panic(_: &::core::panic::PanicInfo) -> ! {
    // Not reachable: a test looks for panicking code in the linked monitor.
    loop {
        ::core::hint::spin_loop();
    }
}
