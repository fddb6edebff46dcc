//! The runtime of a program of the kernel: its entry, typed calls, time, the manifest's grants by name, and text for
//! the console.
//!
//! A program is a `no_std`, `no_main` binary for `x86_64-unknown-none`:
//!
//! ```ignore
//! #![cfg_attr(target_os = "none", no_std, no_main)]
//! bulkhead_program::entry!(hello);
//! fn hello(program: bulkhead_program::Program) -> u32 {
//!     bulkhead_program::println!("hello from {}", program.name());
//!     0
//! }
//! ```
//!
//! Its manifest says its rights ([`Program::endpoint`] and the like find them by name). The entry is its first
//! thread's; others begin at a symbol of their own ([`thread!`]).
#![cfg_attr(target_os = "none", no_std)]

mod arch;
pub mod bell;
mod call;
mod console;
pub mod guest;
#[cfg(feature = "heap")]
mod heap;
pub mod link;
mod local;
#[cfg(feature = "log")]
mod logging;
mod make;
mod names;
mod objects;
mod own;
mod periodic;
mod ports;
pub mod role;
mod sign;
pub mod snapshot;
mod start;
mod sync;
pub mod time;
mod watchdog;

// Cargo gives packages that it builds together the features of each. A thread here has no vector registers.
// Clippy looks at both together, and builds neither.
#[cfg(all(target_os = "none", not(clippy)))]
const _: () = assert!(
    !bulkhead_channel_memory::VECTORS,
    "a program of the kernel was built together with a bare guest: `cargo build --package` builds them apart"
);

pub use bulkhead_channel as channel;
pub use bulkhead_channel_memory::typed;
pub use bulkhead_guest::{Here, Instructions, Registers, text};
pub use bulkhead_kernel_abi as abi;
pub use bulkhead_layout as layout;
pub use bulkhead_layout::{mark, marker};
pub use call::{Error, Message, Received, Words, invoke};
pub use console::{print, write};
pub use guest::Guest;
pub use local::{Local, Zero};
pub use make::Maker;
pub use names::{Memory, Program};
pub use objects::{Context, Endpoint, Handler, Notification, Reply, Thread};
pub use own::{Frame, Node, Table};
pub use periodic::{Periodic, Woken};
pub use ports::Ports;
pub use sign::{Sign, Signs};
pub use start::{begin, exit, ready, restart, stop};
pub use sync::{Condvar, Guard, Mutex};
pub use time::{FOREVER, now, sleep_until, wait_until, yield_now};
