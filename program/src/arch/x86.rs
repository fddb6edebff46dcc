//! x86-64: calls by SYSCALL (APM volume 2, section 6.1.1). The thread pointer is the base of FS (System V ABI for
//! x86-64, section 3.4.6).

use super::{Architecture, Call};
use core::arch::asm;

pub(crate) struct X86;

impl Architecture for X86 {
    #[inline(always)]
    fn call(call: Call) -> Call {
        let Call { mut operation, mut names, mut description, words: [mut a, mut b, mut c, mut d] } =
            call;
        // SAFETY: a call changes the registers named here. In this thread's memory it changes the buffer, which nothing
        // refers to (`Buffer` is read and written by volatile accesses).
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") operation, inlateout("rdi") names, inlateout("rsi") description,
                inlateout("rdx") a, inlateout("r8") b, inlateout("r9") c, inlateout("r10") d,
                lateout("rcx") _, lateout("r11") _, options(nostack)
            );
        }
        Call { operation, names, description, words: [a, b, c, d] }
    }

    fn stop() -> ! {
        // SAFETY: an exception in user mode ends this thread only.
        unsafe { asm!("ud2", options(noreturn, nostack)) }
    }
}

#[doc(hidden)]
#[macro_export]
macro_rules! local_symbol {
    ($name:ident: $type:ty) => {
        core::arch::global_asm!(
            ".pushsection .tbss.bulkhead_local, \"awT\", @nobits",
            ".balign {align}",
            concat!("\"", module_path!(), "::", stringify!($name), "\":"),
            ".zero {size}",
            ".popsection",
            align = const align_of::<$type>(),
            size = const size_of::<$type>(),
        );
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! local_address {
    ($name:ident) => {{
        let at;
        // SAFETY: reads the word to which the thread pointer points, which is itself.
        unsafe {
            core::arch::asm!(
                "movq %fs:0, {at}",
                concat!("leaq \"", module_path!(), "::", stringify!($name), "\"@tpoff({at}), {at}"),
                at = out(reg) at,
                options(att_syntax, nostack, pure, readonly, preserves_flags)
            );
        }
        at
    }};
}
