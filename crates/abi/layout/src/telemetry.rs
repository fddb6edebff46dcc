//! The telemetry page: a flight controller's words about itself once a period, in whole numbers so that a reader needs
//! no floating point.
//!
//! The page is a header and [`SLOTS`] numbered slots. The writer fills the next slot and then names it in the header;
//! it never waits, whatever readers do. A reader takes the slot that the header names and keeps its copy only if the
//! slot's number has not changed afterwards. It has `SLOTS - 1` periods before the slot is used again. Both work on
//! atomic words, because the page is shared between sandboxes.

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// `"BHTELEM1"`, in word 0.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BHTELEM1");
/// Version of this layout, in word 1.
pub const VERSION: u64 = 2;
/// Slots of a page.
pub const SLOTS: u64 = 4;
/// Words of a slot: its number, then the record.
pub const SLOT_WORDS: usize = 112;
/// Words of a page.
pub const WORDS: usize = HEADER_WORDS + SLOTS as usize * SLOT_WORDS;
/// Words before the first slot: magic, version, number of the newest record.
pub const HEADER_WORDS: usize = 8;
/// Buckets of the jitter histogram. Bucket 0 counts releases that were on time to the nanosecond, bucket `n` those from
/// `2^(n-1)` to below `2^n` ns late. The last one counts all later ones.
pub const BUCKETS: usize = 24;

/// One period's telemetry. Angles are in microradians, rates in microradians a
/// second, quaternions and fractions in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Number of this record, from 1.
    pub seq: u64,
    /// Time since the controller's start in ns.
    pub time_ns: u64,
    /// Incarnation of the sandbox.
    pub incarnation: u64,
    /// Nominal period in ns.
    pub period_ns: u64,
    /// Releases served.
    pub releases: u64,
    /// Releases that were served after their period.
    pub missed: u64,
    /// Estimated attitude w, x, y, z.
    pub attitude: [i64; 4],
    /// Estimated roll, pitch, yaw.
    pub euler: [i64; 3],
    /// Commanded roll, pitch, yaw.
    pub setpoint: [i64; 3],
    /// Body rates.
    pub rates: [i64; 3],
    /// Motor commands: front left, front right, rear left, rear right.
    pub motors: [i64; 4],
    /// Angle between the true attitude and the setpoint now.
    pub error: u64,
    /// Its root mean square since the start.
    pub error_rms: u64,
    /// Its maximum since the start.
    pub error_max: u64,
    /// Angle between the true and the estimated attitude now.
    pub estimation_error: u64,
    /// Lateness of the last release in ns.
    pub jitter_last: u64,
    /// The smallest.
    pub jitter_min: u64,
    /// The largest.
    pub jitter_max: u64,
    /// Releases by lateness.
    pub jitter: [u64; BUCKETS],
    /// Part of the last period that was spent computing.
    pub busy: u64,
    /// The largest such part.
    pub busy_max: u64,
    /// How often another sandbox took the flight over.
    pub takeovers: u64,
    /// The first release that the last of these served, counted from 1.
    pub takeover_release: u64,
    /// The largest lateness of such a release, ns. It is in no figure of jitter.
    pub takeover_latest: u64,
}

impl Record {
    /// Applies `f` to every word in the order of the layout: the one definition
    /// of it, for both directions.
    fn visit(&mut self, mut f: impl FnMut(u64) -> u64) {
        let mut each = |word: &mut u64| *word = f(*word);
        let Self {
            seq,
            time_ns,
            incarnation,
            period_ns,
            releases,
            missed,
            attitude,
            euler,
            setpoint,
            rates,
            motors,
            error,
            error_rms,
            error_max,
            estimation_error,
            jitter_last,
            jitter_min,
            jitter_max,
            jitter,
            busy,
            busy_max,
            takeovers,
            takeover_release,
            takeover_latest,
        } = self;
        for word in [
            seq,
            time_ns,
            incarnation,
            period_ns,
            releases,
            missed,
            error,
            error_rms,
            error_max,
            estimation_error,
            jitter_last,
            jitter_min,
            jitter_max,
            busy,
            busy_max,
            takeovers,
            takeover_release,
            takeover_latest,
        ] {
            each(word);
        }
        jitter.iter_mut().for_each(&mut each);
        let signed = attitude.iter_mut().chain(euler).chain(setpoint);
        for word in signed.chain(rates).chain(motors) {
            let mut raw = word.cast_unsigned();
            each(&mut raw);
            *word = raw.cast_signed();
        }
    }

    /// Counts a release that came so many nanoseconds late.
    pub fn count_jitter(&mut self, late: u64) {
        self.jitter_last = late;
        self.jitter_min = if self.releases == 0 { late } else { self.jitter_min.min(late) };
        self.jitter_max = self.jitter_max.max(late);
        let bucket = (u64::BITS - late.leading_zeros()) as usize;
        self.jitter[bucket.min(BUCKETS - 1)] += 1;
        self.releases += 1;
    }

    /// Counts a release that came so many nanoseconds late, and is the first one behind a takeover.
    pub fn count_takeover(&mut self, late: u64) {
        self.releases += 1;
        self.takeovers += 1;
        self.takeover_release = self.releases + self.missed;
        self.takeover_latest = self.takeover_latest.max(late);
    }

    /// Returns an upper bound of the median lateness in ns, as fine as the histogram.
    #[must_use]
    pub fn jitter_median(&self) -> u64 {
        let total: u64 = self.jitter.iter().sum();
        let mut seen = 0;
        let bucket = self.jitter.iter().position(|count| {
            seen += count;
            seen * 2 >= total
        });
        match bucket {
            None | Some(0) => 0,
            Some(n) => ((1 << n) - 1).clamp(self.jitter_min, self.jitter_max.max(self.jitter_min)),
        }
    }
}

const _: () = assert!(WORDS * 8 <= 4096);
const _: () = assert!(size_of::<Record>() / 8 < SLOT_WORDS);

fn slot(words: &[AtomicU64], seq: u64) -> Option<&[AtomicU64]> {
    let start = HEADER_WORDS + (seq % SLOTS) as usize * SLOT_WORDS;
    words.get(start..start + SLOT_WORDS)
}

/// Writes the header of an empty page.
pub fn begin(words: &[AtomicU64]) {
    if words.len() < WORDS {
        return;
    }
    words[2].store(0, Ordering::Relaxed);
    words[1].store(VERSION, Ordering::Relaxed);
    words[0].store(MAGIC, Ordering::Release);
}

/// Publishes a record. Its number must be one more than the last one's. Does nothing if the page is too small.
pub fn publish(words: &[AtomicU64], record: &Record) {
    let Some(slot) = slot(words, record.seq) else {
        return;
    };
    slot[0].store(0, Ordering::Relaxed);
    // The slot is seen as invalid before any of its new words is.
    fence(Ordering::Release);
    let mut rest = slot[1..].iter();
    let mut copy = *record;
    copy.visit(|word| {
        if let Some(place) = rest.next() {
            place.store(word, Ordering::Relaxed);
        }
        word
    });
    slot[0].store(record.seq, Ordering::Release);
    words[2].store(record.seq, Ordering::Release);
}

/// Returns the newest record; `None` if there is none, or if the writer overtook the
/// reader time and again.
#[must_use]
pub fn read(words: &[AtomicU64]) -> Option<Record> {
    const TRIES: usize = 16;
    let valid = words.len() >= WORDS
        && words[0].load(Ordering::Acquire) == MAGIC
        && words[1].load(Ordering::Relaxed) == VERSION;
    (0..TRIES).filter(|_| valid).find_map(|_| attempt(words))
}

fn attempt(words: &[AtomicU64]) -> Option<Record> {
    let seq = words[2].load(Ordering::Acquire);
    let slot = slot(words, seq)?;
    if seq == 0 || slot[0].load(Ordering::Acquire) != seq {
        return None;
    }
    let mut rest = slot[1..].iter();
    let mut record = Record::default();
    record.visit(|_| rest.next().map_or(0, |word| word.load(Ordering::Relaxed)));
    // The words are read before the number is read again.
    fence(Ordering::Acquire);
    (slot[0].load(Ordering::Relaxed) == seq).then_some(record)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::sync::Arc;
    use std::vec::Vec;

    fn page() -> Vec<AtomicU64> {
        (0..512).map(|_| AtomicU64::new(0)).collect()
    }

    /// Returns a record in which every word tells its number.
    fn patterned(seq: u64) -> Record {
        let mut record = Record::default();
        let mut n = 0;
        record.visit(|_| {
            n += 1;
            seq.wrapping_mul(1_000_003).wrapping_add(n)
        });
        record.seq = seq;
        record
    }

    #[test]
    fn what_is_published_is_read() {
        let page = page();
        assert_eq!(read(&page), None);
        begin(&page);
        assert_eq!(read(&page), None);
        for seq in 1..20 {
            publish(&page, &patterned(seq));
            assert_eq!(read(&page), Some(patterned(seq)));
        }
    }

    #[test]
    fn visits_every_word_once() {
        let mut count = 0;
        Record::default().visit(|_| {
            count += 1;
            0
        });
        assert_eq!(count, size_of::<Record>() / 8);
    }

    #[test]
    fn a_page_that_is_too_small_is_left_alone() {
        let page: Vec<AtomicU64> = (0..16).map(|_| AtomicU64::new(7)).collect();
        begin(&page);
        publish(&page, &patterned(1));
        assert_eq!(read(&page), None);
    }

    #[test]
    fn a_hasty_writer_never_shows_a_torn_record() {
        let page = Arc::new(page());
        begin(&page);
        let writer = {
            let page = Arc::clone(&page);
            std::thread::spawn(move || (1..50_000).for_each(|n| publish(&page, &patterned(n))))
        };
        let mut last = 0;
        while !writer.is_finished() {
            if let Some(record) = read(&page) {
                assert_eq!(record, patterned(record.seq));
                assert!(record.seq >= last);
                last = record.seq;
            }
        }
        writer.join().expect("writer ends");
    }

    #[test]
    fn a_takeover_is_no_jitter() {
        let mut record = Record { releases: 7, missed: 2, jitter_max: 5, ..Record::default() };
        record.count_takeover(500_000);
        record.count_takeover(400_000);
        assert_eq!((record.releases, record.jitter_max), (9, 5));
        assert_eq!((record.takeovers, record.takeover_release), (2, 11));
        assert_eq!(record.takeover_latest, 500_000);
    }

    #[test]
    fn jitter_is_counted_in_buckets() {
        let mut record = Record::default();
        for late in [3, 100, 120, 90, 5_000] {
            record.count_jitter(late);
        }
        assert_eq!((record.jitter_min, record.jitter_max), (3, 5_000));
        assert_eq!((record.releases, record.jitter_last), (5, 5_000));
        assert_eq!(record.jitter_median(), 127);
        assert_eq!(Record::default().jitter_median(), 0);
    }
}
