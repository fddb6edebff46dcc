//! Entries into the monitor: a core's first one, exits, and the monitor's own exceptions.

use crate::svm::{self, Frame};
use bulkhead_monitor::exit::{Next, carry_out};
use bulkhead_monitor::record::deny;
use bulkhead_monitor::{Outcome, debug, hypercall, life, mail};
use bulkhead_monitor_abi::report::{Cause, Condition, State};
use bulkhead_monitor_abi_x86::vmcb::{self, exit};
use bulkhead_monitor_shell::failed;
use bulkhead_monitor_x86::{TWO_BYTES, cpuid, memory, msr, port};

/// Bytes of VMMCALL where the processor does not save the next RIP.
const VMMCALL: u8 = 3;

/// Enters the monitor with a core. Returns when its guest can run.
pub extern "C" fn start(frame: &'static Frame) {
    svm::prepare(frame);
    life::begin(frame);
}

/// Handles an exit.
pub extern "C" fn handle(frame: &'static Frame) -> Next {
    let vmcb = svm::vmcb(frame);
    // Nothing stays from the last entry (APM 15.20, 15.16.1), and nothing has
    // changed unless a handler says so (APM 15.15).
    vmcb.set(vmcb::EVENT_INJ, 0);
    vmcb.set(vmcb::ASID, vmcb.get(vmcb::ASID) as u32 as u64);
    vmcb.set(vmcb::CLEAN, u64::from(u32::MAX));
    let outcome = match vmcb.get(vmcb::EXIT_CODE) as u32 {
        exit::MSR => msr::handle(frame, vmcb.get(vmcb::EXIT_INFO1) & 1 != 0),
        exit::VMMCALL => hypercall::handle(frame, VMMCALL),
        exit::NPF => return Next::Memory,
        _ => return other(frame),
    };
    carry_out(frame, outcome)
}

/// Handles everything but the two hot causes, out of their way: no register is saved for it there. A doorbell is first.
#[inline(never)]
fn other(frame: &Frame) -> Next {
    let outcome = match svm::vmcb(frame).get(vmcb::EXIT_CODE) as u32 {
        exit::NMI => mail::doorbell(frame, Cause::Doorbell),
        _ => rare(frame),
    };
    carry_out(frame, outcome)
}

/// Handles what seldom happens.
#[inline(never)]
fn rare(frame: &Frame) -> Outcome {
    let vmcb = svm::vmcb(frame);
    let code = vmcb.get(vmcb::EXIT_CODE) as u32;
    if let exit::DEBUG | exit::INT1 = code
        && let Some(outcome) = debug::caught(frame, code == exit::INT1)
    {
        return outcome;
    }
    match code {
        // Rare: the intercept goes with the guest's first CPUID in user mode (docs/decisions/0008-cpuid.md).
        exit::CPUID => cpuid::handle(frame),
        exit::IOIO => port::handle(frame, port_access(frame)),
        // SMI and INIT come from the machine, not from the guest; a doorbell may
        // have come with one.
        exit::SMI | exit::INIT => mail::doorbell(frame, Cause::Other),
        exit::SHUTDOWN | exit::INVALID => {
            let stop = Outcome::end(Cause::Denied, State::Stopped);
            deny(frame, Condition::Shutdown, vmcb.get(vmcb::EXIT_CODE), 0, stop)
        }
        // Without devices that bypass caches there is nothing to write back or
        // to lose; both would only slow the machine down for all sandboxes:
        // docs/decisions/0011-cache-instructions.md.
        exit::INVD | exit::WBINVD => Outcome::skip(Cause::Cache, TWO_BYTES),
        // As if it had not been intercepted.
        code @ 0x40..=0x5F => Outcome::inject(Cause::Exception, (code - exit::EXCEPTION) as u8),
        code => {
            let undefined = Outcome::inject(Cause::Denied, vmcb::UD);
            deny(frame, Condition::Instruction, u64::from(code), 0, undefined)
        }
    }
}

/// Decodes EXITINFO1 (APM 15.10.2): bit 0 IN, 2 string, 4 to 6 size, 16 to 31 port; EXITINFO2 is the next RIP.
fn port_access(frame: &Frame) -> port::Access {
    let vmcb = svm::vmcb(frame);
    let info = vmcb.get(vmcb::EXIT_INFO1);
    port::Access {
        port: (info >> 16) as u32 & 0xFFFF,
        size: (info >> 4 & 0b111) as u8,
        read: info & 1 != 0,
        string: info & 1 << 2 != 0,
        length: vmcb.get(vmcb::EXIT_INFO2).wrapping_sub(vmcb.get(vmcb::RIP)) as u8,
    }
}

/// Handles a nested page fault, with all registers in the frame.
pub extern "C" fn memory(frame: &'static Frame) -> Next {
    let vmcb = svm::vmcb(frame);
    let access = memory::Access::of(vmcb.get(vmcb::EXIT_INFO2), vmcb.get(vmcb::EXIT_INFO1));
    carry_out(frame, memory::handle(frame, access))
}

/// Handles an exception in the monitor: `stack` is what the processor pushed.
pub extern "C" fn fault(stack: &[u64; 6]) {
    failed::<svm::Svm>(stack);
}
