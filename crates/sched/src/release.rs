//! Who waits for budget: a binary heap by time. Each context knows its place, so that it can be
//! taken out; no operation takes more than about 2·log2 n steps.

use crate::ready::foreground;
use crate::{Contexts, Id, Time};

/// How many entries are looked at for one that matters.
const LOOK: usize = 15;

/// The heap, in the owner's storage.
#[derive(Clone, Debug)]
pub struct Release<S> {
    ids: S,
    len: usize,
}

impl<S: AsRef<[Id]> + AsMut<[Id]>> Release<S> {
    pub fn new(ids: S) -> Self {
        Self { ids, len: 0 }
    }

    /// How many can wait.
    pub fn limit(&self) -> usize {
        self.ids.as_ref().len()
    }

    fn time(&self, contexts: &mut (impl Contexts + ?Sized), place: usize) -> Time {
        contexts.context(self.ids.as_ref()[place]).eligible()
    }

    /// The first one, if its time has come.
    pub fn due(&self, contexts: &mut (impl Contexts + ?Sized), now: Time) -> Option<Id> {
        (self.len > 0 && self.time(contexts, 0) <= now).then(|| self.ids.as_ref()[0])
    }

    /// When somebody is released at a level above `level`, or a moment before that. With up to
    /// [`LOOK`] that wait it is exact. Beyond, one that doesn't matter may count: looking through
    /// all would take as long as there are contexts.
    pub fn next_above(
        &self,
        contexts: &mut (impl Contexts + ?Sized),
        level: Option<u16>,
    ) -> Option<Time> {
        let mut next: Option<Time> = None;
        // The children of those looked at are not later than all the rest.
        for place in 0..self.len.min(2 * LOOK + 1) {
            let context = contexts.context(self.ids.as_ref()[place]);
            let matters = place >= LOOK || Some(foreground(context.priority)) > level;
            if matters && next.is_none_or(|next| context.eligible() < next) {
                next = Some(context.eligible());
            }
        }
        next
    }

    /// Adds a context that is not in. There is room: [`crate::Scheduler::new`].
    pub fn insert(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id) {
        self.len += 1;
        self.put(contexts, self.len - 1, id);
        self.rise(contexts, self.len - 1);
    }

    /// Takes a context out, if it is in.
    pub fn remove(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id) {
        let Some(place) = contexts.context(id).links.place.take() else { return };
        let place = usize::from(place);
        self.len -= 1;
        if place < self.len {
            self.put(contexts, place, self.ids.as_ref()[self.len]);
            self.rise(contexts, place);
            self.sink(contexts, place);
        }
    }

    fn put(&mut self, contexts: &mut (impl Contexts + ?Sized), place: usize, id: Id) {
        self.ids.as_mut()[place] = id;
        contexts.context(id).links.place = Some(place as u16);
    }

    fn swap(&mut self, contexts: &mut (impl Contexts + ?Sized), a: usize, b: usize) {
        let (at_a, at_b) = (self.ids.as_ref()[a], self.ids.as_ref()[b]);
        self.put(contexts, a, at_b);
        self.put(contexts, b, at_a);
    }

    fn rise(&mut self, contexts: &mut (impl Contexts + ?Sized), mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.time(contexts, parent) <= self.time(contexts, place) {
                return;
            }
            self.swap(contexts, parent, place);
            place = parent;
        }
    }

    fn sink(&mut self, contexts: &mut (impl Contexts + ?Sized), mut place: usize) {
        loop {
            let children = (2 * place + 1)..self.len.min(2 * place + 3);
            let Some(child) = children.min_by_key(|child| self.time(contexts, *child)) else {
                return;
            };
            if self.time(contexts, place) <= self.time(contexts, child) {
                return;
            }
            self.swap(contexts, place, child);
            place = child;
        }
    }
}
