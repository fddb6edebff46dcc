//! The entry shell: a core's way into the monitor, into the guest and back, and
//! the handlers of the monitor's own interrupts.
//!
//! Between exits the registers that VMRUN does not switch (FS, GS, TR, LDTR,
//! KernelGSBase, STAR, SYSENTER, FPU) keep the guest's values: the monitor uses
//! none of them, so an exit needs no VMLOAD and no VMSAVE (APM 15.5.2;
//! docs/decisions/0010-no-vmload.md).

use bulkhead_resident::map::{CORE_STACK, CORE_STACK_SIZE, CORE_STRIDE};
use core::cell::Cell;

/// Guest registers that a handler sees. RAX is in the VMCB; RBP and R12 to R15
/// stay in the processor across a handler, as the ABI promises, so that only the
/// handler of memory accesses, which may need any of them, has them saved.
#[repr(C)]
pub struct Frame {
    pub rcx: Cell<u64>,
    pub rdx: Cell<u64>,
    pub rsi: Cell<u64>,
    pub rdi: Cell<u64>,
    pub r8: Cell<u64>,
    pub r9_to_r11: [Cell<u64>; 3],
    pub rbx: Cell<u64>,
    /// Physical address of this core's VMCB.
    pub vmcb_pa: Cell<u64>,
    /// RBP and R12 to R15, for [`crate::exit::memory`] only.
    pub others: [Cell<u64>; 5],
}

impl Frame {
    /// Place of a register by its number in encodings, but for RAX and RSP.
    #[inline(always)]
    pub fn place(&self, number: u8) -> &Cell<u64> {
        match number {
            1 => &self.rcx,
            2 => &self.rdx,
            3 => &self.rbx,
            6 => &self.rsi,
            7 => &self.rdi,
            8 => &self.r8,
            _ => self.uncommon(number),
        }
    }

    #[inline(never)]
    fn uncommon(&self, number: u8) -> &Cell<u64> {
        match number {
            5 => &self.others[0],
            9 => &self.r9_to_r11[0],
            10 => &self.r9_to_r11[1],
            11 => &self.r9_to_r11[2],
            12 => &self.others[1],
            13 => &self.others[2],
            14 => &self.others[3],
            _ => &self.others[4],
        }
    }

    /// Frame of the core on whose stack something lies.
    pub fn around<T>(on_stack: &T) -> &'static Self {
        let base = ::core::ptr::from_ref(on_stack) as u64 & !(CORE_STACK_SIZE - 1);
        // SAFETY: the frame lies at the end of each core's stack as long as the machine runs; its fields are cells,
        // which this core alone uses.
        unsafe { &*((base + CORE_STACK_SIZE - FRAME_FROM_TOP) as *const Self) }
    }
}

const _: () = assert!(size_of::<Frame>() == 120);

/// Distance of a frame from the end of its core's stack.
pub const FRAME_FROM_TOP: u64 = 128;

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
    ".irp register, rbp, r12, r13, r14, r15",
    "   xor \\register, \\register",
    ".endr",
    "3:",
    ".set at, 0",
    ".irp register, rcx, rdx, rsi, rdi, r8, r9, r10, r11, rbx, rax",
    "   mov \\register, [rsp + at]",
    ".set at, at + 8",
    ".endr",
    "   vmrun rax",
    ".set at, 0",
    ".irp register, rcx, rdx, rsi, rdi, r8, r9, r10, r11, rbx",
    "   mov [rsp + at], \\register",
    ".set at, at + 8",
    ".endr",
    "   mov rdi, rsp",
    "   call {handle}",
    "   test al, al",
    "   jz 3b",
    "   jns 2b",
    // A memory access: its handler sees all registers.
    ".set at, {others}",
    ".irp register, rbp, r12, r13, r14, r15",
    "   mov [rsp + at], \\register",
    ".set at, at + 8",
    ".endr",
    "   mov rdi, rsp",
    "   call {memory}",
    ".set at, {others}",
    ".irp register, rbp, r12, r13, r14, r15",
    "   mov \\register, [rsp + at]",
    ".set at, at + 8",
    ".endr",
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
    "nmi_test:",
    "   cmp byte ptr [rdi], 0",
    "   jne nmi_slept",
    "   hlt",
    "nmi_slept:",
    "   clgi",
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
    "   pop rax",
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
    "   cmp qword ptr [rsp], offset drain_window",
    "   jb 5f",
    "   cmp qword ptr [rsp], offset drain_end",
    "   jb monitor_drain",
    "5: mov rdi, rsp",
    "   and rsp, -16",
    "   call {fault}",
    "6: cli",
    "   hlt",
    "   jmp 6b",
    frame = const FRAME_FROM_TOP,
    stack_mask = const -(CORE_STACK_SIZE as i64),
    start = sym crate::exit::start,
    others = const ::core::mem::offset_of!(Frame, others),
    memory = sym crate::exit::memory,
    handle = sym crate::exit::handle,
    fault = sym crate::exit::fault,
);

unsafe extern "C" {
    /// Lets a pending NMI in.
    pub safe fn nmi_window();
    /// Sleeps until the flag is set.
    pub safe fn nmi_sleep(flag: &Cell<u8>);
    /// Accepts pending interrupts.
    pub safe fn drain_window();
}

const _: () = assert!(CORE_STACK % CORE_STACK_SIZE == 0 && CORE_STRIDE % CORE_STACK_SIZE == 0);
