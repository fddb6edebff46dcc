//! Constants and headers of a network card's device side (virtio 1.2, 5.1).

/// Kind of device.
pub const DEVICE: u32 = 1;
/// Queue on which the driver receives.
pub const RECEIVE: usize = 0;
/// Queue on which the driver sends.
pub const SEND: usize = 1;

/// Bytes before each packet.
pub const HEADER: usize = 12;
/// In it: over how many chains a packet goes that the driver receives, 16 bits.
pub const BUFFERS: usize = 10;

/// Features. Packets come and go with checksums to be filled in, and as large ones to be cut up (IPv4, IPv6). The
/// others: an address; packets go over several chains.
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

/// Least offset of an IP header's end, behind Ethernet's.
pub const IP_END: u16 = 14 + 20;

/// Returns a foreign packet's header (virtio 1.2, 5.1.6) as a kernel may be given it. Kernels check that its offsets
/// lie within the packet. But Linux 6.1 does not check that a checksum's sum begins behind the Ethernet header. It logs
/// an error of its own when it sends that on. Such a header is emptied: the packet is then like one from any network.
/// `linux/module` does so, too.
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
