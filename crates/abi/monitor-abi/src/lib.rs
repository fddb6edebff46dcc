//! Layouts that stay when boot code and host are gone: a monitor shares them with host, boot code and guests. The
//! player of launch records is here, too. All other layouts are in `bulkhead_layout`, which has these under their
//! names.
#![no_std]

pub mod bell;
pub mod cores;
pub mod debug;
pub mod hypercall;
pub mod ladder;
pub mod link;
pub mod load;
pub mod lock;
pub mod mail;
pub mod map;
pub mod mmio;
pub mod monitor;
pub mod mutant;
pub mod need;
pub mod pci;
pub mod peer;
pub mod record;
pub mod report;
pub mod role;
pub mod snapshot;
pub mod watch;

/// Size of the smallest page, in bytes.
pub const PAGE: u64 = 4096;
/// Most cores of one sandbox.
pub const MAX_CORES: usize = 16;
/// Most sandboxes of one machine (a `u32` is a set of sandboxes).
pub const MAX_SANDBOXES: usize = 32;
