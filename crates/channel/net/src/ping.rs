//! Echo requests (RFC 792) and their answers, as IP packets.

use crate::wire::FRAME;
use core::net::Ipv4Addr;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr, IpProtocol, Ipv4Packet, Ipv4Repr};

/// Payload of a request and of its answer.
const DATA: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz012345";

/// A station that asks another for echoes.
#[derive(Clone, Copy, Debug)]
pub struct Pinger {
    own: Ipv4Addr,
    other: Ipv4Addr,
    ident: u16,
}

impl Pinger {
    /// Makes a pinger; `ident` tells its requests from those of others at its address.
    #[must_use]
    pub const fn new(own: Ipv4Addr, other: Ipv4Addr, ident: u16) -> Self {
        Self { own, other, ident }
    }

    /// The request of a number: the packet, in the buffer.
    pub fn request<'a>(&self, number: u16, buffer: &'a mut [u8; FRAME]) -> &'a [u8] {
        let sums = ChecksumCapabilities::default();
        let echo = Icmpv4Repr::EchoRequest { ident: self.ident, seq_no: number, data: DATA };
        let head = Ipv4Repr {
            src_addr: self.own,
            dst_addr: self.other,
            next_header: IpProtocol::Icmp,
            payload_len: echo.buffer_len(),
            hop_limit: 64,
        };
        let packet = &mut buffer[..head.buffer_len() + echo.buffer_len()];
        let (before, behind) = packet.split_at_mut(head.buffer_len());
        echo.emit(&mut Icmpv4Packet::new_unchecked(behind), &sums);
        head.emit(&mut Ipv4Packet::new_unchecked(before), &sums);
        packet
    }

    /// Returns the number of the request that a packet answers, if it is whole, and an answer to one of this pinger's.
    #[must_use]
    pub fn answered(&self, packet: &[u8]) -> Option<u16> {
        let sums = ChecksumCapabilities::default();
        let packet = Ipv4Packet::new_checked(packet).ok()?;
        let head = Ipv4Repr::parse(&packet, &sums).ok()?;
        let ours = head.next_header == IpProtocol::Icmp
            && (head.src_addr, head.dst_addr) == (self.other, self.own);
        let echo = Icmpv4Packet::new_checked(packet.payload()).ok()?;
        match Icmpv4Repr::parse(&echo, &sums).ok()? {
            Icmpv4Repr::EchoReply { ident, seq_no, data }
                if ours && ident == self.ident && data == DATA =>
            {
                Some(seq_no)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use smoltcp::iface::{Config, Interface, SocketSet};
    use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
    use smoltcp::time::Instant;
    use smoltcp::wire::{HardwareAddress, IpCidr};

    const OWN: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
    const OTHER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

    /// A device that brings one packet, and keeps the packets that are sent. (`smoltcp`'s loopback leaves checksums
    /// out.)
    #[derive(Default)]
    struct Once {
        comes: Option<Vec<u8>>,
        goes: Vec<u8>,
    }

    struct Comes(Vec<u8>);
    struct Goes<'a>(&'a mut Vec<u8>);

    impl RxToken for Comes {
        fn consume<T, F: FnOnce(&[u8]) -> T>(self, look: F) -> T {
            look(&self.0)
        }
    }

    impl TxToken for Goes<'_> {
        fn consume<T, F: FnOnce(&mut [u8]) -> T>(self, len: usize, fill: F) -> T {
            self.0.resize(len, 0);
            fill(self.0)
        }
    }

    impl Device for Once {
        type RxToken<'a> = Comes;
        type TxToken<'a> = Goes<'a>;

        fn receive(&mut self, _: Instant) -> Option<(Comes, Goes<'_>)> {
            Some((Comes(self.comes.take()?), Goes(&mut self.goes)))
        }

        fn transmit(&mut self, _: Instant) -> Option<Goes<'_>> {
            Some(Goes(&mut self.goes))
        }

        fn capabilities(&self) -> DeviceCapabilities {
            let mut capabilities = DeviceCapabilities::default();
            (capabilities.medium, capabilities.max_transmission_unit) = (Medium::Ip, 1500);
            capabilities
        }
    }

    /// Returns a station's answer to a packet.
    fn answer(packet: &[u8]) -> Vec<u8> {
        let mut device = Once { comes: Some(packet.to_vec()), ..Once::default() };
        let mut station =
            Interface::new(Config::new(HardwareAddress::Ip), &mut device, Instant::ZERO);
        station.update_ip_addrs(|all| all.push(IpCidr::new(OTHER.into(), 24)).unwrap());
        station.poll_ingress_single(Instant::ZERO, &mut device, &mut SocketSet::new(vec![]));
        device.goes
    }

    proptest! {
        #[test]
        fn a_station_answers_and_the_answer_is_known(number: u16, ident: u16) {
            let mut buffer = [0; FRAME];
            let pinger = Pinger::new(OWN, OTHER, ident);
            let request = pinger.request(number, &mut buffer);
            prop_assert_eq!(pinger.answered(request), None);
            let answer = answer(request);
            prop_assert_eq!(pinger.answered(&answer), Some(number));
            let others = [
                Pinger::new(OWN, OTHER, !ident),
                Pinger::new(OTHER, OTHER, ident),
                Pinger::new(OWN, OWN, ident),
            ];
            prop_assert!(others.iter().all(|other| other.answered(&answer).is_none()));
        }

        #[test]
        fn whatever_comes_is_looked_at(packet: Vec<u8>) {
            prop_assert_eq!(Pinger::new(OWN, OTHER, 7).answered(&packet), None);
        }
    }

    /// The IP header is under a checksum of its own.
    #[test]
    fn no_answer_with_a_bit_turned_is_taken() {
        let mut buffer = [0; FRAME];
        let pinger = Pinger::new(OWN, OTHER, 7);
        let answer = answer(pinger.request(9, &mut buffer));
        assert_eq!(answer.len(), 60);
        for bit in 0..answer.len() * 8 {
            let mut other = answer.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(pinger.answered(&other), None, "bit {bit}");
        }
    }
}
