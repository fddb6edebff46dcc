//! x86-64: hypercalls and doorbells are ports, which Linux lets a program of root's use that asks.

use super::Architecture;
use bulkhead_layout::x86::port::CALL_PORT;
use std::io;

pub(crate) struct X86;

impl Architecture for X86 {
    const EARLY_CLOCK: Option<&'static str> = Some("tsc-early");

    fn allow_calls() -> io::Result<()> {
        allow(CALL_PORT.into(), 4)
    }

    fn allow_bells() -> io::Result<()> {
        port::allow_all()
    }
}

fn allow(first: u64, count: u64) -> io::Result<()> {
    // SAFETY: changes this program's rights, not its memory.
    match unsafe { nix::libc::ioperm(first, count, 1) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub mod port {
    //! Ports, for root's programs.

    /// Lets this program use all ports.
    ///
    /// # Errors
    /// If it is not root's, or the kernel lacks the call.
    pub fn allow_all() -> std::io::Result<()> {
        super::allow(0, 1 << 16)
    }

    /// Writes a byte; the program ends by SIGSEGV if it may not use ports.
    pub fn write8(port: u16, value: u8) {
        // SAFETY: no memory of this program is touched; the device's action is asked for.
        unsafe { bulkhead_cpu_x86::outb(port, value) }
    }
}
