//! A side that writes garbage, for tests: what would let the other side go on, nearly that, or anything, into all
//! that it can write.

use bulkhead_channel::bell::Ring;
use bulkhead_channel::page::{Hello, Phase};
use bulkhead_channel::{Memory, Word};
use bulkhead_channel_memory::Mapping;
use bulkhead_linux::bell::Register;
use bulkhead_linux::channel::named;
use bulkhead_virtio::layout::*;
use bulkhead_virtio::net;
use std::io;
use std::time::{Duration, Instant};

/// Writes garbage for so many milliseconds.
pub fn run(channel: &str, millis: &str) -> io::Result<()> {
    let millis = millis.parse().map_err(|_| io::Error::other("so many milliseconds?"))?;
    let channel = named(channel)?[0].open()?.stay();
    let pair = channel.pair().ok_or_else(|| io::Error::other("raw pages"))?;
    let mut bell = pair.doorbell().map(|_| Register::of(channel));
    let drives = pair.sends();
    let (own, other) = if drives { (*pair.tx(), *pair.rx()) } else { (*pair.rx(), *pair.tx()) };
    let section = pair.shape().rx_bytes();
    let mut rogue = Rogue { own, other, section, drives, epoch: 1, random: 0x9E37_79B9_7F4A_7C15 };
    let begun = Instant::now();
    let mut words = 0u64;
    while begun.elapsed() < Duration::from_millis(millis) {
        (0..64).for_each(|_| rogue.write());
        bell.iter_mut().for_each(Ring::ring);
        words += 64;
        // The other side is on a core of its own and looks every 50 µs, or is rung for. It must come to see plausible
        // words, too. Meanwhile it is rung for nothing.
        if words.is_multiple_of(4096) {
            rogue.invite();
            let quiet = Instant::now();
            while quiet.elapsed() < Duration::from_millis(30) {
                bell.iter_mut().for_each(Ring::ring);
                std::thread::sleep(Duration::from_micros(20));
            }
        }
    }
    // Otherwise it would still be there.
    rogue.set(HELLO, Hello { phase: Phase::Closed, epoch: rogue.epoch, seen: 0 }.word());
    println!("bhvirtio: {words} words of garbage");
    Ok(())
}

struct Rogue {
    own: Mapping<'static>,
    other: Mapping<'static>,
    section: usize,
    /// It is the driver's side.
    drives: bool,
    epoch: u32,
    random: u64,
}

impl Rogue {
    fn set(&self, at: usize, value: u64) {
        if let Some(word) = self.own.word(at & !7) {
            word.release(value);
        }
    }

    fn get(&self, at: usize) -> u64 {
        self.other.word(at & !7).map_or(0, |word| word.acquire())
    }

    /// xorshift: any sequence is as good.
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) % bound
    }

    /// Writes an honest side's words.
    fn invite(&mut self) {
        self.epoch = self.epoch % 1000 + 1;
        if self.drives {
            for (at, value) in
                [(ACCEPTED, VERSION_1 | net::MRG_RXBUF), (SIZES, 0x80_0100), (STATUS, DRIVER_OK)]
            {
                self.set(at, value);
            }
        } else {
            let features = VERSION_1
                | net::MRG_RXBUF
                | net::MAC
                | net::CSUM
                | net::GUEST_CSUM
                | net::GUEST_TSO4;
            for (at, value) in
                [(DEVICE, 1 | 2 << 32), (OFFERED, features), (SIZES, 0x80_0100), (CONFIG_WORD, 12)]
            {
                self.set(at, value);
            }
            (0..2).for_each(|queue| self.set(used(queue), 0));
        }
        self.answer();
    }

    fn answer(&self) {
        let seen = Hello::of(self.get(HELLO)).epoch;
        self.set(HELLO, Hello { phase: Phase::Open, epoch: self.epoch, seen }.word());
    }

    fn write(&mut self) {
        let queue = self.below(2) as usize;
        let [near, id, len] = [self.below(5), self.below(300), self.below(5000)];
        match self.below(64) {
            0..20 => self.answer(),
            20..30 if self.drives => {
                self.set(avail(queue), near << 16 | id << 32 | id << 48);
            }
            20..30 => {
                let there = self.get(avail(queue)) >> 16 & 0xFFFF;
                self.set(
                    used(queue),
                    (there.wrapping_sub(near) & 0xFFFF) << 16 | (id & 0xFF) << 32,
                );
            }
            30..40 if self.drives => {
                let at = (POOL as u64 + near * self.section as u64 / 2).wrapping_add(len);
                self.set(desc(queue) + 16 * (id as usize % 256), at);
            }
            40..50 if self.drives => {
                self.set(desc(queue) + 16 * (id as usize % 256) + 8, len | near << 32 | id << 48);
            }
            30..50 => self.set(used(queue) + 8 * (id as usize % 128), len | (id % 256) << 32),
            50..62 => {
                let (at, value) = (self.below(self.section as u64), self.random);
                self.set(POOL.max(at as usize), value);
            }
            _ => {
                let (at, value) = (self.below(POOL as u64), self.random);
                self.set(at as usize, value);
            }
        }
    }
}
