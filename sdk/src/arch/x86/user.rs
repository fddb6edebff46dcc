//! A few instructions at CPL 3, for tests. Needs [`super::paging::map_everything`].

use super::fault::{self, Fault};
use super::percpu::{self, USER_CODE, USER_DATA};
use core::arch::{asm, global_asm};

unsafe extern "C" {
    static bulkhead_user_vmmcall: u8;
    static bulkhead_user_vmcall: u8;
    static bulkhead_user_cpuid: u8;
}

global_asm!(
    ".balign 16",
    ".global bulkhead_user_vmmcall",
    "bulkhead_user_vmmcall:",
    "vmmcall",
    "jmp 2f",
    ".global bulkhead_user_vmcall",
    "bulkhead_user_vmcall:",
    "vmcall",
    "2: mov [r12], rax",
    "int {back}",
    "ud2",
    ".global bulkhead_user_cpuid",
    "bulkhead_user_cpuid:",
    "mov ecx, edi",
    "cpuid",
    "mov [r12], eax",
    "mov [r12 + 4], ebx",
    "mov [r12 + 8], ecx",
    "mov [r12 + 12], edx",
    "int {back}",
    "ud2",
    back = const super::idt::RETURN,
);

/// A hypercall from CPL 3: its result, or the exception that it raised.
///
/// # Errors
/// The exception.
pub fn hypercall(number: u64, argument: u64) -> Result<u64, Fault> {
    let intel = bulkhead_guest::x86::is_intel();
    let code =
        if intel { &raw const bulkhead_user_vmcall } else { &raw const bulkhead_user_vmmcall };
    run(code, number, argument).map(|[low, _]| low)
}

/// CPUID at CPL 3.
///
/// # Errors
/// An exception.
pub fn cpuid(leaf: u32, sub: u32) -> Result<[u32; 4], Fault> {
    let [low, high] = run(&raw const bulkhead_user_cpuid, leaf.into(), sub.into())?;
    Ok([low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32])
}

/// Runs one of the pieces of code with RAX and RDI; the words that it leaves.
fn run(code: *const u8, number: u64, argument: u64) -> Result<[u64; 2], Fault> {
    let mut result = [0u64; 2];
    let cell = &raw mut result;
    // SAFETY: the own block's address.
    let stack = unsafe { (&raw const (*percpu::this()).stack) as u64 };
    // SAFETY: IRETQ enters the instructions above on this core's own tables. They write `result` and come back by an
    // interrupt, which `catch` turns into a return. The stack is not touched at CPL 3.
    let outcome = unsafe {
        fault::catch(|| -> () {
            asm!(
                "push {ss}",
                "push {stack}",
                "push 2",
                "push {cs}",
                "push {code}",
                "iretq",
                ss = in(reg) u64::from(USER_DATA),
                stack = in(reg) stack,
                cs = in(reg) u64::from(USER_CODE),
                code = in(reg) code,
                in("rax") number,
                in("rdi") argument,
                in("rsi") 0,
                in("r12") cell,
                options(noreturn),
            )
        })
    };
    match outcome {
        Err(fault) if fault::is_return(&fault) => Ok(result),
        Err(fault) => Err(fault),
        Ok(()) => Ok(result),
    }
}
