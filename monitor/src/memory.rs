//! Nested page faults: device registers that the monitor answers for ([`mmio`]), and
//! everything else, which is denied.

use crate::core::Core;
use crate::mmio;
use crate::record::deny_hard;
use crate::vmrun::Frame;
use bulkhead_resident::report::Condition;
use bulkhead_resident_x86::vmcb;

/// Bits of EXITINFO1 (APM 15.25.6).
pub const WRITE: u64 = 1 << 1;
pub const FETCH: u64 = 1 << 4;
/// The fault is in the translation of the final address.
pub const FINAL: u64 = 1 << 32;

/// Entered with all registers in the frame. True: the guest starts afresh.
pub extern "C" fn handle(frame: &'static Frame) -> bool {
    let core = Core { frame };
    let vmcb = core.vmcb();
    let (address, error) = (vmcb.get(vmcb::EXIT_INFO2), vmcb.get(vmcb::EXIT_INFO1));
    mmio::answer(core, address, error).unwrap_or_else(|| {
        let condition = match error {
            _ if error & FETCH != 0 => Condition::MemoryFetch,
            _ if error & WRITE != 0 => Condition::MemoryWrite,
            _ => Condition::MemoryRead,
        };
        deny_hard(core, condition, address, error)
    })
}
