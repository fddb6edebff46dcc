//! Packets, and headers before them that nearly fit.

use crate::gate::{PORT, TARGETS};
use std::net::{Ipv4Addr, Ipv6Addr};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
/// Flag of a header: its checksum is to be filled in.
const NEEDS_CSUM: u8 = 1;
/// Bytes of a header without the number of buffers.
const FIELDS: usize = 10;
const EDGES: [usize; 4] = [0x7FFF, 0x8000, 0xFFFE, 0xFFFF];

/// Borders: two below, one below, there, one above.
fn around(n: usize) -> [usize; 4] {
    [n.wrapping_sub(2), n.wrapping_sub(1), n, n + 1]
}

/// Any sequence is as good: xorshift.
pub struct Chance(u64);

impl Chance {
    pub const fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn border(&mut self, all: &[[usize; 4]]) -> u16 {
        self.of(all.as_flattened()) as u16
    }

    /// A packet behind a cable's header, which is empty without a cable, behind a header of `header` bytes.
    pub fn message(&mut self, cable: &[u8], header: usize) -> Vec<u8> {
        let six = self.below(3) == 0;
        let transport = self.of(&[TCP, TCP, UDP, UDP, ICMP]);
        let own = self.of(&[20, 20, 20, 8, 0, 24]);
        let more = [0, 1, 7, 100, 535, 536, 1447, 1448, 1449, 3000, 9000, 20_000, 65_000];
        let at = cable.len() + if six { 40 } else { 20 };
        let len = (own + self.of(&more)).min(65_535 - at);
        let body = self.body(transport, len);
        let claimed = if self.below(8) == 0 { self.of(&[0, 8, 40, 0xFFFF]) } else { body.len() };
        let ip = if six { self.ip6(transport, claimed) } else { self.ip4(transport, claimed) };
        let mut message = self.header(transport, six, at, at + body.len());
        message.resize(header, 0);
        message.extend_from_slice(cable);
        if let Some(kind) = message[header..].get_mut(12..14).filter(|_| six) {
            kind.copy_from_slice(&[0x86, 0xDD]);
        }
        message.extend(ip);
        message.extend(body);
        message
    }

    fn ip4(&mut self, transport: u8, claimed: usize) -> Vec<u8> {
        let [high, low] = ((claimed + 20).min(0xFFFF) as u16).to_be_bytes();
        // Half of them may be cut up on their way.
        let whole = self.of(&[0x40, 0]);
        let mut head = vec![0x45, 0, high, low, 0, 1, whole, 0, 64, transport, 0, 0, 10, 9, 0, 2];
        head.extend(self.of(&TARGETS).0.parse().map_or([0; 4], |ip: Ipv4Addr| ip.octets()));
        let words = head.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
        let sum: u32 = words.sum();
        let sum = (sum & 0xFFFF) + (sum >> 16);
        let sum = (sum & 0xFFFF) + (sum >> 16);
        head[10..12].copy_from_slice(&(!sum as u16).to_be_bytes());
        head
    }

    fn ip6(&mut self, transport: u8, claimed: usize) -> Vec<u8> {
        let [high, low] = (claimed as u16).to_be_bytes();
        let mut head = vec![0x60, 0, 0, 0, high, low, transport, 64];
        head.extend([0xFD, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        head.extend(self.of(&TARGETS).1.parse().map_or([0; 16], |ip: Ipv6Addr| ip.octets()));
        head
    }

    /// Makes an IP packet's payload, to the programs' port; its checksum is garbage.
    fn body(&mut self, transport: u8, len: usize) -> Vec<u8> {
        let mut head = vec![0x30, 0, 0, PORT as u8];
        match transport {
            // Numbers, the length of its header, and flags.
            TCP => {
                head.extend([0; 8]);
                head.push(self.of(&[0x50, 0x50, 0x50, 0x60, 0xF0, 0x00]));
                head.push(self.of(&[0x10, 0x18, 0x02, 0x01]));
            }
            UDP => head.extend((len as u16).to_be_bytes()),
            _ => {}
        }
        head.resize(len, 0x5A);
        head
    }

    /// A header as it would be, but for up to three fields. The transport's header begins at `at` of `len` bytes.
    fn header(&mut self, transport: u8, six: bool, at: usize, len: usize) -> Vec<u8> {
        let (kind, own, sum) = match (transport, six) {
            (TCP, false) => (1, 20, 16),
            (TCP, true) => (4, 20, 16),
            (UDP, _) => (self.of(&[3, 5]), 8, 6),
            _ => (0, 0, 2),
        };
        let (mut flags, mut gso) = (NEEDS_CSUM, kind);
        let size = self.of(&[536, 1000, 1448, 1448]);
        // Length of the headers and of a piece; where the checksum's sum begins and, from there on, where it goes.
        let mut numbers = [(at + own) as u16, size, at as u16, sum];
        for _ in 0..self.below(4) {
            match self.below(6) {
                0 => flags = self.of(&[0, 0, 2, 3, 4, 7, 0xF, 0xFF]),
                1 => {
                    gso = self.of(&[0, 1, 2, 3, 4, 5, 6, 0x7F, 0x80, 0x81, 0x83, 0x84, 0x85, 0xFF])
                }
                2 => numbers[0] = self.border(&[[0, 1, 12, 14], around(at), around(len), EDGES]),
                3 => {
                    let body = len.saturating_sub(at + own);
                    numbers[1] = self.border(&[[0, 1, 2, 8], around(body), around(len), EDGES]);
                }
                4 => {
                    let early = [[0, 13, 14, 19], [20, 21, 33, 39]];
                    let late = [around(at), around(at + own), around(len), EDGES];
                    numbers[2] = self.border(&[&early[..], &late].concat());
                }
                _ => numbers[3] = self.border(&[[0, 6, 14, 16], around(len - at), EDGES]),
            }
        }
        let mut header = Vec::with_capacity(FIELDS);
        header.extend([flags, gso]);
        header.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        header
    }
}
