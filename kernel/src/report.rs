//! The report of a sandbox without a monitor. The kernel itself writes a monitor's words: state, exit code and console.
//! Each kernel has a ring of its own, so that kernels share none.

use bulkhead_cpu_x86::rdtsc;
use bulkhead_kernel_x86::{REPORT, WINDOW};
use bulkhead_layout::report::{CONSOLE, CoreReport, Report, State, size};
use core::ptr::{addr_of_mut, read_volatile, write_volatile};
use core::sync::atomic::{AtomicBool, Ordering};

/// True if there is no monitor.
static OURS: AtomicBool = AtomicBool::new(false);

/// The pages of a monitor's report, with its layout, so that the host has one reader for both.
const SANDBOX: *mut Report = (WINDOW + REPORT as u64) as *mut Report;
const CORE: *mut CoreReport = (WINDOW + REPORT as u64 + size(0)) as *mut CoreReport;

/// Sets a field. One core writes; readers take any value.
macro_rules! set {
    ($at:ident.$field:ident, $value:expr) => {
        // SAFETY: without a monitor the host has set these pages aside in the kernel's memory, and made no
        // object of them.
        unsafe { write_volatile(addr_of_mut!((*$at).$field), $value) }
    };
}

/// Tells if the kernel has to write it.
pub fn is_ours() -> bool {
    OURS.load(Ordering::Relaxed)
}

/// Begins the report of a kernel without a monitor.
pub fn begin() {
    OURS.store(true, Ordering::Relaxed);
    let now = rdtsc();
    set!(SANDBOX.begin_ticks, now);
    set!(SANDBOX.played_ticks, now);
    set!(SANDBOX.launch_ticks, now);
    state(State::Running);
}

fn state(state: State) {
    set!(SANDBOX.state_ticks, rdtsc());
    set!(SANDBOX.state, state as u32);
}

/// Begins the steady state.
pub fn steady() {
    set!(CORE.steady_ticks, rdtsc());
}

/// Reports the kernel's end.
pub fn end(code: u32) {
    set!(SANDBOX.exit_code, code);
    state(State::Exited);
}

/// Adds to the console, where it is ours.
pub fn print(text: &[u8]) {
    if !is_ours() {
        return;
    }
    for byte in text {
        // SAFETY: as `set`; the index is below the ring's size.
        unsafe {
            let written = addr_of_mut!((*CORE).console_written);
            // The number of bytes ever written: a reader sees from it how much the ring has lost.
            let at = read_volatile(written);
            let place = addr_of_mut!((*CORE).console).cast::<u8>().add(at as usize % CONSOLE);
            write_volatile(place, *byte);
            write_volatile(written, at + 1);
        }
    }
}
