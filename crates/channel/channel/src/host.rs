//! Memory of the host: for tests, with everything that the machine's has but speed.

use crate::memory::{Bytes, Memory, Offsets, Word};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU64, AtomicUsize, fence};

/// Words behind a counter of accesses.
#[derive(Debug)]
struct Shared {
    words: Vec<AtomicU64>,
    accesses: AtomicUsize,
}

/// A region. Clones share one memory.
#[derive(Clone, Debug)]
pub struct Region(Arc<Shared>);

impl Region {
    /// So many bytes, rounded up to a multiple of eight: zeros.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let words = (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Shared { words, accesses: AtomicUsize::new(0) }))
    }

    /// Loads and stores so far, by whomever.
    #[must_use]
    pub fn accesses(&self) -> usize {
        self.0.accesses.load(Relaxed)
    }

    /// Returns how many words it has.
    #[must_use]
    pub fn words(&self) -> usize {
        self.0.words.len()
    }

    /// Writes a word as a peer could; without effect outside.
    pub fn poke(&self, word: usize, value: u64) {
        if let Some(word) = self.0.words.get(word) {
            word.store(value, Release);
        }
    }

    /// Returns a word; 0 outside.
    #[must_use]
    pub fn look(&self, word: usize) -> u64 {
        self.0.words.get(word).map_or(0, |word| word.load(Acquire))
    }

    /// All zeros.
    pub fn clear(&self) {
        self.0.words.iter().for_each(|word| word.store(0, Release));
    }

    fn at(&self, word: usize) -> &AtomicU64 {
        self.0.accesses.fetch_add(1, Relaxed);
        // An offset is checked where the part is made: one outside is a mistake of ours.
        &self.0.words[word]
    }
}

/// A word of it.
#[derive(Clone, Debug)]
pub struct Cell(Region, usize);

impl Word for Cell {
    fn relaxed(&self) -> u64 {
        self.0.at(self.1).load(Relaxed)
    }
    fn acquire(&self) -> u64 {
        self.0.at(self.1).load(Acquire)
    }
    fn set(&self, value: u64) {
        self.0.at(self.1).store(value, Relaxed);
    }
    fn release(&self, value: u64) {
        self.0.at(self.1).store(value, Release);
    }
    fn fenced(&self, value: u64) {
        self.0.at(self.1).swap(value, AcqRel);
        fence(SeqCst);
    }
}

/// Part of it.
#[derive(Clone, Debug)]
pub struct Run {
    region: Region,
    from: usize,
    len: usize,
}

impl Run {
    fn inside(&self, at: usize, len: usize) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.len)
    }
}

impl Bytes for Run {
    fn len(&self) -> usize {
        self.len
    }

    fn read(&self, at: usize, to: &mut [u8]) -> bool {
        let inside = self.inside(at, to.len());
        for (n, byte) in to.iter_mut().enumerate().filter(|_| inside) {
            let at = self.from + at + n;
            *byte = (self.region.at(at / 8).load(Relaxed) >> (at % 8 * 8)) as u8;
        }
        inside
    }

    fn write(&self, at: usize, from: &[u8]) -> bool {
        let inside = self.inside(at, from.len());
        for (n, byte) in from.iter().enumerate().filter(|_| inside) {
            let at = self.from + at + n;
            let (word, shift) = (self.region.at(at / 8), at % 8 * 8);
            // One writer: the word does not change in between.
            let old = word.load(Relaxed) & !(0xFF << shift);
            word.store(old | u64::from(*byte) << shift, Relaxed);
        }
        inside
    }

    fn word(&self, at: usize) -> u64 {
        if self.inside(at, 8) { self.region.at((self.from + at) / 8).load(Relaxed) } else { 0 }
    }

    fn set_word(&self, at: usize, value: u64) {
        if self.inside(at, 8) {
            self.region.at((self.from + at) / 8).store(value, Relaxed);
        }
    }
}

impl Memory for Region {
    type Word = Cell;
    type Bytes = Run;
    type Lane = Offsets;

    fn word(&self, at: usize) -> Option<Cell> {
        (at % 8 == 0 && at / 8 < self.words()).then(|| Cell(self.clone(), at / 8))
    }

    fn bytes(&self, at: usize, len: usize) -> Option<Run> {
        let fits = at.checked_add(len)? <= self.words() * 8 && at % 8 == 0;
        fits.then(|| Run { region: self.clone(), from: at, len })
    }

    fn lane(&self, at: usize, stride: usize, slots: u32) -> Option<Offsets> {
        let lane = Offsets::new(stride, slots)?;
        self.bytes(at, stride * slots as usize).map(|_| lane)
    }

    fn fence(&self) {
        fence(SeqCst);
    }
}
