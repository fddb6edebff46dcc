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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, Policy, Refill, Server};
    use std::vec::Vec;

    const COUNT: usize = 60;

    fn context(n: u64) -> Context<[Refill; 1]> {
        // Times in no order, priorities in another.
        let (time, priority) = (n * 37 % 101, (n * 11 % 64) as u8);
        let server = Server::sporadic(1, 1, time, [Refill::default()]).unwrap();
        Context::new(Policy::Server(server), priority)
    }

    /// When the first one is released that matters, looking at all.
    fn first_above(contexts: &[Context<[Refill; 1]>], level: Option<u16>) -> Option<Time> {
        let waiting = contexts.iter().filter(|context| context.links.place.is_some());
        let matter = waiting.filter(|context| Some(foreground(context.priority)) > level);
        matter.map(Context::eligible).min()
    }

    #[test]
    fn whatever_comes_and_goes_the_first_is_the_first() {
        let mut contexts: Vec<_> = (0..COUNT as u64).map(context).collect();
        let mut release = Release::new([Id(0); COUNT]);
        let (mut random, mut inexact) = (1u64, 0);
        for round in 0..20_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
            let n = (random >> 33) as usize % if round % 1000 < 500 { COUNT } else { 12 };
            match contexts[n].links.place {
                Some(_) => release.remove(&mut contexts[..], Id(n as u16)),
                None => release.insert(&mut contexts[..], Id(n as u16)),
            }
            for place in 1..release.len {
                let parent = release.time(&mut contexts[..], (place - 1) / 2);
                assert!(parent <= release.time(&mut contexts[..], place), "at {place}");
            }
            let first = first_above(&contexts, None);
            assert_eq!(release.next_above(&mut contexts[..], None), first);
            let due = first.and_then(|first| release.due(&mut contexts[..], first));
            assert_eq!(due.map(|id| contexts[usize::from(id.0)].eligible()), first);
            let early = first.and_then(|first| release.due(&mut contexts[..], first.max(1) - 1));
            assert!(early.is_none() || first == Some(0));
            for level in [None, Some(256 + 20), Some(256 + 62)] {
                let next = release.next_above(&mut contexts[..], level);
                let exact = first_above(&contexts, level);
                // Before that at most, never after it.
                assert!(exact.is_none_or(|exact| next.is_some_and(|next| next <= exact)));
                assert!(release.len > LOOK || next == exact, "{next:?} for {exact:?}");
                inexact += u32::from(next != exact);
            }
        }
        assert!(inexact > 0, "enough waited");
    }
}
