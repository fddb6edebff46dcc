//! What a network card's device side says and reads (virtio 1.2, 5.1).

/// Kind of device.
pub const DEVICE: u32 = 1;
/// Queue of what the driver receives.
pub const RECEIVE: usize = 0;
/// Queue of what the driver sends.
pub const SEND: usize = 1;

/// Bytes before each packet.
pub const HEADER: usize = 12;
/// In it: over how many chains a packet goes that the driver receives, 16 bits.
pub const BUFFERS: usize = 10;

/// Features: packets come and go with checksums to be filled in, and as large ones to be cut up (IPv4, IPv6); an
/// address; packets go over several chains.
pub const CSUM: u64 = 1 << 0;
/// See [`CSUM`].
pub const GUEST_CSUM: u64 = 1 << 1;
/// See [`CSUM`].
pub const MAC: u64 = 1 << 5;
/// See [`CSUM`].
pub const GUEST_TSO4: u64 = 1 << 7;
/// See [`CSUM`].
pub const GUEST_TSO6: u64 = 1 << 8;
/// See [`CSUM`].
pub const HOST_TSO4: u64 = 1 << 11;
/// See [`CSUM`].
pub const HOST_TSO6: u64 = 1 << 12;
/// See [`CSUM`].
pub const MRG_RXBUF: u64 = 1 << 15;

/// The largest packet with its header.
pub const LARGEST: usize = HEADER + 14 + 65_535;
