//! The way back to the Linux that ran first. It stays in the start-up page, for a monitor that gives its core back.

use bulkhead_monitor_abi_x86::WAY_BACK;

core::arch::global_asm!(
    ".section .rodata",
    // RDI = physical address of the core's control block, RSI = the guest's CR3. This page and that block are mapped to
    // themselves by the guest's tables, too: its module has seen to that. GIF is clear.
    "late_back:",
    "   mov cr3, rsi",
    "   mov rax, [rdi + 0x548]", // CR4
    "   mov cr4, rax",
    "   mov rax, [rdi + 0x558]", // CR0
    "   mov cr0, rax",
    "   mov rax, [rdi + 0x640]", // CR2
    "   mov cr2, rax",
    "   mov rax, [rdi + 0x560]", // DR7
    "   mov dr7, rax",
    // The tables' limits and bases, side by side as the instructions want them. The end of the block is free.
    "   mov ax, [rdi + 0x464]",
    "   mov [rdi + 0xF06], ax",
    "   mov rax, [rdi + 0x468]",
    "   mov [rdi + 0xF08], rax",
    "   lgdt [rdi + 0xF06]",
    "   mov ax, [rdi + 0x484]",
    "   mov [rdi + 0xF16], ax",
    "   mov rax, [rdi + 0x488]",
    "   mov [rdi + 0xF18], rax",
    "   lidt [rdi + 0xF16]",
    "   mov ax, [rdi + 0x420]",
    "   mov ss, ax",
    "   mov ax, [rdi + 0x430]",
    "   mov ds, ax",
    "   mov ax, [rdi + 0x400]",
    "   mov es, ax",
    "   mov rsp, [rdi + 0x5D8]",
    "   push qword ptr [rdi + 0x570]", // RFLAGS, with interrupts off
    "   popfq",
    "   movzx eax, word ptr [rdi + 0x410]",
    "   push rax",
    // Behind the call.
    "   mov rax, [rdi + 0x578]",
    "   add rax, 3",
    "   push rax",
    // NMIs come from here on, to the Linux' own handler.
    "   stgi",
    "   xor eax, eax",
    "   retfq",
    "late_back_end:",
    ".section .text",
);

unsafe extern "C" {
    static late_back: u8;
    static late_back_end: u8;
}

/// Puts it into the page, behind the table of cores.
pub fn install() {
    // SAFETY: the page is the start-up code's, which no core is in yet. The place behind the slots is free.
    unsafe {
        let len = &raw const late_back_end as usize - &raw const late_back as usize;
        core::ptr::copy_nonoverlapping(&raw const late_back, WAY_BACK as *mut u8, len.min(256));
    }
}
