//! The ring: a page with a [`Head`], then a power of two of records.
//!
//! **Writing.** The record's number is set to 0, its words are written, then its number, then the head's count. A
//! reader that finds the right number both before and after has a whole record ([`Slot::read`]). A reader that copies
//! memory without an order, as a file is read, looks at the count behind the copy. While the count is `w`, record `w`
//! at most is being written. So it does not trust the record one round before that, nor older ones ([`Head::oldest`]).
//!
//! Counts have 64 bits and never wrap; a record's number has the lower 32 of them, never 0.

use crate::{Event, Field};
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// `"BHTRACE1"`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BHTRACE1");
/// Bytes in front of the records: a page.
pub const HEAD: u64 = 4096;
/// Bytes of a record.
pub const RECORD: u64 = size_of::<Slot>() as u64;

/// Facts about a ring, at its first words.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Head {
    magic: AtomicU64,
    /// Records that were ever written.
    written: AtomicU64,
    records: AtomicU64,
    hz: AtomicU64,
    /// The clock at its beginning, ticks.
    began: AtomicU64,
}

/// A place for a record.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub struct Slot([AtomicU64; 4]);

/// An event and when it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The clock, ticks.
    pub ticks: u64,
    /// The event.
    pub event: Event,
}

/// A ring in memory.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    /// Its head.
    pub head: &'a Head,
    /// As many as [`Head`] says, a power of two.
    pub slots: &'a [Slot],
}

/// Returns the number of the `n`th record as it has it: not 0.
const fn number(n: u64) -> u32 {
    let number = n.wrapping_add(1) as u32;
    if number == 0 { u32::MAX } else { number }
}

impl Slot {
    /// Writes the `n`th record.
    #[inline(always)]
    fn write(&self, n: u64, ticks: u64, event: Event) {
        let (kind, Field { a, b, value }) = event.encode();
        let [first, second, third, fourth] = &self.0;
        first.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        second.store(ticks, Ordering::Relaxed);
        third.store(a as u64 | (b as u64) << 32, Ordering::Relaxed);
        fourth.store(value, Ordering::Relaxed);
        first.store(number(n) as u64 | (kind as u64) << 32, Ordering::Release);
    }

    /// Returns the `n`th record, if it lies there, and whole.
    #[must_use]
    pub fn read(&self, n: u64) -> Option<Record> {
        let [first, rest @ ..] = &self.0;
        let before = first.load(Ordering::Acquire);
        let [second, third, fourth] =
            [&rest[0], &rest[1], &rest[2]].map(|w| w.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let after = first.load(Ordering::Relaxed);
        (before == after).then(|| decode(n, [before, second, third, fourth])).flatten()
    }
}

/// The `n`th record, if these are its words.
#[must_use]
pub fn decode(n: u64, [first, ticks, objects, value]: [u64; 4]) -> Option<Record> {
    if first as u32 != number(n) {
        return None;
    }
    let fields = Field { a: objects as u32, b: (objects >> 32) as u32, value };
    Some(Record { ticks, event: Event::decode((first >> 32) as u8, fields)? })
}

impl Head {
    /// Returns the oldest record that a copy can be trusted to have, if the count says so after it was made.
    #[must_use]
    pub const fn oldest(written: u64, records: u64) -> u64 {
        written.saturating_add(1).saturating_sub(records)
    }
}

/// Writer of a ring.
#[derive(Clone, Copy, Debug, Default)]
pub struct Writer {
    /// Running thread and its context, as the ring tells it.
    runs: (u32, u32),
}

impl Writer {
    /// Returns a writer that has told no running thread.
    #[must_use]
    pub const fn new() -> Self {
        Self { runs: (0, 0) }
    }

    /// Returns the thread that runs and its context, as the ring tells it.
    #[must_use]
    pub const fn runs(&self) -> Option<(u32, u32)> {
        if self.runs.0 == 0 { None } else { Some(self.runs) }
    }

    /// Makes a zeroed ring ready.
    pub fn begin(ring: Ring<'_>, ticks: u64, hz: u64) {
        ring.head.records.store(ring.slots.len() as u64, Ordering::Relaxed);
        ring.head.hz.store(hz, Ordering::Relaxed);
        ring.head.began.store(ticks, Ordering::Relaxed);
        ring.head.magic.store(MAGIC, Ordering::Release);
    }

    /// Tells if an event is new: a thread that runs already is not.
    #[inline(always)]
    pub fn is_news(&mut self, event: &Event) -> bool {
        match *event {
            Event::Run { thread, context, .. } => {
                core::mem::replace(&mut self.runs, (thread, context)) != (thread, context)
            }
            Event::Leave { context, .. } => {
                if self.runs.1 == context {
                    self.runs = (0, u32::MAX);
                    return true;
                }
                false
            }
            _ => true,
        }
    }

    /// Adds an event, instead of the oldest if the ring is full.
    #[inline(always)]
    pub fn write(&mut self, ring: Ring<'_>, ticks: u64, event: Event) {
        if !self.is_news(&event) {
            return;
        }
        let n = ring.head.written.load(Ordering::Relaxed);
        let mask = (ring.slots.len() as u64).wrapping_sub(1);
        if let Some(slot) = ring.slots.get((n & mask) as usize) {
            slot.write(n, ticks, event);
            ring.head.written.store(n + 1, Ordering::Release);
        }
    }
}

#[cfg(test)]
impl Head {
    /// One of its words.
    pub(crate) fn word(&self, n: usize) -> u64 {
        let all = [&self.magic, &self.written, &self.records, &self.hz, &self.began];
        all[n].load(Ordering::Acquire)
    }
}

#[cfg(test)]
impl Slot {
    /// One of its words.
    pub(crate) fn word(&self, n: usize) -> u64 {
        self.0[n].load(Ordering::Acquire)
    }
}
