//! The memory that outlives the server: one record for each connection.
//!
//! | words | |
//! |---|---|
//! | 0, 1 | magic and version; number of slots |
//! | from 64 on | slots of 640 words, two halves of 320 words each |
//!
//! | word of a half | |
//! |---|---|
//! | 0 | stamp: a number that grows with each record; 0: it is no record |
//! | 1 | sum of the stamp and all that follows |
//! | 2 | the client's address, its port and its window |
//! | 3 | its Ethernet address, its window scale and 1, flags |
//! | 4 | the client's next byte; the byte of ours with which the oldest answer begins |
//! | 5 | the client's segment size, and how many bytes follow |
//! | from 6 on | the client's bytes, from the oldest request on that has no whole answer |
//!
//! A record is written to the older half, and its stamp is taken away before and comes last. So the other half is whole
//! whenever the writer stops. A reader takes it for a claim: a record that cannot be is dropped and counted.

use crate::door::Peer;
use bulkhead_http::LONGEST;
use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicU64, Ordering};
use smoltcp::wire::EthernetAddress;

/// Words of a half, and in front of its bytes.
const HALF: usize = 320;
const HEAD: usize = 6;
/// Bytes of a client that a record holds: the longest request, and others before it.
pub const LOG: usize = 8 * (HALF - HEAD);
const _: () = assert!(LOG >= LONGEST);
/// Words in front of the slots.
const FRONT: usize = 64;
const MAGIC: u64 = 0x0001_4445_5053_5457;

/// Words of memory, each written as a whole.
pub trait Words {
    /// Returns how many there are.
    fn words(&self) -> usize;
    /// Reads a word.
    fn load(&self, at: usize) -> u64;
    /// Writes a word, behind all that were written before.
    fn store(&self, at: usize, word: u64);
}

impl Words for &[AtomicU64] {
    fn words(&self) -> usize {
        self.len()
    }
    fn load(&self, at: usize) -> u64 {
        self[at].load(Ordering::Acquire)
    }
    fn store(&self, at: usize, word: u64) {
        self[at].store(word, Ordering::Release);
    }
}

/// Bytes of a memory for so many connections.
#[must_use]
pub const fn region(connections: usize) -> usize {
    8 * (FRONT + connections * 2 * HALF)
}

/// A connection's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The client.
    pub peer: Peer,
    /// Its Ethernet address.
    pub mac: EthernetAddress,
    /// Its last window, as it said it, and by how many bits that is shifted.
    pub window: u16,
    /// The latter, if it said so.
    pub scale: Option<u8>,
    /// Bytes of its largest segment; 0: it did not say so.
    pub mss: u16,
    /// The client's next byte, behind all that it was told to have arrived.
    pub next: u32,
    /// The byte of ours with which the oldest answer begins.
    pub start: u32,
    /// The client may not know yet that it has the connection.
    pub opening: bool,
    /// It sends no more.
    pub ended: bool,
    /// Its last request took too long.
    pub slow: bool,
    /// Its bytes that have no whole answer yet.
    pub bytes: &'a [u8],
}

const OPENING: u64 = 1;
const ENDED: u64 = 2;
const SLOW: u64 = 4;
const FLAGS: u64 = OPENING | ENDED | SLOW;
/// Largest shift of a window (RFC 7323, 2.3).
const SCALE: u64 = 14;

impl<'a> Record<'a> {
    fn head(&self) -> [u64; HEAD - 2] {
        let mac = self.mac.0.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let scale = self.scale.map_or(0, |scale| u64::from(scale) + 1);
        let flag = |set: bool, flag| if set { flag } else { 0 };
        let flags = flag(self.opening, OPENING) | flag(self.ended, ENDED) | flag(self.slow, SLOW);
        [
            u64::from(self.peer.address.to_bits()) << 32
                | u64::from(self.peer.port) << 16
                | u64::from(self.window),
            mac << 16 | scale << 8 | flags,
            u64::from(self.next) << 32 | u64::from(self.start),
            u64::from(self.mss) << 16 | self.bytes.len() as u64,
        ]
    }

    /// Reads one; `None`: it cannot be.
    fn of(head: [u64; HEAD - 2], bytes: &'a [u8; LOG]) -> Option<Self> {
        let [peer, mac, place, size] = head;
        let (scale, flags) = (mac >> 8 & 0xFF, mac & 0xFF);
        let len = usize::try_from(size & 0xFFFF).ok()?;
        let record = Self {
            peer: self::peer(peer),
            mac: EthernetAddress::from_bytes(&mac.to_be_bytes()[..6]),
            window: peer as u16,
            scale: scale.checked_sub(1).map(|scale| scale as u8),
            mss: (size >> 16) as u16,
            next: (place >> 32) as u32,
            start: place as u32,
            opening: flags & OPENING != 0,
            ended: flags & ENDED != 0,
            slow: flags & SLOW != 0,
            bytes: bytes.get(..len)?,
        };
        let address = record.peer.address;
        let stations =
            !address.is_unspecified() && !address.is_broadcast() && !address.is_multicast();
        let holds = stations
            && record.peer.port != 0
            && record.mac.is_unicast()
            && scale <= SCALE + 1
            && flags & !FLAGS == 0
            && size >> 32 == 0;
        holds.then_some(record)
    }
}

/// A slot, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load<'a> {
    /// It holds no record.
    Empty,
    /// A record, and its stamp.
    Whole(u64, Record<'a>),
    /// Words that cannot be.
    Broken,
}

/// Records, and their only writer.
#[derive(Debug)]
pub struct Records<W> {
    words: W,
    slots: usize,
    stamp: u64,
}

impl<W: Words> Records<W> {
    /// Opens a memory with room for `slots` connections. Memory of another kind or version is emptied.
    /// `None`: there is not so much room.
    #[must_use]
    pub fn open(words: W, slots: usize) -> Option<Self> {
        if words.words() < region(slots) / 8 {
            return None;
        }
        let mut records = Self { words, slots, stamp: 0 };
        let known = [MAGIC, slots as u64];
        if [0, 1].map(|at| records.words.load(at)) != known {
            (0..slots).for_each(|slot| records.clear(slot));
            (0..2).rev().for_each(|at| records.words.store(at, known[at]));
        }
        let halves = (0..slots).flat_map(|slot| [half(slot, 0), half(slot, 1)]);
        // A broken stamp may be the largest number.
        let stamps = halves.map(|at| records.words.load(at)).filter(|stamp| *stamp < u64::MAX / 2);
        records.stamp = stamps.max().unwrap_or(0);
        Some(records)
    }

    /// Returns how many slots there are.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.slots
    }

    /// Stamps of a slot's halves.
    fn stamps(&self, slot: usize) -> [u64; 2] {
        [0, 1].map(|n| self.words.load(half(slot, n)))
    }

    /// Writes a record. The one before stays whole until it is there.
    pub fn write(&mut self, slot: usize, record: &Record<'_>) {
        let [one, two] = self.stamps(slot);
        let at = half(slot, usize::from(one > two));
        self.stamp += 1;
        self.words.store(at, 0);
        let mut sum = Sum::new(self.stamp);
        let bytes = record.bytes.chunks(8).map(|some| {
            let mut word = [0; 8];
            word[..some.len()].copy_from_slice(some);
            u64::from_le_bytes(word)
        });
        for (n, word) in record.head().into_iter().chain(bytes).enumerate() {
            sum.add(word);
            self.words.store(at + 2 + n, word);
        }
        self.words.store(at + 1, sum.0);
        self.words.store(at, self.stamp);
    }

    /// Empties a slot: first the older half, which must not come back.
    pub fn clear(&mut self, slot: usize) {
        let [one, two] = self.stamps(slot);
        let older = usize::from(one > two);
        for n in [older, 1 - older] {
            if self.words.load(half(slot, n)) != 0 {
                self.words.store(half(slot, n), 0);
            }
        }
    }

    /// Returns the stamp of a slot's newer half, and the client that it names. It is looked at no further.
    #[must_use]
    pub fn names(&self, slot: usize) -> (u64, Peer) {
        let (stamp, at) = self.newer(slot);
        (stamp, peer(self.words.load(at + 2)))
    }

    fn newer(&self, slot: usize) -> (u64, usize) {
        let [one, two] = self.stamps(slot);
        (one.max(two), half(slot, usize::from(two > one)))
    }

    /// Reads a slot: the newer half, with its bytes in `bytes`. The older one is no choice where that is broken: the
    /// client was told more.
    pub fn read<'b>(&self, slot: usize, bytes: &'b mut [u8; LOG]) -> Load<'b> {
        let (stamp, at) = self.newer(slot);
        if stamp == 0 {
            return Load::Empty;
        }
        let word = |n: usize| self.words.load(at + n);
        let head = [2, 3, 4, 5].map(word);
        let words = usize::from(head[3] as u16).min(LOG).div_ceil(8);
        let mut sum = Sum::new(stamp);
        head.iter().for_each(|word| sum.add(*word));
        for (n, to) in bytes.chunks_mut(8).take(words).enumerate() {
            sum.add(word(HEAD + n));
            to.copy_from_slice(&word(HEAD + n).to_le_bytes());
        }
        match Record::of(head, bytes) {
            Some(record) if sum.0 == word(1) => Load::Whole(stamp, record),
            _ => Load::Broken,
        }
    }
}

/// The client that a word names.
const fn peer(word: u64) -> Peer {
    Peer { address: Ipv4Addr::from_bits((word >> 32) as u32), port: (word >> 16) as u16 }
}

/// First word of a half.
const fn half(slot: usize, n: usize) -> usize {
    FRONT + (2 * slot + n) * HALF
}

/// A sum that each bit of each word changes.
struct Sum(u64);

impl Sum {
    const fn new(stamp: u64) -> Self {
        Self(stamp ^ 0xCBF2_9CE4_8422_2325)
    }
    const fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// Memory with a writer that stops after so many words.
    struct Cut(RefCell<Vec<u64>>, Cell<usize>);

    impl Cut {
        fn new(slots: usize) -> Self {
            Self(RefCell::new(vec![0; region(slots) / 8]), Cell::new(usize::MAX))
        }
    }

    impl Words for &Cut {
        fn words(&self) -> usize {
            self.0.borrow().len()
        }
        fn load(&self, at: usize) -> u64 {
            self.0.borrow()[at]
        }
        fn store(&self, at: usize, word: u64) {
            if let Some(left) = self.1.get().checked_sub(1) {
                self.1.set(left);
                self.0.borrow_mut()[at] = word;
            }
        }
    }

    fn record(bytes: &[u8], next: u32) -> Record<'_> {
        Record {
            peer: Peer { address: Ipv4Addr::new(10, 0, 2, 15), port: 40_000 },
            mac: EthernetAddress([2, 0, 0, 0, 0, 9]),
            window: 502,
            scale: Some(7),
            mss: 1460,
            next,
            start: next ^ 0x55AA_1234,
            opening: next % 2 == 0,
            ended: next % 3 == 0,
            slow: next % 5 == 0,
            bytes,
        }
    }

    fn load(records: &Records<&Cut>) -> Option<(u64, u32, Vec<u8>)> {
        match records.read(0, &mut [0; LOG]) {
            Load::Whole(stamp, record) => {
                let whole = self::record(record.bytes, record.next);
                assert_eq!(record, whole);
                Some((stamp, record.next, record.bytes.to_vec()))
            }
            Load::Empty => None,
            Load::Broken => panic!("it is broken"),
        }
    }

    #[test]
    fn a_record_is_whole_wherever_its_writer_stops() {
        let bytes: Vec<u8> = (0..LOG).map(|n| n as u8).collect();
        for len in [0, 1, 8, 100, LOG] {
            for stop in 0..len.div_ceil(8) + 10 {
                let memory = Cut::new(1);
                let mut records = Records::open(&memory, 1).expect("it fits");
                records.write(0, &record(&bytes[..77], 1));
                records.write(0, &record(&bytes[..78], 2));
                memory.1.set(stop);
                records.write(0, &record(&bytes[..len], 3));
                let (_, next, have) = load(&records).expect("a record");
                assert!(next == 2 && have == bytes[..78] || next == 3 && have == bytes[..len]);
                assert_eq!(next == 3, stop >= len.div_ceil(8) + 7);
                // The next writer goes on from there.
                memory.1.set(usize::MAX);
                let mut records = Records::open(&memory, 1).expect("it fits");
                records.write(0, &record(b"later", 4));
                assert_eq!(load(&records).expect("a record").1, 4);
                memory.1.set(1);
                records.clear(0);
                assert_eq!(load(&records).map_or(4, |found| found.1), 4);
                memory.1.set(usize::MAX);
                records.clear(0);
                assert_eq!(load(&records), None);
            }
        }
    }

    #[test]
    fn other_memory_is_emptied_and_small_one_refused() {
        let memory = Cut::new(2);
        assert!(Records::open(&memory, 3).is_none());
        memory.0.borrow_mut().fill(0x1234_5678_9ABC_DEF0);
        let records = Records::open(&memory, 2).expect("it fits");
        assert!((0..2).all(|slot| records.read(slot, &mut [0; LOG]) == Load::Empty));
    }

    proptest::proptest! {
        /// Each bit of a record counts: with another one it is broken, or gone.
        #[test]
        fn a_bit_that_flips_is_found(
            word in 0usize..HEAD + 3, bit in 0u32..64, slots in 1usize..4,
        ) {
            let memory = Cut::new(slots);
            let mut records = Records::open(&memory, slots).expect("it fits");
            records.write(0, &record(b"seventeen letters", 3));
            memory.0.borrow_mut()[half(0, 0) + word] ^= 1 << bit;
            let mut bytes = [0; LOG];
            let found = records.read(0, &mut bytes);
            proptest::prop_assert!(matches!(found, Load::Broken | Load::Empty), "{found:?}");
        }
    }
}
