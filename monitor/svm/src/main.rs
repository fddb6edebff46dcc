//! The monitor of one sandbox on SVM: an exit handler and nothing else. It is the shell around
//! [`bulkhead_monitor`] and [`bulkhead_monitor_x86`]: entries and exits, the VMCB. [`bulkhead_monitor_shell`] has the
//! places in memory.
//!
//! Each sandbox has its own copy, with page tables that map this text, its own data, and its own sandbox's memory. They
//! map the monitors' mailboxes, too, read-only but for its own. They map no table that confines the guest, except the
//! pages that hold only link entries. There is no lock and no shared cache line on an exit's path: each core has its
//! state ([`bulkhead_monitor::contract::Local`]), its counters and its records.
#![no_std]
#![no_main]

mod exit;
mod svm;
mod vmrun;

// Says to the image builder which needs this monitor has code for.
core::arch::global_asm!(".global monitor_needs", ".set monitor_needs, {needs}", needs = const <svm::Svm as bulkhead_monitor_shell::Shell>::NEEDS);

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    // Only the build with checks has it: a test looks for panicking code in the other ones.
    bulkhead_monitor_shell::check_failed(info)
}
