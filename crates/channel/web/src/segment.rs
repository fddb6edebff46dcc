//! A TCP segment in an Ethernet frame: its fields, changed in place.
//!
//! A changed field changes the checksum by the difference (RFC 1624). So a segment that came with a wrong sum keeps a
//! wrong one.

use crate::door::Peer;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, TcpOption, TcpPacket,
};

/// A segment.
#[derive(Debug)]
pub struct Segment<'a> {
    /// Ethernet address of the sender.
    pub mac: EthernetAddress,
    /// The sender.
    pub from: Peer,
    /// The receiver.
    pub to: Peer,
    tcp: TcpPacket<&'a mut [u8]>,
}

impl<'a> Segment<'a> {
    /// Finds the segment of a frame. `None`: it has none, or a part of one.
    pub fn of(frame: &'a mut [u8]) -> Option<Self> {
        let ethernet = EthernetFrame::new_checked(&frame[..]).ok()?;
        if ethernet.ethertype() != EthernetProtocol::Ipv4 {
            return None;
        }
        let mac = ethernet.src_addr();
        let ip = Ipv4Packet::new_checked(ethernet.payload()).ok()?;
        let whole = !ip.more_frags() && ip.frag_offset() == 0;
        if ip.version() != 4 || ip.next_header() != IpProtocol::Tcp || !whole {
            return None;
        }
        let (source, destination) = (ip.src_addr(), ip.dst_addr());
        let begin = EthernetFrame::<&[u8]>::header_len() + usize::from(ip.header_len());
        let end = EthernetFrame::<&[u8]>::header_len() + usize::from(ip.total_len());
        let tcp = TcpPacket::new_checked(frame.get_mut(begin..end)?).ok()?;
        let from = Peer { address: source, port: tcp.src_port() };
        let to = Peer { address: destination, port: tcp.dst_port() };
        Some(Self { mac, from, to, tcp })
    }

    /// Tells if it asks for a connection.
    pub fn is_first(&self) -> bool {
        self.tcp.syn() && !self.tcp.ack()
    }

    /// Tells if it accepts a connection.
    pub fn accepts(&self) -> bool {
        self.tcp.syn() && self.tcp.ack()
    }

    /// Returns its first number, and how many it takes.
    pub fn place(&self) -> (u32, u32) {
        // It has bytes for the header that it states.
        (self.tcp.seq_number().0 as u32, self.tcp.segment_len() as u32)
    }

    /// Returns the number that it acknowledges.
    pub fn acknowledges(&self) -> Option<u32> {
        self.tcp.ack().then(|| self.tcp.ack_number().0 as u32)
    }

    /// Returns its window, as it says it.
    pub fn window(&self) -> u16 {
        self.tcp.window_len()
    }

    /// Returns the largest segment and the shift of windows that its sender names.
    pub fn options(&self) -> (Option<u16>, Option<u8>) {
        let packet = TcpPacket::new_unchecked(self.tcp.as_ref());
        let (mut found, mut rest) = ((None, None), packet.options());
        while let Ok((next, option)) = TcpOption::parse(rest) {
            match option {
                TcpOption::MaxSegmentSize(size) => found.0 = Some(size),
                TcpOption::WindowScale(scale) => found.1 = Some(scale),
                TcpOption::EndOfList => break,
                _ => {}
            }
            // An option has a byte at least, or is no option.
            rest = next;
            if rest.is_empty() {
                break;
            }
        }
        found
    }

    /// Gives it another first number.
    pub fn set_first(&mut self, number: u32) {
        let old = self.tcp.seq_number().0 as u32;
        self.tcp.set_seq_number(smoltcp::wire::TcpSeqNumber(number as i32));
        self.changed(old, number);
    }

    /// Lets it acknowledge another number.
    pub fn set_acknowledges(&mut self, number: u32) {
        let old = self.tcp.ack_number().0 as u32;
        self.tcp.set_ack_number(smoltcp::wire::TcpSeqNumber(number as i32));
        self.changed(old, number);
    }

    /// Makes a wish for a connection a segment without bytes, outside of the window: the connection's end answers
    /// it with its numbers.
    pub fn ask(&mut self, number: u32, acknowledges: u32) {
        let word = |tcp: &TcpPacket<&mut [u8]>| {
            let flags = tcp.as_ref().get(12..16).and_then(|word| word.try_into().ok());
            flags.map_or(0, u32::from_be_bytes)
        };
        let old = word(&self.tcp);
        self.tcp.set_syn(false);
        self.tcp.set_ack(true);
        self.changed(old, word(&self.tcp));
        self.set_first(number);
        self.set_acknowledges(acknowledges);
    }

    fn changed(&mut self, old: u32, new: u32) {
        let sum = updated(self.tcp.checksum(), old, new);
        self.tcp.set_checksum(sum);
    }
}

/// Returns a checksum behind a change of 32 of its bits (RFC 1624, equation 3).
fn updated(sum: u16, old: u32, new: u32) -> u16 {
    let halves = |word: u32| (word >> 16) + (word & 0xFFFF);
    let mut all = u32::from(!sum) + halves(!old) + halves(new);
    while all > 0xFFFF {
        all = halves(all);
    }
    !(all as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of all 16-bit words, made anew.
    fn sum(words: &[u16]) -> u16 {
        let mut all: u32 = words.iter().map(|word| u32::from(*word)).sum();
        while all > 0xFFFF {
            all = (all >> 16) + (all & 0xFFFF);
        }
        !(all as u16)
    }

    proptest::proptest! {
        #[test]
        fn a_changed_sum_is_a_new_one(
            mut words in proptest::collection::vec(proptest::num::u16::ANY, 4..20),
            new in proptest::num::u32::ANY,
        ) {
            // A header is never all zeros.
            words[3] |= 1;
            let (before, old) = (sum(&words), u32::from(words[0]) << 16 | u32::from(words[1]));
            (words[0], words[1]) = ((new >> 16) as u16, new as u16);
            proptest::prop_assert_eq!(updated(before, old, new), sum(&words));
        }

        /// Any bytes are a segment or none, and no panic.
        #[test]
        fn any_bytes_are_looked_at(
            mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..120),
            looks in proptest::bool::ANY,
        ) {
            if looks && bytes.len() > 34 {
                bytes[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
                bytes[16..18].copy_from_slice(&[0, 70]);
                bytes[20..24].copy_from_slice(&[0, 0, 64, 6]);
            }
            if let Some(mut segment) = Segment::of(&mut bytes) {
                let _ = (segment.options(), segment.place(), segment.window());
                segment.set_first(7);
                segment.set_acknowledges(9);
                proptest::prop_assert_eq!(segment.place().0, 7);
            }
        }
    }
}
