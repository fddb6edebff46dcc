//! x86-64: the counter is the TSC, a hypercall is VMMCALL or VMCALL, or a port in a process, and a doorbell is a port.

use crate::{Instructions, Moved};
use bulkhead_cpu_x86::{outb, rdtsc};
use bulkhead_layout::x86::MONITORS_VMX;
use bulkhead_layout::x86::port::CALL_PORT;
use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// True if a call is VMCALL, false if it is VMMCALL.
static INTEL: AtomicBool = AtomicBool::new(false);

/// Tells if a call is VMCALL.
#[must_use]
pub fn is_intel() -> bool {
    INTEL.load(Relaxed)
}

/// The processor.
#[derive(Debug)]
pub struct X86;

impl Instructions for X86 {
    #[inline(always)]
    fn counter() -> u64 {
        rdtsc()
    }

    #[inline]
    fn ordered_counter() -> u64 {
        let (low, high): (u32, u32);
        // SAFETY: reads a counter. LFENCE keeps it from being read early.
        unsafe {
            asm!("lfence", "rdtsc", out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
        }
        u64::from(high) << 32 | u64::from(low)
    }

    fn set_calls(monitors: u64) {
        INTEL.store(monitors == MONITORS_VMX, Relaxed);
    }

    fn call(number: u64, [a, b, c, d]: [u64; 4]) -> u64 {
        let result;
        // SAFETY: by the hypercall interface no call touches memory of the caller or a register other than RAX. EXIT
        // and RESTART do not come back. Calls about links take away memory that no reference names.
        unsafe {
            // Each vendor's instruction is undefined on the other one's processors.
            if is_intel() {
                asm!("vmcall", inlateout("rax") number => result,
                    in("rdi") a, in("rsi") b, in("rdx") c, in("r8") d, options(nostack));
            } else {
                asm!("vmmcall", inlateout("rax") number => result,
                    in("rdi") a, in("rsi") b, in("rdx") c, in("r8") d, options(nostack));
            }
        }
        result
    }

    fn call_as_user(number: u64, first: u64, second: u64) -> u64 {
        let result;
        // SAFETY: as in `call`. A process without the right to the port ends by a signal.
        unsafe {
            asm!("in eax, dx", inlateout("rax") number => result, in("dx") CALL_PORT,
                in("rdi") first, in("rsi") second, options(nostack, preserves_flags));
        }
        result
    }

    #[inline]
    fn ring(bell: u16) {
        // SAFETY: the monitor takes the write for a ring and does nothing else. A process without the right to the port
        // ends by a signal.
        unsafe { outb(bell, 0) }
    }
}

macro_rules! moved {
    ($type:ty, $class:ident, $load:literal, $store:literal) => {
        impl Moved for $type {
            #[inline(always)]
            unsafe fn load(at: u64) -> Self {
                let value;
                // SAFETY: the caller's; a move changes nothing else here.
                unsafe { asm!($load, out($class) value, in(reg) at, options(nostack, preserves_flags)) }
                value
            }

            #[inline(always)]
            unsafe fn store(self, at: u64) {
                // SAFETY: the caller's; a move changes nothing else here, and stores are in order on this processor.
                unsafe { asm!($store, in($class) self, in(reg) at, options(nostack, preserves_flags)) }
            }
        }
    };
}

moved!(u8, reg_byte, "mov {}, byte ptr [{}]", "mov byte ptr [{1}], {0}");
moved!(u16, reg, "mov {:x}, word ptr [{}]", "mov word ptr [{1}], {0:x}");
moved!(u32, reg, "mov {:e}, dword ptr [{}]", "mov dword ptr [{1}], {0:e}");
moved!(u64, reg, "mov {}, qword ptr [{}]", "mov qword ptr [{1}], {0}");
