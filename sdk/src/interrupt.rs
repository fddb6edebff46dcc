//! Interrupts and exceptions: a handler for each number, for all cores of the sandbox. Handlers run with interrupts
//! off.

pub use crate::arch::Frame;
#[cfg(target_arch = "x86_64")]
pub use crate::arch::x86::idt::{FIRST, SPURIOUS};
use crate::arch::{Architecture, This};
use core::sync::atomic::{AtomicPtr, Ordering};

/// Called with the interrupted state, and the clock's counter at entry.
pub type Handler = fn(&mut Frame, u64);

static HANDLERS: [AtomicPtr<()>; 256] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 256];

/// Sets the handler of an interrupt's number, for all cores.
pub fn set(number: u8, handler: Handler) {
    HANDLERS[usize::from(number)].store(handler as *mut (), Ordering::Release);
}

/// Finds the handler of a number.
pub(crate) fn handler(number: u8) -> Option<Handler> {
    let handler = HANDLERS[usize::from(number)].load(Ordering::Acquire);
    // SAFETY: only `set` stores there, and it stores a `Handler`.
    (!handler.is_null()).then(|| unsafe { core::mem::transmute::<*mut (), Handler>(handler) })
}

/// Lets interrupts in.
pub fn enable() {
    This::enable();
}

/// Keeps interrupts out.
pub fn disable() {
    This::disable();
}

/// Lets interrupts in and sleeps until one came, with no gap in which it could
/// be missed; returns with interrupts off.
pub fn wait() {
    This::wait();
}

/// Runs `f` with interrupts off.
pub fn without<R>(f: impl FnOnce() -> R) -> R {
    let on = This::is_enabled();
    disable();
    let result = f();
    if on {
        enable();
    }
    result
}
