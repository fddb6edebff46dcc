//! The entry shell: a core's way into the monitor, into the guest and back.
//!
//! # The doorbell
//!
//! An NMI is a doorbell. VT-x has nothing like SVM's GIF: an NMI comes at each instruction of the monitor that is not
//! behind another NMI. Its handler sets the core's flag. `entry_look` tests the flag, and `entry_rung` looks at the
//! mail if it is set.
//!
//! *No doorbell is lost.* There are four places for an NMI:
//!
//! 1. In the guest: an exit. Its handler looks at the mail.
//! 2. Before `entry_look` has read the flag: the flag is set when it is read.
//! 3. From there to VMRESUME or VMLAUNCH, both included (`entry_window` to `entry_end`): the test is over. The handler
//!    sets the interrupted RIP to `entry_look`. That is right at each instruction there, because the window changes
//!    registers only, and all of them come from the frame again. RSP, RBP and R12 to R15 are as they were.
//!    `identify_window` to `identify_end` is such a window, too, with `identify_look` before it.
//! 4. While NMIs are blocked: behind an exit for an NMI, and in the handler. The processor keeps one of them. `unblock`
//!    or the handler's IRET lets it in, which is case 2 or 3.
//!
//! Handlers clear the flag *before* they read the mail, so that an NMI that comes later sets it for the next test.
//!
//! *No doorbell is doubled.* A handler that looks has cleared the flag, and no other place sets it. An NMI that exits
//! sets no flag. Several NMIs before a look are one, as they are for the processor.

use crate::vmx::Frame;
use bulkhead_monitor_abi::map::CORE_STACK_SIZE;
use bulkhead_monitor_abi_x86::vmcs::{NOT_LAUNCHED, exit, field};
use bulkhead_monitor_shell::{FRAME_FROM_TOP, registers};
use core::mem::offset_of;

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
    ".global entry_look",
    "entry_look:",
    // The flag is the first byte at the base of the core's stack. The test needs no register, so the window below has
    // all of them to load.
    "   cmp byte ptr [rsp - {flag}], 0",
    ".global entry_window",
    "entry_window:",
    "   jne entry_rung",
    registers!(load),
    // The usual way. A VMCS that a life has just begun with fails here, and is launched below.
    "   vmresume",
    // VMRESUME has failed, as it does for a VMCS that was not launched. It has left all registers as they were.
    "   mov eax, {error}",
    "   vmread rax, rax",
    "   cmp eax, {not_launched}",
    "   jne entry_end",
    "   mov rax, [rsp + {rax}]",
    "   vmlaunch",
    ".global entry_end",
    "entry_end:",
    "   mov rdi, rsp",
    "   call {refused}",
    "   jmp entry_next",
    "entry_rung:",
    "   mov rdi, rsp",
    "   call {rung}",
    "   jmp entry_next",
    // HOST_RIP; HOST_RSP is the frame.
    ".global monitor_exit",
    "monitor_exit:",
    "   mov [rsp + {rax}], rax",
    "   mov eax, {reason}",
    "   vmread rax, rax",
    // CPUID exits for ever, so its way comes first and saves fewer registers.
    "   cmp eax, {cpuid}",
    "   je identify",
    registers!(save),
    "   mov rdi, rsp",
    "   mov rsi, rax",
    "   call {handle}",
    "entry_next:",
    "   test al, al",
    "   jz entry_look",
    "   jns 2b",
    // A memory access or another handler that sees all registers.
    registers!(save others),
    "   mov rdi, rsp",
    "   call {whole}",
    registers!(load others),
    "   jmp entry_next",

    // Ends the blocking of NMIs that an exit for one has left (SDM 28.5.6), by IRET (SDM 7.7.1). An NMI that the
    // processor has kept comes at once.
    ".global unblock",
    "unblock:",
    "   mov rdx, rsp",
    "   mov eax, ss",
    "   push rax",
    "   push rdx",
    "   pushfq",
    "   mov eax, cs",
    "   push rax",
    "   lea rax, [rip + 2f]",
    "   push rax",
    "   iretq",
    "2: ret",
    frame = const FRAME_FROM_TOP,
    flag = const CORE_STACK_SIZE - FRAME_FROM_TOP,
    error = const field::INSTRUCTION_ERROR,
    not_launched = const NOT_LAUNCHED,
    start = sym crate::exit::start,
    reason = const field::EXIT_REASON,
    cpuid = const exit::CPUID,
    rax = const offset_of!(Frame, rax),
    handle = sym crate::exit::handle,
    whole = sym crate::exit::whole,
    rung = sym crate::exit::rung,
    refused = sym crate::exit::refused,
    others = const offset_of!(Frame, others),
);

bulkhead_monitor_shell::interrupts!(
    open: "", close: "",
    nmi: [
        // A build for the mutation gate can leave the next lines out.
        ".if {mutants}",
        "   cmp byte ptr [rax + {mark}], 0",
        "   jne 12f",
        ".endif",
        "   cmp qword ptr [rsp + 8], offset entry_window",
        "   jb 3f",
        "   cmp qword ptr [rsp + 8], offset entry_end",
        "   jae 3f",
        "   mov qword ptr [rsp + 8], offset entry_look",
        "3: cmp qword ptr [rsp + 8], offset identify_window",
        "   jb 12f",
        "   cmp qword ptr [rsp + 8], offset identify_end",
        "   jae 12f",
        "   mov qword ptr [rsp + 8], offset identify_look",
        "12:"
    ],
    fault: crate::exit::fault,
    mutants = const option_env!("BULKHEAD_MUTANTS").is_some() as u32,
    mark = const CORE_STACK_SIZE as usize - FRAME_FROM_TOP as usize + offset_of!(Frame, mark),
);

unsafe extern "C" {
    /// Lets NMIs in again after an exit for one.
    pub safe fn unblock();
    /// Address that an exit goes to.
    pub static monitor_exit: u8;
}
