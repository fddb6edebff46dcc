//! Ways into the kernel and out of it.
//!
//! **In.** An interrupt or exception in user mode pushes its frame straight into the current thread's registers: the
//! task state segment's stack ends where they end. A SYSCALL saves the registers that it has to preserve there, too. It
//! finds the place without a free register, since the segment lies at a fixed address. An interrupt of the idle loop
//! saves nothing.
//!
//! **Out.** Whatever came in, the current thread goes on. A thread that came by SYSCALL goes by SYSRET with the
//! registers that a call preserves or answers. A thread that was interrupted goes by IRET with all.
//!
//! There is no SWAPGS. With it each entry would have to know if GS is the kernel's already, and an NMI between SYSCALL
//! and SWAPGS would not. One core needs no such pointer.

use crate::machine::X86Machine;
use crate::{BAKED, machine, start};
use bulkhead_cpu_x86::wrmsr;
use bulkhead_kernel::{Core, Exception, Interrupt, Kernel, Line, Machine, Notification, Ref, Wake};
use bulkhead_kernel_x86::{Baked, FIRST_LEVEL, SPURIOUS, TIMER, WINDOW, register, selector};
use bulkhead_layout::marker::{BEGIN, END, VALUE, encode, id};
use core::arch::{asm, global_asm};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

/// x2APIC: end of interrupt (APM volume 2, section 16.11).
const EOI: u32 = 0x80B;

/// Returns a marker's instruction.
const fn marker(code: u16) -> u64 {
    u64::from_le_bytes(encode(code))
}

/// The kernel's stack. One serves all threads: each entry is over before the next begins, at the top again.
#[repr(C, align(4096))]
pub struct Stack(core::cell::UnsafeCell<[u8; STACK]>);

/// Bytes of the kernel's stack.
pub const STACK: usize = 16 << 10;

// SAFETY: only RSP refers to it; Rust reads none of its bytes.
unsafe impl Sync for Stack {}

/// The kernel's stack, above a page that is not mapped: an overflow is an exception, not a write to the page below.
#[unsafe(link_section = ".stack")]
pub static STACK_OF_CORE: Stack = Stack(core::cell::UnsafeCell::new([0; STACK]));

/// Exceptions that push an error code (APM volume 2, section 8.2), as bits.
const WITH_ERROR: u64 = 1 << 8 | 0b11111 << 10 | 1 << 17 | 1 << 21 | 1 << 29 | 1 << 30;

/// Number of entries that lie before the code that they jump to: as many as there are exceptions. A short jump reaches
/// 128 bytes, and an entry with one has 4.
const GATES: u8 = FIRST_LEVEL;

/// Vectors that can come between any two instructions, also while RSP is a program's: between SYSCALL and the switch
/// of stacks, and before SYSRET. There, a frame would be a write of the kernel's to an address of the program's choice.
/// So each has a stack of its own (APM volume 2, section 8.9.4).
pub const APART: [u8; 3] = [NMI, DOUBLE_FAULT, MACHINE_CHECK];
const NMI: u8 = 2;
const DOUBLE_FAULT: u8 = 8;
const MACHINE_CHECK: u8 = 18;

/// A stack for a frame and the words that its entry pushes: no function is called on it.
#[repr(C, align(16))]
pub struct SmallStack(core::cell::UnsafeCell<[u64; 16]>);

// SAFETY: only RSP refers to it.
unsafe impl Sync for SmallStack {}

/// Stacks of the vectors [`APART`].
pub static STACKS_APART: [SmallStack; APART.len()] =
    [const { SmallStack(core::cell::UnsafeCell::new([0; 16])) }; APART.len()];

/// NMIs that came. The entry only counts: it can interrupt the kernel anywhere, so it may touch nothing else.
static NMIS: AtomicU64 = AtomicU64::new(0);
/// NMIs that the console has reported.
static NMIS_TOLD: AtomicU64 = AtomicU64::new(0);

// Labels of the assembly below. They are data to Rust, since only their addresses are used: no function has their form.
unsafe extern "C" {
    static kernel_exceptions: u8;
    static kernel_nmi: u8;
    static kernel_double_fault: u8;
    static kernel_machine_check: u8;
    static kernel_devices: u8;
    static kernel_more_devices: u8;
    static kernel_timer: u8;
    static kernel_spurious: u8;
}

/// Finds a vector's entry.
#[inline(always)]
pub fn gate(vector: u8) -> u64 {
    // Entries without work of their own lie side by side, 4 bytes each.
    let nth = |of: *const u8, first| of as u64 + 4 * u64::from(vector - first);
    match vector {
        NMI => &raw const kernel_nmi as u64,
        DOUBLE_FAULT => &raw const kernel_double_fault as u64,
        MACHINE_CHECK => &raw const kernel_machine_check as u64,
        TIMER => &raw const kernel_timer as u64,
        SPURIOUS => &raw const kernel_spurious as u64,
        0..GATES => nth(&raw const kernel_exceptions, 0),
        GATES..MORE => nth(&raw const kernel_devices, GATES),
        _ => nth(&raw const kernel_more_devices, MORE),
    }
}

/// First vector with its entry behind the code that it jumps to.
const MORE: u8 = 2 * GATES;

/// Returns a register's place, from the end of a thread's registers: near enough for short instructions.
const fn place(register: usize) -> i64 {
    8 * register as i64 - 8 * register::COUNT as i64
}

/// Returns a register's place, from the stack pointer, when the registers up to RSI are off the stack.
const fn left(register: usize) -> usize {
    8 * (register - register::RSI - 1)
}

global_asm!(
    // A thread's registers, in the order of `register`, below the frame that the processor has pushed.
    ".macro save_registers",
    "push rcx",
    "push r11",
    "push rsi",
    "push rdi",
    "push rax",
    "push r10",
    "push r9",
    "push r8",
    "push rdx",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    ".endm",
    // A marker, in the kernel that is measured; nothing in all others.
    ".macro mark code",
    ".if {marked}",
    ".quad \\code",
    ".endif",
    ".endm",
    // All in one section, so that short jumps reach.
    ".section .text.entry, \"ax\"",
    ".global kernel_call",
    "kernel_call:",
    // SYSCALL has switched interrupts off (SFMASK) and changed the privilege, but not the stack: RSP is still the
    // program's. RCX has its RIP, R11 its flags (APM volume 3, SYSCALL). Nothing may be pushed before RSP is the
    // kernel's.
    "mark {entered}",
    "mov [rip + {scratch}], rsp",
    // The first stack of the task state: the end of the current thread's registers.
    "mov rsp, [rip + {task} + 4]",
    "mov [rsp + {RIP}], rcx",
    "mov [rsp + {RFLAGS}], r11",
    "mov rcx, [rip + {scratch}]",
    "mov [rsp + {RSP}], rcx",
    // RCX and R11 were the call's to lose, so the thread can go out by SYSRET, which is shorter than IRET.
    "mov qword ptr [rsp + {ALL}], 0",
    "mov [rsp + {R15}], r15",
    "mov [rsp + {R15} + 8], r14",
    "mov [rsp + {R15} + 16], r13",
    "mov [rsp + {R15} + 24], r12",
    "mov [rsp + {RBP}], rbp",
    "mov [rsp + {RBX}], rbx",
    "mov [rsp + {RDX}], rdx",
    "mov [rsp + {RDX} + 8], r8",
    "mov [rsp + {RDX} + 16], r9",
    "mov [rsp + {RDX} + 24], r10",
    "mov [rsp + {RAX}], rax",
    "mov [rsp + {RDI}], rdi",
    "mov [rsp + {RSI}], rsi",
    // CS, SS and the error code stay as they were: the exit by IRET sets the first two, and nothing reads the third.
    "lea rsp, [rip + {stack} + {size}]",
    // A call, though nothing comes back: functions count the stack's alignment from a return address.
    "call {call}",
    ".global kernel_exit",
    "kernel_exit:",
    // The thread's registers are its first field, so the current thread's offset leads to them. RSP serves as pointer:
    // interrupts are off, and the vectors that come nevertheless have stacks of their own.
    "mov esp, [rip + {baked} + {current}]",
    "test esp, esp",
    "jz 2f",
    // The next entry from user mode pushes its frame where these registers end.
    "lea rax, [rsp + {window} + 8 * {count}]",
    "mov [rip + {task} + 4], rax",
    "lea rsp, [rsp + {window}]",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "pop rdx",
    "pop r8",
    "pop r9",
    "pop r10",
    "pop rax",
    "pop rdi",
    "pop rsi",
    // Not 0: the thread was interrupted, so RCX and R11 matter, and SYSRET would destroy them.
    "cmp qword ptr [rsp + {LEFT_ALL}], 0",
    "jne 3f",
    "mov rcx, [rsp + {LEFT_RIP}]",
    "mov r11, [rsp + {LEFT_RFLAGS}]",
    // From here to SYSRET RSP is the program's: see `APART`.
    "mov rsp, [rsp + {LEFT_RSP}]",
    "mark {left}",
    "mark {done}",
    // With an RIP that is not canonical, Intel's SYSRET faults at CPL 0 on the program's stack. RIP is canonical here:
    // programs end below `USER_END`, a page before the end of the lower half.
    "sysretq",
    // All registers, by IRET. Only a program's selectors are ever loaded, whatever stood there.
    "3:",
    "mov qword ptr [rsp + {LEFT_CS}], {user_code}",
    "mov qword ptr [rsp + {LEFT_SS}], {user_data}",
    "pop r11",
    "pop rcx",
    // Past the words without a register: `ALL` and the error code. Two more registers are off the stack by now.
    "lea rsp, [rsp + {LEFT_RIP} - 16]",
    "mark {left}",
    "mark {done}",
    "iretq",
    // No thread can run: the core sleeps until an interrupt. Its entry ends at `kernel_exit`, so this loop keeps
    // nothing.
    "2:",
    "lea rsp, [rip + {stack} + {size}]",
    "mark {left}",
    "mark {done}",
    // The thread that this wakes ends the span.
    "mark {asleep}",
    // STI lets interrupts in only after the next instruction: none comes between it and HLT, to be slept through.
    "sti",
    "hlt",
    "jmp 2b",

    // Entries of the interrupt descriptor table ([`gate`]), 4 bytes each, before the code that they jump to. Each
    // leaves its vector plus 1, which is not 0, since it becomes the register `ALL`. Where the processor pushes no
    // error code, the vector stands in its place, too, so that all frames have one form.
    ".global kernel_exceptions",
    "kernel_exceptions:",
    ".set vector, 0",
    ".rept {gates}",
    "push vector + 1",
    ".if ({with_error} >> vector) & 1",
    "jmp 4f",
    ".else",
    "jmp 3f",
    ".endif",
    ".set vector, vector + 1",
    ".endr",
    // No error code: the vector once more. With one, the entries come in behind this.
    "3:",
    "push [rsp]",
    "4:",
    "mark {entered}",
    // The frame's CS has CPL 0 if this interrupts the idle loop: there is nothing to save. Any other exception at CPL 0
    // is a failure of the kernel's.
    "test byte ptr [rsp + 24], 3",
    "jz 5f",
    "save_registers",
    // Arguments are read while RSP is the thread's registers; functions run on the kernel's stack.
    "mov edi, [rsp + {vector}]",
    "mov esi, [rsp + {error}]",
    "lea rsp, [rip + {stack} + {size}]",
    // A gate switches interrupts off and leaves a program's other flags. Two of them are not for the kernel. Compiled
    // code takes direction for clear, and alignment check would let the kernel reach user memory in spite of SMAP.
    "push 2",
    "popfq",
    "call {interrupted}",
    // The frame lies on the kernel's own stack, or on one apart. It is read and dropped: the way out begins anew.
    "5:",
    "mov edi, [rsp]",
    "mov rdx, [rsp + 16]",
    "mov esi, [rsp + 8]",
    "lea rsp, [rip + {stack} + {size}]",
    "call {idle}",
    // The timer has no object, so it goes with the exceptions.
    ".global kernel_timer",
    "kernel_timer:",
    "push {timer} + 1",
    "jmp 3b",
    // An NMI. No code here asks for one: the watchdog or the chipset sends it, or an operator. It is counted, and told
    // later. Until its IRET there is no second one (APM volume 2, section 8.2.3), so its stack is free.
    ".global kernel_nmi",
    "kernel_nmi:",
    "inc qword ptr [rip + {nmis}]",
    "iretq",
    // A double fault or a machine check is no program's doing, and has no way back: the kernel has failed, or its
    // machine.
    ".global kernel_double_fault",
    "kernel_double_fault:",
    "push {double_fault} + 1",
    "jmp 5b",
    ".global kernel_machine_check",
    "kernel_machine_check:",
    "push [rsp]",
    "push {machine_check} + 1",
    "jmp 5b",
    // A spurious interrupt: nothing came, and it takes no EOI (APM volume 2, section 16.4.7).
    ".global kernel_spurious",
    "kernel_spurious:",
    "iretq",

    // Devices' entries. One load leads from the vector to the interrupt's object, in the table that the host has baked.
    ".global kernel_devices",
    "kernel_devices:",
    ".rept {gates}",
    "push vector + 1",
    "jmp 6f",
    ".set vector, vector + 1",
    ".endr",
    "6:",
    "mark {device_came}",
    "mark {entered}",
    "mark {came}",
    // In the place of an error code, so that the frame has the exceptions' form.
    "push [rsp]",
    "test byte ptr [rsp + 24], 3",
    "jz 5b",
    "save_registers",
    "mov eax, [rsp + {vector}]",
    "mov edi, [{baked} + {interrupts} + 4 * rax - 4 * {first} - 4]",
    "lea rsp, [rip + {stack} + {size}]",
    "push 2",
    "popfq",
    "call {device}",
    "7:",
    "jmp 6b",
    ".global kernel_more_devices",
    "kernel_more_devices:",
    ".rept {timer} - {more}",
    "push vector + 1",
    "jmp 7b",
    ".set vector, vector + 1",
    ".endr",
    ".previous",
    marked = const cfg!(feature = "trace") as u8,
    entered = const marker(BEGIN | id::KERNEL_ENTRY),
    left = const marker(END | id::KERNEL_ENTRY),
    asleep = const marker(BEGIN | id::CHANNEL_WAKE),
    came = const marker(VALUE | id::KERNEL_INTERRUPT),
    device_came = const marker(BEGIN | id::KERNEL_DEVICE),
    done = const marker(END | id::KERNEL_DEVICE),
    scratch = sym SCRATCH,
    nmis = sym NMIS,
    double_fault = const DOUBLE_FAULT,
    machine_check = const MACHINE_CHECK,
    baked = sym BAKED,
    current = const offset_of!(Core, current),
    stack = sym STACK_OF_CORE,
    size = const STACK,
    task = sym start::TASK,
    call = sym called,
    interrupted = sym interrupted,
    idle = sym interrupted_idle,
    device = sym device,
    gates = const GATES,
    more = const MORE,
    timer = const TIMER,
    first = const FIRST_LEVEL,
    interrupts = const offset_of!(Baked, interrupts),
    with_error = const WITH_ERROR,
    vector = const 8 * register::ALL,
    error = const 8 * register::ERROR,
    user_code = const selector::USER_CODE,
    user_data = const selector::USER_DATA,
    window = const WINDOW as i64,
    count = const register::COUNT,
    R15 = const place(register::R15),
    RBP = const place(register::RBP),
    RBX = const place(register::RBX),
    RDX = const place(register::RDX),
    RAX = const place(register::RAX),
    RDI = const place(register::RDI),
    RSI = const place(register::RSI),
    ALL = const place(register::ALL),
    RIP = const place(register::RIP),
    RFLAGS = const place(register::RFLAGS),
    RSP = const place(register::RSP),
    LEFT_ALL = const left(register::ALL),
    LEFT_RIP = const left(register::RIP),
    LEFT_CS = const left(register::CS),
    LEFT_RFLAGS = const left(register::RFLAGS),
    LEFT_RSP = const left(register::RSP),
    LEFT_SS = const left(register::SS),
);

/// The program's RSP, until there is a register for it. One place is enough: no entry nests, and NMIs leave it alone.
static SCRATCH: AtomicU64 = AtomicU64::new(0);

/// The kernel. Its parts live as long as the entry.
macro_rules! kernel {
    () => {
        Kernel {
            // SAFETY: entries don't nest, and within one no reference to it is left when the next part asks.
            machine: unsafe { X86Machine::get() },
            // SAFETY: entries don't nest, and within one no reference to it is left when the next part asks.
            core: unsafe { &mut BAKED.get().core },
        }
    };
}

/// Goes to the exit, which begins with another stack: no caller's registers or frame are to be restored.
#[inline(always)]
fn leave() -> ! {
    // SAFETY: the kernel is done with this entry, and nothing on the stack is needed any more.
    unsafe { asm!("jmp kernel_exit", options(noreturn, nostack)) }
}

/// Handles a call of a program.
extern "C" fn called() -> ! {
    // The wake-up is left to the end, where nothing of the call is alive: no register has to be saved across it.
    match kernel!().called() {
        Some(Wake { at, bits }) => wake(at, bits),
        None => leave(),
    }
}

/// Handles an exception, or the timer's interrupt; `pushed` is the vector plus 1.
extern "C" fn interrupted(pushed: u32, error: u32) -> ! {
    if pushed == u32::from(TIMER) + 1 {
        end_of_interrupt();
        // Here, because the NMI's own entry may not print: it can interrupt the console's code.
        if NMIS.load(Ordering::Relaxed) != NMIS_TOLD.load(Ordering::Relaxed) {
            tell_nmis(false);
        }
        kernel!().timer();
    } else {
        // A program's exception is its handler's matter, or its own end, never the kernel's.
        exception(pushed.wrapping_sub(1) as u8, error);
    }
    leave()
}

/// Handles a device's interrupt; `at` is the offset of its object, or 0.
extern "C" fn device(at: u32) -> ! {
    let Some(at) = Ref::<Interrupt>::new(at).some() else {
        // No object: a vector that no program has. Without its end it would hold off all of its class and below.
        end_of_interrupt();
        leave()
    };
    let mut kernel = kernel!();
    // A level-triggered line's interrupt ends with its acknowledgement. An end now would let the line, which is still
    // asserted, interrupt again at once.
    if kernel.machine.get(at).rests == 0 {
        end_of_interrupt();
    }
    match kernel.interrupted(at) {
        Some(Wake { at, bits }) => wake(at, bits),
        None => leave(),
    }
}

/// Takes the last step of a call or an interrupt: one copy for both, since neither has anything to come back to.
#[inline(never)]
fn wake(at: Ref<Notification>, bits: u64) -> ! {
    kernel!().wake(Wake { at, bits });
    leave()
}

/// Handles a program's exception. It is apart so that interrupts do not pay for the registers that it saves.
#[inline(never)]
fn exception(number: u8, error: u32) {
    let error = error_of(number.into(), error);
    let address = if number == 14 { fault_address() } else { 0 };
    kernel!().exception(Exception { number, error, address });
}

/// Handles an interrupt of the idle loop, or an exception in the kernel; `pushed` is the vector plus 1.
extern "C" fn interrupted_idle(pushed: u32, error: u32, ip: u64) -> ! {
    match pushed.checked_sub(u32::from(FIRST_LEVEL) + 1) {
        // The idle loop raises none, so the kernel did.
        None => failed(pushed.wrapping_sub(1), error, ip),
        // SAFETY: entries don't nest, and this reads before the kernel is made.
        Some(n) => match unsafe { BAKED.get().interrupts.get(n as usize) } {
            Some(at) => device(*at),
            None => interrupted(pushed, error),
        },
    }
}

/// Returns the error code of an exception: 0 if it has none, since the vector was pushed in its place.
#[inline(never)]
fn error_of(vector: u32, pushed: u32) -> u32 {
    if WITH_ERROR >> vector & 1 != 0 { pushed } else { 0 }
}

/// Reports an exception of the kernel's own, as far as it can be told, and ends the sandbox.
#[inline(never)]
fn failed(vector: u32, error: u32, ip: u64) -> ! {
    let error = error_of(vector, error);
    let mut line = Line::default();
    line.decimal("kernel: exception ", vector.into()).hex(" (", error.into()).hex(") at ", ip);
    machine::print(line.end());
    machine::exit(crate::PANIC)
}

/// Reports the number of NMIs. Except at the end, it does so only when they are twice as many as reported before. A
/// storm of them is no reason to write for ever.
#[inline(never)]
pub fn tell_nmis(at_the_end: bool) {
    let (came, told) = (NMIS.load(Ordering::Relaxed), NMIS_TOLD.load(Ordering::Relaxed));
    if came == told || came < 2 * told && !at_the_end {
        return;
    }
    NMIS_TOLD.store(came, Ordering::Relaxed);
    machine::print(
        Line::default().decimal("kernel: NMIs that nobody here asked for: ", came).end(),
    );
}

/// Tells the local APIC that the interrupt in service is done: the one of the highest class, if there are two.
#[inline(always)]
pub fn end_of_interrupt() {
    // x2APIC takes 0 only: any other value is an exception (APM volume 2, section 16.11).
    // SAFETY: an interrupt is in service.
    unsafe { wrmsr(EOI, 0) }
}

/// Returns the address of a page fault. No other fault has come since: interrupts are off, and the kernel raises none.
fn fault_address() -> u64 {
    let address;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nostack, nomem, preserves_flags)) }
    address
}
