//! A Linux's end of a channel as a PCI function. It has the registers of the specification of ivshmem, version 2, and a
//! capability that names the channel.

pub use bulkhead_monitor_abi::pci::end::{CONTROL, DOORBELL, STATE};

/// Vendor and device, as the first register of the configuration has them.
pub const IDS: u32 = 0x4106_110A;
/// The implementation: subsystem and its vendor.
pub const PROVIDER: u32 = 0x4248_110A;
/// Protocol type of raw pages, in the range for private use; for messages their kind is added
/// ([`crate::info::Window::messages`]).
pub const PROTOCOL: u32 = 0x4248;
/// A capability with contents that its vendor defines (PCI 3.0, appendix H). The first one is the specification's,
/// [`SHARED_LEN`] bytes; the second one says which channel it is, [`NAMED_LEN`] bytes.
pub const VENDOR_SPECIFIC: u8 = 0x09;

/// Bytes of the capability that tells the sections' sizes, without a base address.
pub const SHARED_LEN: usize = 0x18;
/// In it: bytes of the state table.
pub const TABLE_SIZE: usize = 0x04;
/// In it: bytes of a peer's section, 64 bits.
pub const SECTION_SIZE: usize = 0x10;

/// [`NAMED`]'s value: `BHCH`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"BHCH");
/// In the capability that tells which channel: [`MAGIC`].
pub const NAMED: usize = 0x04;
/// In it: [`crate::info::Window::messages`].
pub const MESSAGES: usize = 0x08;
/// In it: [`crate::info::Window::message`].
pub const MESSAGE: usize = 0x0C;
/// In it: the channel's name, padded with zeros.
pub const NAME: usize = 0x10;
/// In it: how the receiver is woken; 0: it looks. Bit 16: it looks first, for as long as that pays. For a sender the
/// lower half is the port of its doorbell, which acts as the register [`DOORBELL`]; for a receiver it is not 0.
pub const NOTIFY: usize = NAME + crate::info::NAME;
/// Its bytes.
pub const NAMED_LEN: usize = NOTIFY + 4;

/// Value that a sender of messages writes to [`DOORBELL`]: its receiver is peer 1.
pub const RECEIVER: u32 = 1 << 16;

/// Register: the own number among the peers.
pub const ID: u64 = 0x00;
/// Register: how many peers there can be.
pub const PEERS: u64 = 0x04;
