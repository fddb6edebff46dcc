//! Handlers of the monitor's own interrupts, and the code in which they are expected.

use core::cell::Cell;

unsafe extern "C" {
    /// Sleeps until the flag is set.
    pub safe fn nmi_sleep(flag: &Cell<u8>);
    /// Accepts pending interrupts.
    pub safe fn drain_window();
}

/// Lines of assembler that move registers between the processor and the frame at RSP, in the order of
/// [`crate::Frame`]. `load` and `save` are for the registers that functions may change, and `load` has RAX, too.
/// Registers that functions keep are `others`, and the caller says where `{others}` begin.
#[macro_export]
macro_rules! registers {
    (load) => {
        $crate::registers!(
            "mov \\register, [rsp + at]",
            "0",
            "rcx, rdx, rsi, rdi, r8, r9, r10, r11, rbx, rax"
        )
    };
    (save) => {
        $crate::registers!(
            "mov [rsp + at], \\register",
            "0",
            "rcx, rdx, rsi, rdi, r8, r9, r10, r11, rbx"
        )
    };
    (load others) => {
        $crate::registers!("mov \\register, [rsp + at]", "{others}", "rbp, r12, r13, r14, r15")
    };
    (save others) => {
        $crate::registers!("mov [rsp + at], \\register", "{others}", "rbp, r12, r13, r14, r15")
    };
    (clear others) => {
        $crate::registers!("xor \\register, \\register", "0", "rbp, r12, r13, r14, r15")
    };
    ($line:literal, $at:literal, $names:literal) => {
        concat!(
            ".set at, ",
            $at,
            "\n.irp register, ",
            $names,
            "\n",
            $line,
            "\n.set at, at + 8\n.endr"
        )
    };
}

/// The handlers, for a shell. `open` and `close` are instructions that let NMIs in and hold them back, empty where a
/// processor has none. `nmi` are further lines of the NMI's handler: RAX is the base of the core's stack, RIP is at
/// `[rsp + 8]`. `operands` are theirs. `fault` is the shell's function for exceptions in the monitor.
#[macro_export]
macro_rules! interrupts {
    (open: $open:literal, close: $close:literal, nmi: [$($nmi:literal),*], fault: $fault:path,
     $($operands:tt)*) => {
        ::core::arch::global_asm!(
            ".section .text.hot",
            // RDI = this core's flag. Sleep until it is set. An NMI between the test
            // and HLT would be slept over: the handler moves such a RIP past HLT.
            ".global nmi_sleep",
            "nmi_sleep:",
            $open,
            "nmi_test:",
            // The test stands behind the opening: an NMI from before has set the flag by then.
            "   cmp byte ptr [rdi], 0",
            "   jne nmi_slept",
            "   hlt",
            "nmi_slept:",
            $close,
            "   ret",

            // Accept whatever interrupts are pending for the guest that was.
            ".global drain_window",
            "drain_window:",
            $open,
            // STI holds interrupts off for one more instruction, so they come between the NOPs.
            "   sti",
            "   nop",
            "   nop",
            "   cli",
            $close,
            "   ret",
            "drain_end:",

            ".global monitor_nmi",
            // It comes at any instruction of the monitor. So it saves what it changes, calls nothing and takes no lock;
            // IRET brings the flags back.
            "monitor_nmi:",
            "   push rax",
            // The flag is the first byte of the core's state, at the base of its stack.
            "   mov rax, rsp",
            // No register of the interrupted code says which core this is, but stacks are aligned to their size.
            "   and rax, {stack_mask}",
            "   mov byte ptr [rax], 1",
            $($nmi,)*
            "   pop rax",
            // Interrupted between the test and the end of the sleep: HLT is not to begin any more.
            "   cmp qword ptr [rsp], offset nmi_test",
            "   jb 4f",
            "   cmp qword ptr [rsp], offset nmi_slept",
            "   jae 4f",
            "   mov qword ptr [rsp], offset nmi_slept",
            "4: iretq",

            // A vector that a former guest left behind: end it, forget it.
            ".global monitor_drain",
            "monitor_drain:",
            "   push rax",
            "   push rcx",
            "   push rdx",
            // EOI. The vector has no meaning here: the guest that it was for has ended.
            ".if {running}",
            // In the page, if this core is in xAPIC mode.
            "   mov ecx, {apic_base}",
            "   rdmsr",
            "   test eax, 1 << 10",
            "   jnz 7f",
            "   movabs rax, {eoi}",
            "   mov dword ptr [rax], 0",
            "   jmp 8f",
            "7:",
            ".endif",
            "   mov ecx, 0x80B",
            "   xor eax, eax",
            "   xor edx, edx",
            "   wrmsr",
            ".if {running}",
            "8:",
            ".endif",
            "   pop rdx",
            "   pop rcx",
            "   pop rax",
            "   iretq",

            // Vectors 0 to 15. In the window there is nothing but NOPs: it is an
            // interrupt that a guest sent itself, where its APIC allows such vectors.
            // Else an exception in the monitor itself: it stops here, with a record.
            ".global monitor_fault",
            "monitor_fault:",
            "   cmp qword ptr [rsp], offset drain_window",
            "   jb 5f",
            "   cmp qword ptr [rsp], offset drain_end",
            "   jb monitor_drain",
            // The ABI wants an aligned stack at a call; the processor's frame may end anywhere.
            "5: mov rdi, rsp",
            "   and rsp, -16",
            "   call {fault}",
            // For good: what the exception left half done may be anything. Other cores go on.
            "6: cli",
            "   hlt",
            "   jmp 6b",
            stack_mask = const -(::bulkhead_monitor_abi::map::CORE_STACK_SIZE as i64),
            fault = sym $fault,
            running = const cfg!(feature = "running") as u8,
            apic_base = const ::bulkhead_monitor_abi_x86::msr::APIC_BASE,
            eoi = const ($crate::EOI_AT as i64),
            $($operands)*
        );
    };
}
