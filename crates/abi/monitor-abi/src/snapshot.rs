//! Snapshots: state of a guest that outlives it.
//!
//! A guest names pages of its memory, and asks for a snapshot of them. Its monitor copies the pages that have changed
//! into one of two buffers, which the guest can read and not write. The other buffer holds the snapshot before, whole,
//! until this one is. The guest's next life may begin with the newest snapshot that is whole.
//!
//! A buffer has a sum for each page, and one for its header. It has no generation while it is in flux. The generation
//! is taken away before the first page is written, and given behind the last one.
//!
//! All of it runs on the sandbox's first core, in its monitor, so nothing here is done by two cores. The monitor may
//! stop for ever between any two stores, and another one begins the next life.

use crate::PAGE;
use crate::monitor::Ram;
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// Most pages of a snapshot: one word has a bit for each.
pub const PAGES: usize = 64;
/// Most pages that a call copies. A guest with more of them calls again.
pub const SLICE: u32 = 8;

/// A word of a [`Head`].
pub trait Word {
    /// Reads it.
    fn load(&self) -> u64;
    /// Writes it, behind all that this core has written before.
    fn store(&self, value: u64);
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn store(&self, value: u64) {
        self.store(value, Ordering::Release);
    }
}

/// First page of a store. Buffers follow it, one behind the other, each with the room that the manifest gives.
#[repr(C)]
pub struct Head<W = AtomicU64> {
    /// Generation of the snapshot that this life may begin with; 0: there is none.
    pub offered: W,
    /// The buffer that had it when this life began, 0 or 1.
    pub buffer: W,
    /// Pages that the guest has named in this life.
    pub named: W,
    /// Pages that have changed since each buffer was whole, as sets.
    pub owed: [W; 2],
    /// Headers of the buffers.
    pub buffers: [Buffer<W>; 2],
    /// Guest-physical address of each page that was named.
    pub pages: [W; PAGES],
}

const _: () = assert!(size_of::<Head>() as u64 <= PAGE);

/// Header of a buffer.
#[repr(C)]
pub struct Buffer<W = AtomicU64> {
    /// Number of the snapshot, from 1; 0: there is none, or it is in flux.
    pub generation: W,
    /// Its pages.
    pub pages: W,
    /// Sum of all other words of this header that are in use.
    pub sum: W,
    /// Sum of each page's words.
    pub sums: [W; PAGES],
}

impl<W: Word> Buffer<W> {
    /// Adds up the words that [`Buffer::sum`] is about, with a generation that may not be there yet.
    #[inline(never)]
    fn total(&self, generation: u64) -> u64 {
        let pages = self.pages.load();
        let sums = self.sums.iter().take(pages as usize);
        sums.fold(generation.wrapping_add(pages), |sum, page| sum.wrapping_add(page.load()))
    }
}

/// Bytes of a store with room for so many pages in each buffer.
#[must_use]
pub const fn bytes(pages: u64) -> u64 {
    PAGE * (1 + 2 * pages)
}

/// Byte at which a page of a buffer lies in a store with room for `room` pages in each.
#[inline(always)]
#[must_use]
pub const fn place(room: u64, buffer: usize, page: usize) -> u64 {
    PAGE * (1 + room * (buffer as u64 & 1) + page as u64)
}

/// A store, as a monitor reaches it.
pub trait Store {
    /// See [`Head`].
    type Word: Word;
    /// Returns its first page.
    fn head(&self) -> &Head<Self::Word>;
    /// Copies a page of the guest's memory into a buffer, and sums up the copy.
    fn copy(&self, buffer: usize, page: usize, from: u64) -> u64;
    /// Sums up a page of a buffer.
    fn sum(&self, buffer: usize, page: usize) -> u64;
    /// Tells if a rule holds: always, but in a build for the mutation gate and in models, which leave one out.
    fn enforced(&self, rule: &str) -> bool;
}

/// Tells if so many pages from an address on are all in the guest's RAM. Both numbers are claims.
#[must_use]
pub fn inside(ram: &[Ram], at: u64, pages: u64) -> bool {
    let holds = |ram: &Ram| {
        let before = at.checked_sub(ram.gpa);
        before.is_some_and(|before| before < ram.len && pages <= (ram.len - before) / PAGE)
    };
    pages > 0 && at.is_multiple_of(PAGE) && ram.iter().any(holds)
}

/// Names further pages, which [`inside`] has seen. False: a store with room for `room` pages has no room for them.
#[must_use]
pub fn name<S: Store>(store: &S, at: u64, pages: u64, room: u64) -> bool {
    let head = store.head();
    let named = head.named.load();
    if pages > room.saturating_sub(named) && store.enforced("snapshot-room") {
        return false;
    }
    let mut new = 0;
    for n in 0..pages {
        let page = (named + n) as usize % PAGES;
        head.pages[page].store(at + n * PAGE);
        new |= 1 << page;
    }
    head.named.store(named + pages);
    // Neither buffer has them, whatever an earlier life has left there.
    owe(head, new);
    true
}

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The snapshot is whole.
    Whole,
    /// Pages are left: the guest calls again.
    Again,
    /// No page was named.
    Nothing,
}

/// Goes on with a snapshot of all pages that were named, and copies `most` of them at most. `changed` has those that
/// have changed since the last call: a claim, by which the guest harms its own snapshots at most.
pub fn take<S: Store>(store: &S, changed: u64, most: u32) -> Taken {
    let head = store.head();
    let named = head.named.load();
    if named == 0 {
        return Taken::Nothing;
    }
    let newest = newest(head);
    let target = match newest {
        Some(at) if store.enforced("snapshot-buffer") => 1 - at,
        Some(at) => at,
        None => 0,
    };
    let buffer = &head.buffers[target & 1];
    // Each buffer was whole at another time, and lacks what has changed since.
    if store.enforced("snapshot-union") {
        owe(head, changed & all(named));
    } else {
        head.owed[target & 1].store(head.owed[target & 1].load() | changed & all(named));
    }
    if buffer.generation.load() != 0 && store.enforced("snapshot-flux") {
        buffer.generation.store(0);
        // No page may be seen to change before that.
        fence(Ordering::Release);
    }
    let next = newest.map_or(0, |at| head.buffers[at & 1].generation.load()).wrapping_add(1);
    if !store.enforced("snapshot-order") {
        seal(buffer, named, next);
    }
    let owed = &head.owed[target & 1];
    let mut left = owed.load() & all(named);
    for _ in 0..most {
        if left == 0 {
            break;
        }
        let page = left.trailing_zeros() as usize % PAGES;
        buffer.sums[page].store(store.copy(target, page, head.pages[page].load()));
        left &= left - 1;
    }
    owed.store(left);
    if left != 0 {
        return Taken::Again;
    }
    seal(buffer, named, next);
    Taken::Whole
}

/// A buffer becomes whole by the last store.
fn seal<W: Word>(buffer: &Buffer<W>, pages: u64, generation: u64) {
    buffer.pages.store(pages);
    buffer.sum.store(buffer.total(generation));
    buffer.generation.store(generation);
}

/// Snapshots that a life found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The one that it may begin with; 0: there is none.
    pub generation: u64,
    /// Snapshots with wrong sums.
    pub broken: u32,
}

/// Begins a life. A `warm` one is offered the newest snapshot that is whole; else all are dropped.
pub fn begin<S: Store>(store: &S, warm: bool) -> Found {
    let head = store.head();
    let mut found = Found::default();
    for _ in &head.buffers {
        let Some(at) = newest(head) else { break };
        let buffer = &head.buffers[at & 1];
        if warm && (whole(store, at) || !store.enforced("snapshot-whole")) {
            found.generation = buffer.generation.load();
            head.buffer.store(at as u64);
            break;
        }
        found.broken += u32::from(warm);
        buffer.generation.store(0);
    }
    // The life names its pages anew.
    head.named.store(0);
    head.owed.iter().for_each(|owed| owed.store(0));
    head.offered.store(found.generation);
    found
}

/// The snapshot that a life may begin with, as the life finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its number.
    pub generation: u64,
    /// Its buffer, 0 or 1.
    pub buffer: usize,
    /// Its pages, no more than there is room for.
    pub pages: usize,
}

/// Finds it, in a store with room for `room` pages.
pub fn offered<W: Word>(head: &Head<W>, room: u64) -> Option<Offer> {
    let (generation, buffer) = (head.offered.load(), head.buffer.load() as usize & 1);
    // The pages are read behind this.
    fence(Ordering::Acquire);
    let pages = head.buffers[buffer].pages.load().min(room).min(PAGES as u64) as usize;
    (generation != 0).then_some(Offer { generation, buffer, pages })
}

impl Offer {
    /// Tells if it has so many words from the start of a page on.
    #[must_use]
    pub const fn holds(&self, page: usize, words: usize) -> bool {
        const WORDS: usize = PAGE as usize / 8;
        page.saturating_mul(WORDS).saturating_add(words) <= self.pages * WORDS
    }
}

/// Finds the buffer with the newest snapshot.
#[inline(never)]
fn newest<W: Word>(head: &Head<W>) -> Option<usize> {
    let [first, second] = head.buffers.each_ref().map(|buffer| buffer.generation.load());
    (first | second != 0).then_some(usize::from(second > first))
}

/// Tells if a buffer's sums are right.
fn whole<S: Store>(store: &S, at: usize) -> bool {
    let buffer = &store.head().buffers[at & 1];
    let pages = buffer.pages.load();
    let right = |page: usize| store.sum(at, page) == buffer.sums[page % PAGES].load();
    pages <= PAGES as u64
        && buffer.sum.load() == buffer.total(buffer.generation.load())
        && (0..pages as usize).all(right)
}

/// Notes pages that both buffers lack.
fn owe<W: Word>(head: &Head<W>, pages: u64) {
    head.owed.iter().for_each(|owed| owed.store(owed.load() | pages));
}

/// Returns the set of the first `pages` pages, from 1 to [`PAGES`].
const fn all(pages: u64) -> u64 {
    u64::MAX.wrapping_shr((PAGES as u32).wrapping_sub(pages as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_inside_one_piece_of_ram() {
        let ram = [Ram { gpa: 0x1000, len: 0x4000 }, Ram { gpa: 1 << 32, len: 0x2000 }];
        for (at, pages, holds) in [
            (0x1000, 4, true),
            (0x1000, 5, false),
            (0x1000, 0, false),
            (0, 1, false),
            (0x1008, 1, false),
            (0x4000, 1, true),
            (0x5000, 1, false),
            (0x4000, u64::MAX, false),
            (0x4000, 1 << 52, false),
            (u64::MAX - 0xFFF, 1, false),
            (u64::MAX - 0xFFF, 2, false),
            (1 << 32, 2, true),
            (1 << 32, 3, false),
            ((1 << 32) + 0x1000, 1, true),
        ] {
            assert_eq!(inside(&ram, at, pages), holds, "{at:#x}, {pages}");
        }
        assert!(!inside(&[Ram::default(); 2], 0, 1));
    }

    #[test]
    fn a_set_has_the_first_pages() {
        assert_eq!([1, 2, 63, 64].map(all), [1, 3, u64::MAX >> 1, u64::MAX]);
    }

    #[test]
    fn a_life_reads_no_more_than_there_is() {
        let offer = Offer { generation: 1, buffer: 0, pages: 2 };
        for (page, words, holds) in [
            (0, 1024, true),
            (0, 1025, false),
            (1, 512, true),
            (1, 513, false),
            (2, 0, true),
            (2, 1, false),
            (usize::MAX, 1, false),
            (0, usize::MAX, false),
        ] {
            assert_eq!(offer.holds(page, words), holds, "{page}, {words}");
        }
    }

    #[test]
    fn pages_of_a_store_are_apart() {
        let room = 3;
        let all: [u64; 6] = [0, 1, 2, 3, 4, 5].map(|n| place(room, n / 3, n % 3));
        assert_eq!(all, [1, 2, 3, 4, 5, 6].map(|n| n * PAGE));
        assert_eq!(bytes(room), 7 * PAGE);
    }
}
