//! Snapshots: state of this program that outlives a life of it. A keeper (`programs/keeper`) takes them.
//!
//! The state lies in shared memory that the program writes and its keeper reads. The snapshots lie in other memory,
//! which the keeper writes and the program reads. Each life calls [`Snapshots::last`] first, then [`Snapshots::take`]
//! when the state is whole, with the pages that have changed.

use crate::call::{Error, Message};
use crate::names::{Memory, Program};
use crate::objects::Endpoint;
use bulkhead_layout::PAGE;
use bulkhead_layout::snapshot::{Head, Offer, PAGES, offered, place};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Words of a page.
pub const WORDS: usize = PAGE as usize / 8;
/// Behind the name of a state's memory: the memory of its snapshots.
pub const KEPT: &str = "-kept";

/// Labels of requests to a keeper.
pub mod request {
    /// A life begins.
    pub const LAST: u64 = 1;
    /// Go on with a snapshot. Its word is the set of pages that have changed.
    pub const TAKE: u64 = 2;
}

/// Labels of its answers.
pub mod answer {
    /// It is done, and a snapshot is whole.
    pub const DONE: u64 = 0;
    /// Pages are left: the program calls again.
    pub const AGAIN: u64 = 1;
    /// No request, or none of a program with state here, or no life has begun.
    pub const REFUSED: u64 = 2;
}

/// Memory of snapshots, as [`bulkhead_layout::snapshot`] has it.
#[derive(Clone, Copy)]
pub struct Kept {
    head: &'static Head,
    words: &'static [AtomicU64],
    room: u64,
}

impl Kept {
    /// `None`: there is no room for a page in each of two buffers.
    #[must_use]
    pub fn of(memory: Memory) -> Option<Self> {
        let room = (memory.len as u64 / PAGE).checked_sub(1)? / 2;
        // SAFETY: whole pages, and more than one of them, that the manifest gave the program for as long as it runs. A
        // `Head` fits into one; its fields are atomics.
        let head = unsafe { &*memory.start.cast::<Head>() };
        (room > 0).then(|| Self { head, words: memory.words(), room: room.min(PAGES as u64) })
    }

    /// Returns its first page.
    #[must_use]
    pub const fn head(&self) -> &'static Head {
        self.head
    }

    /// Returns the most pages of a snapshot.
    #[must_use]
    pub const fn room(&self) -> u64 {
        self.room
    }

    /// Returns the words of a page of a buffer; none: there is no such page.
    #[must_use]
    #[inline(always)]
    pub fn page(&self, buffer: usize, page: usize) -> &'static [AtomicU64] {
        let first = place(self.room, buffer, page) as usize / 8;
        self.words.get(first..).and_then(|words| words.get(..WORDS)).unwrap_or(&[])
    }
}

/// A request that did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The keeper has no state of this program, or no life has begun.
    Keeper,
    /// The kernel's word.
    Kernel(Error),
}

/// A program's state, and its snapshots.
#[derive(Clone, Copy)]
pub struct Snapshots {
    keeper: Endpoint,
    kept: Kept,
}

impl Snapshots {
    /// Finds the snapshots of the state in memory `state`: they lie in memory `state-kept`. `None`: the manifest gives
    /// the program no such memory, or too little.
    ///
    /// # Panics
    /// The manifest lets it not call the endpoint `keeper`.
    #[must_use]
    #[track_caller]
    pub fn find(program: Program, keeper: &str, state: &str) -> Option<Self> {
        Some(Self { keeper: program.endpoint(keeper), kept: kept(program, state)? })
    }

    /// Finds them by what a program in C has found.
    #[must_use]
    pub fn of(keeper: Endpoint, kept: Memory) -> Option<Self> {
        Some(Self { keeper, kept: Kept::of(kept)? })
    }

    /// Begins a life, and finds the last snapshot that is whole. From then on all pages count as changed.
    ///
    /// # Errors
    /// The keeper does not know the state, or is gone.
    pub fn last(&self) -> Result<Option<Last>, Refused> {
        self.ask(request::LAST, 0)?;
        Ok(self.offered())
    }

    /// Finds the snapshot with which this life has begun. It is whole until this life's second one.
    #[must_use]
    pub fn offered(&self) -> Option<Last> {
        let offer = offered(self.kept.head, self.kept.room)?;
        Some(Last { offer, kept: self.kept })
    }

    /// Takes a snapshot of the state. `changed` is the set of pages that have changed since the last one: bit 0 is the
    /// first page. The state has to stay as it is until this returns: a keeper copies a few pages in a call.
    ///
    /// # Errors
    /// As [`Snapshots::last`], and before that.
    pub fn take(&self, changed: u64) -> Result<(), Refused> {
        let mut changed = changed;
        while self.step(changed)? == answer::AGAIN {
            changed = 0;
        }
        Ok(())
    }

    /// Makes one call of [`Snapshots::take`], and returns the [`answer`].
    ///
    /// # Errors
    /// As [`Snapshots::take`].
    #[inline(always)]
    pub fn step(&self, changed: u64) -> Result<u64, Refused> {
        self.ask(request::TAKE, changed)
    }

    #[inline(always)]
    fn ask(&self, label: u64, word: u64) -> Result<u64, Refused> {
        let answered = self.keeper.call(Message::new(label, &[word])).map_err(Refused::Kernel)?;
        match answered.label() {
            told @ (answer::DONE | answer::AGAIN) => Ok(told),
            _ => Err(Refused::Keeper),
        }
    }
}

/// Finds the memory of the snapshots of a state.
#[must_use]
pub fn kept(program: Program, state: &str) -> Option<Kept> {
    let own = |name: &str| name.strip_suffix(KEPT) == Some(state);
    let name = program.names().map(|entry| bulkhead_guest::text::of(&entry.name));
    Kept::of(program.find_memory(name.into_iter().find(|name| own(name))?)?)
}

/// The snapshot that this life may begin with. It stays as it is until this life's second snapshot.
#[derive(Clone, Copy)]
pub struct Last {
    offer: Offer,
    kept: Kept,
}

impl Last {
    /// Returns its number.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.offer.generation
    }

    /// Returns its pages.
    #[must_use]
    pub const fn pages(&self) -> usize {
        self.offer.pages
    }

    /// Copies words of it from the start of a page on. False: it does not have so many.
    pub fn read(&self, page: usize, to: &mut [u64]) -> bool {
        let holds = self.offer.holds(page, to.len());
        if holds {
            let pages = (page..self.offer.pages).flat_map(|n| self.kept.page(self.offer.buffer, n));
            to.iter_mut().zip(pages).for_each(|(word, from)| *word = from.load(Relaxed));
        }
        holds
    }
}
