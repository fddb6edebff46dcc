//! Ways into the kernel and out of it.
//!
//! **In.** A SYSCALL saves what it has to preserve straight into the current thread's registers, which
//! the kernel finds without a free register: the offset of the current thread lies at a fixed place. An
//! interrupt or exception in user mode pushes its frame there, too: the task state segment's stack
//! ends where the thread's registers end. What comes from the idle loop needs no state.
//!
//! **Out.** Whatever came in, the current thread is who goes on. One that came by SYSCALL goes by
//! SYSRET with the registers that a call preserves or answers; one that was interrupted goes by IRET with all.

use crate::machine::X86Machine;
use crate::{BAKED, start};
use bulkhead_cpu_x86::wrmsr;
use bulkhead_kernel::{Core, Exception, Kernel, Ref};
use bulkhead_kernel_x86::{
    DEVICE_VECTORS, FIRST_VECTOR, SPURIOUS, TIMER, WINDOW, register, selector,
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

/// A register's place from the window's start, to be added to a thread's offset: a displacement.
const fn place(register: usize) -> i64 {
    WINDOW as i64 + 8 * register as i64
}

global_asm!(
    ".section .text.entry, \"ax\"",
    ".global kernel_call",
    "kernel_call:",
    "mov [rip + {scratch}], rsp",
    "mov esp, [rip + {baked} + {current}]",
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
    "lea rax, [rsp + {END}]",
    "mov [rip + {task} + 4], rax",
    "mov r15, [rsp + {R15}]",
    "mov r14, [rsp + {R15} + 8]",
    "mov r13, [rsp + {R15} + 16]",
    "mov r12, [rsp + {R15} + 24]",
    "mov rbp, [rsp + {RBP}]",
    "mov rbx, [rsp + {RBX}]",
    "mov rdx, [rsp + {RDX}]",
    "mov r8, [rsp + {RDX} + 8]",
    "mov r9, [rsp + {RDX} + 16]",
    "mov r10, [rsp + {RDX} + 24]",
    "mov rax, [rsp + {RAX}]",
    "mov rdi, [rsp + {RDI}]",
    "mov rsi, [rsp + {RSI}]",
    "cmp qword ptr [rsp + {ALL}], 0",
    "jne 3f",
    "mov rcx, [rsp + {RIP}]",
    "mov r11, [rsp + {RFLAGS}]",
    "mov rsp, [rsp + {RSP}]",
    "sysretq",
    // All registers.
    "3:",
    "mov r11, [rsp + {R11}]",
    "mov rcx, [rsp + {RCX}]",
    "mov qword ptr [rsp + {CS}], {user_code}",
    "mov qword ptr [rsp + {SS}], {user_data}",
    "lea rsp, [rsp + {RIP}]",
    "iretq",
    // Nobody can run: until an interrupt, whose entry comes back here.
    "2:",
    "lea rsp, [rip + {stack} + {size}]",
    "sti",
    "hlt",
    "jmp 2b",

    // Entries of the interrupt descriptor table, 16 bytes each: those exceptions that have no error
    // code, and interrupts, push a 0 instead. Vectors above 127 would need another form.
    ".balign 16",
    ".global kernel_vectors",
    "kernel_vectors:",
    ".set vector, 0",
    ".rept {vectors}",
    ".balign 16",
    ".if vector != 8 && (vector < 10 || vector > 14) && vector != 17 && vector != 21 && vector != 29 && vector != 30",
    "push 0",
    ".endif",
    "push vector",
    "jmp 4f",
    ".set vector, vector + 1",
    ".endr",
    ".balign 16",
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
    "jmp kernel_exit",
    "5:",
    "mov edi, [rsp]",
    "mov esi, [rsp + 8]",
    "mov rdx, [rsp + 16]",
    "cld",
    "lea rsp, [rip + {stack} + {size}]",
    "call {idle}",
    "jmp kernel_exit",
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
    vector = const 8 * register::VECTOR,
    error = const 8 * register::ERROR,
    user_code = const selector::USER_CODE,
    user_data = const selector::USER_DATA,
    R15 = const place(register::R15),
    RBP = const place(register::RBP),
    RBX = const place(register::RBX),
    RDX = const place(register::RDX),
    RAX = const place(register::RAX),
    RDI = const place(register::RDI),
    RSI = const place(register::RSI),
    R11 = const place(register::R11),
    RCX = const place(register::RCX),
    ALL = const place(register::ALL),
    RIP = const place(register::RIP),
    CS = const place(register::CS),
    RFLAGS = const place(register::RFLAGS),
    RSP = const place(register::RSP),
    SS = const place(register::SS),
    END = const place(register::COUNT),
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

/// Goes to the exit by itself, which begins with another stack: nothing of the caller's is to be restored.
extern "C" fn called() -> ! {
    kernel().call();
    // SAFETY: the kernel is done with this entry, and nothing on the stack is needed any more.
    unsafe { asm!("jmp kernel_exit", options(noreturn, nostack)) }
}

extern "C" fn interrupted(vector: u32, error: u32) {
    if vector < u32::from(FIRST_VECTOR) {
        exception(vector as u8, error);
    } else {
        interrupt(vector as u8);
    }
}

// Not where interrupts pay for its registers.
#[inline(never)]
fn exception(number: u8, error: u32) {
    let address = if number == 14 { fault_address() } else { 0 };
    kernel().exception(Exception { number, error, address });
}

extern "C" fn interrupted_idle(vector: u32, error: u32, ip: u64) {
    assert!(vector >= u32::from(FIRST_VECTOR), "exception {vector} ({error:#x}) at {ip:#x}");
    interrupt(vector as u8);
}

fn interrupt(vector: u8) {
    if vector == SPURIOUS {
        return;
    }
    // SAFETY: an interrupt is in service.
    unsafe { wrmsr(EOI, 0) }
    if vector == TIMER {
        return kernel().timer();
    }
    // SAFETY: entries don't nest; read before the kernel is made.
    let at = unsafe { BAKED.get().interrupts[usize::from(vector - FIRST_VECTOR) % DEVICE_VECTORS] };
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
