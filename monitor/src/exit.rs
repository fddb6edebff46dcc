//! What to do at an exit, by its cause, and the one place where that is done.

use crate::core::Core;
use crate::outcome::{Outcome, Then};
use crate::record::{count, deny};
use crate::vmrun::Frame;
use crate::{cpuid, hypercall, life, mail, msr, port};
use bulkhead_resident::report::{Cause, Condition, State};
use bulkhead_resident_x86::vmcb::{self, exit};

/// Instruction lengths where the processor does not save the next RIP; the
/// shortest encodings, which compilers use.
pub const VMMCALL: u8 = 3;
/// CPUID, RDMSR, WRMSR, INVD, WBINVD.
pub const TWO_BYTES: u8 = 2;

/// What the entry shell does next.
#[repr(i8)]
pub enum Next {
    /// Lets the guest go on.
    Go = 0,
    /// Lets a fresh guest begin, which sees no register of the last one's.
    Afresh = 1,
    /// Calls [`crate::memory::handle`], with all registers saved.
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
    let outcome = match vmcb.get(vmcb::EXIT_CODE) as u32 {
        exit::MSR => msr::handle(core),
        exit::VMMCALL => hypercall::handle(core),
        exit::NPF => return Next::Memory,
        _ => rare(core),
    };
    carry_out(core, outcome)
}

/// Carries out what a handler has decided; no other place counts an exit, moves a guest on or ends its life.
#[inline(always)]
pub fn carry_out(core: Core, outcome: Outcome) -> Next {
    count(core, outcome.cause());
    match outcome.then() {
        Then::Resume => Next::Go,
        Then::Skip(length) => {
            skip(core, length);
            Next::Go
        }
        other => turn(core, other),
    }
}

/// The rest of [`carry_out`], out of the way of exits that are frequent.
#[inline(never)]
fn turn(core: Core, then: Then) -> Next {
    match then {
        Then::Inject(vector) => {
            core.vmcb().set(vmcb::EVENT_INJ, vmcb::event(vector));
            return Next::Go;
        }
        Then::End(state) => life::end(core, state),
        _ => life::park(core, 0),
    }
    Next::Afresh
}

/// Everything but the two hot causes, out of their way: no register is saved for it there.
#[inline(never)]
fn rare(core: Core) -> Outcome {
    let vmcb = core.vmcb();
    match vmcb.get(vmcb::EXIT_CODE) as u32 {
        exit::CPUID => cpuid::handle(core),
        exit::IOIO => port::handle(core),
        // SMI and INIT come from the machine, not from the guest; a doorbell may
        // have come with one.
        exit::NMI => mail::doorbell(core, Cause::Doorbell),
        exit::SMI | exit::INIT => mail::doorbell(core, Cause::Other),
        exit::SHUTDOWN | exit::INVALID => {
            let stop = Outcome::end(Cause::Denied, State::Stopped);
            deny(core, Condition::Shutdown, vmcb.get(vmcb::EXIT_CODE), 0, stop)
        }
        // Without devices that bypass caches there is nothing to write back or
        // to lose; both would only slow the machine down for everybody:
        // docs/decisions/0011-cache-instructions.md.
        exit::INVD | exit::WBINVD => Outcome::skip(Cause::Cache, TWO_BYTES),
        // As if it had not been intercepted.
        code @ 0x40..=0x5F => Outcome::inject(Cause::Exception, (code - exit::EXCEPTION) as u8),
        code => {
            let undefined = Outcome::inject(Cause::Denied, vmcb::UD);
            deny(core, Condition::Instruction, u64::from(code), 0, undefined)
        }
    }
}

/// Goes on after the intercepted instruction.
#[inline(always)]
fn skip(core: Core, length: u8) {
    let vmcb = core.vmcb();
    // A processor that does not save the next RIP leaves the word as it is: zero.
    let next = match vmcb.get(vmcb::NEXT_RIP) {
        0 => vmcb.get(vmcb::RIP).wrapping_add(u64::from(length)),
        saved => saved,
    };
    vmcb.set(vmcb::RIP, next);
    // It ends with the instruction after STI or MOV SS, which this was.
    vmcb.set(vmcb::INTERRUPT_SHADOW, 0);
}
