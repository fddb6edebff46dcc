//! Common parts of the harness's programs for the bare machine: entry, secondary cores, the local timer, markers. The
//! debug console is port 0xE9 (QEMU and Bochs). The first 4 GiB are identity-mapped, interrupts are off.
#![cfg_attr(target_os = "none", no_std)]

#[cfg(target_os = "none")]
pub mod cpu;
#[cfg(target_os = "none")]
pub mod start;

/// A marker for the measuring plugin, see [`bulkhead_layout::marker`].
#[macro_export]
macro_rules! mark {
    ($code:expr) => {{
        // SAFETY: a NOP with a displacement; it touches nothing.
        unsafe {
            core::arch::asm!(
                ".byte 0x0f, 0x1f, 0x84, 0x00", ".word {code}, 0xb417",
                code = const $code, options(nomem, nostack, preserves_flags)
            );
        }
    }};
    ($code:expr, $value:expr) => {{
        // SAFETY: a NOP with a displacement; it touches nothing.
        unsafe {
            core::arch::asm!(
                ".byte 0x0f, 0x1f, 0x84, 0x00", ".word {code}, 0xb417",
                code = const $code, in("rax") $value, options(nomem, nostack, preserves_flags)
            );
        }
    }};
}

/// `print!`, to the debug console.
#[macro_export]
macro_rules! print {
    ($($arg:tt)*) => {{
        use core::fmt::Write as _;
        let _ = write!($crate::cpu::Console, $($arg)*);
    }};
}

/// `println!`, to the debug console.
#[macro_export]
macro_rules! println {
    ($($arg:tt)*) => {{ $crate::print!($($arg)*); $crate::print!("\n"); }};
}

/// Names the program's `fn main(info: u32) -> !`; `info` is the physical
/// address of the multiboot information.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        #[cfg(target_os = "none")]
        #[unsafe(no_mangle)]
        extern "C" fn bare_main(magic: u32, info: u32) -> ! {
            $crate::start::install();
            $main($crate::start::Boot { magic, info })
        }
        #[cfg(not(target_os = "none"))]
        fn main() {
            panic!("this program runs on a bare machine");
        }
    };
}
