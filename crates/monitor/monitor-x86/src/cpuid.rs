//! CPUID, intercepted while a guest's kernel boots. At the first one from user
//! mode the intercept is dropped on that core, until its next start
//! (docs/decisions/0008-cpuid.md); VT-x has no such choice.

use crate::contract::{RAX, RBX, RCX, RDX};
use crate::{TWO_BYTES, X86};
use bulkhead_monitor::{Outcome, life};
use bulkhead_monitor_abi::report::Cause;
use bulkhead_monitor_abi_x86::config::Leaf;

/// Handles CPUID.
#[inline]
pub fn handle<M: X86>(m: &M) -> Outcome {
    // User mode shows that the boot is over: from there on exits are counted as steady.
    if m.privilege() == 3 {
        life::steady(m, Cause::Cpuid);
        if m.stop_cpuid_exits() {
            // Resumed, not skipped: without the intercept the processor answers this very CPUID.
            return Outcome::resume(Cause::Cpuid);
        }
    }
    let (leaf, sub) = (m.register(RAX) as u32, m.register(RCX) as u32);
    let [a, b, mut c, d] = Leaf::filter(m.leaves(), leaf, sub, m.cpuid(leaf, sub));
    // OSXSAVE and OSPKE follow the guest's CR4, not the monitor's, which the processor has looked at. A kernel that set
    // the bit and did not find it here would give up XSAVE.
    let follow = |cr4: u32, bit: u32| c & !(1 << bit) | ((m.state().cr4 >> cr4 & 1) as u32) << bit;
    match (leaf, sub) {
        (1, _) => c = follow(18, 27),
        (7, 0) => c = follow(22, 4),
        _ => {}
    }
    m.set_register(RAX, u64::from(a));
    m.set_register(RBX, u64::from(b));
    m.set_register(RCX, u64::from(c));
    m.set_register(RDX, u64::from(d));
    Outcome::skip(Cause::Cpuid, TWO_BYTES)
}
