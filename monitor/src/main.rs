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

mod core;
mod cpuid;
mod exit;
mod hypercall;
mod ioapic;
mod ipi;
mod life;
mod link;
mod mail;
mod memory;
mod msr;
mod pci;
mod port;
mod record;
mod vmrun;
mod vmware;

/// A rule that a build for the mutation gate leaves out (`BULKHEAD_MUTATE=name`),
/// so that the attack named after it succeeds. Ordinary builds enforce all.
#[inline(always)]
fn enforced(rule: &str) -> bool {
    option_env!("BULKHEAD_MUTATE") != Some(rule)
}

#[panic_handler]
fn panic(_: &::core::panic::PanicInfo) -> ! {
    // Not reachable: a test looks for panicking code in the linked monitor.
    loop {
        ::core::hint::spin_loop();
    }
}
