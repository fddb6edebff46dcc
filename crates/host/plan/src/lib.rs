//! The plan of a system: which physical memory, cores, ports and rights every
//! sandbox has. Made from a checked manifest and a machine description
//! (`bulkhead-manifest`), used by the image builder, `bulkhead plan`, and by
//! whoever explains an address. Addresses are final: nothing is placed at boot.

pub mod admission;
mod dma;
mod ends;
pub mod facts;
pub mod kernel;
mod pci;
mod peer;
pub mod place;
mod reach;
mod rights;
mod severed;
mod system;
mod types;
mod under_linux;
mod watch;
mod x86;

pub use dma::Dma;
pub use ends::{End, Pin, Woken, peers, window};
pub use facts::Facts;
pub use kernel::Kernel;
pub use pci::*;
pub use peer::Peer;
pub use reach::{Access, Reach, What};
pub use rights::{RIGHTS, Right, Rings, doorbell};
pub use severed::Severed;
pub use system::*;
pub use types::*;
pub use under_linux::{BLOCK, BLOCK_MOST, Refused, UnderLinux};
pub use watch::{Alive, Hpet, Tick, Watch, ticks};
pub use x86::{PIT, RTC};
