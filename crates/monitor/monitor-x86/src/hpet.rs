//! Registers that a Linux which runs already reads without an exit: the High Precision Event Timer's, and those of
//! devices that are nobody's.

use crate::X86;
use bulkhead_monitor_abi::map::MMIO_VA;
use bulkhead_monitor_abi::{PAGE, need};
use bulkhead_monitor_abi_x86::config::Quiet;
use bulkhead_monitor_abi_x86::hpet::decide;

/// Tells if [`access`] answers for a guest-physical address.
#[inline(always)]
pub fn answers<M: X86>(m: &M, address: u64) -> bool {
    // A constant: no other monitor has a guest with such pages.
    M::has(need::RUNNING)
        && M::has(need::DEVICES)
        && (is_timer(m, address) || is_withheld(m, address))
}

fn is_timer<M: X86>(m: &M, address: u64) -> bool {
    m.x86().hpet != 0 && address & !(PAGE - 1) == m.x86().hpet
}

fn is_withheld<M: X86>(m: &M, address: u64) -> bool {
    let all = m.quiets(m.x86().withheld);
    u32::try_from(address).is_ok_and(|address| Quiet::find(all, address).is_some())
}

/// Makes an access of `size` bytes; the value of a read.
///
/// # Errors
/// The address, if it is a write that could send a message, or one to a device that is nobody's.
pub fn access<M: X86>(m: &M, address: u64, size: u8, write: Option<u64>) -> Result<u64, u64> {
    if !is_timer(m, address) {
        return Err(address);
    }
    let at = MMIO_VA + address;
    let Some(value) = write else { return Ok(m.load(at, size)) };
    m.store(at, size, decide(address & (PAGE - 1), size, value).ok_or(address)?);
    Ok(0)
}
