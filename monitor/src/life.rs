//! A sandbox's life: launch, end, restart, and the waiting in between. The
//! first core leads; the others wait parked until the guest starts them.

use crate::core::{Core, Local, config, local_of, mailbox, report, slice};
use crate::record::count;
use crate::vmrun::{FRAME_FROM_TOP, Frame, drain_window, nmi_sleep, nmi_window};
use crate::{ipi, mail};
use ::core::arch::asm;
use ::core::ptr::{addr_of_mut, read_volatile, write_volatile};
use ::core::sync::atomic::Ordering;
use bulkhead_arch::RecordMemory;
use bulkhead_arch_x86::{icr, msr, vmcb};
use bulkhead_cpu_x86::{cpuid, rdmsr, rdtsc, wrmsr};
use bulkhead_layout::map::{CORE_STRIDE, IDT_VA};
use bulkhead_layout::record::Op;
use bulkhead_layout::report::{Cause, State};

/// This sandbox's memory, as its launch record sees it.
struct Memory;

impl RecordMemory for Memory {
    fn zero(&mut self, dst: u64, len: u64) {
        // SAFETY: the record was baked for exactly the pages that the monitor's
        // tables map writable: the sandbox's RAM and this core's VMCB.
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
        // SAFETY: as above.
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

/// How often this sandbox was started before.
pub fn incarnation() -> u64 {
    local_of(0).incarnation.load(Ordering::Relaxed)
}

/// A core enters its monitor. Returns when its guest can run.
pub extern "C" fn start(frame: &'static Frame) {
    let core = Core { frame };
    // SAFETY: the monitor's IDT and its tables are what the host made; SVM,
    // no-execute and x2APIC were found by the boot code.
    unsafe {
        let idt: (u16, [u16; 4]) = (
            0xFFF,
            [
                IDT_VA as u16,
                (IDT_VA >> 16) as u16,
                (IDT_VA >> 32) as u16,
                (IDT_VA >> 48) as u16,
            ],
        );
        asm!("lidt [{}]", in(reg) &raw const idt, options(nostack, preserves_flags));
        const X2APIC: u64 = 0b11 << 10;
        wrmsr(msr::APIC_BASE, rdmsr(msr::APIC_BASE) | X2APIC);
        wrmsr(msr::EFER, rdmsr(msr::EFER) | vmcb::EFER_SVME | 1 << 11);
        asm!("clgi", options(nostack, nomem));
    }
    // SAFETY: x2APIC mode is on.
    let id = unsafe { rdmsr(msr::X2APIC_ID) } as u32;
    let local: &Local = core.local();
    local.features.set(cpuid(0x8000_000A, 0).edx);
    for (index, (&own, c)) in config()
        .apic_ids
        .iter()
        .zip(&config().core)
        .enumerate()
        .take(config().cores as usize)
    {
        if own == id {
            local.index.set(index as u32);
            frame.vmcb_pa.set(c.vmcb_pa);
            // SAFETY: a page that the host set aside for this core and nobody maps.
            unsafe { wrmsr(msr::VM_HSAVE_PA, c.hsave_pa) };
        }
    }
    if !core.is_first() {
        let _ = park(core);
        return;
    }
    quiet();
    let first = if config().autostart == 0 {
        State::Stopped
    } else {
        State::Launching
    };
    settle(core, first as u32);
    launch(core);
}

/// Plays the launch record: the guest is as at its first start.
fn launch(core: Core) {
    set!(begin_tsc, rdtsc());
    state(State::Launching as u32);
    bulkhead_launch::play(&mut Memory, slice::<Op>(config().launch), 0);
    set!(played_tsc, rdtsc());
    fresh_vmcb(core, slice(config().first_vmcb));
    core.frame.rsi.set(config().argument);
    core.frame.rdi.set(incarnation());
    // SAFETY: the report is this sandbox's own.
    unsafe {
        // The steady phase begins anew with the guest.
        write_volatile(addr_of_mut!((*report()).steady_tsc), 0);
    }
    state(State::Running as u32);
    set!(launch_tsc, rdtsc());
}

/// A core's VMCB as the record says, and the rest of a processor's state that
/// VMRUN does not load.
fn fresh_vmcb(core: Core, ops: &[Op]) {
    let base = ::core::ptr::from_ref(core.vmcb()) as u64;
    Memory.zero(base, 4096);
    bulkhead_launch::play(&mut Memory, ops, base);
    let (frame, vmcb) = (core.frame, core.vmcb());
    // Entries of a former life must not be used (APM 15.16.1).
    const FLUSH_BY_ASID: u32 = 1 << 6;
    if core.local().features.get() & FLUSH_BY_ASID != 0 {
        vmcb.set(
            vmcb::ASID,
            vmcb.get(vmcb::ASID) as u32 as u64 | vmcb::TLB_FLUSH_GUEST,
        );
    }
    for register in [
        &frame.rcx, &frame.rdx, &frame.rsi, &frame.rdi, &frame.r8, &frame.rbx,
    ] {
        register.set(0);
    }
    // SAFETY: registers of the guest that the monitor does not use: breakpoints,
    // extended state (XCR0 = x87, FPU reset), FS to TR by VMLOAD from this VMCB.
    unsafe {
        asm!("mov dr0, {0}", "mov dr1, {0}", "mov dr2, {0}", "mov dr3, {0}", in(reg) 0u64, options(nostack, nomem));
        asm!("fninit", options(nostack, nomem));
        if cpuid(1, 0).ecx & 1 << 26 != 0 {
            const OSXSAVE: u64 = 1 << 18;
            asm!("mov {t}, cr4", "or {t}, {bit}", "mov cr4, {t}", "xsetbv", t = out(reg) _, bit = const OSXSAVE,
                in("ecx") 0, in("eax") 1, in("edx") 0, options(nostack, nomem));
        }
        asm!("vmload rax", in("rax") frame.vmcb_pa.get(), options(nostack));
    }
}

/// Ends the guest and, sooner or later, starts it again. Always true.
pub fn end(core: Core, state: State, exit_code: u32) -> bool {
    if core.is_first() {
        set!(exit_code, exit_code);
        return end_first(core, state as u32);
    }
    // The first core leads; this one waits for the next life's SIPI.
    if state == State::Exited {
        set!(exit_code, exit_code);
    }
    ipi::signal(core, 0, ipi::END | (state as u32) << ipi::END_STATE);
    park(core)
}

/// [`end`] on the first core.
pub fn end_first(core: Core, then: u32) -> bool {
    set!(violation_tsc, rdtsc());
    ipi::each(|index, _| {
        if index != 0 {
            ipi::signal(core, index, ipi::INIT);
        }
    });
    // Each other core parks at its doorbell. They are in guests or in handlers
    // that do not wait, so this ends; it is bounded all the same.
    for _ in 0..PATIENCE {
        let mut all = true;
        ipi::each(|index, _| {
            all &= index == 0 || local_of(index).parked.load(Ordering::Acquire) != 0
        });
        if all {
            break;
        }
        ::core::hint::spin_loop();
    }
    quiet();
    // What they signalled before they parked was about the life that ends here.
    local_of(0).signals.store(0, Ordering::Relaxed);
    settle(core, then);
    let restarts = local_of(0).incarnation.fetch_add(1, Ordering::Relaxed) + 1;
    set!(restarts, restarts);
    launch(core);
    true
}

const PATIENCE: u32 = 10_000_000;

/// Waits in `then` if that is not a launch, and looks for requests whose NMI
/// was taken on the way here: it will not come again.
fn settle(core: Core, mut then: u32) {
    loop {
        if then != State::Launching as u32 {
            wait_for_start(core, then);
        }
        if !mail::stop_requested() {
            return;
        }
        then = State::Stopped as u32;
    }
}

/// Sleeps in a state until a sandbox that may asks for a start.
fn wait_for_start(core: Core, in_state: u32) {
    state(in_state);
    while !mail::start_requested() {
        core.local().doorbell.set(0);
        if mail::start_requested() {
            return;
        }
        nmi_sleep(&core.local().doorbell);
    }
}

/// Waits for a SIPI and makes the core ready for it. Always true.
pub fn park(core: Core) -> bool {
    let local = core.local();
    quiet();
    let signals = loop {
        local.parked.store(1, Ordering::Release);
        let signals = local.signals.swap(0, Ordering::AcqRel);
        if signals & ipi::STARTUP == 0 {
            nmi_sleep(&local.doorbell);
            local.doorbell.set(0);
            continue;
        }
        // Either the first core, which ends the sandbox, sees that this one
        // is on its way, or this one sees its INIT: the swap is a full fence.
        local.parked.swap(0, Ordering::SeqCst);
        if local.signals.load(Ordering::SeqCst) & ipi::INIT == 0 {
            break signals;
        }
    };
    // What other cores sent to the parked one is not for the new life.
    quiet();
    fresh_vmcb(core, slice(config().sipi_vmcb));
    let (vmcb, vector) = (core.vmcb(), u64::from(signals & 0xFF));
    let cs = vmcb.get(vmcb::CS) & !0xFFFF | vector << 8;
    vmcb.set(vmcb::CS, cs);
    vmcb.set(vmcb::CS + 8, vector << 12);
    true
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
fn state(state: u32) {
    set!(state_tsc, rdtsc());
    set!(state, state);
    let status = u64::from(state) | incarnation() << 8;
    mailbox(config().sandbox)
        .status
        .store(status, Ordering::Release);
}

/// The guest has booted: exits count as steady from here on.
pub fn steady(core: Core) {
    let counters = core.counters();
    // SAFETY: this core's counters; the report's field is written by the first core.
    unsafe {
        let exits = read_volatile(addr_of_mut!((*counters).exits));
        write_volatile(addr_of_mut!((*counters).boot_exits), exits);
        if core.is_first() {
            write_volatile(addr_of_mut!((*report()).steady_tsc), rdtsc());
        }
    }
}

/// A machine event that is not the guest's: SMI and INIT are taken by the host.
pub fn ignore(core: Core) -> bool {
    count(core, Cause::Other);
    nmi_window();
    false
}

const _: () = assert!(FRAME_FROM_TOP < CORE_STRIDE);
