//! x86-64: hypercalls and doorbells are ports, and the counter is the TSC.

use super::Architecture;
use std::io;

pub mod port;

pub(crate) struct X86;

impl Architecture for X86 {
    const EARLY_CLOCK: Option<&'static str> = Some("tsc-early");

    #[inline(always)]
    fn counter() -> u64 {
        // SAFETY: reading the counter has no side effect, and Linux allows it.
        unsafe { core::arch::x86_64::_rdtsc() }
    }

    fn allow_calls() -> io::Result<()> {
        port::allow_calls()
    }

    fn call(number: u64, first: u64, second: u64) -> u64 {
        port::call(number, first, second)
    }

    fn allow_bells() -> io::Result<()> {
        port::allow_all()
    }

    fn ring(bell: u16) {
        port::write8(bell, 0);
    }
}

macro_rules! instruction {
    ($code:expr, $value:expr) => {
        // SAFETY: an eight-byte NOP; it reads and writes nothing. Without `nomem`
        // the compiler keeps memory accesses on their side of the marker.
        unsafe {
            core::arch::asm!(
                ".byte {}, {}, {}, {}, {}, {}, {}, {}",
                const marker::encode($code)[0], const marker::encode($code)[1],
                const marker::encode($code)[2], const marker::encode($code)[3],
                const marker::encode($code)[4], const marker::encode($code)[5],
                const marker::encode($code)[6], const marker::encode($code)[7],
                in("rax") $value,
                options(nostack, preserves_flags),
            );
        }
    };
}
