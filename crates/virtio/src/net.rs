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

/// Where a packet's IP header ends at the earliest, behind Ethernet's.
pub const IP_END: u16 = 14 + 20;

/// What a kernel may be given of a header (virtio 1.2, 5.1.6) that somebody else wrote. Kernels see to it that what it
/// speaks of lies within the packet. Linux 6.1 does not see to it that a checksum's sum begins in what is left of the
/// packet once its Ethernet header is taken off, and complains of itself when it sends that on. Such a header says
/// nothing any more: the packet is as one from any network. `linux/module` does the same.
#[must_use]
pub const fn harmless(header: [u8; HEADER]) -> [u8; HEADER] {
    const NEEDS_CSUM: u8 = 1;
    let [flags, .., low, high, _, _, _, _] = header;
    if flags & NEEDS_CSUM != 0 && u16::from_le_bytes([low, high]) < IP_END {
        [0; HEADER]
    } else {
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_in_front_of_the_transport_is_none() {
        let header = |flags, start: u16| {
            let [low, high] = start.to_le_bytes();
            [flags, 1, 54, 0, 0xA8, 5, low, high, 16, 0, 1, 0]
        };
        for start in [0, 13, 14, 33] {
            assert_eq!(harmless(header(1, start)), [0; HEADER], "{start}");
            assert_eq!(harmless(header(3, start)), [0; HEADER], "{start}");
            assert_eq!(harmless(header(2, start)), header(2, start), "{start}");
        }
        for start in [34, 54, 0xFFFF] {
            assert_eq!(harmless(header(1, start)), header(1, start), "{start}");
        }
    }
}
