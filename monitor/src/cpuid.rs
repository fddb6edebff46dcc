//! CPUID, intercepted while a guest's kernel boots. At the first one from user
//! mode the intercept is dropped on that core, until its next start
//! (docs/decisions/0008-cpuid.md).

use crate::core::{Core, config, slice};
use crate::exit::TWO_BYTES;
use crate::life;
use crate::outcome::Outcome;
use bulkhead_resident::monitor::Leaf;
use bulkhead_resident::report::Cause;
use bulkhead_resident_x86::vmcb;

pub fn handle(core: Core) -> Outcome {
    let (vmcb, frame) = (core.vmcb(), core.frame);
    if vmcb.cpl() == 3 {
        let low = vmcb.get(vmcb::INTERCEPT_LOW);
        vmcb.set(vmcb::INTERCEPT_LOW, low & !(vmcb::INTERCEPT_CPUID << 32));
        // Intercepts changed: their clean bit is bit 0.
        vmcb.set(vmcb::CLEAN, vmcb.get(vmcb::CLEAN) & !1);
        life::steady(core, Cause::Cpuid);
        return Outcome::resume(Cause::Cpuid);
    }
    let (leaf, sub) = (vmcb.get(vmcb::RAX) as u32, frame.rcx.get() as u32);
    let raw = bulkhead_cpu_x86::cpuid(leaf, sub);
    let raw = [raw.eax, raw.ebx, raw.ecx, raw.edx];
    let [a, b, mut c, d] = Leaf::filter(slice(config().cpuid), leaf, sub, raw);
    // OSXSAVE and OSPKE follow the guest's CR4, not the monitor's.
    for (in_leaf, cr4, bit) in [(1, 18, 27), (7, 22, 4)] {
        if leaf == in_leaf {
            c = c & !(1 << bit) | ((vmcb.get(vmcb::CR4) >> cr4 & 1) as u32) << bit;
        }
    }
    vmcb.set(vmcb::RAX, u64::from(a));
    frame.rbx.set(u64::from(b));
    frame.rcx.set(u64::from(c));
    frame.rdx.set(u64::from(d));
    Outcome::skip(Cause::Cpuid, TWO_BYTES)
}
