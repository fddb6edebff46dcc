//! Starts emulators and looks into them. QEMU runs live or in deterministic virtual time, and its RAM is a file that
//! can be read meanwhile. Bochs has SVM with next-RIP. Nothing waits without a limit, and an error says what was waited
//! for, with the machine's last lines.
//!
//! ```no_run
//! # use bulkhead_qemu::{Machine, Time};
//! # use std::time::Duration;
//! let mut machine = Machine::new("target/run/demo");
//! machine.kernel = Some("target/demo.image".into());
//! machine.time = Time::virtual_time();
//! let mut running = machine.start()?;
//! running.wait("boot message", Duration::from_secs(20), |m| {
//!     m.console().contains("launched").then_some(())
//! })?;
//! running.quit()?;
//! # Ok::<(), bulkhead_qemu::Error>(())
//! ```

mod blocks;
pub mod bochs;
mod cause;
mod confines;
pub mod counts;
mod debugger;
mod error;
mod machine;
pub mod peer;
mod qmp;
mod ram;
mod running;

pub use confines::confines;
pub use counts::Counts;
pub use debugger::Debugger;
pub use error::Error;
pub use machine::{Cover, EPOCH, LEAST, Machine, PROGRAM, Plugin, Serial, Time};
pub use peer::Peer;
pub use qmp::Qmp;
pub use ram::Ram;
pub use running::{KEPT, Kind, Running};
