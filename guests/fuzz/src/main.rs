//! Executes what the test driver hands it, on all cores of its sandbox ([`fuzz_guest`]). What an operation raises is
//! caught; what it breaks, a restart mends.
//!
//! With `keeper` it starts and restarts others, as the driver says; its last command ends it.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_sdk::{Context, apic, cores, cpu, fault, hypercall, interrupt, paging, time};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use fuzz_guest::{
    BACK, CODE, CORES, Command, DONE, OPEN, OPS, OPS_COUNT, OPS_MOST, Op, READY, SNIPPET,
    SNIPPETS_MOST, STAGE, TAKEN, USER, WANTED,
};

bulkhead_sdk::entry!(guest);

const PATIENCE: u64 = 5_000_000;
/// Selectors of the SDK's segments at CPL 3.
const USER_DATA: u64 = 0x18 | 3;
const USER_CODE: u64 = 0x20 | 3;
/// RFLAGS at CPL 3: IOPL 3, so that the monitor decides on ports and not the processor.
const USER_FLAGS: u64 = 0x3002;

/// By core: number of the input that it works at, 0 if at none; and of the last one that it was through with.
static WORKS: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
static THROUGH: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// A word of the mail.
fn mail(at: u64) -> &'static AtomicU64 {
    // SAFETY: own RAM beyond the program, aligned; the driver writes it, too.
    unsafe { &*(at as *const AtomicU64) }
}

fn ignore(_: &mut interrupt::Frame, _: u64) {}

fn guest(context: Context) -> u32 {
    if context.arg("keeper").is_some() {
        return keep();
    }
    paging::map_everything();
    for vector in interrupt::FIRST..=u8::MAX {
        // The SDK's own, and the way back from CPL 3.
        if !matches!(vector, 0xEF | interrupt::SPURIOUS | 0x81) {
            interrupt::set(vector, ignore);
        }
    }
    interrupt::set(2, ignore);
    landing_places();
    mail(READY).store(context.incarnation() + 1, Ordering::SeqCst);
    loop {
        let wanted = wait_for_more(0);
        mend();
        stage();
        let cores = (mail(CORES).load(Ordering::Relaxed) as usize)
            .min(context.info().cores as usize)
            .min(WORKS.len());
        (1..cores).filter(|&core| !wakes(core, wanted)).for_each(|core| {
            let _ = cores::start(context, core, work);
        });
        take(0, wanted);
        let limit = time::tsc() + time::ticks(PATIENCE);
        let busy = |core: usize| WORKS[core].load(Ordering::Acquire) == wanted;
        while (1..cores).any(busy) && time::tsc() < limit {
            core::hint::spin_loop();
        }
        mail(DONE).store(wanted, Ordering::SeqCst);
    }
}

/// Makes this core's APIC one that takes the timer's interrupts again: without them no other core is started.
fn mend() {
    const ON: u64 = 1 << 8 | interrupt::SPURIOUS as u64;
    // SAFETY: the own core's registers, with interrupts off; nothing is in service here.
    unsafe {
        cpu::wrmsr(apic::SVR, ON);
        cpu::wrmsr(apic::TPR, 0);
        (0..16).for_each(|_| cpu::wrmsr(apic::EOI, 0));
    }
}

/// Whether a core that was started before has taken up an input: not if an operation has sent it away.
fn wakes(core: usize, wanted: u64) -> bool {
    if THROUGH[core].load(Ordering::Acquire) == 0 {
        return false;
    }
    let limit = time::tsc() + time::ticks(PATIENCE);
    while WORKS[core].load(Ordering::Acquire) != wanted
        && THROUGH[core].load(Ordering::Acquire) != wanted
    {
        if time::tsc() > limit {
            return false;
        }
        core::hint::spin_loop();
    }
    true
}

/// What other cores run.
fn work(_: Context, core: usize) {
    let mut last = THROUGH[core].load(Ordering::Relaxed);
    loop {
        last = match mail(WANTED).load(Ordering::Acquire) {
            wanted if wanted != last => {
                take(core, wanted);
                wanted
            }
            _ => {
                core::hint::spin_loop();
                last
            }
        };
        // One that comes up in the middle of an input is not late for it.
        THROUGH[core].store(last, Ordering::Release);
    }
}

/// Waits for another input than the last one, whose number it gives.
fn wait_for_more(core: usize) -> u64 {
    let last = THROUGH[core].load(Ordering::Relaxed);
    loop {
        let wanted = mail(WANTED).load(Ordering::Acquire);
        if wanted != last && wanted != 0 {
            return wanted;
        }
        core::hint::spin_loop();
    }
}

/// A core that a start-up interrupt sends to a page of low memory halts there.
fn landing_places() {
    const HALT: u32 = u32::from_le_bytes([0xFA, 0xF4, 0xEB, 0xFD]);
    for page in (0x1000..0x8000).chain(0x9000..0x9_F000).step_by(0x1000) {
        // SAFETY: own RAM that holds nothing.
        unsafe { (page as *mut u32).write_volatile(HALT) };
    }
}

/// Copies the snippets that have changed.
fn stage() {
    for at in (0..SNIPPET * SNIPPETS_MOST).step_by(8) {
        // SAFETY: own RAM beyond the program; no other core executes snippets now, or it finds either.
        unsafe {
            let new = ((STAGE + at) as *const u64).read_volatile();
            let place = (CODE + at) as *mut u64;
            if place.read_volatile() != new {
                place.write_volatile(new);
            }
        }
    }
}

/// Runs operations as long as there are any.
fn take(core: usize, wanted: u64) {
    WORKS[core].store(wanted, Ordering::Release);
    let count = mail(OPS_COUNT).load(Ordering::Relaxed).min(OPS_MOST);
    loop {
        let n = mail(TAKEN).fetch_add(1, Ordering::SeqCst);
        if n >= count {
            break;
        }
        // SAFETY: own RAM; the driver wrote it before it asked.
        let op = unsafe { ((OPS + n * size_of::<Op>() as u64) as *const Op).read_volatile() };
        run(op);
    }
    THROUGH[core].store(wanted, Ordering::Release);
    WORKS[core].store(0, Ordering::Release);
}

/// Runs one.
fn run(mut op: Op) {
    op.target = CODE + (op.how & 0xFFFF_FFFF) % SNIPPETS_MOST * SNIPPET;
    let user = op.how & USER != 0;
    // SAFETY: snippets leave RSP and R15 alone and end with `RETURN` or `BACK`; what else they change is their purpose,
    // and a restart undoes it.
    let _ = unsafe { fault::catch(|| if user { as_user(&op) } else { as_kernel(&op) }) };
    interrupt::disable();
    if op.how & OPEN != 0 {
        // SAFETY: as above; vectors that look like exceptions are caught. What they leave in service is ended.
        unsafe {
            let _ = fault::catch(|| asm!("sti", "nop", "nop", "cli"));
            interrupt::disable();
            cpu::wrmsr(apic::EOI, 0);
        }
    }
}

macro_rules! load_registers {
    ($($last:tt)*) => {
        concat!(
            ".set at, 8\n",
            ".irp register, rax, rcx, rdx, rbx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14\n",
            "mov \\register, [r15 + at]\n",
            ".set at, at + 8\n",
            ".endr\n",
            $($last)*
        )
    };
}

/// # Safety
/// See [`run`].
unsafe fn as_kernel(op: &Op) {
    // SAFETY: the caller's; RBX and RBP are restored.
    unsafe {
        asm!(
            "push rbx",
            "push rbp",
            load_registers!("call qword ptr [r15 + 120]\n"),
            "pop rbp",
            "pop rbx",
            "cld",
            inout("r15") core::ptr::from_ref(op) => _,
            out("rax") _, out("rcx") _, out("rdx") _, out("rsi") _, out("rdi") _,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _, out("r12") _, out("r13") _, out("r14") _,
        );
    }
}

/// # Safety
/// See [`run`]; comes back by an exception or by [`BACK`], which [`fault::catch`] takes for one.
unsafe fn as_user(op: &Op) {
    let _ = BACK;
    // SAFETY: the caller's; the stack is not touched at CPL 3.
    unsafe {
        asm!(
            "push {data}",
            "push 0x3ffff8",
            "push {flags}",
            "push {code}",
            "push [r15 + 120]",
            load_registers!("iretq\n"),
            data = const USER_DATA,
            flags = const USER_FLAGS,
            code = const USER_CODE,
            in("r15") core::ptr::from_ref(op),
            options(noreturn),
        );
    }
}

/// Carries out the driver's commands.
fn keep() -> u32 {
    let mut last = 0;
    mail(READY).store(1, Ordering::SeqCst);
    hypercall::ready();
    loop {
        let wanted = mail(WANTED).load(Ordering::Acquire);
        if wanted != last {
            let (what, to) = (
                mail(OPS_COUNT).load(Ordering::Relaxed),
                mail(CORES).load(Ordering::Relaxed) as u32,
            );
            const EXIT: u64 = Command::Exit as u64;
            const START: u64 = Command::Start as u64;
            match what {
                EXIT => return 0,
                START => hypercall::control(to, hypercall::CONTROL_START),
                _ => hypercall::control(to, hypercall::CONTROL_RESTART),
            };
            last = wanted;
            mail(DONE).store(wanted, Ordering::SeqCst);
        }
        time::sleep(1_000_000);
    }
}
