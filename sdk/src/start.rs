//! The portable part of a guest's first core's start, and the end by a panic.

use crate::arch::{Architecture, This};
use crate::{Context, console, println, time};
use bulkhead_guest::{Here, Instructions};
use core::panic::PanicInfo;

unsafe extern "C" {
    safe fn bulkhead_main(context: Context) -> !;
}

/// Runs the guest. The architecture has made the core ready for interrupts.
pub(crate) fn begin(context: Context) -> ! {
    Here::set_calls(context.info().monitors);
    This::setup(context.info());
    console::select(context.arg("console"));
    time::setup(context.info());
    bulkhead_main(context)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    println!("{info}");
    crate::hypercall::exit(101)
}
