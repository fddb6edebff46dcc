//! Who waits for a time, for its refill or its alarm: a binary heap of fixed size. Time and level
//! lie in the heap itself; a context knows its place there, so that it can be taken out. No operation
//! takes more than about 2·log2 n steps.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::context::WAITS;
use crate::ready::foreground;
use crate::{Context, Contexts, Id, Time};

/// How many contexts a core has room for.
pub const PLACES: usize = 512;

/// How many entries are looked at for one that matters.
const LOOK: usize = 15;

/// What a context waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Entry {
    pub time: Time,
    id: u32,
    /// At which it will be ready.
    level: u16,
    /// Not 0: for an alarm, not for a refill.
    alarm: u16,
}

impl Entry {
    /// None before the end of time.
    const NONE: Self = Self { time: Time::MAX, id: 0, level: 0, alarm: 0 };

    pub fn new(id: Id, time: Time, priority: u8, alarm: bool) -> Self {
        Self { time, id: id.link(), level: foreground(priority), alarm: alarm.into() }
    }

    pub fn id(&self) -> Option<Id> {
        Id::from_link(self.id)
    }

    pub fn is_alarm(&self) -> bool {
        self.alarm != 0
    }
}

/// The heap.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Release {
    len: u64,
    /// None is of a higher level.
    top: u32,
    reserved: u32,
    /// The first one is [`Entry::NONE`] if there is none.
    entries: [Entry; PLACES],
}

impl Release {
    pub const fn new() -> Self {
        Self { len: 0, top: 0, reserved: 0, entries: [Entry::NONE; PLACES] }
    }

    fn len(&self) -> usize {
        (self.len as usize).min(PLACES)
    }

    fn at(&self, place: usize) -> Entry {
        self.entries[place % PLACES]
    }

    /// When the first one is due, matter or not.
    #[inline]
    pub fn first(&self) -> Time {
        self.entries[0].time
    }

    /// Whether nothing above `level` comes before `end`, as it is most times: a look at the first.
    #[inline]
    pub fn nothing_before(&self, level: u32, end: Time) -> bool {
        self.first() >= end || self.top <= level
    }

    /// When somebody is released at a level above `level`, or a moment before that; `end` if that
    /// comes first. With up to [`LOOK`] that wait it is exact. Beyond, one that doesn't matter may
    /// count: looking through all would take as long as there are contexts.
    #[inline]
    pub fn next_above(&mut self, level: u32, end: Time) -> Time {
        if self.nothing_before(level, end) {
            return end;
        }
        let (mut next, mut place, mut top) = (end, 0, 0);
        let len = self.len();
        while place < len.min(LOOK) {
            let entry = &self.entries[place % PLACES];
            if u32::from(entry.level) > level && entry.time < next {
                next = entry.time;
            }
            top = top.max(entry.level);
            place += 1;
        }
        if len > LOOK {
            return self.next_of_many(next);
        }
        self.top = top.into();
        next
    }

    /// The children of those looked at are not later than all the rest.
    #[cold]
    fn next_of_many(&self, next: Time) -> Time {
        let children = &self.entries[LOOK..self.len().min(2 * LOOK + 1)];
        children.iter().map(|entry| entry.time).fold(next, Time::min)
    }

    /// Adds what a context waits for that is not in. Without effect if there is no room, which who
    /// reserves it never sees: [`crate::Scheduler::reserve`].
    #[inline]
    pub fn insert(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, entry: Entry) {
        let place = self.len();
        if place < PLACES {
            self.len = place as u64 + 1;
            self.top = self.top.max(entry.level.into());
            contexts.context(id).flags |= WAITS;
            self.rise(contexts, place, entry);
        }
    }

    /// Takes a context out, if it is in.
    pub fn remove(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id) {
        let context = contexts.context(id);
        if context.flags & WAITS != 0 {
            context.flags &= !WAITS;
            let place = usize::from(context.place);
            self.take(contexts, place);
        }
    }

    /// Takes the first one out, if its time has come.
    #[inline]
    pub fn pop(&mut self, contexts: &mut (impl Contexts + ?Sized), now: Time) -> Option<Entry> {
        let first = self.at(0);
        if first.time > now || self.len() == 0 {
            return None;
        }
        if let Some(id) = first.id() {
            contexts.context(id).flags &= !WAITS;
        }
        self.take(contexts, 0);
        Some(first)
    }

    /// What the context at a place waits for.
    pub fn time_at(&self, place: u16) -> Time {
        self.at(usize::from(place)).time
    }

    /// A context that may be in has another priority.
    pub fn set_priority(&mut self, context: &Context) {
        if context.flags & WAITS != 0 {
            let level = foreground(context.priority);
            self.entries[usize::from(context.place) % PLACES].level = level;
            self.top = self.top.max(level.into());
        }
    }

    /// Fills a place with the last entry.
    #[inline]
    fn take(&mut self, contexts: &mut (impl Contexts + ?Sized), place: usize) {
        let Some(last) = self.len().checked_sub(1).filter(|last| place <= *last) else { return };
        self.len = last as u64;
        let entry = core::mem::replace(&mut self.entries[last % PLACES], Entry::NONE);
        if place == last {
            return;
        }
        match place > 0 && entry.time < self.at((place - 1) / 2).time {
            true => self.rise(contexts, place, entry),
            false => self.sink(contexts, place, entry),
        }
    }

    fn put(&mut self, contexts: &mut (impl Contexts + ?Sized), place: usize, entry: Entry) {
        self.entries[place % PLACES] = entry;
        if let Some(id) = entry.id() {
            contexts.context(id).place = place as u16;
        }
    }

    /// Finds the place of an entry from this one upwards.
    #[inline]
    fn rise(&mut self, contexts: &mut (impl Contexts + ?Sized), mut place: usize, entry: Entry) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.at(parent).time <= entry.time {
                break;
            }
            self.put(contexts, place, self.at(parent));
            place = parent;
        }
        self.put(contexts, place, entry);
    }

    /// Finds the place of an entry from this one downwards.
    #[inline]
    fn sink(&mut self, contexts: &mut (impl Contexts + ?Sized), mut place: usize, entry: Entry) {
        let len = self.len();
        loop {
            let mut child = 2 * place + 1;
            if child >= len {
                break;
            }
            if child + 1 < len && self.at(child + 1).time < self.at(child).time {
                child += 1;
            }
            if entry.time <= self.at(child).time {
                break;
            }
            self.put(contexts, place, self.at(child));
            place = child;
        }
        self.put(contexts, place, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Account, Refill};
    use std::vec::Vec;

    const COUNT: u32 = 60;

    type All = [(Context, [Refill; 0])];

    /// Times in no order, priorities in another.
    fn entry(n: u32) -> Entry {
        Entry::new(Id::of(n), u64::from(n * 37 % 101), (n * 11 % 64) as u8, n % 2 == 0)
    }

    /// When the first one is released that matters, looking at all.
    fn first_above(contexts: &All, level: u32) -> Time {
        let waits = |n: &u32| contexts[*n as usize].0.flags & WAITS != 0;
        let waiting = (0..COUNT).filter(waits).map(entry);
        let matter = waiting.filter(|entry| u32::from(entry.level) > level);
        matter.map(|entry| entry.time).min().unwrap_or(Time::MAX)
    }

    fn check(release: &mut Release, contexts: &All, inexact: &mut u32) {
        for place in 0..release.len() {
            let entry = release.at(place);
            assert!(release.at(place.saturating_sub(1) / 2).time <= entry.time, "at {place}");
            assert_eq!(usize::from(contexts[entry.id().unwrap().index()].0.place), place);
        }
        assert_eq!(release.first(), first_above(contexts, 0));
        for level in [0, 256 + 20, 256 + 62] {
            let exact = first_above(contexts, level);
            let next = release.next_above(level, Time::MAX);
            assert_eq!(release.next_above(level, 50), next.min(50));
            // Before that at most, never after it.
            assert!(next <= exact);
            assert!(release.len() > LOOK || next == exact, "{next} for {exact}");
            *inexact += u32::from(next != exact);
        }
    }

    #[test]
    fn whatever_comes_and_goes_the_first_is_the_first() {
        let context = Context::new(Account::sporadic(1, 1, 0).unwrap(), 0);
        let mut contexts: Vec<_> = (0..COUNT).map(|_| (context, [])).collect();
        let all = &mut contexts[..];
        let mut release = Release::new();
        let (mut random, mut inexact, mut popped) = (1u64, 0, 0);
        for round in 0..20_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
            let n = (random >> 33) as u32 % if round % 1000 < 500 { COUNT } else { 12 };
            match all[n as usize].0.flags & WAITS {
                0 => release.insert(all, Id::of(n), entry(n)),
                _ => release.remove(all, Id::of(n)),
            }
            check(&mut release, all, &mut inexact);
            if round % 7 == 0 {
                let first = release.first();
                let early = first.checked_sub(1).and_then(|early| release.pop(all, early));
                assert_eq!(early, None);
                let expected = (first < Time::MAX).then_some(first);
                assert_eq!(release.pop(all, first).map(|entry| entry.time), expected);
                popped += u32::from(expected.is_some());
                check(&mut release, all, &mut inexact);
            }
        }
        assert!(inexact > 0 && popped > 1_000, "enough waited");
    }

    #[test]
    fn a_full_heap_takes_no_more() {
        let context = Context::new(Account::sporadic(1, 1, 0).unwrap(), 0);
        let mut contexts: Vec<_> = (0..=PLACES).map(|_| (context, [])).collect();
        let mut release = Release::new();
        for n in 0..=PLACES as u32 {
            release.insert(&mut contexts[..], Id::of(n), entry(n));
        }
        assert_eq!((release.len(), contexts[PLACES].0.flags & WAITS), (PLACES, 0));
        let popped = core::iter::from_fn(|| release.pop(&mut contexts[..], Time::MAX));
        let times: Vec<_> = popped.map(|entry| entry.time).collect();
        assert!(times.len() == PLACES && times.is_sorted());
    }
}
