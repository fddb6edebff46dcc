//! Exits with 0: `bhbench` executes it to measure exec. The C entry point, so
//! that an exec is little more than the kernel's own work.
#![no_main]

/// Called by the C library's start-up code.
// SAFETY: the one `main` of this program, with the signature that C gives it.
#[unsafe(no_mangle)]
pub extern "C" fn main(_: i32, _: *const *const u8) -> i32 {
    0
}
