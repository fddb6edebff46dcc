//! Contexts that wait for a time, for a refill or an alarm: a binary heap of fixed size. Time and level lie in the
//! heap itself; a context knows its place there, so that it can be taken out. No operation takes more than about
//! 2·log2 n steps.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::context::WAITS;
use crate::ready::foreground;
use crate::{Context, Contexts, Id, Time};

/// How many contexts a core has room for.
pub const PLACES: usize = 512;

/// How many entries are looked at for one that matters.
const LOOK: usize = 15;
/// How many of these first.
const FEW: usize = 6;

/// Time that a context waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Entry {
    pub time: Time,
    /// The context's id, or 0; above it the level at which it will be ready, and [`ALARM`]. In one, so
    /// that an entry moves in two parts.
    rest: u64,
}

/// For an alarm, not for a refill.
const ALARM: u64 = 1 << 63;

impl Entry {
    /// Mark of an empty place: its time never comes.
    const NONE: Self = Self { time: Time::MAX, rest: 0 };

    #[inline]
    pub fn new(id: Id, time: Time, priority: u8, alarm: bool) -> Self {
        let level = u64::from(foreground(priority));
        let alarm = if alarm { ALARM } else { 0 };
        Self { time, rest: u64::from(id.link()) | level << 32 | alarm }
    }

    #[inline(always)]
    pub fn id(&self) -> Option<Id> {
        Id::from_link(self.rest as u32)
    }

    #[inline(always)]
    pub fn is_alarm(&self) -> bool {
        self.rest & ALARM != 0
    }

    #[inline(always)]
    fn level(&self) -> u16 {
        (self.rest >> 32) as u16
    }
}

/// The heap.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Release {
    len: u64,
    /// A level that is at least that of each entry.
    top: u32,
    reserved: u32,
    /// Entries. Each empty place, also at the end, holds [`Entry::NONE`]: every entry has two children or two empty
    /// places.
    entries: [Entry; PLACES + 1],
}

impl Release {
    pub const fn new() -> Self {
        Self { len: 0, top: 0, reserved: 0, entries: [Entry::NONE; PLACES + 1] }
    }

    #[cfg(any(test, feature = "host"))]
    pub fn forget_hints(&mut self) {
        self.top = 0;
    }

    fn len(&self) -> usize {
        (self.len as usize).min(PLACES)
    }

    #[inline(always)]
    pub fn at(&self, place: usize) -> Entry {
        self.entries[place % PLACES]
    }

    /// Tells when the first one is due, matter or not.
    #[inline(always)]
    pub fn first(&self) -> Time {
        self.entries[0].time
    }

    /// Tells if no entry above `level` comes before `end`, which is usual: one look at the first.
    #[inline(always)]
    fn nothing_before(&self, level: u32, end: Time) -> bool {
        self.first() >= end || self.top <= level
    }

    /// Tells when the first one is due, if it matters for `level`.
    #[inline]
    fn first_above(&self, level: u32) -> Option<Time> {
        let first = &self.entries[0];
        (first.level() > level as u16).then_some(first.time)
    }

    /// Tells when the second one is due.
    #[inline(always)]
    pub fn second(&self) -> Time {
        // Those that are not there are never due.
        self.entries[1].time.min(self.entries[2].time)
    }

    /// Tells if the second entry is due, too.
    #[inline(always)]
    pub fn second_is_due(&self, now: Time) -> bool {
        self.second() <= now
    }

    /// Tells if there are more entries than are looked at one by one.
    #[inline]
    fn are_many(&self) -> bool {
        self.len > LOOK as u64
    }

    /// Returns the time when a context is released at a level above `level`, or a moment before that; `end` if that
    /// comes first. With up to [`LOOK`] that wait it is exact. Beyond, one that doesn't matter may count: looking
    /// through all would take as long as there are contexts.
    #[inline(always)]
    pub fn next_above(&mut self, level: u32, end: Time) -> Time {
        match self.nothing_before(level, end) {
            true => end,
            false => self.search(level, end),
        }
    }

    /// Finds the next entry, where speed does not matter.
    #[inline(never)]
    pub fn next_slowly(&mut self, level: u32, end: Time) -> Time {
        self.next_above(level, end)
    }

    #[inline]
    fn search(&mut self, level: u32, end: Time) -> Time {
        match (self.first_above(level), self.are_many()) {
            (Some(first), _) => first,
            (None, true) => self.next_of_many(level, end),
            (None, false) => self.next_of_few(level, end),
        }
    }

    /// Finds the next entry where the first doesn't matter. Empty places don't matter either, so there is no loop
    /// over the number of entries.
    #[inline(always)]
    fn next_of_few(&mut self, level: u32, end: Time) -> Time {
        let earlier = |next: Time, entry: &Entry| match entry.level() > level as u16 {
            true => next.min(entry.time),
            false => next,
        };
        let (few, more) = self.entries[..LOOK].split_at(FEW);
        let mut next = few[1..].iter().fold(Time::MAX, earlier);
        if self.len > FEW as u64 {
            next = more.iter().fold(next, earlier);
        }
        if next == Time::MAX {
            self.top = level;
        }
        next.min(end)
    }

    #[inline(never)]
    fn next_of_many(&self, level: u32, end: Time) -> Time {
        let (looked, rest) = self.entries.split_at(LOOK);
        let looked = looked.iter().filter(|entry| u32::from(entry.level()) > level);
        // The children of those looked at are not later than all the rest.
        let children = &rest[..self.len().saturating_sub(LOOK).min(LOOK + 1)];
        looked.chain(children).map(|entry| entry.time).fold(end, Time::min)
    }

    /// Adds the time that a context waits for, if the context is not in. Without effect if there is no room. A caller
    /// that reserves it ([`crate::Scheduler::reserve`]) never sees that.
    #[inline]
    pub fn insert(&mut self, contexts: &mut (impl Contexts + ?Sized), id: Id, entry: Entry) {
        let place = self.len();
        if place < PLACES {
            self.len = place as u64 + 1;
            self.top = self.top.max(entry.level().into());
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

    /// Returns the time that the context at a place waits for.
    pub fn time_at(&self, place: u16) -> Time {
        self.at(usize::from(place)).time
    }

    /// Takes the first one out, which is of this context.
    #[inline]
    pub fn take_first(&mut self, contexts: &mut (impl Contexts + ?Sized)) {
        self.take(contexts, 0);
    }

    /// A context that may be in has another priority.
    pub fn set_priority(&mut self, context: &Context) {
        if context.flags & WAITS != 0 {
            let level = foreground(context.priority);
            let entry = &mut self.entries[usize::from(context.place) % PLACES];
            entry.rest = entry.rest & !(0xffff << 32) | u64::from(level) << 32;
            self.top = self.top.max(level);
        }
    }

    /// Fills a place with the last entry.
    #[inline]
    fn take(&mut self, contexts: &mut (impl Contexts + ?Sized), place: usize) {
        let last = (self.len.wrapping_sub(1) as usize) % PLACES;
        self.len = last as u64;
        let entry = core::mem::replace(&mut self.entries[last], Entry::NONE);
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
        let len = self.len as usize % PLACES;
        while 2 * place + 1 < len {
            let left = 2 * place + 1;
            let right_is_less = self.entries[left + 1].time < self.entries[left].time;
            let child = left + usize::from(right_is_less);
            if entry.time <= self.entries[child].time {
                break;
            }
            self.put(contexts, place, self.entries[child]);
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

    /// Tells when the first one is released that matters, looking at all.
    fn first_above(contexts: &All, level: u32) -> Time {
        let waits = |n: &u32| contexts[*n as usize].0.flags & WAITS != 0;
        let waiting = (0..COUNT).filter(waits).map(entry);
        let matter = waiting.filter(|entry| u32::from(entry.level()) > level);
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
