//! Reading a ring out of another machine's memory, again and again while it is written.

use crate::ring::{HEAD, Head, MAGIC, RECORD, Record, decode};
use std::vec::Vec;

/// An item of a ring's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// An event.
    Record(Record),
    /// So many records were overwritten before they could be read.
    Lost(u64),
    /// The sandbox was started anew; records that had not been read are gone.
    Restarted,
}

/// Everything that was read of one kernel's ring.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// In the order in which it happened.
    pub items: Vec<Item>,
    /// Ticks of the clock in a second; 0: the kernel has not begun.
    pub hz: u64,
}

impl Timeline {
    /// Returns its events.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = Record> + '_ {
        self.items.iter().filter_map(|item| match item {
            Item::Record(record) => Some(*record),
            _ => None,
        })
    }

    /// Returns how many records were lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let lost = |item: &Item| if let Item::Lost(n) = item { *n } else { 0 };
        self.items.iter().map(lost).fold(0, u64::saturating_add)
    }

    /// Converts ticks of the clock to nanoseconds.
    #[must_use]
    pub fn nanoseconds(&self, ticks: u64) -> u64 {
        (u128::from(ticks) * 1_000_000_000 / u128::from(self.hz.max(1))) as u64
    }

    /// From the first event to the last one, ns.
    #[must_use]
    pub fn length(&self) -> u64 {
        let ends = self.records().next().zip(self.records().next_back());
        ends.map_or(0, |(a, b)| self.nanoseconds(b.ticks).saturating_sub(self.nanoseconds(a.ticks)))
    }

    /// Forgets events later than so many nanoseconds after the first one.
    pub fn cut(&mut self, length: u64) {
        let Some(first) = self.records().next() else { return };
        let end = self.nanoseconds(first.ticks).saturating_add(length);
        let late = |item: &Item| matches!(item, Item::Record(r) if self.nanoseconds(r.ticks) > end);
        let n = self.items.iter().position(late);
        self.items.truncate(n.unwrap_or(self.items.len()));
    }
}

/// Reader of one ring.
#[derive(Clone, Debug)]
pub struct Reader {
    at: u64,
    records: u64,
    next: u64,
    began: u64,
    /// The records read so far.
    pub timeline: Timeline,
}

impl Reader {
    /// For a ring at an address, of so many records. The memory there is another party's: a ring that says otherwise is
    /// not read.
    #[must_use]
    pub fn new(at: u64, records: u64) -> Self {
        Self { at, records, next: 0, began: 0, timeline: Timeline::default() }
    }

    /// Reads the new records; `ram` fills a buffer from an address, in any order of words, while others write there.
    /// False: there is no ring yet, or it can't be read.
    pub fn read(&mut self, ram: &dyn Fn(u64, &mut [u8]) -> bool) -> bool {
        let Some([written, hz, began]) = self.head(ram) else { return false };
        if began != self.began || written < self.next {
            if self.began != 0 {
                self.timeline.items.push(Item::Restarted);
            }
            (self.began, self.next) = (began, 0);
        }
        self.timeline.hz = hz;
        let first = self.next.max(written.saturating_sub(self.records));
        let mut bytes = std::vec![0; ((written - first) * RECORD) as usize];
        for n in first..written {
            let place = self.at + HEAD + n % self.records * RECORD;
            let to = ((n - first) * RECORD) as usize;
            // To the end of the ring, or of what is new.
            let run = (self.records - n % self.records).min(written - n);
            if n != first && n % self.records != 0 {
                continue;
            }
            if !ram(place, &mut bytes[to..to + (run * RECORD) as usize]) {
                return false;
            }
        }
        let Some([later, _, still]) = self.head(ram) else { return false };
        if still != began {
            // Next time.
            return true;
        }
        let oldest = Head::oldest(later, self.records);
        // The count is the guest's claim, so nothing is done once for each record that it says is lost.
        self.lose(first - self.next);
        for (n, words) in (first..written).zip(bytes.chunks_exact(RECORD as usize)) {
            match Some(words).filter(|_| n >= oldest).and_then(|words| decode(n, four(words))) {
                Some(record) => self.timeline.items.push(Item::Record(record)),
                None => self.lose(1),
            }
        }
        self.next = written;
        true
    }

    /// Notes lost records, in one item with those lost just before.
    fn lose(&mut self, records: u64) {
        match self.timeline.items.last_mut() {
            _ if records == 0 => {}
            Some(Item::Lost(n)) => *n = n.saturating_add(records),
            _ => self.timeline.items.push(Item::Lost(records)),
        }
    }

    /// Records written, ticks of a second, and when it began.
    fn head(&self, ram: &dyn Fn(u64, &mut [u8]) -> bool) -> Option<[u64; 3]> {
        let mut bytes = [0; size_of::<Head>()];
        if !ram(self.at, &mut bytes) {
            return None;
        }
        let mut words = [0; size_of::<Head>() / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        let [magic, written, records, hz, began] = words;
        (magic == MAGIC && records == self.records).then_some([written, hz, began])
    }
}

fn four(bytes: &[u8]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, Ring, Slot, Writer};
    use std::sync::Arc;

    /// A ring in memory, as bytes for a reader.
    struct Memory {
        head: Head,
        slots: Vec<Slot>,
    }

    impl Memory {
        fn new(records: usize) -> Self {
            let memory = Self {
                head: Head::default(),
                slots: (0..records).map(|_| Slot::default()).collect(),
            };
            Writer::begin(memory.ring(), 5, 1_000_000_000);
            memory
        }

        fn ring(&self) -> Ring<'_> {
            Ring { head: &self.head, slots: &self.slots }
        }

        /// As a file is read: word by word, in no order that the writer could rely on.
        fn read(&self, at: u64, bytes: &mut [u8]) -> bool {
            for (n, bytes) in bytes.chunks_exact_mut(8).enumerate().rev() {
                let word = at as usize / 8 + n;
                let value = match word.checked_sub(HEAD as usize / 8) {
                    None => self.head.word(word),
                    Some(word) => self.slots[word / 4].word(word % 4),
                };
                bytes.copy_from_slice(&value.to_le_bytes());
            }
            true
        }
    }

    fn event(n: u64) -> Event {
        Event::Timer { thread: n as u32, due: !n }
    }

    fn numbers(timeline: &Timeline) -> Vec<u64> {
        timeline.records().map(|record| record.ticks).collect()
    }

    #[test]
    fn what_is_written_is_read_once() {
        let memory = Memory::new(8);
        let (mut writer, mut reader) = (Writer::new(), Reader::new(0, 8));
        let ram = |at: u64, bytes: &mut [u8]| memory.read(at, bytes);
        for n in 0..30 {
            writer.write(memory.ring(), n, event(n));
            if n % 5 == 4 {
                assert!(reader.read(&ram));
                assert!(reader.read(&ram));
            }
        }
        assert_eq!(numbers(&reader.timeline), (0..30).collect::<Vec<_>>());
        let right = |r: Record| r.event == event(r.ticks);
        assert!(reader.timeline.records().all(right));
        assert_eq!((reader.timeline.lost(), reader.timeline.length()), (0, 29));
    }

    #[test]
    fn what_was_overwritten_is_counted() {
        let memory = Memory::new(8);
        let (mut writer, mut reader) = (Writer::new(), Reader::new(0, 8));
        (0..20).for_each(|n| writer.write(memory.ring(), n, event(n)));
        assert!(reader.read(&|at, bytes| memory.read(at, bytes)));
        // The oldest place is the one that is written next.
        assert_eq!(numbers(&reader.timeline), (13..20).collect::<Vec<_>>());
        assert_eq!((reader.timeline.lost(), reader.timeline.items[0]), (13, Item::Lost(13)));
    }

    #[test]
    fn another_ring_is_not_read() {
        let memory = Memory::new(8);
        let mut reader = Reader::new(0, 16);
        assert!(!reader.read(&|at, bytes| memory.read(at, bytes)));
        assert!(!Reader::new(0, 8).read(&|_, _| false));
    }

    #[test]
    fn a_ring_that_begins_anew_is_told() {
        let (first, second) = (Memory::new(8), Memory::new(8));
        let (mut writer, mut reader) = (Writer::new(), Reader::new(0, 8));
        (0..3).for_each(|n| writer.write(first.ring(), n, event(n)));
        assert!(reader.read(&|at, bytes| first.read(at, bytes)));
        Writer::begin(second.ring(), 100, 1_000_000_000);
        writer.write(second.ring(), 101, event(101));
        assert!(reader.read(&|at, bytes| second.read(at, bytes)));
        assert_eq!(reader.timeline.items[3], Item::Restarted);
        assert_eq!(numbers(&reader.timeline), [0, 1, 2, 101]);
    }

    #[test]
    fn a_timeline_is_cut_at_a_length() {
        let memory = Memory::new(8);
        let (mut writer, mut reader) = (Writer::new(), Reader::new(0, 8));
        (0..6).for_each(|n| writer.write(memory.ring(), 10 * n, event(n)));
        assert!(reader.read(&|at, bytes| memory.read(at, bytes)));
        reader.timeline.cut(30);
        assert_eq!(numbers(&reader.timeline), [0, 10, 20, 30]);
    }

    #[test]
    fn a_hasty_writer_never_shows_a_torn_record() {
        const LAST: u64 = 60_000;
        let memory = Arc::new(Memory::new(16));
        let mut reader = Reader::new(0, 16);
        let thread = {
            let memory = Arc::clone(&memory);
            std::thread::spawn(move || {
                let mut writer = Writer::new();
                (0..LAST).for_each(|n| writer.write(memory.ring(), n, event(n)));
            })
        };
        loop {
            let ended = thread.is_finished();
            assert!(reader.read(&|at, bytes| memory.read(at, bytes)));
            for slot in &memory.slots {
                let seen = (0..4).map(|word| slot.word(word)).next().unwrap_or(0) as u32;
                if let Some(record) = seen.checked_sub(1).and_then(|n| slot.read(n.into())) {
                    assert_eq!(record.event, event(record.ticks));
                }
            }
            if ended {
                break;
            }
        }
        assert!(reader.timeline.records().all(|record| record.event == event(record.ticks)));
        let read = reader.timeline.records().count() as u64;
        assert_eq!(read + reader.timeline.lost(), LAST);
        assert!(numbers(&reader.timeline).is_sorted());
        thread.join().expect("the writer ends");
    }
}
