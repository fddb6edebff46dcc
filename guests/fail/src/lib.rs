//! Ways in which a guest fails.
#![cfg_attr(target_os = "none", no_std)]

use bulkhead_sdk::interrupt;

/// Exit code of a failure.
pub const CODE: u32 = 7;
/// The ways: an exit code, a denied access, a triple fault, a loop with interrupts off.
pub const WAYS: [&str; 4] = ["exit", "memory", "shutdown", "hang"];
/// Where no sandbox has memory.
const NOWHERE: u64 = 0x5000_0000;

/// The way of a life: one of [`WAYS`], or `each` of them in turn.
#[must_use]
pub fn way(of: Option<&'static str>, life: u64) -> &'static str {
    match of {
        Some("each") => WAYS[life as usize % WAYS.len()],
        way => way.unwrap_or("exit"),
    }
}

/// Fails. Returns the exit code to end with, where that is the way.
pub fn fail(way: &str) -> u32 {
    match way {
        "memory" => {
            // SAFETY: this program maps the address, its sandbox has nothing there: the monitor ends this life.
            unsafe { core::ptr::read_volatile(NOWHERE as *const u64) };
        }
        "shutdown" => {
            interrupt::disable();
            // SAFETY: nothing of this life is needed any more: the first exception finds no handler.
            unsafe {
                core::arch::asm!("lidt [{}]", "ud2", in(reg) &[0u64; 2], options(readonly, nostack));
            }
        }
        "hang" => loop {
            interrupt::disable();
        },
        _ => {}
    }
    CODE
}
