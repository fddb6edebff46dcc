//! The monitor of one sandbox on VT-x: an exit handler and nothing else. It is the shell around
//! [`bulkhead_monitor`] and [`bulkhead_monitor_x86`]: entries and exits, the VMCS. [`bulkhead_monitor_shell`] has the
//! places in memory. References are to Intel's manual (SDM), volume 3; docs/decisions/0039-vtx.md tells what differs
//! from SVM.
#![no_std]
#![no_main]

mod entry;
mod exit;
mod identify;
mod instruction;
mod vmx;

// Says to the image builder which needs this monitor has code for.
core::arch::global_asm!(".global monitor_needs", ".set monitor_needs, {needs}",
    needs = const <vmx::Vmx as bulkhead_monitor_shell::Shell>::NEEDS);

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    // Only the build with checks has it: a test looks for panicking code in the other ones.
    bulkhead_monitor_shell::check_failed(info)
}
