//! Writes to the High Precision Event Timer. A Linux that runs already reads its page without an exit.

use crate::X86;
use bulkhead_monitor_abi::map::MMIO_VA;
use bulkhead_monitor_abi::{PAGE, need};
use bulkhead_monitor_abi_x86::hpet::decide;

/// Tells if [`access`] answers for a guest-physical address.
#[inline(always)]
pub fn answers<M: X86>(m: &M, address: u64) -> bool {
    // A constant: no other monitor has a guest with that page.
    M::has(need::RUNNING) && m.x86().hpet != 0 && address & !(PAGE - 1) == m.x86().hpet
}

/// Makes an access of `size` bytes; the value of a read.
///
/// # Errors
/// The address, if it is a write that could send a message.
pub fn access<M: X86>(m: &M, address: u64, size: u8, write: Option<u64>) -> Result<u64, u64> {
    let at = MMIO_VA + address;
    let Some(value) = write else { return Ok(m.load(at, size)) };
    m.store(at, size, decide(address & (PAGE - 1), size, value).ok_or(address)?);
    Ok(0)
}
