//! As a driver that sends: as much of one as a network card's device side needs.

use super::{FROM, Liar};
use crate::gate::CARD;
use crate::net::NEEDED;
use bulkhead_channel::bell::Caller;
use bulkhead_channel::page::{Hello, Phase, following};
use bulkhead_channel::{Bytes, Memory, Word};
use bulkhead_channel_memory::Mapping;
use bulkhead_channel_memory::typed::Pair;
use bulkhead_linux::bell::Register;
use bulkhead_linux::channel::Channel;
use bulkhead_linux::message::Pause;
use bulkhead_virtio::layout::*;
use bulkhead_virtio::net::{HEADER, LARGEST, RECEIVE, SEND};
use std::io;

/// Descriptors, each with an area of its own for a packet of any size: they need [`POOL`] and 2.1 MB.
const COUNT: usize = 32;
const AREA: usize = 66 << 10;

/// A driver's session.
struct Driver {
    own: Mapping<'static>,
    other: Mapping<'static>,
    /// Wakes the device side, where it sleeps.
    bell: Option<Caller<Mapping<'static>, Register<'static>>>,
    /// Packets that were made available.
    sent: u16,
}

impl Driver {
    fn set(&self, at: usize, value: u64) {
        if let Some(word) = self.own.word(at) {
            word.release(value);
        }
    }

    fn get(&self, at: usize) -> u64 {
        self.other.word(at).map_or(0, |word| word.acquire())
    }

    fn tell(&mut self) {
        if let Some(bell) = &mut self.bell {
            bell.tell();
        }
    }

    /// Answers the device side, as the module does, and is ready.
    fn begin(channel: &'static Channel, pair: &Pair<'static>, epoch: u32) -> Self {
        let bell = pair.caller(|_| Some(Register::of(channel)));
        let mut driver = Self { own: *pair.tx(), other: *pair.rx(), bell, sent: 0 };
        let hello = |phase, seen| driver.set(HELLO, Hello { phase, epoch, seen }.word());
        hello(Phase::Absent, 0);
        let sizes = (COUNT as u64) << (16 * SEND) | (COUNT as u64) << (16 * RECEIVE);
        for (at, value) in [
            (ACCEPTED, VERSION_1 | NEEDED),
            (SIZES, sizes),
            (STATUS, DRIVER_OK),
            (avail(RECEIVE), 0),
        ] {
            driver.set(at, value);
        }
        // Which descriptor comes when never changes: as many are available as there are.
        let ring: Vec<u8> = (0..COUNT as u16).flat_map(u16::to_le_bytes).collect();
        if let Some(to) = driver.own.bytes(avail(SEND), 4 + ring.len()) {
            to.write(0, &[0; 4]);
            to.write(4, &ring);
        }
        hello(Phase::Open, Hello::of(driver.get(HELLO)).epoch);
        driver.tell();
        driver
    }

    /// Sends, if there is room.
    fn send(&mut self, message: &[u8]) -> bool {
        let used = (self.get(used(SEND)) >> 16) as u16;
        let waiting = usize::from(self.sent.wrapping_sub(used));
        let slot = usize::from(self.sent) % COUNT;
        let at = POOL + AREA * slot;
        let Some(area) = self.own.bytes(at, AREA).filter(|_| waiting < COUNT) else { return false };
        area.write(0, message);
        self.set(desc(SEND) + 16 * slot, at as u64);
        self.set(desc(SEND) + 16 * slot + 8, message.len() as u64);
        self.sent = self.sent.wrapping_add(1);
        self.set(avail(SEND), u64::from(self.sent) << 16 | 1 << 48);
        self.tell();
        true
    }
}

impl Liar {
    /// To a device side.
    pub fn drive(&mut self, channel: &'static Channel, pair: &Pair<'static>) -> io::Result<()> {
        const { assert!(AREA >= LARGEST) };
        let cable = [&CARD[..], &FROM].concat();
        let hello = |of: &Mapping<'_>| Hello::of(of.word(HELLO).map_or(0, |word| word.acquire()));
        let mut pause = Pause::default();
        while hello(pair.rx()).phase != Phase::Open {
            if self.is_over() {
                return Err(io::Error::other("no device side"));
            }
            pause.wait(Some(self.end));
        }
        let epoch = following(hello(pair.tx()).epoch);
        let mut driver = Driver::begin(channel, pair, epoch);
        let mut message = self.chance.message(&cable, HEADER);
        while !self.is_over() {
            if self.chance.below(32) == 0 {
                message.truncate(self.chance.of(&[1, 11, 12, 13, 25, 26, 45, 46]));
            }
            while !driver.send(&message) && !self.is_over() {
                pause.wait(Some(self.end));
            }
            pause = Pause::default();
            self.told();
            message = self.chance.message(&cable, HEADER);
        }
        driver.set(HELLO, Hello { phase: Phase::Closed, epoch, seen: 0 }.word());
        driver.tell();
        Ok(())
    }
}
