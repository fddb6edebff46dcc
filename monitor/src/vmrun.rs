//! The entry shell: a core's way into the monitor, into the guest and back, and
//! the handlers of the monitor's own interrupts.
//!
//! Between exits the registers that VMRUN does not switch (FS, GS, TR, LDTR,
//! KernelGSBase, STAR, SYSENTER, FPU) keep the guest's values: the monitor uses
//! none of them, so an exit needs no VMLOAD and no VMSAVE (APM 15.5.2;
//! docs/decisions/0010-no-vmload.md).

use bulkhead_resident::map::{CORE_STACK, CORE_STACK_SIZE, CORE_STRIDE};

/// Guest registers that a handler sees. RAX is in the VMCB; RBP and R12 to R15
/// stay in the processor across a handler, as the ABI promises.
#[repr(C)]
pub struct Frame {
    pub rcx: ::core::cell::Cell<u64>,
    pub rdx: ::core::cell::Cell<u64>,
    pub rsi: ::core::cell::Cell<u64>,
    pub rdi: ::core::cell::Cell<u64>,
    pub r8: ::core::cell::Cell<u64>,
    pub r9_to_r11: [::core::cell::Cell<u64>; 3],
    pub rbx: ::core::cell::Cell<u64>,
    /// Physical address of this core's VMCB.
    pub vmcb_pa: ::core::cell::Cell<u64>,
}

const _: () = assert!(size_of::<Frame>() == 80);

/// Distance of a frame from the end of its core's stack.
pub const FRAME_FROM_TOP: u64 = 96;

::core::arch::global_asm!(
    ".section .text.hot",
    ".global monitor_entry",
    // RSP = top of this core's stack. Entered by the start-up code, with
    // interrupts off and nothing else known.
    "monitor_entry:",
    "   cld",
    "   sub rsp, {frame}",
    "   mov rdi, rsp",
    "   call {start}",
    // A fresh guest sees no register of anybody's.
    "2: xor ebp, ebp",
    "   xor r12d, r12d",
    "   xor r13d, r13d",
    "   xor r14d, r14d",
    "   xor r15d, r15d",
    "3: mov rcx, [rsp]",
    "   mov rdx, [rsp + 8]",
    "   mov rsi, [rsp + 16]",
    "   mov rdi, [rsp + 24]",
    "   mov r8, [rsp + 32]",
    "   mov r9, [rsp + 40]",
    "   mov r10, [rsp + 48]",
    "   mov r11, [rsp + 56]",
    "   mov rbx, [rsp + 64]",
    "   mov rax, [rsp + 72]",
    "   vmrun rax",
    "   mov [rsp], rcx",
    "   mov [rsp + 8], rdx",
    "   mov [rsp + 16], rsi",
    "   mov [rsp + 24], rdi",
    "   mov [rsp + 32], r8",
    "   mov [rsp + 40], r9",
    "   mov [rsp + 48], r10",
    "   mov [rsp + 56], r11",
    "   mov [rsp + 64], rbx",
    "   mov rdi, rsp",
    "   call {handle}",
    "   test al, al",
    "   jz 3b",
    "   jmp 2b",

    // Let a pending NMI in once; its handler sets this core's flag.
    ".global nmi_window",
    "nmi_window:",
    "   stgi",
    "   nop",
    "   clgi",
    "   ret",

    // RDI = this core's flag. Sleep until it is set. An NMI between the test
    // and HLT would be slept over: the handler moves such a RIP past HLT.
    ".global nmi_sleep",
    "nmi_sleep:",
    "   stgi",
    "4: cmp byte ptr [rdi], 0",
    "   jne 5f",
    "   hlt",
    "5: clgi",
    "   ret",

    // Accept whatever interrupts are pending for the guest that was.
    ".global drain_window",
    "drain_window:",
    "   stgi",
    "   sti",
    "   nop",
    "   nop",
    "   cli",
    "   clgi",
    "   ret",
    "drain_end:",

    ".global monitor_nmi",
    "monitor_nmi:",
    "   push rax",
    "   mov rax, rsp",
    "   and rax, {stack_mask}",
    "   mov byte ptr [rax], 1",
    "   lea rax, [rip + 4b]",
    "   cmp [rsp + 8], rax",
    "   jb 6f",
    "   lea rax, [rip + 5b]",
    "   cmp [rsp + 8], rax",
    "   jae 6f",
    "   mov [rsp + 8], rax",
    "6: pop rax",
    "   iretq",

    // A vector that a former guest left behind: end it, forget it.
    ".global monitor_drain",
    "monitor_drain:",
    "   push rax",
    "   push rcx",
    "   push rdx",
    "   mov ecx, 0x80B",
    "   xor eax, eax",
    "   xor edx, edx",
    "   wrmsr",
    "   pop rdx",
    "   pop rcx",
    "   pop rax",
    "   iretq",

    // Vectors 0 to 15. In the window there is nothing but NOPs: it is an
    // interrupt that a guest sent itself, where its APIC allows such vectors.
    // Else an exception in the monitor itself: it stops here, with a record.
    ".global monitor_fault",
    "monitor_fault:",
    "   push rax",
    "   lea rax, [rip + drain_window]",
    "   cmp [rsp + 8], rax",
    "   jb 8f",
    "   lea rax, [rip + drain_end]",
    "   cmp [rsp + 8], rax",
    "   pop rax",
    "   jb monitor_drain",
    "   push rax",
    "8: pop rax",
    "   mov rdi, rsp",
    "   and rsp, -16",
    "   call {fault}",
    "7: cli",
    "   hlt",
    "   jmp 7b",
    frame = const FRAME_FROM_TOP,
    stack_mask = const -(CORE_STACK_SIZE as i64),
    start = sym crate::life::start,
    handle = sym crate::exit::handle,
    fault = sym crate::record::fault,
);

unsafe extern "C" {
    /// Lets a pending NMI in.
    pub safe fn nmi_window();
    /// Sleeps until the flag is set.
    pub safe fn nmi_sleep(flag: &::core::cell::Cell<u8>);
    /// Accepts pending interrupts.
    pub safe fn drain_window();
}

const _: () = assert!(CORE_STACK % CORE_STACK_SIZE == 0 && CORE_STRIDE % CORE_STACK_SIZE == 0);
