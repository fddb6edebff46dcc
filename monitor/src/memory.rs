//! Nested page faults: device registers that the monitor answers for ([`mmio`]), and
//! everything else, which is denied.

use crate::core::Core;
use crate::exit::{Next, carry_out};
use crate::mmio;
use crate::outcome::Outcome;
use crate::record::deny;
use crate::vmrun::Frame;
use bulkhead_resident::report::{Cause, Condition, State};
use bulkhead_resident_x86::vmcb;

/// Bits of EXITINFO1 (APM 15.25.6).
pub const WRITE: u64 = 1 << 1;
pub const FETCH: u64 = 1 << 4;
/// The fault is in the translation of the final address.
pub const FINAL: u64 = 1 << 32;

/// Handles a nested page fault, with all registers in the frame.
pub extern "C" fn handle(frame: &'static Frame) -> Next {
    let core = Core { frame };
    let vmcb = core.vmcb();
    let (address, error) = (vmcb.get(vmcb::EXIT_INFO2), vmcb.get(vmcb::EXIT_INFO1));
    let outcome = mmio::answer(core, address, error).unwrap_or_else(|| {
        let condition = match error {
            _ if error & FETCH != 0 => Condition::MemoryFetch,
            _ if error & WRITE != 0 => Condition::MemoryWrite,
            _ => Condition::MemoryRead,
        };
        deny(core, condition, address, error, Outcome::end(Cause::Denied, State::Stopped))
    });
    carry_out(core, outcome)
}
