//! A sandbox's life: launch, end, restart, and the waiting in between. The
//! first core leads; the others wait parked until the guest starts them.

use crate::core::{Core, config, mailbox, report, shared_of, slice};
use crate::record::record;
use crate::vmrun::{FRAME_FROM_TOP, Frame, drain_window, nmi_sleep};
use crate::{enforced, ioapic, ipi, link, mail, pci};
use ::core::arch::asm;
use ::core::mem::offset_of;
use ::core::ptr::{addr_of_mut, read_volatile, write_volatile};
use ::core::slice::from_raw_parts;
use ::core::sync::atomic::Ordering;
use bulkhead_cpu_x86::{cpuid, rdmsr, rdtsc, wrmsr};
use bulkhead_resident::MAX_CORES;
use bulkhead_resident::load::{HEAD, Head, PROGRAM_GPA, sum};
use bulkhead_resident::map::{CORE_STRIDE, GUEST_VA};
use bulkhead_resident::record::{Op, RecordMemory, play};
use bulkhead_resident::report::{Cause, Condition, State};
use bulkhead_resident_x86::icr::{self, To};
use bulkhead_resident_x86::{msr, vmcb};

/// This sandbox's memory, as its launch record sees it.
pub struct Memory;

impl RecordMemory for Memory {
    fn zero(&mut self, dst: u64, len: u64) {
        // SAFETY: the record was baked for exactly the pages that the monitor's
        // tables map writable: the sandbox's RAM and this core's VMCB; or it is the
        // guest's part of this core's frame, or a slot of the sandbox's.
        unsafe {
            asm!("rep stosq", inout("rdi") dst => _, inout("rcx") len / 8 => _, in("rax") 0u64, options(nostack, preserves_flags))
        };
    }

    fn copy(&mut self, dst: u64, src: u64, len: u64) {
        // SAFETY: as above; the source is the pristine guest, mapped read-only.
        unsafe {
            asm!("rep movsq", inout("rdi") dst => _, inout("rsi") src => _, inout("rcx") len / 8 => _, options(nostack, preserves_flags))
        };
    }

    fn store(&mut self, dst: u64, value: u64) {
        // SAFETY: as above; or a page of the guest's nested tables that has entries of slots and nothing else.
        unsafe { (dst as *mut u64).write_volatile(value) };
    }
}

/// Sets a field of the report.
macro_rules! set {
    ($field:ident, $value:expr) => {
        // SAFETY: the first core alone writes the sandbox's report; readers
        // take any value.
        unsafe { write_volatile(addr_of_mut!((*report()).$field), $value) }
    };
}

/// A core enters its monitor. Returns when its guest can run.
pub extern "C" fn start(frame: &'static Frame) {
    let core = Core { frame };
    let own = &config().core[core.index() as usize % MAX_CORES];
    frame.vmcb_pa.set(own.vmcb_pa);
    // SAFETY: the monitor's IDT and its tables are what the host made; SVM,
    // no-execute and x2APIC were found by the boot code; the host set the save
    // area aside for this core, and nobody maps it.
    unsafe {
        const X2APIC: u64 = 0b11 << 10;
        asm!("lidt [{}]", in(reg) &raw const config().idtr, options(nostack, preserves_flags));
        wrmsr(msr::APIC_BASE, rdmsr(msr::APIC_BASE) | X2APIC);
        wrmsr(msr::EFER, rdmsr(msr::EFER) | vmcb::EFER_SVME | 1 << 11);
        wrmsr(msr::VM_HSAVE_PA, own.hsave_pa);
        asm!("clgi", options(nostack, nomem));
    }
    if !core.is_first() {
        return park(core, 0);
    }
    // No core is rung before it can take an NMI.
    assemble(core);
    settle(core, State::of(config().begin));
    launch(core);
}

/// Plays the launch record: the guest is as at its first start.
fn launch(core: Core) {
    // What it was rung for may have been let in with what was pending. From here on none is, before VMRUN.
    link::look(core);
    mail::tally();
    set!(begin_tsc, rdtsc());
    shared_of(0).life.fetch_add(1, Ordering::SeqCst);
    set!(restarts, u64::from(incarnation()));
    set!(loaded, 0);
    state(State::Launching);
    let loaded = load();
    if loaded.is_none() {
        play(&mut Memory, slice::<Op>(config().launch), 0);
    }
    set!(loaded, u32::from(loaded.is_some()));
    set!(played_tsc, rdtsc());
    fresh_vmcb(core, slice(config().first_vmcb));
    if let Some(entry) = loaded {
        core.vmcb().set(vmcb::RIP, entry);
    }
    core.frame.rsi.set(config().argument);
    core.frame.rdi.set(u64::from(core.local().incarnation.get()));
    state(State::Running);
    set!(launch_tsc, rdtsc());
}

/// Fills memory with the program that another sandbox has left, if it is whole; where it begins. Not for the
/// first life: nobody has cleared what lies there.
fn load() -> Option<u64> {
    let config = config();
    if config.loads == 0 || incarnation() == 0 {
        return None;
    }
    // SAFETY: the host maps `room` bytes there, read-only; another sandbox may be writing them.
    let head = unsafe { read_volatile(config.loads as *const Head) };
    if !head.fits(config.room) && enforced("load-head") {
        return None;
    }
    play(&mut Memory, slice::<Op>(config.empty), 0);
    let program = GUEST_VA + PROGRAM_GPA;
    Memory.copy(program, config.loads + HEAD, head.len);
    // SAFETY: RAM of the sandbox, of which the manifest's checker saw that it holds `room` bytes from there on;
    // no guest runs and no device of its has anything to do.
    let words = unsafe { from_raw_parts(program as *const u64, head.len as usize / 8) };
    (sum(words) == head.sum || !enforced("load-sum")).then_some(head.entry)
}

/// A core's VMCB as the record says, and the rest of a processor's state that
/// VMRUN does not load.
fn fresh_vmcb(core: Core, ops: &[Op]) {
    let base = ::core::ptr::from_ref(core.vmcb()) as u64;
    let frame = core.frame;
    Memory.zero(base, 4096);
    // SAFETY: registers of the guest that the monitor does not use.
    unsafe { fresh_extended_state(base) };
    play(&mut Memory, ops, base);
    // Entries of a former life must not be used.
    flush(core);
    let registers = ::core::ptr::from_ref(frame) as u64;
    Memory.zero(registers, offset_of!(Frame, vmcb_pa) as u64);
    core.local().incarnation.set(incarnation());
    // The steady phase begins anew with the guest.
    // SAFETY: this core's own counters.
    unsafe { write_volatile(addr_of_mut!((*core.counters()).steady_tsc), 0) };
    // SAFETY: registers of the guest that the monitor does not use.
    unsafe {
        // Breakpoints.
        asm!("mov dr0, {0}", "mov dr1, {0}", "mov dr2, {0}", "mov dr3, {0}", in(reg) 0u64, options(nostack, nomem));
        // FS to TR by VMLOAD from this VMCB.
        asm!("vmload rax", in("rax") frame.vmcb_pa.get(), options(nostack));
    }
}

/// Has this core's next VMRUN empty the guest's TLB, or all of it where that cannot be told by ASID (APM 15.16.1).
#[inline(never)]
pub fn flush(core: Core) {
    const FLUSH_BY_ASID: u32 = 1 << 6;
    let vmcb = core.vmcb();
    let how = match cpuid(0x8000_000A, 0).edx & FLUSH_BY_ASID {
        0 => vmcb::TLB_FLUSH_ALL,
        _ => vmcb::TLB_FLUSH_GUEST,
    };
    vmcb.set(vmcb::ASID, vmcb.get(vmcb::ASID) as u32 as u64 | how);
}

/// x87, SSE and whatever XCR0 can name as after a reset; speculation control off.
///
/// # Safety
/// `zeros` are 4096 bytes of zeros; the extended state is the guest's.
unsafe fn fresh_extended_state(zeros: u64) {
    const OSFXSR: u64 = 1 << 9;
    const OSXSAVE: u64 = 1 << 18;
    static MXCSR_AT_RESET: u32 = 0x1F80;
    let xsave = cpuid(1, 0).ecx & 1 << 26 != 0;
    let bits = if xsave { OSFXSR | OSXSAVE } else { OSFXSR };
    // SAFETY: by the caller; each instruction where CPUID has it (APM 11.5.9: an
    // XSTATE_BV of 0 gives every component its initial value).
    unsafe {
        asm!("mov {t}, cr4", "or {t}, {bits}", "mov cr4, {t}", t = out(reg) _, bits = in(reg) bits, options(nostack, nomem));
        if xsave {
            let all = cpuid(0xD, 0);
            asm!("xsetbv", "xrstor [rdi]", in("rdi") zeros, in("ecx") 0, in("eax") all.eax, in("edx") all.edx, options(nostack));
            asm!("xsetbv", in("ecx") 0, in("eax") 1, in("edx") 0, options(nostack, nomem));
        } else {
            asm!("fxrstor [{}]", in(reg) zeros, options(nostack));
        }
        asm!("fninit", "ldmxcsr [{}]", in(reg) &raw const MXCSR_AT_RESET, options(nostack));
        const SPEC_CTRL: u32 = 1 << 14 | 1 << 15 | 1 << 24;
        if cpuid(0x8000_0008, 0).ebx & SPEC_CTRL != 0 {
            wrmsr(msr::SPEC_CTRL, 0);
        }
    }
}

/// Leaves a guest's exit code in the report.
pub fn leave(code: u32) {
    set!(exit_code, code);
}

/// Ends the guest's life in a state, and begins the next one, sooner or later.
pub fn end(core: Core, then: State) {
    if !core.is_first() {
        // The first core leads; this one waits for the next life's SIPI.
        ipi::signal(0, ipi::END | (then as u32) << ipi::END_STATE);
        return park(core, core.local().incarnation.get() * 2 + 1);
    }
    set!(violation_tsc, rdtsc());
    shared_of(0).life.fetch_add(1, Ordering::SeqCst);
    ipi::signal_each(core, To::Others, ipi::INIT);
    assemble(core);
    settle(core, then);
    launch(core);
}

/// How often the sandbox was restarted.
fn incarnation() -> u32 {
    shared_of(0).life.load(Ordering::Acquire).saturating_sub(1) / 2
}

/// Waits until every other core has parked and has seen that there is no life:
/// none leaves before the next one, whatever was signalled before. They are in
/// guests or in handlers that wait a millisecond at most, so this ends; if one failed, so has
/// the sandbox.
fn assemble(core: Core) {
    /// TSC ticks: half a second and more.
    const PATIENCE: u64 = 2_000_000_000;
    let (begin, seen) = (rdtsc(), shared_of(0).life.load(Ordering::Acquire) + 1);
    let absent = |index: u32| shared_of(index).parked.load(Ordering::Acquire) != seen;
    while (1..config().cores).any(absent) {
        if rdtsc().wrapping_sub(begin) > PATIENCE {
            fail(core);
        }
        ::core::hint::spin_loop();
    }
    (0..config().cores).for_each(|i| shared_of(i).signals.store(0, Ordering::Release));
    // The guest writes no more. What a doorbell still sends it goes with the rest below.
    mail::bury();
    link::end(core);
    // Not before: a core that still ran could have opened a line again. Now what a
    // line has left pending goes with the rest.
    ioapic::silence();
    // Also before the first life: the firmware has used devices. What they have
    // sent goes with the rest.
    if let Err(register) = pci::quiet() {
        record(core, Condition::DeviceRest, register, 0);
        fail(core);
    }
    quiet();
}

/// The sandbox cannot be started again.
fn fail(core: Core) -> ! {
    state(State::Failed);
    loop {
        nmi_sleep(&core.local().doorbell);
    }
}

/// Waits in `then` if that is not a launch, and looks for requests whose NMI
/// was taken on the way here: it will not come again.
fn settle(core: Core, mut then: State) {
    loop {
        if then != State::Launching {
            wait_for_start(core, then);
        }
        if !mail::stop_requested() {
            return;
        }
        then = State::Stopped;
    }
}

/// Sleeps in a state until a sandbox that may asks for a start.
fn wait_for_start(core: Core, in_state: State) {
    state(in_state);
    while !mail::start_requested() {
        core.local().doorbell.set(0);
        if mail::start_requested() {
            return;
        }
        nmi_sleep(&core.local().doorbell);
        link::look(core);
    }
}

/// Waits for a SIPI and makes the core ready for it. Not in the life `ended`, whose
/// end this core has asked for; 0 is none.
pub fn park(core: Core, ended: u32) {
    let (local, life) = (core.local(), &shared_of(0).life);
    quiet();
    let signals = loop {
        local.doorbell.set(0);
        link::look(core);
        let seen = life.load(Ordering::SeqCst);
        local.shared.parked.store(seen + 1, Ordering::SeqCst);
        // Without a life signals are the last one's, and the first core drops them.
        if seen % 2 != 0 && seen != ended {
            let signals = local.shared.signals.swap(0, Ordering::SeqCst);
            if signals & ipi::STARTUP != 0 {
                // What other cores sent to the parked one is not for the new life.
                quiet();
                // An NMI from here on stays pending until VMRUN; what came
                // before shows here.
                let init = local.shared.signals.load(Ordering::SeqCst) & ipi::INIT;
                if init == 0 && life.load(Ordering::SeqCst) == seen {
                    break signals;
                }
                continue;
            }
        }
        nmi_sleep(&local.doorbell);
    };
    // Some of it may have been let in with what was pending. From here on none is, before VMRUN.
    link::look(core);
    local.shared.parked.store(0, Ordering::Release);
    fresh_vmcb(core, slice(config().sipi_vmcb));
    let (vmcb, vector) = (core.vmcb(), u64::from(signals & 0xFF));
    let cs = vmcb.get(vmcb::CS) & !0xFFFF | vector << 8;
    vmcb.set(vmcb::CS, cs);
    vmcb.set(vmcb::CS + 8, vector << 12);
}

/// Silences this core's local APIC: no timer, no line, nothing pending, nothing
/// in service, the task priority open.
fn quiet() {
    // SAFETY: registers of this core's own APIC; what is accepted in the window
    // is dropped by the monitor's handler. CR8 = 0 opens the task priority.
    unsafe {
        for register in msr::X2APIC_LVT..=msr::X2APIC_LVT_LAST {
            wrmsr(register, icr::MASKED);
        }
        wrmsr(msr::X2APIC_TMICT, 0);
        wrmsr(msr::X2APIC_DCR, 0);
        wrmsr(msr::X2APIC_ESR, 0);
        wrmsr(msr::X2APIC_SVR, 0x1FF);
        asm!("mov cr8, {}", in(reg) 0u64, options(nostack, nomem));
        for _ in 0..256 {
            let busy = (0..8).any(|i| rdmsr(msr::X2APIC_ISR + i) != 0);
            if !busy {
                break;
            }
            wrmsr(msr::X2APIC_EOI, 0);
        }
    }
    drain_window();
    // SAFETY: as above: software-disabled, as after a reset.
    unsafe { wrmsr(msr::X2APIC_SVR, 0xFF) };
}

/// Sets the state where the host and other monitors look.
pub fn state(state: State) {
    set!(state_tsc, rdtsc());
    set!(state, state as u32);
    // SAFETY: the first core alone writes it; a core that has failed takes any value.
    let loaded = unsafe { read_volatile(addr_of_mut!((*report()).loaded)) };
    let status = state as u64 | u64::from(incarnation()) << 8 | u64::from(loaded) << 40;
    mailbox(config().sandbox).status.store(status, Ordering::Release);
}

/// The guest has booted on this core: exits count as steady after this one, which counts for `cause`. Once
/// a life, so that a guest cannot hide its exits.
pub fn steady(core: Core, cause: Cause) {
    let counters = core.counters();
    // SAFETY: this core's own counters.
    unsafe {
        let since = addr_of_mut!((*counters).steady_tsc);
        if read_volatile(since) == 0 {
            let exits = read_volatile(addr_of_mut!((*counters).exits));
            let mut boot = exits;
            boot[cause as usize] += 1;
            write_volatile(addr_of_mut!((*counters).boot_exits), boot);
            write_volatile(since, rdtsc());
        }
    }
}

const _: () = assert!(FRAME_FROM_TOP < CORE_STRIDE);
