//! The monitor's services ([`bulkhead_layout::hypercall`]).

use bulkhead_layout::hypercall as call;
pub use bulkhead_layout::hypercall::{
    BAD_ARGUMENT, BUSY, CONTROL_RESTART, CONTROL_START, CONTROL_STOP, DENIED, NO_CALL, OK,
};
use bulkhead_layout::image::MONITORS_VMX;
use bulkhead_layout::info::Info;
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

/// Any hypercall, also one that does not exist: `(rdi, rsi, rdx, r8)`.
pub fn raw(number: u64, a: u64, b: u64, c: u64, d: u64) -> u64 {
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

/// Makes a hypercall by [`call::CALL_PORT`]: number, RDI, RSI.
pub fn by_port(number: u64, a: u64, b: u64) -> u64 {
    let result;
    // SAFETY: as in `raw`.
    unsafe {
        asm!("in eax, dx", inlateout("rax") number => result,
            in("dx") call::CALL_PORT, in("rdi") a, in("rsi") b, options(nostack));
    }
    result
}

/// Does nothing.
pub fn null() -> u64 {
    raw(call::NULL, 0, 0, 0, 0)
}

/// Writes up to 24 bytes to the console; bytes beyond are cut off.
pub fn console(bytes: &[u8]) -> u64 {
    let len = bytes.len().min(24);
    let mut padded = [0u8; 24];
    padded[..len].copy_from_slice(&bytes[..len]);
    let word = |n: usize| u64::from_le_bytes(core::array::from_fn(|i| padded[8 * n + i]));
    raw(call::CONSOLE, len as u64, word(0), word(1), word(2))
}

/// Ends the sandbox.
pub fn exit(code: u32) -> ! {
    raw(call::EXIT, u64::from(code), 0, 0, 0);
    stuck()
}

/// Declares that the guest has booted.
pub fn ready() {
    raw(call::READY, 0, 0, 0, 0);
}

/// Launches this sandbox anew.
pub fn restart() -> ! {
    raw(call::RESTART, 0, 0, 0, 0);
    stuck()
}

/// Asks another sandbox's monitor for one of the `CONTROL_*`.
#[must_use]
pub fn control(sandbox: u32, request: u64) -> u64 {
    raw(call::CONTROL, u64::from(sandbox), request, 0, 0)
}

/// State and restarts of another sandbox, as [`call::STATUS`] gives them.
#[must_use]
pub fn status(sandbox: u32) -> u64 {
    raw(call::STATUS, u64::from(sandbox), 0, 0, 0)
}

/// A call that does not return did: there is no monitor, or it is broken.
fn stuck() -> ! {
    loop {
        // SAFETY: masks interrupts and sleeps; nothing else can be done here.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) }
    }
}
