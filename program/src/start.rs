//! Where threads begin, and how a program ends.

use crate::arch::{Architecture, This};
use crate::call::invoke;
use crate::names::Program;
use bulkhead_kernel_abi::{Page, label, slot};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The program's page, for code that has no other way to it.
static PAGE: AtomicPtr<Page> = AtomicPtr::new(core::ptr::null_mut());

/// How often the first thread began, in this memory.
static BEGUN: AtomicU64 = AtomicU64::new(0);

impl Program {
    /// Returns how often its first thread has begun: a fault handler can let it begin anew, in the memory that it left.
    #[must_use]
    pub fn begun(self) -> u64 {
        BEGUN.load(Ordering::Relaxed)
    }
}

/// The program, once a thread of it runs.
pub(crate) fn current() -> Option<Program> {
    // SAFETY: null, or the page of `begin`.
    unsafe { PAGE.load(Ordering::Relaxed).as_ref() }.map(|page| Program::new(page, 0))
}

/// Makes a program's view of the page and the thread that its first instructions are given.
///
/// # Safety
/// `page` is the kernel's argument to the thread.
#[doc(hidden)]
pub unsafe fn begin(page: *const Page, thread: u64) -> Program {
    PAGE.store(page.cast_mut(), Ordering::Relaxed);
    if thread == 0 {
        BEGUN.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: a page of the program's that stays as it is.
    Program::new(unsafe { &*page }, thread as u32)
}

/// Ends the sandbox, if the manifest lets this program do so; else the thread.
pub fn exit(code: u32) -> ! {
    let _ = invoke(slot::SANDBOX, label::EXIT, [code.into(), 0, 0, 0]);
    stop()
}

/// Lets the sandbox begin anew, if the manifest lets this program do so: with fresh memory, and with its devices reset.
/// Without a monitor it ends instead, else the thread.
pub fn restart(code: u32) -> ! {
    let _ = invoke(slot::SANDBOX, label::RESTART, [0; 4]);
    exit(code)
}

/// Says that the sandbox has started, if the manifest lets this program do so.
pub fn ready() {
    let _ = invoke(slot::SANDBOX, label::READY, [0; 4]);
}

/// The thread is over: an exception that its fault handler sees, or that stops it.
pub fn stop() -> ! {
    This::stop()
}

/// Names the program's `fn hello(Program) -> u32`, which returns the exit code, or `-> !`.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        $crate::thread!(_start, $main);

        #[cfg(not(target_os = "none"))]
        fn main() {
            panic!("a program runs on the kernel, not here");
        }
    };
}

/// Names the symbol at which a further thread begins, and its function. Its return value is the sandbox's exit code, as
/// with the first one.
#[macro_export]
macro_rules! thread {
    ($symbol:ident, $function:path) => {
        #[unsafe(no_mangle)]
        #[allow(unreachable_code)]
        extern "C" fn $symbol(page: *const $crate::abi::Page, thread: u64) -> ! {
            // SAFETY: the thread's first arguments.
            let program = unsafe { $crate::begin(page, thread) };
            $crate::exit($function(program))
        }

        const _: () = {
            // Only the manifest names it: without this the linker would leave it out (program.ld).
            #[used]
            #[unsafe(link_section = ".threads")]
            static KEPT: extern "C" fn(*const $crate::abi::Page, u64) -> ! = $symbol;
        };
    };
}

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let name = current().map_or("program", Program::name);
    crate::println!("{name}: {info}");
    exit(101)
}
