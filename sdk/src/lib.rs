//! The runtime of a bare guest: entry, console, timer, cores, channels, hypercalls.
//!
//! A guest is a `no_std`, `no_main` program for `x86_64-unknown-none`:
//!
//! ```ignore
//! #![cfg_attr(target_os = "none", no_std, no_main)]
//! bulkhead_sdk::entry!(guest);
//! fn guest(ctx: bulkhead_sdk::Context) -> u32 {
//!     bulkhead_sdk::println!("hello from {}", ctx.name());
//!     0
//! }
//! ```
//!
//! `cargo build -p guest-hello --target x86_64-unknown-none --profile guest`
//! builds it; its build script is `guests/build.rs`, its linker script
//! `sdk/guest.ld`. The entry returns an exit code or never (`-> !`).
//!
//! Floating point: the target's ABI is soft-float, and stable Rust offers no
//! other one without a rebuilt `core`. Guests keep it: `f32` works, an operation
//! costs some 30 to 80 instructions, and no interrupt handler has a vector
//! register to save.
//!
//! The crate also compiles for the host, so that a workspace-wide check or clippy sees every guest. There such a
//! program only says that it is no guest.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(not(target_os = "none"), allow(dead_code))]

mod arch;
pub mod bell;
pub mod console;
pub mod context;
pub mod cores;
pub mod guest;
pub mod hypercall;
pub mod interrupt;
pub mod link;
pub mod pci;
pub mod role;
pub mod snapshot;
#[cfg(target_os = "none")]
mod start;
pub mod time;
pub mod watchdog;
pub mod window;

// Parts of an architecture beyond its contract: for programs that are made for it.
#[cfg(target_arch = "x86_64")]
pub use arch::x86::{apic, cpu, fault, line, paging, user};
pub use bulkhead_channel as channel;
pub use bulkhead_channel_memory::typed;
pub use bulkhead_guest::{Here, Instructions, Moved, Registers, text};
pub use bulkhead_layout as layout;
pub use bulkhead_layout::{mark, marker};
#[cfg(target_arch = "x86_64")]
pub use bulkhead_monitor_abi_x86::cmos;
pub use context::Context;

/// Names the guest's `fn guest(Context) -> u32` (an exit code) or `-> !`.
#[macro_export]
macro_rules! entry {
    ($entry:path) => {
        #[cfg(target_os = "none")]
        #[unsafe(no_mangle)]
        #[allow(unreachable_code)]
        extern "C" fn bulkhead_main(context: $crate::Context) -> ! {
            $crate::hypercall::exit($entry(context))
        }

        #[cfg(not(target_os = "none"))]
        #[allow(unreachable_code)]
        fn bulkhead_main(context: $crate::Context) -> ! {
            $crate::hypercall::exit($entry(context))
        }

        #[cfg(not(target_os = "none"))]
        fn main() {
            let _ = bulkhead_main;
            panic!("a bare guest runs in a sandbox, not here");
        }
    };
}
