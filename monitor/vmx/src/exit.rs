//! Entries into the monitor: a core's first one, exits, doorbells before an entry, and the monitor's own exceptions.

use crate::entry::unblock;
use crate::instruction::{read, write};
use crate::vmx::{self, Frame, Vmx};
use bulkhead_monitor::exit::{Next, carry_out};
use bulkhead_monitor::record::{deny, record};
use bulkhead_monitor::{Interrupts, Layout, Monitor, Outcome, Vcpu, hypercall, life, mail};
use bulkhead_monitor_abi::need;
use bulkhead_monitor_abi::report::{Cause, Condition, State};
use bulkhead_monitor_abi_x86::config::Leaf;
use bulkhead_monitor_abi_x86::vmcb;
use bulkhead_monitor_abi_x86::vmcs::{self, blocking, event, exit, field, pin};
use bulkhead_monitor_shell::failed;
use bulkhead_monitor_x86::contract::{RAX, RCX, RDX};
use bulkhead_monitor_x86::{TWO_BYTES, X86, memory, msr, port};
use core::arch::asm;

/// Bytes of VMCALL.
const VMCALL: u8 = 3;

/// Enters the monitor with a core. Returns when its guest can run.
pub extern "C" fn start(frame: &'static Frame) {
    vmx::prepare(frame);
    life::begin(frame);
}

/// Handles an exit, but not CPUID of the guest's kernel ([`crate::identify`]).
pub extern "C" fn handle(frame: &'static Frame, reason: u64) -> Next {
    let outcome = match reason as u16 {
        code @ (exit::RDMSR | exit::WRMSR) => msr::handle(frame, code == exit::WRMSR),
        exit::VMCALL => hypercall::handle(frame, VMCALL),
        // Not here: both need registers that this way has not saved.
        exit::EPT_VIOLATION | exit::CONTROL_REGISTER => return Next::Memory,
        _ => rare(frame, reason),
    };
    carry_out(frame, outcome)
}

/// Begins the steady phase with the first CPUID of user mode. [`crate::identify`] answers that, too.
pub extern "C" fn user(frame: &'static Frame) {
    life::steady(frame, Cause::Cpuid);
}

/// Looks at the mail.
#[inline(never)]
fn look(frame: &Frame, cause: Cause) -> Outcome {
    mail::doorbell(frame, cause)
}

/// [`carry_out`], for all but the hot causes.
#[inline(never)]
fn done(frame: &Frame, outcome: Outcome) -> Next {
    carry_out(frame, outcome)
}

/// Everything but frequent causes, out of their way: no register is saved for it there.
#[inline(never)]
fn rare(frame: &Frame, reason: u64) -> Outcome {
    if reason & exit::ENTRY_FAILED != 0 {
        return shutdown(frame, reason, read(field::QUALIFICATION));
    }
    match reason as u16 {
        exit::IO => port::handle(frame, port_access()),
        exit::EXCEPTION_OR_NMI => interruption(frame),
        // INIT comes from the machine, not from the guest; a doorbell may have come with it.
        exit::INIT | exit::SIPI | exit::INTERRUPT => look(frame, Cause::Other),
        exit::TIMER => late(frame),
        exit::TRIPLE_FAULT => shutdown(frame, reason, 0),
        exit::XSETBV => xsetbv(frame),
        // docs/decisions/0011-cache-instructions.md.
        exit::INVD | exit::WBINVD => Outcome::skip(Cause::Cache, TWO_BYTES),
        exit::EPT_MISCONFIGURATION => {
            // The tables are the host's, so the fault is not the guest's.
            record(frame, Condition::Shutdown, read(field::GUEST_PHYSICAL_ADDRESS), reason);
            Outcome::end(Cause::Other, State::Failed)
        }
        // Instructions of VMX among them, which are undefined on the processor that a guest sees.
        code => {
            let undefined = Outcome::inject(Cause::Denied, vmcb::UD);
            deny(frame, Condition::Instruction, u64::from(code), 0, undefined)
        }
    }
}

/// Denies the guest to go on: it has shut its processor down, or the processor refuses its state.
#[inline(never)]
fn shutdown(frame: &Frame, reason: u64, info: u64) -> Outcome {
    deny(frame, Condition::Shutdown, reason, info, Outcome::end(Cause::Denied, State::Stopped))
}

/// Decodes the qualification of an access to a port (SDM 28.2.1): bits 2:0 size - 1, 3 IN, 4 string, 31:16 port.
fn port_access() -> port::Access {
    let info = read(field::QUALIFICATION);
    port::Access {
        port: (info >> 16) as u32 & 0xFFFF,
        size: (info & 0b111) as u8 + 1,
        read: info & 1 << 3 != 0,
        string: info & 1 << 4 != 0,
        length: read(field::EXIT_LENGTH) as u8,
    }
}

/// Handles an NMI, or an exception that is intercepted: the guest takes it as if it had not been.
fn interruption(frame: &Frame) -> Outcome {
    const DB: u8 = 1;
    let event = read(field::EXIT_EVENT);
    if event & event::TYPE == event::NMI {
        // Bochs 2.7 saves its own blocking, of which the manual knows nothing: the guest would run without a
        // doorbell. A guest that an NMI has left was not blocked (docs/decisions/0039-vtx.md).
        let guest = read(field::GUEST_INTERRUPTIBILITY);
        write(field::GUEST_INTERRUPTIBILITY, guest & !blocking::NMI);
        unblock();
        return look(frame, Cause::Doorbell);
    }
    if event as u8 == DB {
        debug_registers();
    }
    Outcome::inject(Cause::Exception, event as u8)
}

/// Sets DR6 and clears DR7.GD for a #DB, as its delivery would have. Neither an exit nor an injection does that
/// (SDM 28.1, 27.6.1.1).
fn debug_registers() {
    const REASONS: u64 = 0b110_0000_0000_1111;
    const TRAPS: u64 = 0b1111;
    const DR7_GD: u64 = 1 << 13;
    let reasons = read(field::QUALIFICATION) & REASONS;
    // SAFETY: DR6 is the guest's; the monitor has no breakpoints.
    unsafe {
        asm!("mov {t}, dr6", "and {t}, {keep}", "or {t}, {new}", "mov dr6, {t}", t = out(reg) _,
            keep = in(reg) !TRAPS, new = in(reg) reasons, options(nomem, nostack));
    }
    write(field::GUEST_DR7, read(field::GUEST_DR7) & !DR7_GD);
}

/// Handles XSETBV. The processor has seen that CR4.OSXSAVE is set. By the manual user mode faults before the exit
/// (SDM 26.1.1). It is looked at here, too, because XCR0 is the kernel's.
fn xsetbv(frame: &Frame) -> Outcome {
    let value = frame.register(RDX) << 32 | frame.register(RAX) & 0xFFFF_FFFF;
    let [low, _, _, high] = Leaf::filter(frame.leaves(), 0xD, 0, frame.cpuid(0xD, 0));
    let seen = u64::from(high) << 32 | u64::from(low);
    let kernel = frame.privilege() == 0;
    if !kernel || frame.register(RCX) as u32 != 0 || !vmcs::xcr0_is_valid(value, seen) {
        return Outcome::inject(Cause::Msr, vmcb::GP);
    }
    // SAFETY: XCR0 is the guest's, and the value is one that the processor takes. The monitor has set its own
    // CR4.OSXSAVE when the guest began.
    unsafe {
        asm!("xsetbv", in("ecx") 0, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nomem, nostack));
    }
    Outcome::skip(Cause::Msr, 3)
}

/// Handles exits that may need any register, with all of them in the frame.
pub extern "C" fn whole(frame: &'static Frame) -> Next {
    let outcome = match read(field::EXIT_REASON) as u16 {
        exit::CONTROL_REGISTER => control_register(frame),
        _ => memory(frame),
    };
    done(frame, outcome)
}

/// Handles a write to CR0 or CR4 that differs in a bit of the monitor's from what the guest reads there.
///
/// A write to CR0 that may be is not made here. The guest reads its own value in these bits from now on, and its
/// instruction comes again. Then it differs in no such bit, and the processor carries it out, with all that may hang
/// on it. Rejected: an own model of paging modes.
fn control_register(frame: &Frame) -> Outcome {
    let info = read(field::QUALIFICATION);
    let value = frame.register((info >> 8 & 0xF) as u8);
    // Bits 3:0 register, 5:4 kind; 0 is MOV to it (SDM 28.2.1).
    let fault = Outcome::inject(Cause::Denied, vmcb::GP);
    match info & 0x3F {
        0 => match vmcs::cr0_shadow(value, read(field::CR0_SHADOW)) {
            Some(shadow) => {
                write(field::CR0_SHADOW, shadow);
                Outcome::resume(Cause::Msr)
            }
            None => Outcome::inject(Cause::Msr, vmcb::GP),
        },
        _ => deny(frame, Condition::Instruction, u64::from(exit::CONTROL_REGISTER), value, fault),
    }
}

/// Handles an EPT violation. One that broke off the delivery of an event is no access of the instruction at RIP. It is
/// not decoded, so no register answers it, and it ends the life: the event need not come again.
fn memory(frame: &Frame) -> Outcome {
    let delivers = read(field::VECTORING_EVENT) & event::VALID != 0;
    let info = vmcs::violation(read(field::QUALIFICATION), delivers);
    let access = memory::Access::of(read(field::GUEST_PHYSICAL_ADDRESS), info);
    memory::handle(frame, access)
}

/// Looks at the mail before an entry: a doorbell has come in the monitor.
///
/// An event that the entry is to inject goes first: a guest's own NMI would take its place. The preemption timer then
/// ends the entry before the guest's first instruction, and [`late`] looks.
pub extern "C" fn rung(frame: &'static Frame) -> Next {
    if read(field::ENTRY_EVENT) & event::VALID == 0 {
        return done(frame, look(frame, Cause::Doorbell));
    }
    // Cleared, or the test before the entry would lead here for ever; the timer brings the look instead.
    frame.local().doorbell.set(0);
    write(field::TIMER, 0);
    write(field::PIN_CONTROLS, read(field::PIN_CONTROLS) | u64::from(pin::TIMER));
    Next::Go
}

/// Looks at the mail after an event was injected, or at a tick of the watchdog.
fn late(frame: &Frame) -> Outcome {
    // Before all else: a timer of 0 would end each entry at once.
    if Frame::has(need::WATCHDOG) && frame.config().watch.least != 0 {
        frame.tick_at(frame.local().due.get());
    } else {
        write(field::PIN_CONTROLS, read(field::PIN_CONTROLS) & !u64::from(pin::TIMER));
    }
    look(frame, Cause::Doorbell)
}

/// Records that VMRESUME or VMLAUNCH has failed, with the error of the VMX instruction (SDM 31.4).
pub extern "C" fn refused(frame: &'static Frame) -> Next {
    done(frame, shutdown(frame, u64::MAX, read(field::INSTRUCTION_ERROR)))
}

/// Handles an exception in the monitor: `stack` is what the processor pushed.
pub extern "C" fn fault(stack: &[u64; 6]) {
    failed::<Vmx>(stack);
}
