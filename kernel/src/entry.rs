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
use bulkhead_kernel::{Core, Exception, Kernel, Line, Ref};
use bulkhead_kernel_x86::{
    DEVICE_VECTORS, FIRST_LEVEL, FIRST_VECTOR, SPURIOUS, TIMER, WINDOW, register, selector,
};
use core::arch::{asm, global_asm};
use core::mem::offset_of;

/// x2APIC: end of interrupt (APM volume 2, section 16.11).
const EOI: u32 = 0x80B;

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

/// A register's place from where a thread's registers end: near enough for short instructions.
const fn place(register: usize) -> i64 {
    8 * register as i64 - 8 * register::COUNT as i64
}

/// A register's place from the stack pointer when those up to RSI are off the stack.
const fn left(register: usize) -> usize {
    8 * (register - register::RSI - 1)
}

global_asm!(
    ".section .text.entry, \"ax\"",
    ".global kernel_call",
    "kernel_call:",
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
    "sysretq",
    // All registers.
    "3:",
    "mov qword ptr [rsp + {LEFT_CS}], {user_code}",
    "mov qword ptr [rsp + {LEFT_SS}], {user_data}",
    "pop r11",
    "pop rcx",
    "lea rsp, [rsp + {LEFT_RIP} - 16]",
    "iretq",
    // Nobody can run: until an interrupt, whose entry comes back here.
    "2:",
    "lea rsp, [rip + {stack} + {size}]",
    "sti",
    "hlt",
    "jmp 2b",

    // Entries of the interrupt descriptor table, 7 bytes each with the long form of the jump: those exceptions that have no error
    // code, and interrupts, have their vector in its place, too. Vectors above 127 would need another form.
    ".global kernel_vectors",
    "kernel_vectors:",
    ".set vector, 0",
    ".rept {vectors}",
    "push vector",
    ".byte 0xE9",
    // Shifts are by 6 bits.
    ".if vector < 64 && (({with_error} >> vector) & 1)",
    ".long 4f - . - 4",
    ".else",
    ".long 6f - . - 4",
    ".endif",
    ".set vector, vector + 1",
    ".endr",
    "6:",
    "push [rsp]",
    "4:",
    // From the idle loop there is nothing to save.
    "test byte ptr [rsp + 24], 3",
    "jz 5f",
    "push 1",
    "push 0",
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
    "mov edi, [rsp + {vector}]",
    "mov esi, [rsp + {error}]",
    "lea rsp, [rip + {stack} + {size}]",
    "cld",
    "call {interrupted}",
    "5:",
    "mov edi, [rsp]",
    "mov esi, [rsp + 8]",
    "mov rdx, [rsp + 16]",
    "cld",
    "lea rsp, [rip + {stack} + {size}]",
    "call {idle}",
    ".previous",
    scratch = sym SCRATCH,
    baked = sym BAKED,
    current = const offset_of!(Core, current),
    stack = sym STACK_OF_CORE,
    size = const STACK,
    task = sym start::TASK,
    call = sym called,
    interrupted = sym interrupted,
    idle = sym interrupted_idle,
    vectors = const bulkhead_kernel_x86::VECTORS,
    with_error = const WITH_ERROR,
    vector = const 8 * register::VECTOR,
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
static SCRATCH: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

/// The machine, as the start found it.
pub struct MachineCell(core::cell::UnsafeCell<X86Machine>);

// SAFETY: one core runs the kernel, and takes no interrupts in it.
unsafe impl Sync for MachineCell {}

/// See [`X86Machine`].
pub static MACHINE: MachineCell = MachineCell(core::cell::UnsafeCell::new(X86Machine {
    nanos: 0,
    ticks: 0,
    base: 0,
    window: 0,
    vectors: 0,
    xcr0: 0,
    #[cfg(feature = "trace")]
    trace: crate::trace::Trace::NONE,
}));

impl MachineCell {
    /// The machine.
    ///
    /// # Safety
    /// Nobody else has it: it is asked for once in each entry.
    #[inline(always)]
    pub unsafe fn get(&self) -> &'static mut X86Machine {
        // SAFETY: the caller's.
        unsafe { &mut *self.0.get() }
    }
}

#[inline(always)]
fn kernel() -> Kernel<'static, X86Machine> {
    // SAFETY: entries don't nest, and each asks once.
    unsafe { Kernel { machine: MACHINE.get(), core: &mut BAKED.get().core } }
}

/// Goes to the exit, which begins with another stack: nothing of the callers' is to be restored.
#[inline(always)]
fn leave() -> ! {
    // SAFETY: the kernel is done with this entry, and nothing on the stack is needed any more.
    unsafe { asm!("jmp kernel_exit", options(noreturn, nostack)) }
}

extern "C" fn called() -> ! {
    kernel().call();
    leave()
}

extern "C" fn interrupted(vector: u32, error: u32) -> ! {
    if vector == u32::from(TIMER) {
        end_of_interrupt();
        kernel().timer();
        leave()
    }
    if vector >= u32::from(FIRST_VECTOR) {
        if vector == u32::from(SPURIOUS) {
            leave()
        }
        end_of_interrupt();
    } else if vector < u32::from(FIRST_LEVEL) {
        exception(vector as u8, error);
        leave()
    }
    // What ends a level-triggered line's interrupt is its acknowledgement.
    interrupt(vector as u8);
    leave()
}

// Not where interrupts pay for its registers.
#[inline(never)]
fn exception(number: u8, error: u32) {
    let error = if WITH_ERROR >> number & 1 != 0 { error } else { 0 };
    let address = if number == 14 { fault_address() } else { 0 };
    kernel().exception(Exception { number, error, address });
}

extern "C" fn interrupted_idle(vector: u32, error: u32, ip: u64) -> ! {
    if vector < u32::from(FIRST_LEVEL) {
        failed(vector, error, ip);
    }
    interrupted(vector, error)
}

/// An exception of the kernel's own, as far as it can be told.
#[inline(never)]
fn failed(vector: u32, error: u32, ip: u64) -> ! {
    let mut line = Line::default();
    line.decimal("kernel: exception ", vector.into()).hex(" (", error.into()).hex(") at ", ip);
    machine::print(line.end());
    machine::exit(crate::PANIC)
}

/// The interrupt in service is done: the one of the highest class, if there are two.
#[inline(always)]
pub fn end_of_interrupt() {
    // SAFETY: an interrupt is in service.
    unsafe { wrmsr(EOI, 0) }
}

#[inline(always)]
fn interrupt(vector: u8) {
    // SAFETY: entries don't nest; read before the kernel is made.
    let at = unsafe { BAKED.get().interrupts[usize::from(vector - FIRST_LEVEL) % DEVICE_VECTORS] };
    if at != 0 {
        kernel().interrupt(Ref::new(at));
    }
}

fn fault_address() -> u64 {
    let address;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nostack, nomem, preserves_flags)) }
    address
}
