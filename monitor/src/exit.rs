//! What to do at an exit, by its cause.

use crate::core::Core;
use crate::record::{self, count};
use crate::vmrun::Frame;
use crate::{cpuid, hypercall, mail, msr, port};
use bulkhead_resident::report::{Cause, Condition};
use bulkhead_resident_x86::vmcb::{self, exit};

/// Instruction lengths where the processor does not save the next RIP; the
/// shortest encodings, which compilers use.
pub const VMMCALL: u64 = 3;
/// CPUID, RDMSR, WRMSR, INVD, WBINVD.
pub const TWO_BYTES: u64 = 2;

/// How an exit ends.
#[repr(i8)]
pub enum Next {
    /// The guest goes on.
    Go = 0,
    /// The guest starts afresh.
    Afresh = 1,
    /// [`crate::memory::handle`] decides.
    Memory = -1,
}

/// Handles an exit.
pub extern "C" fn handle(frame: &'static Frame) -> Next {
    let core = Core { frame };
    let vmcb = core.vmcb();
    // Nothing stays from the last entry (APM 15.20, 15.16.1), and nothing has
    // changed unless a handler says so (APM 15.15).
    vmcb.set(vmcb::EVENT_INJ, 0);
    vmcb.set(vmcb::ASID, vmcb.get(vmcb::ASID) as u32 as u64);
    vmcb.set(vmcb::CLEAN, u64::from(u32::MAX));
    let afresh = match vmcb.get(vmcb::EXIT_CODE) as u32 {
        exit::MSR => msr::handle(core),
        exit::VMMCALL => hypercall::handle(core),
        exit::NPF => return Next::Memory,
        _ => rare(core),
    };
    if afresh { Next::Afresh } else { Next::Go }
}

/// Everything but the two hot causes, out of their way: no register is saved for it there.
#[inline(never)]
fn rare(core: Core) -> bool {
    let vmcb = core.vmcb();
    match vmcb.get(vmcb::EXIT_CODE) as u32 {
        exit::CPUID => cpuid::handle(core),
        exit::IOIO => port::handle(core),
        // SMI and INIT come from the machine, not from the guest; a doorbell may
        // have come with one.
        exit::NMI => mail::doorbell(core, Cause::Doorbell),
        exit::SMI | exit::INIT => mail::doorbell(core, Cause::Other),
        exit::SHUTDOWN | exit::INVALID => {
            record::deny_hard(core, Condition::Shutdown, vmcb.get(vmcb::EXIT_CODE), 0)
        }
        // Without devices that bypass caches there is nothing to write back or
        // to lose; both would only slow the machine down for everybody:
        // docs/decisions/0011-cache-instructions.md.
        exit::INVD | exit::WBINVD => done(core, Cause::Cache),
        code @ 0x40..=0x5F => reflect(core, code - exit::EXCEPTION),
        code => record::refuse(core, Condition::Instruction, u64::from(code), 0, vmcb::UD),
    }
}

/// Gives an intercepted exception to the guest, as if it had not been intercepted.
fn reflect(core: Core, vector: u32) -> bool {
    const AC: u32 = 17;
    count(core, Cause::Exception);
    let error = if vector == AC { vmcb::INJECT_ERROR } else { 0 };
    core.vmcb().set(vmcb::EVENT_INJ, vmcb::INJECT_EXCEPTION | error | u64::from(vector));
    false
}

/// Counts the exit and goes on after its instruction, one of [`TWO_BYTES`].
#[inline(always)]
pub fn done(core: Core, cause: Cause) -> bool {
    count(core, cause);
    skip(core, TWO_BYTES)
}

/// Goes on after the intercepted instruction.
#[inline(always)]
pub fn skip(core: Core, length: u64) -> bool {
    let vmcb = core.vmcb();
    // A processor that does not save the next RIP leaves the word as it is: zero.
    let next = match vmcb.get(vmcb::NEXT_RIP) {
        0 => vmcb.get(vmcb::RIP).wrapping_add(length),
        saved => saved,
    };
    vmcb.set(vmcb::RIP, next);
    // It ends with the instruction after STI or MOV SS, which this was.
    vmcb.set(vmcb::INTERRUPT_SHADOW, 0);
    false
}
