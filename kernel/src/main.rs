//! The kernel on x86-64: the ways of threads into it and out of it, and the machine that the portable kernel
//! (`bulkhead-kernel`) runs on. It runs in a sandbox, or on a core without any monitor.
//!
//! Interrupts are off in the kernel; it is entered from user mode, or from its own idle loop. There is one stack. All
//! of its state lies in [`Baked`], which the host has filled, and in the objects that this points to.
#![no_std]
#![no_main]

mod entry;
mod machine;
mod report;
mod start;
#[cfg(feature = "trace")]
mod trace;

use bulkhead_kernel::Line;
use bulkhead_kernel_x86::Baked;
use core::cell::UnsafeCell;
use core::panic::PanicInfo;

/// The words that the host has baked.
#[repr(transparent)]
pub struct Cell(UnsafeCell<core::mem::MaybeUninit<Baked>>);

// SAFETY: one core runs the kernel, and takes no interrupts in it.
unsafe impl Sync for Cell {}

/// Filled by the host in the image, under this name.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".baked")]
static BAKED: Cell = Cell(UnsafeCell::new(core::mem::MaybeUninit::zeroed()));

impl Cell {
    /// Returns the baked words.
    ///
    /// # Safety
    /// No other reference to it exists: each entry asks for it once.
    #[inline(always)]
    unsafe fn get(&self) -> &'static mut Baked {
        // SAFETY: any bits are a value; the caller vouches for the rest.
        unsafe { (*self.0.get()).assume_init_mut() }
    }
}

/// Says which assertion of the kernel's failed, and stops the sandbox.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let mut line = Line::default();
    line.text("kernel: panicked");
    if let Some(at) = info.location() {
        line.text(" at ").text(at.file()).decimal(":", at.line().into());
    }
    if let Some(message) = info.message().as_str() {
        line.text(": ").text(message);
    }
    machine::print(line.end());
    machine::exit(PANIC)
}

/// Exit code of a sandbox after a failure of its kernel.
const PANIC: u32 = 102;
