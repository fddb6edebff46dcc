//! Who is ready: a queue for each level, first come, first served, linked through the contexts,
//! and a bitmap of two steps. Levels 256 to 511 are the priorities, levels 0 to 255 the same
//! priorities in the background. Who runs is in its queue, first.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Contexts, Id};

const LEVELS: usize = 512;
const WORDS: usize = LEVELS / 64;
/// The lowest level with budget.
pub const FOREGROUND: u16 = 256;

/// The level of a priority with budget.
#[inline]
pub fn foreground(priority: u8) -> u16 {
    FOREGROUND + u16::from(priority)
}

/// Its level without.
pub fn background(priority: u8) -> u16 {
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
    /// Which words are not 0.
    summary: u64,
    words: [u64; WORDS],
    ends: [Ends; LEVELS],
}

impl Ready {
    pub const fn new() -> Self {
        Self { summary: 0, words: [0; WORDS], ends: [Ends { first: 0, last: 0 }; LEVELS] }
    }

    /// The highest level that has somebody, 0 if none has.
    #[inline]
    pub fn highest(&self) -> u16 {
        // The lowest bits stand for themselves, so that nothing is there needs no other way.
        let word = (self.summary | 1).ilog2() as usize % WORDS;
        let bit = (self.words[word] | 1).ilog2();
        (64 * word) as u16 + bit as u16
    }

    /// The first of a level.
    #[inline]
    pub fn first(&self, level: u16) -> Option<Id> {
        Id::from_link(self.ends[usize::from(level) % LEVELS].first)
    }

    /// Queues a context that is not queued.
    #[inline]
    pub fn insert(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        level: u16,
        first: bool,
    ) {
        let level = level % LEVELS as u16;
        let ends = &mut self.ends[usize::from(level)];
        let (previous, next) = if first { (0, ends.first) } else { (ends.last, 0) };
        let context = contexts.context(id);
        (context.previous, context.next, context.queued) = (previous, next, level + 1);
        match Id::from_link(previous) {
            Some(previous) => contexts.context(previous).next = id.link(),
            None => ends.first = id.link(),
        }
        match Id::from_link(next) {
            Some(next) => contexts.context(next).previous = id.link(),
            None => ends.last = id.link(),
        }
        let word = usize::from(level / 64);
        self.words[word] |= 1 << (level % 64);
        self.summary |= 1 << word;
    }

    /// Takes a context out, if it is in.
    #[inline]
    pub fn remove(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id) {
        let context = contexts.context(id);
        let (previous, next) = (context.previous, context.next);
        let Some(level) = core::mem::take(&mut context.queued).checked_sub(1) else { return };
        let level = level % LEVELS as u16;
        let ends = &mut self.ends[usize::from(level)];
        match Id::from_link(previous) {
            Some(previous) => contexts.context(previous).next = next,
            None => ends.first = next,
        }
        match Id::from_link(next) {
            Some(next) => contexts.context(next).previous = previous,
            None => ends.last = previous,
        }
        if previous == 0 && next == 0 {
            let word = usize::from(level / 64);
            self.words[word] &= !(1 << (level % 64));
            if self.words[word] == 0 {
                self.summary &= !(1 << word);
            }
        }
    }
}
