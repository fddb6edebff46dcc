//! Single instructions: those of the kernel's, accesses to memory outside of the program's, and calls with hostile
//! registers.

use super::Attack;
use bulkhead_program::Program;
use hostile_programs::HARMLESS;

/// An attack of instructions. It may do what it likes to registers, but has to leave the stack as it was.
macro_rules! run {
    ($($line:literal)*) => {{
        fn run(_: Program) -> u64 {
            // SAFETY: whatever happens to this program is the point; it shares nothing with others but the board.
            unsafe {
                core::arch::asm!(
                    "push rbx", "push rbp", $($line,)* "pop rbp", "pop rbx",
                    out("r12") _, out("r13") _, out("r14") _, out("r15") _, clobber_abi("sysv64"),
                );
            }
            HARMLESS
        }
        run
    }};
}

pub const KERNELS: [Attack; 42] = [
    run!("cli"),
    run!("hlt"),
    run!("in al, 0x80"),
    run!("out 0x80, al"),
    run!("sub rsp, 16" "lgdt [rsp]" "add rsp, 16"),
    run!("sub rsp, 16" "sgdt [rsp]" "add rsp, 16"),
    run!("mov eax, 0x28" "ltr ax"),
    run!("xor eax, eax" "mov cr3, rax"),
    run!("xor eax, eax" "mov dr7, rax"),
    // EFER.
    run!("mov ecx, 0xC0000080" "xor eax, eax" "xor edx, edx" "wrmsr"),
    run!("mov ecx, 0xC0000080" "rdmsr"),
    run!("swapgs"),
    run!("invlpg [rsp]"),
    run!("wbinvd"),
    run!("clts"),
    run!("xor ecx, ecx" "mov eax, 7" "xor edx, edx" "xsetbv"),
    run!("mov eax, 0x1000" "vmrun rax"),
    // Whatever number of the monitor's calls it is: none is a program's.
    run!("xor eax, eax" "2:" "push rax" "xor ebx, ebx" "xor ecx, ecx" "xor edx, edx" "vmmcall" "pop rax" "inc eax" "cmp eax, 64" "jne 2b"),
    run!("sysenter"),
    run!("sysretq"),
    run!("int 0x80"),
    run!("int3"),
    run!(".byte 0xF1"),
    run!("mov eax, 0x10" "mov ds, eax"),
    run!("mov rax, rsp" "push 0x10" "push rax" "pushfq" "push 0x08" "lea rax, [rip + 2f]" "push rax" "iretq" "2:"),
    run!("xor edx, edx" "xor eax, eax" "xor ecx, ecx" "div ecx"),
    run!("fninit"),
    run!("xorps xmm0, xmm0"),
    // Other ways to vector registers, above all those that would store their contents. XSAVE, where QEMU differs from
    // processors, is tried by `programs/vectors`.
    run!("sub rsp, 1024" "and rsp, -64" "fxsave [rsp]"),
    run!("stmxcsr [rsp - 8]"),
    run!("vmovups [rsp - 64], ymm0"),
    run!("movq [rsp - 8], mm0"),
    run!("wait"),
    // Neither has to do with them: a store of a general register, and which there are.
    run!("mov rax, rsp" "sub rax, 64" "movnti [rax], rbx" "xor ecx, ecx" "xgetbv"),
    // Counters, and an access that crosses a cache line. The emulated processor lacks RDPRU; nothing stops the access.
    run!("xor ecx, ecx" "rdpmc"),
    run!("xor ecx, ecx" ".byte 0x0F, 0x01, 0xFD"),
    run!("lea rax, [rsp - 192]" "and rax, -64" "lock inc dword ptr [rax + 62]"),
    // POPF leaves the flags as they were that it may not change.
    run!("pushfq" "pop rax" "mov rbx, rax" "btr rax, 9" "or rax, 0x3000" "push rax" "popfq" "pushfq" "pop rax" "xor rax, rbx" "test eax, 0x3200" "jz 2f" "ud2" "2:"),
    // Kept until the budget has ended some times, if it can be written at all.
    run!("mov eax, 0x12345678" "wrfsbase rax" "2:" "jmp 2b"),
    run!("mov eax, 0x12345678" "wrgsbase rax" "2:" "jmp 2b"),
    run!("rdgsbase rax"),
    selectors,
];

/// All selectors that a program can load: null in four ways, its data and its code.
const SELECTORS: [u16; 12] = [0, 1, 2, 3, 0x18, 0x19, 0x1A, 0x1B, 0x20, 0x21, 0x22, 0x23];

/// Each of them in each register, for ever.
fn selectors(_: Program) -> u64 {
    for n in 0.. {
        let one = |by: usize| SELECTORS[(n * by + by) % SELECTORS.len()];
        // SAFETY: nothing in the program goes through these registers.
        unsafe {
            core::arch::asm!(
                "mov ds, {:x}", "mov es, {:x}", "mov fs, {:x}", "mov gs, {:x}", "mov {}, 500", "2:", "dec {4}", "jnz 2b",
                in(reg) one(1), in(reg) one(5), in(reg) one(7), in(reg) one(11), out(reg) _,
                options(nostack, nomem)
            );
        }
    }
    HARMLESS
}

pub const MEMORY: [Attack; 12] = [
    run!("mov rax, 0xFFFFFFFF80200000" "mov rax, [rax]"),
    run!("mov rax, 0xFFFFFFFF80400000" "mov [rax], rax"),
    run!("mov rax, 0xFFFFFFFF80200000" "call rax"),
    run!("xor eax, eax" "mov rax, [rax]"),
    run!("lea rax, [rip]" "mov [rax], eax"),
    // `ret`.
    run!("mov byte ptr [rsp - 64], 0xC3" "lea rax, [rsp - 64]" "call rax"),
    // Where every program sees it: `abi::at::CLOCK`.
    run!("mov eax, 0x101000" "mov [rax], rax"),
    run!("mov rax, 0x0000800000000000" "mov [rax], rax"),
    run!("mov rax, 0x0000800000000000" "push rax" "ret"),
    run!("2:" "push rax" "jmp 2b"),
    run!("mov rax, rsp" "mov rsp, 0xFFFFFFFF80400000" "push rax" "mov rsp, rax"),
    run!("mov rax, rsp" "mov rsp, 0x0000800000000000" "push rax" "mov rsp, rax"),
];

/// A poll of an absent object, by a call without number: refused, whatever registers and flags are like.
pub const ENTRIES: [Attack; 6] = [
    run!("mov r12, rsp" "mov rsp, 0xFFFFFFFF80400000" "mov eax, 99" "syscall" "mov rsp, r12"),
    run!("std" "mov eax, 99" "syscall" "cld"),
    run!("pushfq" "or qword ptr [rsp], 0x100" "popfq" "mov eax, 99" "syscall"),
    run!("pushfq" "or qword ptr [rsp], 0x4000" "popfq" "mov eax, 99" "syscall" "pushfq" "and qword ptr [rsp], ~0x4000" "popfq"),
    run!("pushfq" "or qword ptr [rsp], 0x40000" "popfq" "mov eax, 99" "syscall" "pushfq" "and qword ptr [rsp], ~0x40000" "popfq"),
    run!("mov r12, rsp" "xor esp, esp" "mov eax, 99" "syscall" "mov rsp, r12"),
];
