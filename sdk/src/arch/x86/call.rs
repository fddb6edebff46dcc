//! Hypercalls: VMMCALL on AMD's processors, VMCALL on Intel's, or a port.

use bulkhead_layout::info::Info;
use bulkhead_layout::x86::MONITORS_VMX;
use bulkhead_layout::x86::port::CALL_PORT;
use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// True if a call is VMCALL, false if it is VMMCALL.
static INTEL: AtomicBool = AtomicBool::new(false);

/// Chooses the instruction of calls.
pub(crate) fn setup(info: &Info) {
    INTEL.store(info.monitors == MONITORS_VMX, Relaxed);
}

/// True if a call is VMCALL.
pub(crate) fn is_intel() -> bool {
    INTEL.load(Relaxed)
}

/// Makes a call: `(rdi, rsi, rdx, r8)`.
pub(crate) fn call(number: u64, [a, b, c, d]: [u64; 4]) -> u64 {
    let result;
    // SAFETY: by the hypercall interface no call touches guest memory or a
    // register other than RAX; EXIT and RESTART do not come back.
    unsafe {
        if is_intel() {
            asm!("vmcall", inlateout("rax") number => result,
                in("rdi") a, in("rsi") b, in("rdx") c, in("r8") d,
                options(nostack));
        } else {
            asm!("vmmcall", inlateout("rax") number => result,
                in("rdi") a, in("rsi") b, in("rdx") c, in("r8") d,
                options(nostack));
        }
    }
    result
}

/// Makes a hypercall by [`CALL_PORT`]: number, RDI, RSI.
pub fn by_port(number: u64, a: u64, b: u64) -> u64 {
    let result;
    // SAFETY: as in `call`.
    unsafe {
        asm!("in eax, dx", inlateout("rax") number => result,
            in("dx") CALL_PORT, in("rdi") a, in("rsi") b, options(nostack));
    }
    result
}
