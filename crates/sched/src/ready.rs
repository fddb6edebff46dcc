//! Who is ready: a queue for each level, first come, first served, linked through the contexts,
//! and a bitmap of two steps. Levels 256 to 511 are the priorities, levels 0 to 255 the same
//! priorities in the background.

use crate::{Contexts, Id};

const LEVELS: usize = 512;
const WORDS: usize = LEVELS / 64;

/// The level of a priority with budget.
pub fn foreground(priority: u8) -> u16 {
    256 + u16::from(priority)
}

/// Its level without.
pub fn background(priority: u8) -> u16 {
    priority.into()
}

#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    first: Option<Id>,
    last: Option<Id>,
}

/// The queues.
#[derive(Clone, Debug)]
pub struct Ready {
    ends: [Ends; LEVELS],
    words: [u64; WORDS],
    /// Which words are not 0.
    summary: u8,
}

impl Ready {
    pub const fn new() -> Self {
        let ends = [Ends { first: None, last: None }; LEVELS];
        Self { ends, words: [0; WORDS], summary: 0 }
    }

    /// The highest level that has somebody.
    pub fn highest(&self) -> Option<u16> {
        let word = self.summary.checked_ilog2()?;
        let bit = self.words[word as usize].checked_ilog2()?;
        Some((64 * word + bit) as u16)
    }

    /// The first of a level.
    pub fn first(&self, level: u16) -> Option<Id> {
        self.ends[usize::from(level)].first
    }

    /// Queues a context that is not queued.
    pub fn insert(
        &mut self,
        contexts: &mut (impl Contexts + ?Sized),
        id: Id,
        level: u16,
        first: bool,
    ) {
        let ends = &mut self.ends[usize::from(level)];
        let (previous, next) = if first { (None, ends.first) } else { (ends.last, None) };
        let links = &mut contexts.context(id).links;
        (links.previous, links.next, links.level) = (previous, next, Some(level));
        match previous {
            Some(previous) => contexts.context(previous).links.next = Some(id),
            None => ends.first = Some(id),
        }
        match next {
            Some(next) => contexts.context(next).links.previous = Some(id),
            None => ends.last = Some(id),
        }
        self.words[usize::from(level / 64)] |= 1 << (level % 64);
        self.summary |= 1 << (level / 64);
    }

    /// Takes a context out, if it is in.
    pub fn remove(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id) {
        let links = &mut contexts.context(id).links;
        let (previous, next) = (links.previous, links.next);
        let Some(level) = links.level.take() else { return };
        let ends = &mut self.ends[usize::from(level)];
        match previous {
            Some(previous) => contexts.context(previous).links.next = next,
            None => ends.first = next,
        }
        match next {
            Some(next) => contexts.context(next).links.previous = previous,
            None => ends.last = previous,
        }
        if previous.is_none() && next.is_none() {
            let word = &mut self.words[usize::from(level / 64)];
            *word &= !(1 << (level % 64));
            self.summary &= !(u8::from(*word == 0) << (level / 64));
        }
    }
}
