//! Ready contexts: a queue for each level, first come, first served, linked through the contexts, and a bitmap of two
//! steps. Levels 256 to 511 are the priorities, levels 0 to 255 the priorities in the background. The running context
//! is first in its queue.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Contexts, Id};

const LEVELS: usize = 512;
const WORDS: usize = LEVELS / 64;
/// The lowest level with budget.
pub const FOREGROUND: u32 = 256;

/// Returns the level of a priority with budget.
#[inline(always)]
pub fn foreground(priority: u8) -> u32 {
    FOREGROUND + u32::from(priority)
}

/// Returns its level without.
pub fn background(priority: u8) -> u32 {
    priority.into()
}

/// Ids, or 0.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Ends {
    first: u32,
    last: u32,
}

/// The queues.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Ready {
    /// The highest level with a context, 0 if all are empty.
    highest: u32,
    /// Words that have a bit set.
    summary: u32,
    words: [u64; WORDS],
    ends: [Ends; LEVELS],
}

impl Ready {
    pub const fn new() -> Self {
        let ends = [Ends { first: 0, last: 0 }; LEVELS];
        Self { highest: 0, summary: 0, words: [0; WORDS], ends }
    }

    /// Returns the highest level with a context, 0 if all are empty.
    #[inline(always)]
    pub fn highest(&self) -> u32 {
        self.highest % LEVELS as u32
    }

    /// Tells if all levels above this one are empty.
    #[inline(always)]
    pub fn nobody_above(&self, level: u32) -> bool {
        level >= self.highest
    }

    /// Tells if this level and all above are empty.
    #[inline(always)]
    pub fn is_above_all(&self, level: u32) -> bool {
        level > self.highest
    }

    /// Returns the first of a level.
    #[inline(always)]
    pub fn first(&self, level: u32) -> Option<Id> {
        Id::from_link(self.ends[level as usize % LEVELS].first)
    }

    /// Queues a context that is not queued, as the last.
    #[inline]
    pub fn insert(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, level: u32) {
        let level = level % LEVELS as u32;
        let ends = &mut self.ends[level as usize];
        let last = core::mem::replace(&mut ends.last, id.link());
        let context = contexts.context(id);
        (context.previous, context.next, context.queued) = (last, 0, level as u16 + 1);
        match Id::from_link(last) {
            Some(last) => contexts.context(last).next = id.link(),
            None => {
                ends.first = id.link();
                self.mark(level);
            }
        }
    }

    /// Queues a context at a level above all that have one.
    #[inline(always)]
    pub fn insert_alone(&mut self, id: Id, level: u32) {
        let level = level % LEVELS as u32;
        self.ends[level as usize] = Ends { first: id.link(), last: id.link() };
        self.mark_bit(level);
        self.highest = level;
    }

    /// Queues a context that is not queued, as the first.
    pub fn insert_first(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, level: u32) {
        let level = level % LEVELS as u32;
        let ends = &mut self.ends[level as usize];
        let first = core::mem::replace(&mut ends.first, id.link());
        let context = contexts.context(id);
        (context.previous, context.next, context.queued) = (0, first, level as u16 + 1);
        match Id::from_link(first) {
            Some(first) => contexts.context(first).previous = id.link(),
            None => {
                ends.last = id.link();
                self.mark(level);
            }
        }
    }

    /// Takes a context out, if it is in.
    #[inline(never)]
    pub fn remove(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id) {
        let context = contexts.context(id);
        let (previous, next) = (context.previous, context.next);
        let Some(level) = core::mem::take(&mut context.queued).checked_sub(1) else { return };
        let level = u32::from(level) % LEVELS as u32;
        let ends = &mut self.ends[level as usize];
        match Id::from_link(previous) {
            Some(previous) => contexts.context(previous).next = next,
            None => ends.first = next,
        }
        match Id::from_link(next) {
            Some(next) => contexts.context(next).previous = previous,
            None => ends.last = previous,
        }
        if previous == 0 && next == 0 {
            self.unmark(level);
        }
    }

    /// Takes out the first of a level, which `id` is.
    #[inline]
    pub fn remove_first(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, level: u32) {
        let level = level % LEVELS as u32;
        if self.unlink_first(contexts, id, level) {
            self.unmark(level);
        }
    }

    /// Removes the first context, where a higher level gets one at once.
    #[inline(always)]
    pub fn remove_first_below(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        level: u32,
    ) {
        let level = level % LEVELS as u32;
        if self.unlink_first(contexts, id, level) {
            self.unmark_bit(level);
        }
    }

    /// Unlinks the first context; true if the level is then empty.
    #[inline(always)]
    fn unlink_first(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        level: u32,
    ) -> bool {
        let context = contexts.context(id);
        context.queued = 0;
        let next = context.next;
        let ends = &mut self.ends[level as usize % LEVELS];
        ends.first = next;
        match Id::from_link(next) {
            Some(next) => contexts.context(next).previous = 0,
            None => ends.last = 0,
        }
        next == 0
    }

    /// A level has a context.
    #[inline(always)]
    fn mark(&mut self, level: u32) {
        self.mark_bit(level);
        self.highest = self.highest.max(level);
    }

    #[inline(always)]
    fn mark_bit(&mut self, level: u32) {
        let word = level / 64 % WORDS as u32;
        self.words[word as usize] |= bit(level);
        self.summary |= 1 << word;
    }

    /// Marks a level as empty.
    #[inline]
    fn unmark(&mut self, level: u32) {
        let word = level / 64 % WORDS as u32;
        let rest = self.words[word as usize] & !bit(level);
        self.words[word as usize] = rest;
        if rest == 0 {
            self.summary &= !(1 << word);
            if level == self.highest {
                self.highest = self.search();
            }
        } else if level == self.highest {
            // Mostly there is another one in the word.
            self.highest = (level | 63) - rest.trailing_zeros();
        }
    }

    /// Marks a level as empty that is no longer the highest.
    #[inline(always)]
    fn unmark_bit(&mut self, level: u32) {
        let word = level / 64 % WORDS as u32;
        let rest = self.words[word as usize] & !bit(level);
        self.words[word as usize] = rest;
        if rest == 0 {
            self.summary &= !(1 << word);
        }
    }

    /// Finds the highest level with a context, 0 if all are empty.
    #[inline]
    fn search(&self) -> u32 {
        // The lowest level is treated as marked: the answer is 0, too, if all are empty.
        let word = (self.summary | 1).ilog2() % WORDS as u32;
        let bits = self.words[word as usize] | bit(0);
        64 * word + (63 - bits.trailing_zeros())
    }
}

/// Returns a level's bit in its word: the highest level is the lowest bit, which is found sooner.
#[inline]
fn bit(level: u32) -> u64 {
    1 << 63 >> (level % 64)
}
