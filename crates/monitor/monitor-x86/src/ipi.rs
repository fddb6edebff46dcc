//! Interrupts between a sandbox's own cores, beyond the ordinary one
//! (docs/decisions/0012-guest-nmis.md, docs/decisions/0013-init-sipi.md).

use crate::{TWO_BYTES, X86};
use bulkhead_monitor::record::deny;
use bulkhead_monitor::{Outcome, signal};
use bulkhead_monitor_abi::report::{Cause, Condition};
use bulkhead_monitor_abi_x86::icr::{self, Ipi};
use bulkhead_monitor_abi_x86::msr;

/// Decides on an ICR write that is not ordinary and carries it out.
#[inline(never)]
pub fn send<M: X86>(m: &M, value: u64) -> Outcome {
    match icr::decide(&m.x86().own, value) {
        Ipi::Pass => m.wrmsr(msr::X2APIC_ICR, value),
        // Core by core: a logical or broadcast destination of the hardware's would name cores of other sandboxes, too.
        Ipi::Fixed(to) => signal::each(m, to, |_, id| {
            // The vector and nothing else of the guest's value.
            m.wrmsr(msr::X2APIC_ICR, u64::from(id) << 32 | value & 0xFF);
        }),
        // The next three never reach a local APIC. An NMI is the monitors' doorbell, and INIT would reset a core out of
        // its monitor.
        Ipi::Nmi(to) => signal::send_each(m, to, signal::UNMASKABLE),
        Ipi::Init(to) => signal::send_each(m, to, signal::PARK),
        Ipi::Startup(to, vector) => {
            signal::send_each(m, to, signal::START | u32::from(vector));
        }
        Ipi::Ignore => {}
        Ipi::Denied(condition) => {
            let held = match condition {
                Condition::IpiDestination => M::enforced("ipi-destination"),
                _ => M::enforced("ipi-form"),
            };
            if !held {
                // Only the mutation gate's build gets here.
                m.wrmsr(msr::X2APIC_ICR, value);
            }
            return deny(m, condition, value, 0, Outcome::skip(Cause::Denied, TWO_BYTES));
        }
    }
    Outcome::skip(Cause::Ipi, TWO_BYTES)
}
