//! The newest state: written and read at any time, by a bounded number of steps, without a wait and without a torn
//! read.
//!
//! The algorithm is Simpson's ("Four-slot fully asynchronous communication mechanism", IEE Proceedings 137 Pt E,
//! 1990): two pairs of two slots. The reader says which pair it reads from. The writer writes to the other pair, and
//! there to the slot that it wrote last but one. His three words of the writer are bits of one here, stored at once.
//!
//! A reader that finds the pair that it already holds needs no store and so no fence. The writer has long been told to
//! keep out of that pair. Where the pair changed, and in each write, there is one full fence.
//!
//! The writer never waits for a session and is never refused. Only one bit of the reader has an effect on it, and the
//! bit only chooses the pair. Nor does a state of an earlier life of the writer reach the reader. The word carries the
//! writer's epoch, and tells if the writer has written a state in it.

use crate::layout::{DATA, Shape};
use crate::memory::{Bytes, Memory, Word};
use crate::page::{Own, Peer, Phase, tag, tag_of};
use crate::{Misfit, Stop};

/// Bits of the writer's word: the newer slot of each pair (bits 0 and 1), ...
const SLOTS: u32 = 3;
/// ... the pair written last (bit 2), ...
const PAIR: u32 = 2;
/// ... and if a state was written in this epoch, ...
const VALID: u32 = 1 << 3;
/// ... and the number of the write, so that the reader sees that there is a new one.
const NUMBER: u32 = 1 << 4;

/// Bit `n` of a word.
const fn bit(word: u32, n: u32) -> u32 {
    word >> (n & 31) & 1
}

#[derive(Debug)]
#[cfg_attr(feature = "host", derive(Clone))]
struct Slots<B: Bytes> {
    data: B,
    size: usize,
    stride: usize,
}

impl<B: Bytes> Slots<B> {
    fn new<M: Memory<Bytes = B>>(tx: &M, size: u32) -> Result<Self, Misfit> {
        let shape = Shape::Mailbox { size };
        let data = tx.bytes(DATA, shape.data_bytes().ok_or(Misfit)?).ok_or(Misfit)?;
        Ok(Self { data, size: size as usize, stride: shape.stride().ok_or(Misfit)? })
    }

    /// Returns the offset of a slot of a pair.
    const fn base(&self, pair: u32, slot: u32) -> usize {
        (pair << 1 | slot) as usize * self.stride
    }
}

/// The end that writes.
#[derive(Debug)]
#[cfg_attr(feature = "host", derive(Clone))]
pub struct Writer<M: Memory> {
    page: Own<M>,
    peer: Peer<M>,
    slots: Slots<M::Bytes>,
    /// Its word, without the epoch.
    word: u32,
}

impl<M: Memory> Writer<M> {
    /// Opens the end: `mine` is `tx`, `theirs` is `rx`.
    ///
    /// # Errors
    /// If the regions are too small, or the size is 0.
    pub fn open(mine: &M, theirs: &M, size: u32) -> Result<Self, Misfit> {
        let (slots, peer) = (Slots::new(mine, size)?, Peer::new(theirs)?);
        // Pair and slots go on from an earlier life; its state may be being read.
        let kept = |old: u64| old as u32 & !VALID;
        let page = Own::open(mine, &peer, Shape::Mailbox { size }, kept)?;
        let word = kept(page.index.relaxed());
        Ok(Self { page, peer, slots, word })
    }

    /// Publishes a state; if it is shorter than the mailbox, the slot's old bytes follow it.
    ///
    /// # Errors
    /// [`Stop::Size`] if it is longer than the mailbox.
    #[inline]
    pub fn write(&mut self, state: &[u8]) -> Result<(), Stop> {
        if state.len() > self.slots.size {
            return Err(Stop::Size);
        }
        // Acquire: the reader's accesses to the other pair, before it came to this one, come before the write.
        let pair = self.peer.index() as u32 & 1 ^ 1;
        let slot = bit(self.word, pair) ^ 1;
        // Inside: both are 0 or 1.
        let _ = self.slots.data.write(self.slots.base(pair, slot), state);
        let kept = self.word & !(SLOTS & 1 << pair) & !(1 << PAIR);
        self.word = (kept | slot << pair | pair << PAIR | VALID).wrapping_add(NUMBER);
        // Release: the state is there before the word says so. And a fence: the next write
        // must not look at the reader's pair before this one can be seen. Else it could
        // take the slot that a reader, which came meanwhile, has learnt from the word before.
        self.page.index.fenced(tag(self.page.epoch()) | u64::from(self.word));
        Ok(())
    }

    /// Tells if a reader has answered in this life.
    #[must_use]
    pub fn heard(&self) -> bool {
        let hello = self.peer.hello();
        hello.phase == Phase::Open && hello.seen == self.page.epoch()
    }

    /// Leaves. The last state stays readable.
    pub fn close(self) {
        self.page.close();
    }
}

/// The end that reads.
#[derive(Debug)]
#[cfg_attr(feature = "host", derive(Clone))]
pub struct Reader<M: Memory> {
    page: Own<M>,
    peer: Peer<M>,
    slots: Slots<M::Bytes>,
    shape: Shape,
    /// The pair that its own word names.
    pair: u32,
    /// The writer's epoch; 0: unknown.
    writer: u32,
    /// The writer's word at the last read.
    last: u64,
}

impl<M: Memory> Reader<M> {
    /// Opens the end: `mine` is `rx`, `theirs` is `tx`.
    ///
    /// # Errors
    /// If the regions are too small, or the size is 0.
    pub fn open(mine: &M, theirs: &M, size: u32) -> Result<Self, Misfit> {
        let (slots, peer) = (Slots::new(theirs, size)?, Peer::new(theirs)?);
        let shape = Shape::Mailbox { size };
        let page = Own::open(mine, &peer, shape, |_| 0)?;
        let mut reader = Self { page, peer, slots, shape, pair: 0, writer: 0, last: 0 };
        reader.hold(0);
        Ok(reader)
    }

    /// Copies the newest state out; its first bytes, if the buffer is shorter. True if it is newer than the last
    /// time.
    ///
    /// # Errors
    /// [`Stop::Wait`] if the writer has written no state in this life, [`Stop::Size`] if the buffer is longer than the
    /// mailbox, and news of the writer.
    #[inline]
    pub fn read(&mut self, to: &mut [u8]) -> Result<bool, Stop> {
        if to.len() > self.slots.size {
            return Err(Stop::Size);
        }
        let mut word = self.newest()?;
        let pair = bit(word as u32, PAIR);
        if pair != self.pair {
            self.hold(pair);
            // The slot of the pair: the word counts only after the writer could see the pair.
            word = self.newest()?;
        }
        let slot = bit(word as u32, pair);
        let _ = self.slots.data.read(self.slots.base(pair, slot), to);
        let new = word != self.last;
        self.last = word;
        Ok(new)
    }

    /// [`Reader::read`], if there is a newer state than the last time.
    ///
    /// # Errors
    /// [`Stop::Wait`] if there is no newer state, [`Stop::Left`] once if the writer has closed and there will be no
    /// other, and the errors of [`Reader::read`].
    pub fn read_newer(&mut self, to: &mut [u8]) -> Result<(), Stop> {
        if self.peer.index() != self.last {
            return self.read(to).map(|_| ());
        }
        let hello = self.peer.hello();
        let left = hello.phase != Phase::Open && self.writer != 0 && self.peer.index() == self.last;
        if left {
            self.writer = 0;
        }
        Err(if left { Stop::Left } else { Stop::Wait })
    }

    /// Returns the writer's word, if there is a state of the writer that is known.
    fn newest(&mut self) -> Result<u64, Stop> {
        // Acquire: the state that it names is there.
        let word = self.peer.index();
        if tag_of(word) != self.writer {
            self.meet(tag_of(word))?;
        }
        if word as u32 & VALID == 0 { Err(Stop::Wait) } else { Ok(word) }
    }

    /// Keeps the writer out of a pair.
    fn hold(&mut self, pair: u32) {
        self.pair = pair;
        // Release: the reads from the other pair are done. And a fence: the writer's word is not looked at before the
        // writer could see the pair that is held.
        self.page.index.fenced(tag(self.page.epoch()) | u64::from(pair));
    }

    /// Another epoch of the writer's.
    fn meet(&mut self, epoch: u32) -> Result<(), Stop> {
        let hello = self.peer.hello();
        if hello.phase == Phase::Absent || hello.epoch != epoch || epoch == 0 {
            return Err(Stop::Apart);
        }
        if !self.peer.fits(self.shape) {
            return Err(Stop::Foreign);
        }
        self.page.answer(epoch);
        let known = self.writer != 0;
        self.writer = epoch;
        if known { Err(Stop::Lost) } else { Ok(()) }
    }

    /// Leaves.
    pub fn close(self) {
        self.page.close();
    }
}
