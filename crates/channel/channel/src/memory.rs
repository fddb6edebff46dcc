//! Memory as an end needs it. A fake for tests, a model checker's memory and a mapping of the machine implement it.
//!
//! Nothing here gives out a reference to the memory: the peer changes it at any time, and a `&[u8]` promises that it
//! stays. Values go in and out by copy, and "in place" means word by word in the message's own memory.

use core::fmt::Debug;

/// 64 bits that both sides see whole. Every word of the protocol carries the epoch that
/// it belongs to, so two halves must not be read apart.
pub trait Word: Clone + Debug {
    /// Reads, in no order with other accesses.
    fn relaxed(&self) -> u64;
    /// Reads, before every later access of this end.
    fn acquire(&self) -> u64;
    /// Writes, in no order. For a word that the peer does not look at yet.
    fn set(&self, value: u64);
    /// Writes, after every earlier access of this end, reads too.
    fn release(&self, value: u64);
    /// [`Word::release`], and then no later access of this end before it is visible
    /// (a full fence: the store, then loads).
    fn fenced(&self, value: u64);
}

/// Words of a block.
pub const BLOCK: usize = 8;

/// A run of bytes, for messages. Accesses have no order of their own and need not be
/// whole: the words around them see to that. Offsets are bytes from the run's beginning;
/// an access that would leave the run does nothing.
pub trait Bytes: Clone + Debug {
    /// Returns how many there are.
    fn len(&self) -> usize;
    /// Tells if it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies out. `false`, and nothing copied, if it would leave the run.
    fn read(&self, at: usize, to: &mut [u8]) -> bool;
    /// Copies in. `false`, and nothing copied, if it would leave the run.
    fn write(&self, at: usize, from: &[u8]) -> bool;
    /// Reads eight bytes at a multiple of eight, little-endian; 0 outside of the run.
    fn word(&self, at: usize) -> u64;
    /// Writes eight bytes at a multiple of eight; nothing outside of the run.
    fn set_word(&self, at: usize, value: u64);
    /// Reads blocks from a multiple of eight on, one after the other. It is the fastest way to read in place, because
    /// the bounds are checked once. No block if one would leave the run.
    #[inline]
    fn blocks(&self, at: usize, count: usize) -> impl Iterator<Item = [u64; BLOCK]> {
        let inside = fits(self.len(), at, count);
        (0..if inside { count } else { 0 })
            .map(move |n| core::array::from_fn(|word| self.word(at + 8 * (BLOCK * n + word))))
    }
    /// Writes blocks: `block` makes each from its number. No block if one would leave the run.
    #[inline]
    fn fill(&self, at: usize, count: usize, mut block: impl FnMut(usize) -> [u64; BLOCK]) {
        for n in 0..if fits(self.len(), at, count) { count } else { 0 } {
            for (word, value) in block(n).into_iter().enumerate() {
                self.set_word(at + 8 * (BLOCK * n + word), value);
            }
        }
    }
}

/// Tells if that many blocks from an offset on lie in a run of `len` bytes.
#[inline]
#[must_use]
pub const fn fits(len: usize, at: usize, count: usize) -> bool {
    // For messages of one size all but the offset is known beforehand.
    count <= len / (8 * BLOCK) && at <= len - 8 * BLOCK * count
}

/// A place that goes round a ring of slots, from the last one to the first. A memory of the machine keeps an
/// address, so that a message costs no multiplication, no sum and no comparison with the region's end.
pub trait Lane: Clone + Debug {
    /// Returns the distance from the ring's beginning in bytes.
    fn at(&self) -> usize;
    /// To the next slot.
    fn step(&mut self);
    /// So many slots on, at most as many as there are.
    fn go(&mut self, slots: u32);
    /// To the first one.
    fn restart(&mut self);
}

/// A lane of offsets, for memories that are not in a hurry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Offsets {
    at: usize,
    stride: usize,
    end: usize,
}

impl Offsets {
    /// Makes the offsets of `slots` slots of `stride` bytes; `None` if they are empty, or too many for offsets to
    /// count twice.
    #[must_use]
    pub fn new(stride: usize, slots: u32) -> Option<Self> {
        let end = stride.checked_mul(slots as usize)?;
        (end > 0 && end <= usize::MAX / 2).then_some(Self { at: 0, stride, end })
    }
}

impl Lane for Offsets {
    #[inline]
    fn at(&self) -> usize {
        self.at
    }

    #[inline]
    fn step(&mut self) {
        self.go(1);
    }

    #[inline]
    fn go(&mut self, slots: u32) {
        let at = self.at + slots as usize * self.stride;
        self.at = if at >= self.end { at - self.end } else { at };
    }

    fn restart(&mut self) {
        self.at = 0;
    }
}

/// A region. Its parts are checked when they are asked for, so that an access costs no
/// comparison later.
pub trait Memory: Clone + Debug {
    /// One word of it.
    type Word: Word;
    /// Part of it.
    type Bytes: Bytes;
    /// A place that goes round a ring in it.
    type Lane: Lane;
    /// Returns the word at an offset in bytes, a multiple of eight; `None` outside.
    fn word(&self, at: usize) -> Option<Self::Word>;
    /// Returns the bytes from an offset on, a multiple of eight; `None` outside.
    fn bytes(&self, at: usize, len: usize) -> Option<Self::Bytes>;
    /// Returns a lane of slots of `stride` bytes, which begins at an offset that is a multiple of eight. `None` if
    /// they do not lie in the region.
    fn lane(&self, at: usize, stride: usize, slots: u32) -> Option<Self::Lane>;
    /// A full fence: every access before it comes before every one after it.
    fn fence(&self);
}
