//! Ports, for root: Linux lets a program use them that asks.

use bulkhead_layout::x86::port::CALL_PORT;
use std::io;

/// Lets this program use all ports.
///
/// # Errors
/// If it is not root's, or the kernel lacks the call.
pub fn allow_all() -> io::Result<()> {
    // SAFETY: changes this program's rights, not its memory.
    match unsafe { nix::libc::ioperm(0, 1 << 16, 1) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets this program make hypercalls by [`call`].
///
/// # Errors
/// If it is not root's, or the kernel lacks the call.
pub fn allow_calls() -> io::Result<()> {
    // SAFETY: changes this program's rights, not its memory.
    match unsafe { nix::libc::ioperm(CALL_PORT.into(), 4, 1) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A hypercall ([`bulkhead_layout::hypercall`]) with two arguments; the program ends by SIGSEGV without
/// [`allow_calls`].
#[must_use]
pub fn call(number: u64, first: u64, second: u64) -> u64 {
    let result;
    // SAFETY: by the hypercall interface no call touches memory or a register other than RAX.
    unsafe {
        core::arch::asm!("in eax, dx", inlateout("rax") number => result, in("dx") CALL_PORT,
            in("rdi") first, in("rsi") second, options(nostack, preserves_flags));
    }
    result
}

/// Writes a byte; the program ends by SIGSEGV if it may not use ports.
pub fn write8(port: u16, value: u8) {
    // SAFETY: no memory of this program is touched; the device's action is asked for.
    unsafe {
        core::arch::asm!("out dx, al", in("dx") port, in("al") value,
            options(nomem, nostack, preserves_flags));
    }
}
