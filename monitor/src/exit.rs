//! Entries into the monitor: a core's first one, exits, and the monitor's own exceptions.

use crate::svm;
use crate::vmrun::Frame;
use bulkhead_monitor::exit::{Next, carry_out};
use bulkhead_monitor::record::deny;
use bulkhead_monitor::{Layout, Monitor, Outcome, hypercall, life, mail};
use bulkhead_monitor_x86::{TWO_BYTES, cpuid, ioapic, memory, msr, port};
use bulkhead_resident::need;
use bulkhead_resident::report::{Cause, Condition, State};
use bulkhead_resident_x86::vmcb::{self, exit};
use core::sync::atomic::Ordering::Relaxed;

/// Bytes of VMMCALL where the processor does not save the next RIP.
const VMMCALL: u8 = 3;

/// Enters the monitor with a core. Returns when its guest can run.
pub extern "C" fn start(frame: &'static Frame) {
    svm::prepare(frame);
    life::begin(frame);
}

/// Handles an exit.
pub extern "C" fn handle(frame: &'static Frame) -> Next {
    let vmcb = frame.vmcb();
    // Nothing stays from the last entry (APM 15.20, 15.16.1), and nothing has
    // changed unless a handler says so (APM 15.15).
    vmcb.set(vmcb::EVENT_INJ, 0);
    vmcb.set(vmcb::ASID, vmcb.get(vmcb::ASID) as u32 as u64);
    vmcb.set(vmcb::CLEAN, u64::from(u32::MAX));
    let outcome = match vmcb.get(vmcb::EXIT_CODE) as u32 {
        exit::MSR => msr::handle(frame, vmcb.get(vmcb::EXIT_INFO1) & 1 != 0),
        exit::VMMCALL => hypercall::handle(frame, VMMCALL),
        exit::NPF => return Next::Memory,
        _ => rare(frame),
    };
    carry_out(frame, outcome)
}

/// Everything but the two hot causes, out of their way: no register is saved for it there.
#[inline(never)]
fn rare(frame: &Frame) -> Outcome {
    let vmcb = frame.vmcb();
    match vmcb.get(vmcb::EXIT_CODE) as u32 {
        exit::CPUID => cpuid::handle(frame),
        exit::IOIO => port::handle(frame, port_access(frame)),
        // SMI and INIT come from the machine, not from the guest; a doorbell may
        // have come with one.
        exit::NMI => mail::doorbell(frame, Cause::Doorbell),
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
    let vmcb = frame.vmcb();
    let info = vmcb.get(vmcb::EXIT_INFO1);
    port::Access {
        port: (info >> 16) as u32 & 0xFFFF,
        size: (info >> 4 & 0b111) as u8,
        read: info & 1 != 0,
        string: info & 1 << 2 != 0,
        length: vmcb.get(vmcb::EXIT_INFO2).wrapping_sub(vmcb.get(vmcb::RIP)) as u8,
    }
}

/// Handles a nested page fault, with all registers in the frame. Bits of EXITINFO1: APM 15.25.6.
pub extern "C" fn memory(frame: &'static Frame) -> Next {
    const WRITE: u64 = 1 << 1;
    const FETCH: u64 = 1 << 4;
    /// The fault is in the translation of the final address.
    const FINAL: u64 = 1 << 32;
    let vmcb = frame.vmcb();
    let info = vmcb.get(vmcb::EXIT_INFO1);
    let condition = match info {
        _ if info & FETCH != 0 => Condition::MemoryFetch,
        _ if info & WRITE != 0 => Condition::MemoryWrite,
        _ => Condition::MemoryRead,
    };
    let address = vmcb.get(vmcb::EXIT_INFO2);
    let access = memory::Access { address, condition, last: info & FINAL != 0, info };
    carry_out(frame, memory::handle(frame, access))
}

/// Handles an exception in the monitor: `stack` is what the processor pushed.
pub extern "C" fn fault(stack: &[u64; 6]) {
    let cr2: u64;
    // SAFETY: CR2 is readable at CPL 0.
    unsafe { core::arch::asm!("mov {}, cr2", out(reg) cr2, options(nomem, nostack)) };
    let frame = Frame::around(stack);
    let report = frame.report();
    let [first, second, third, ..] = *stack;
    let words = report.fault.iter().chain(&report.fault_detail);
    words.zip([first, cr2, second, third]).for_each(|(word, value)| word.store(value, Relaxed));
    life::state(frame, State::Failed);
    // Others are not to wait for a core that will not come.
    if Frame::has(need::DEVICES) {
        ioapic::leave(frame);
    }
}
