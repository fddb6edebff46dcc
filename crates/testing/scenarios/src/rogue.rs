//! A rogue that writes what it likes into everything that it can write.

use crate::{Guest, In, Out};
use bulkhead_channel::layout::{ARMED, DATA, FIRST, GEOMETRY, HELLO, IDENTITY, INDEX, Shape};
use bulkhead_channel::page::{Hello, Phase};
use bulkhead_channel::{Memory, Word};
use bulkhead_channel_memory::typed::Pair;

/// Garbage that repeats in each run: xorshift64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

/// Does so for `ms` milliseconds, now and then as a peer that means it, so that there are sessions to spoil. With
/// `poke=1` it writes in the end to memory that it may only read.
pub fn rogue(host: &impl Guest, pair: &Pair<'static>) -> Option<()> {
    let end = host.now() + 1_000_000 * host.number("ms")?;
    let (own, len) = match pair.sends() {
        true => (pair.tx(), pair.shape().tx_bytes()?),
        false => (pair.rx(), pair.shape().rx_bytes()),
    };
    let theirs = if pair.sends() { pair.rx() } else { pair.tx() };
    let mut random = Random(0x5EED);
    while host.now() < end {
        behave(pair, random.below(32));
        for _ in 0..random.below(64) {
            let at = place(&mut random, len);
            let value = value(&mut random, pair.shape(), theirs.word(HELLO)?.relaxed());
            own.word(at)?.set(value);
        }
        core::hint::spin_loop();
    }
    host.say(format_args!("rogue is done"));
    if host.number("poke").is_some() {
        theirs.word(ARMED)?.set(1);
        host.say(format_args!("rogue wrote to what it may only read"));
    }
    Some(())
}

/// A few calls as they should be.
fn behave(pair: &Pair<'static>, calls: u64) {
    if pair.sends() {
        let Some(mut end) = Out::open(pair) else { return };
        for number in 0..calls {
            let _ = end.send(number);
        }
    } else if let Some(mut end) = In::open(pair) {
        for _ in 0..calls {
            let _ = end.receive();
        }
    }
}

/// Where to write: mostly the words of the header.
fn place(random: &mut Random, len: usize) -> usize {
    let header = [IDENTITY, GEOMETRY, HELLO, INDEX, INDEX, ARMED];
    match random.below(8) {
        0 => random.below(DATA as u64 / 8) as usize * 8,
        1 if len > DATA => DATA + random.below((len - DATA) as u64 / 8) as usize * 8,
        _ => header[random.below(header.len() as u64) as usize],
    }
}

/// The value to write: any, or one that is nearly right.
fn value(random: &mut Random, shape: Shape, theirs: u64) -> u64 {
    let Hello { epoch, seen, .. } = Hello::of(theirs);
    let near = |random: &mut Random, value: u32| {
        value.wrapping_add(random.below(5) as u32).wrapping_sub(2)
    };
    match random.below(6) {
        0 => random.next(),
        1 => shape.identity(),
        2 => shape.geometry(),
        3 => Hello { phase: Phase::Open, epoch: near(random, seen), seen: epoch }.word(),
        4 => u64::from(seen) << 32 | u64::from(near(random, FIRST)),
        _ => u64::from(near(random, seen)) << 32 | random.next() >> 32,
    }
}
