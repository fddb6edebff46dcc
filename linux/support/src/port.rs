//! Ports, for root: Linux lets a program use them that asks.

use std::io;

/// Lets this program use all ports.
///
/// # Errors
/// If it is not root's, or the kernel lacks the call.
pub fn allow_all() -> io::Result<()> {
    // SAFETY: changes what this program may do, not its memory.
    match unsafe { nix::libc::ioperm(0, 1 << 16, 1) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Writes a byte; the program ends by SIGSEGV if it may not use ports.
pub fn write8(port: u16, value: u8) {
    // SAFETY: no memory of this program is touched; what the device does is asked for.
    unsafe {
        core::arch::asm!("out dx, al", in("dx") port, in("al") value,
            options(nomem, nostack, preserves_flags));
    }
}
