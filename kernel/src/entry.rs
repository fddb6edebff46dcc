//! Ways into the kernel and out of it.
//!
//! **In.** An interrupt or exception in user mode pushes its frame straight into the current thread's registers: the
//! task state segment's stack ends where they end. A SYSCALL saves what it has to preserve there, too, and
//! finds them without a free register: the segment lies at a fixed place. What comes from the idle loop needs no state.
//!
//! **Out.** Whatever came in, the current thread is who goes on. One that came by SYSCALL goes by
//! SYSRET with the registers that a call preserves or answers; one that was interrupted goes by IRET with all.

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

/// A marker's instruction.
const fn marker(code: u16) -> u64 {
    u64::from_le_bytes(encode(code))
}

/// What is on the kernel's stack's top when no thread runs.
#[repr(C, align(4096))]
pub struct Stack(core::cell::UnsafeCell<[u8; STACK]>);

/// Bytes of the kernel's stack.
pub const STACK: usize = 16 << 10;

// SAFETY: only RSP refers to it.
unsafe impl Sync for Stack {}

/// The kernel's stack, above a page that is not mapped.
#[unsafe(link_section = ".stack")]
pub static STACK_OF_CORE: Stack = Stack(core::cell::UnsafeCell::new([0; STACK]));

/// Exceptions that push an error code (APM volume 2, section 8.2), as bits.
const WITH_ERROR: u64 = 1 << 8 | 0b11111 << 10 | 1 << 17 | 1 << 21 | 1 << 29 | 1 << 30;

/// How many entries of the descriptor table lie before what they jump to: as many as there are exceptions.
const GATES: u8 = FIRST_LEVEL;

/// Vectors that can come between any two instructions, also where RSP is still, or again, a program's: between
/// SYSCALL and the switch of stacks, and before SYSRET. Pushed there, a frame would be a write of the kernel's to
/// where the program says. Each has a stack of its own (APM volume 2, section 8.9.4).
pub const APART: [u8; 3] = [NMI, DOUBLE_FAULT, MACHINE_CHECK];
const NMI: u8 = 2;
const DOUBLE_FAULT: u8 = 8;
const MACHINE_CHECK: u8 = 18;

/// A stack for a frame, and what its entry pushes: no function is called on it.
#[repr(C, align(16))]
pub struct SmallStack(core::cell::UnsafeCell<[u64; 16]>);

// SAFETY: only RSP refers to it.
unsafe impl Sync for SmallStack {}

/// Those of [`APART`].
pub static STACKS_APART: [SmallStack; APART.len()] =
    [const { SmallStack(core::cell::UnsafeCell::new([0; 16])) }; APART.len()];

/// NMIs that came.
static NMIS: AtomicU64 = AtomicU64::new(0);
/// Those that the console knows of.
static NMIS_TOLD: AtomicU64 = AtomicU64::new(0);

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

/// Where a vector's entry lies.
#[inline(always)]
pub fn gate(vector: u8) -> u64 {
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

/// From where on devices' entries lie behind what they jump to.
const MORE: u8 = 2 * GATES;

/// A register's place from where a thread's registers end: near enough for short instructions.
const fn place(register: usize) -> i64 {
    8 * register as i64 - 8 * register::COUNT as i64
}

/// A register's place from the stack pointer when those up to RSI are off the stack.
const fn left(register: usize) -> usize {
    8 * (register - register::RSI - 1)
}

global_asm!(
    // What a thread has, in the order of its `Registers`.
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
    // Nothing but in a kernel that is measured.
    ".macro mark code",
    ".if {marked}",
    ".quad \\code",
    ".endif",
    ".endm",
    ".section .text.entry, \"ax\"",
    ".global kernel_call",
    "kernel_call:",
    "mark {entered}",
    "mov [rip + {scratch}], rsp",
    "mov rsp, [rip + {task} + 4]",
    "mov [rsp + {RIP}], rcx",
    "mov [rsp + {RFLAGS}], r11",
    "mov rcx, [rip + {scratch}]",
    "mov [rsp + {RSP}], rcx",
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
    "lea rsp, [rip + {stack} + {size}]",
    "call {call}",
    ".global kernel_exit",
    "kernel_exit:",
    "mov esp, [rip + {baked} + {current}]",
    "test esp, esp",
    "jz 2f",
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
    "cmp qword ptr [rsp + {LEFT_ALL}], 0",
    "jne 3f",
    "mov rcx, [rsp + {LEFT_RIP}]",
    "mov r11, [rsp + {LEFT_RFLAGS}]",
    "mov rsp, [rsp + {LEFT_RSP}]",
    "mark {left}",
    "mark {done}",
    "sysretq",
    // All registers.
    "3:",
    "mov qword ptr [rsp + {LEFT_CS}], {user_code}",
    "mov qword ptr [rsp + {LEFT_SS}], {user_data}",
    "pop r11",
    "pop rcx",
    "lea rsp, [rsp + {LEFT_RIP} - 16]",
    "mark {left}",
    "mark {done}",
    "iretq",
    // Nobody can run: until an interrupt, whose entry comes back here.
    "2:",
    "lea rsp, [rip + {stack} + {size}]",
    "mark {left}",
    "mark {done}",
    // Whom this wakes ends it.
    "mark {asleep}",
    "sti",
    "hlt",
    "jmp 2b",

    // Entries of the interrupt descriptor table ([`gate`]), 4 bytes each: as many as reach what they jump to lie before
    // it. Each leaves its vector plus 1, which is not 0; where the processor pushes no error code, in its place, too.
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
    "3:",
    "push [rsp]",
    "4:",
    "mark {entered}",
    // From the idle loop there is nothing to save.
    "test byte ptr [rsp + 24], 3",
    "jz 5f",
    "save_registers",
    "mov edi, [rsp + {vector}]",
    "mov esi, [rsp + {error}]",
    "lea rsp, [rip + {stack} + {size}]",
    // What a program leaves in the flags is not for the kernel: direction; alignment check, which would let it
    // reach user memory.
    "push 2",
    "popfq",
    "call {interrupted}",
    "5:",
    "mov edi, [rsp]",
    "mov rdx, [rsp + 16]",
    "mov esi, [rsp + 8]",
    "lea rsp, [rip + {stack} + {size}]",
    "call {idle}",
    ".global kernel_timer",
    "kernel_timer:",
    "push {timer} + 1",
    "jmp 3b",
    // Nobody here asks for one: the watchdog or the chipset does, or an operator. It is counted, and told later. Until
    // its IRET there is no second one (APM volume 2, section 8.2.3), so its stack is free.
    ".global kernel_nmi",
    "kernel_nmi:",
    "inc qword ptr [rip + {nmis}]",
    "iretq",
    // Neither is a program's doing, nor is there a way back: the kernel has failed, or its machine.
    ".global kernel_double_fault",
    "kernel_double_fault:",
    "push {double_fault} + 1",
    "jmp 5b",
    ".global kernel_machine_check",
    "kernel_machine_check:",
    "push [rsp]",
    "push {machine_check} + 1",
    "jmp 5b",
    // Nothing came.
    ".global kernel_spurious",
    "kernel_spurious:",
    "iretq",

    // Devices. The same, but that their objects are found here.
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

/// Where RSP waits until there is a register for it.
static SCRATCH: AtomicU64 = AtomicU64::new(0);

/// The kernel, whose parts live as long as the entry.
macro_rules! kernel {
    () => {
        Kernel {
            // SAFETY: entries don't nest, and within one nobody has it any more when the next part asks.
            machine: unsafe { X86Machine::get() },
            // SAFETY: as above.
            core: unsafe { &mut BAKED.get().core },
        }
    };
}

/// Goes to the exit, which begins with another stack: nothing of the callers' is to be restored.
#[inline(always)]
fn leave() -> ! {
    // SAFETY: the kernel is done with this entry, and nothing on the stack is needed any more.
    unsafe { asm!("jmp kernel_exit", options(noreturn, nostack)) }
}

extern "C" fn called() -> ! {
    match kernel!().called() {
        Some(Wake { at, bits }) => wake(at, bits),
        None => leave(),
    }
}

/// An exception, or the timer's interrupt; `pushed` is the vector plus 1.
extern "C" fn interrupted(pushed: u32, error: u32) -> ! {
    if pushed == u32::from(TIMER) + 1 {
        end_of_interrupt();
        if NMIS.load(Ordering::Relaxed) != NMIS_TOLD.load(Ordering::Relaxed) {
            tell_nmis(false);
        }
        kernel!().timer();
    } else {
        exception(pushed.wrapping_sub(1) as u8, error);
    }
    leave()
}

/// A device's interrupt: the offset of its object, or 0.
extern "C" fn device(at: u32) -> ! {
    let Some(at) = Ref::<Interrupt>::new(at).some() else {
        end_of_interrupt();
        leave()
    };
    let mut kernel = kernel!();
    // What ends a level-triggered line's interrupt is its acknowledgement.
    if kernel.machine.get(at).rests == 0 {
        end_of_interrupt();
    }
    match kernel.interrupted(at) {
        Some(Wake { at, bits }) => wake(at, bits),
        None => leave(),
    }
}

// Where a call and an interrupt meet, with nothing of theirs to come back to.
#[inline(never)]
fn wake(at: Ref<Notification>, bits: u64) -> ! {
    kernel!().wake(Wake { at, bits });
    leave()
}

// Not where interrupts pay for its registers.
#[inline(never)]
fn exception(number: u8, error: u32) {
    let error = error_of(number.into(), error);
    let address = if number == 14 { fault_address() } else { 0 };
    kernel!().exception(Exception { number, error, address });
}

extern "C" fn interrupted_idle(pushed: u32, error: u32, ip: u64) -> ! {
    match pushed.checked_sub(u32::from(FIRST_LEVEL) + 1) {
        None => failed(pushed.wrapping_sub(1), error, ip),
        // SAFETY: entries don't nest; read before the kernel is made.
        Some(n) => match unsafe { BAKED.get().interrupts.get(n as usize) } {
            Some(at) => device(*at),
            None => interrupted(pushed, error),
        },
    }
}

/// What an exception has as its error code: 0 if it has none, in whose place something else was pushed.
#[inline(never)]
fn error_of(vector: u32, pushed: u32) -> u32 {
    if WITH_ERROR >> vector & 1 != 0 { pushed } else { 0 }
}

/// An exception of the kernel's own, as far as it can be told.
#[inline(never)]
fn failed(vector: u32, error: u32, ip: u64) -> ! {
    let error = error_of(vector, error);
    let mut line = Line::default();
    line.decimal("kernel: exception ", vector.into()).hex(" (", error.into()).hex(") at ", ip);
    machine::print(line.end());
    machine::exit(crate::PANIC)
}

/// Says how many NMIs came; but at the end, only when they are twice as many as said before: a storm of them is no
/// reason to write for ever.
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

/// The interrupt in service is done: the one of the highest class, if there are two.
#[inline(always)]
pub fn end_of_interrupt() {
    // SAFETY: an interrupt is in service.
    unsafe { wrmsr(EOI, 0) }
}

fn fault_address() -> u64 {
    let address;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nostack, nomem, preserves_flags)) }
    address
}
