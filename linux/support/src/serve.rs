//! A program that serves a block device to its own kernel. It must not wait for memory that the kernel frees by a
//! write to this device.

use nix::libc;
use std::io;

/// Keeps all memory of this program in place, and says to the kernel what it is for (`PR_SET_IO_FLUSHER` of
/// `prctl(2)`).
///
/// # Errors
/// Not root.
pub fn hold() -> io::Result<()> {
    /// Memory is kept once it is touched: the stacks of threads are mostly not.
    const FLAGS: libc::c_int = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    const IO_FLUSHER: libc::c_int = 57;
    // SAFETY: both calls take numbers alone.
    let done = unsafe { [libc::mlockall(FLAGS), libc::prctl(IO_FLUSHER, 1, 0, 0, 0)] };
    if done.contains(&-1) { Err(io::Error::last_os_error()) } else { Ok(()) }
}
