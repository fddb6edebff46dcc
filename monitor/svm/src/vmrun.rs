//! The entry shell: a core's way into the monitor, into the guest and back, and
//! the handlers of the monitor's own interrupts.
//!
//! VMRUN does not switch FS, GS, TR, LDTR, KernelGSBase, STAR, SYSENTER and the FPU: they keep the guest's values
//! during an exit. The monitor uses none of them, so an exit needs no VMLOAD and no VMSAVE (APM 15.5.2;
//! docs/decisions/0010-no-vmload.md).

use crate::svm::Frame;
use bulkhead_monitor_shell::{FRAME_FROM_TOP, registers};

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
    "2:",
    registers!(clear others),
    "3:",
    registers!(load),
    // It switches RAX, RSP, RIP and RFLAGS by the VMCB. An exit goes on behind it.
    "   vmrun rax",
    registers!(save),
    "   mov rdi, rsp",
    "   call {handle}",
    // AL is a `Next`: 0 goes on, a number above 0 begins a life, one below 0 is a memory access.
    "   test al, al",
    "   jz 3b",
    "   jns 2b",
    // A memory access: its handler sees all registers.
    registers!(save others),
    "   mov rdi, rsp",
    "   call {memory}",
    // Loaded again: the decoded instruction may have had one of them as its destination.
    registers!(load others),
    "   test al, al",
    "   jz 3b",
    "   jmp 2b",

    // Let a pending NMI in once; its handler sets this core's flag.
    ".global nmi_window",
    "nmi_window:",
    // An NMI that came meanwhile arrives at the NOP.
    "   stgi",
    "   nop",
    "   clgi",
    "   ret",
    frame = const FRAME_FROM_TOP,
    start = sym crate::exit::start,
    others = const ::core::mem::offset_of!(Frame, others),
    memory = sym crate::exit::memory,
    handle = sym crate::exit::handle,
);

bulkhead_monitor_shell::interrupts!(
    open: "   stgi", close: "   clgi", nmi: [], fault: crate::exit::fault,
);

unsafe extern "C" {
    /// Lets a pending NMI in.
    pub safe fn nmi_window();
}
