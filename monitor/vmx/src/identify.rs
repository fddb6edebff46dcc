//! CPUID, which exits for ever: its answer in few instructions.
//!
//! This is [`bulkhead_monitor_x86::cpuid::handle`] with the answer left in the registers. The steady phase begins with
//! a CPUID of user mode, which calls [`crate::exit::user`] first. `guests/ring` compares both ways. Rejected: the
//! portable handler. It saves, and loads again, ten registers, and takes 102 instructions for leaf 1.

use crate::vmx::Frame;
use bulkhead_monitor_abi::map::{CONFIG_VA, CORE_REPORT, CORE_STACK, CORE_STACK_SIZE};
use bulkhead_monitor_abi::monitor::Slice;
use bulkhead_monitor_abi::report::{Cause, CoreReport};
use bulkhead_monitor_abi_x86::config::{Config, Leaf};
use bulkhead_monitor_abi_x86::vmcs::field;
use bulkhead_monitor_shell::FRAME_FROM_TOP;
use core::mem::offset_of;

/// Distance of a core's counters from its frame.
const COUNTERS: u64 = CORE_REPORT - (CORE_STACK + CORE_STACK_SIZE - FRAME_FROM_TOP);

::core::arch::global_asm!(
    ".section .text.hot",
    // RAX is in the frame; other registers are the guest's.
    "identify:",
    "   mov [rsp + {rcx}], rcx",
    "   mov [rsp + {rdx}], rdx",
    "   mov [rsp + {rbx}], rbx",
    "   mov [rsp + {rsi}], rsi",
    "   mov [rsp + {rdi}], rdi",
    // The DPL of SS is the privilege level (SDM volume 3, 25.4.1), in bits 6:5 of its rights.
    "   mov edi, {rights}",
    "   vmread rdi, rdi",
    "   not edi",
    "   test dil, 0x60",
    "   jz 8f",
    "21:",
    // RSI: the leaf of the configuration; RDI: their end. Leaves are in order.
    "   mov esi, dword ptr [{leaves}]",
    "   imul edi, dword ptr [{count}], {leaf}",
    "   add rsi, {config}",
    "   add rdi, rsi",
    // The exit's reason has taken the place of the leaf.
    "   mov eax, [rsp + {rax}]",
    "2: cmp rsi, rdi",
    "   je 6f",
    "   cmp [rsi + {first}], eax",
    "   ja 6f",
    "   cmp [rsi + {last}], eax",
    "   jb 3f",
    "   cmp dword ptr [rsi + {sub}], -1",
    "   je 4f",
    "   cmp [rsi + {sub}], ecx",
    "   je 4f",
    "3: add rsi, {leaf}",
    "   jmp 2b",
    "4: mov edi, eax",
    "   cpuid",
    ".set at, 0",
    ".irp register, eax, ebx, ecx, edx",
    "   and \\register, [rsi + {keep} + at]",
    "   or \\register, [rsi + {set} + at]",
    ".set at, at + 4",
    ".endr",
    // OSXSAVE and OSPKE follow the guest's CR4.
    "   cmp edi, 1",
    "   je 7f",
    "   cmp edi, 7",
    "   jne 5f",
    "   mov edi, {cr4}",
    "   vmread rdi, rdi",
    "   shr edi, 18",
    "   and edi, 1 << 4",
    "   and ecx, ~(1 << 4)",
    "   or ecx, edi",
    // Not locked: this core alone writes its counters.
    "5: inc qword ptr [rsp + {exits}]",
    // Through a word of the frame, since the answer fills RAX to RDX and two registers are left.
    "   mov edi, {length}",
    "   vmread [rsp + {word}], rdi",
    "   mov edi, {rip}",
    "   vmread rsi, rdi",
    "   add rsi, [rsp + {word}]",
    "   vmwrite rdi, rsi",
    // Behind an instruction there is no shadow of STI or MOV SS any more. VMRESUME would keep the one of the exit.
    "   xor esi, esi",
    "   mov edi, {shadow}",
    "   vmwrite rdi, rsi",
    ".global identify_look",
    // As `entry_look`: an NMI behind this test finds RIP in the window, and mends it.
    "identify_look:",
    "   cmp byte ptr [rsp - {flag}], 0",
    ".global identify_window",
    "identify_window:",
    "   jne 9f",
    "   mov rsi, [rsp + {rsi}]",
    "   mov rdi, [rsp + {rdi}]",
    "   vmresume",
    ".global identify_end",
    "identify_end:",
    // VMRESUME came back, so it has failed. The general way records why.
    "   jmp entry_end",
    // No leaf of the configuration: the processor's answer, which has no such bit.
    "6: mov edi, eax",
    "   cpuid",
    "   jmp 5b",
    "7: mov edi, {cr4}",
    "   vmread rdi, rdi",
    "   shl edi, 9",
    "   and edi, 1 << 27",
    "   and ecx, ~(1 << 27)",
    "   or ecx, edi",
    "   jmp 5b",
    // User mode.
    "8: call 10f",
    "   mov rdi, rsp",
    // Compiled code: it may change R8 to R11, which this way leaves in the processor.
    "   call {user}",
    "   mov rcx, [rsp + {rcx}]",
    ".set at, {r8}",
    ".irp register, r8, r9, r10, r11",
    "   mov \\register, [rsp + at]",
    ".set at, at + 8",
    ".endr",
    "   jmp 21b",
    // A doorbell: the answer goes into the frame.
    "9: mov [rsp + {rax}], rax",
    "   mov [rsp + {rcx}], rcx",
    "   mov [rsp + {rdx}], rdx",
    "   mov [rsp + {rbx}], rbx",
    "   call 10f",
    "   jmp entry_rung",
    // The return address lies below the frame.
    "10:",
    ".set at, {r8} + 8",
    ".irp register, r8, r9, r10, r11",
    "   mov [rsp + at], \\register",
    ".set at, at + 8",
    ".endr",
    "   ret",
    rcx = const offset_of!(Frame, rcx),
    rdx = const offset_of!(Frame, rdx),
    rbx = const offset_of!(Frame, rbx),
    rsi = const offset_of!(Frame, rsi),
    rdi = const offset_of!(Frame, rdi),
    rax = const offset_of!(Frame, rax),
    r8 = const offset_of!(Frame, r8),
    word = const offset_of!(Frame, others),
    config = const CONFIG_VA as i64,
    leaves = const CONFIG_VA as i64 + (offset_of!(Config, cpuid) + offset_of!(Slice, offset)) as i64,
    count = const CONFIG_VA as i64 + (offset_of!(Config, cpuid) + offset_of!(Slice, len)) as i64,
    leaf = const size_of::<Leaf>(),
    first = const offset_of!(Leaf, first),
    last = const offset_of!(Leaf, last),
    sub = const offset_of!(Leaf, sub),
    keep = const offset_of!(Leaf, keep),
    set = const offset_of!(Leaf, set),
    exits = const COUNTERS as usize + offset_of!(CoreReport, exits) + 8 * Cause::Cpuid as usize,
    flag = const CORE_STACK_SIZE - FRAME_FROM_TOP,
    rights = const field::GUEST_SS_RIGHTS,
    length = const field::EXIT_LENGTH,
    rip = const field::GUEST_RIP,
    shadow = const field::GUEST_INTERRUPTIBILITY,
    cr4 = const field::GUEST_CR4,
    user = sym crate::exit::user,
);
