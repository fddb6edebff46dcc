//! A server's list of refills: which part of a budget can be used from when. The head, and a ring
//! in storage of the owner's size for those after it.
//!
//! These stay true:
//!
//! * no refill is empty;
//! * times do not fall from head to tail;
//! * the amounts always add up to the first refill's original amount.
//!
//! No time becomes available earlier, except where head and next merge at the head's time, for which [`crate::server`]
//! argues.
//!
//! A write into the memory of a list destroys the budget, and no more: a missing entry ends the list.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Account, Time};

/// A part of a budget.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Refill {
    /// Ticks.
    pub amount: Time,
    /// From when it can be used.
    pub time: Time,
}

/// The list.
impl Account {
    /// Returns the first entry, in use or next to be used. It still contains the time used since the last split.
    pub const fn head(&self) -> Refill {
        self.head
    }

    /// Returns all entries, head first.
    pub fn list<'a>(&'a self, refills: &'a [Refill]) -> impl Iterator<Item = Refill> + 'a {
        let later = (0..self.len).filter_map(|n| refills.get(self.index(refills, n)).copied());
        core::iter::once(self.head).chain(later)
    }

    /// Returns the place of the `n`th entry after the head. It compares: a limit need not be a power of two.
    fn index(&self, refills: &[Refill], n: u16) -> usize {
        let index = usize::from(self.start) + usize::from(n);
        if index >= refills.len() { index - refills.len() } else { index }
    }

    /// Returns the entry after the head.
    #[inline]
    pub(crate) fn following(&self, refills: &[Refill]) -> Option<Refill> {
        if self.len == 0 {
            return None;
        }
        refills.get(usize::from(self.start)).copied()
    }

    /// Takes the entry after the head off the list.
    #[inline(always)]
    fn pop(&mut self, refills: &[Refill]) -> Option<Refill> {
        let next = self.following(refills)?;
        self.start = after(self.start, refills);
        self.len -= 1;
        self.next = self.following(refills).map_or(Time::MAX, |next| next.time);
        Some(next)
    }

    /// Not before those that are there: they may come from a longer period.
    #[inline]
    fn push(&mut self, refills: &mut [Refill], Refill { amount, time }: Refill) {
        let time = time.max(self.last);
        if let Some(place) = refills.get_mut(usize::from(self.end)) {
            *place = Refill { amount, time };
            self.end = after(self.end, refills);
            self.last = time;
            self.next = if self.len == 0 { time } else { self.next };
            self.len = self.len.wrapping_add(1);
        }
    }

    #[inline]
    fn is_full(&self, refills: &[Refill]) -> bool {
        usize::from(self.len) >= refills.len()
    }

    /// The head goes to the tail, a period later.
    #[inline]
    pub(crate) fn rotate(&mut self, refills: &mut [Refill]) {
        let Refill { amount, time } = self.head;
        let later = Refill { amount, time: time.saturating_add(self.period) };
        match self.pop(refills) {
            Some(next) => {
                self.head = next;
                self.push(refills, later);
            }
            None => self.head = later,
        }
    }

    /// Moves on to the next entry, if one exists and `used` leaves more of it than the cost of a beginning. False if
    /// nothing was done.
    #[inline]
    pub(crate) fn turn(&mut self, refills: &mut [Refill], used: Time) -> bool {
        let Some(next) = refills.get(usize::from(self.start)).copied() else { return false };
        let Some(place) = refills.get_mut(usize::from(self.end)) else { return false };
        if used >= next.amount || next.amount <= self.cost {
            return false;
        }
        let time = self.head.time.saturating_add(self.period).max(self.last);
        *place = Refill { amount: self.head.amount, time };
        (self.head, self.used, self.last) = (next, used, time);
        (self.start, self.end) = (after(self.start, refills), after(self.end, refills));
        // The one that went to the tail, if there were two.
        self.next = refills.get(usize::from(self.start)).map_or(Time::MAX, |next| next.time);
        true
    }

    /// Every entry comes later.
    pub(crate) fn delay(&mut self, refills: &mut [Refill], by: Time) {
        for time in [&mut self.head.time, &mut self.next, &mut self.last] {
            *time = time.saturating_add(by);
        }
        for refill in refills {
            refill.time = refill.time.saturating_add(by);
        }
    }

    /// Moves the used part of the head, which is less than all of it, to the tail, a period later.
    #[inline]
    pub(crate) fn split(&mut self, refills: &mut [Refill]) {
        let used = self.used;
        if used == 0 {
            return;
        }
        if self.is_full(refills) {
            return self.split_full(refills);
        }
        self.used = 0;
        self.head.amount = self.head.amount.wrapping_sub(used);
        let time = self.head.time.saturating_add(self.period);
        self.push(refills, Refill { amount: used, time });
        if self.head.amount <= self.cost {
            self.gather(refills);
        }
    }

    /// There is no room: the rest of the head waits for the entry after it.
    #[inline(never)]
    fn split_full(&mut self, refills: &mut [Refill]) {
        let used = core::mem::take(&mut self.used);
        let time = self.head.time.saturating_add(self.period);
        if self.len == 0 {
            self.head.time = time;
            return;
        }
        self.head.amount = self.head.amount.wrapping_sub(used);
        self.merge_later(refills);
        self.push(refills, Refill { amount: used, time });
        self.gather(refills);
    }

    /// Head and next become one, at the time of the next: later, never earlier.
    #[inline(never)]
    pub(crate) fn merge_later(&mut self, refills: &[Refill]) {
        if let Some(Refill { amount, time }) = self.pop(refills) {
            self.head = Refill { amount: self.head.amount.wrapping_add(amount), time };
        }
    }

    /// So much more can be used from `now` on, or with the head if that is later and there is no
    /// room before it.
    pub(crate) fn add(&mut self, refills: &mut [Refill], extra: Time, now: Time) {
        if self.head.time <= now || self.is_full(refills) {
            self.head.amount = self.head.amount.saturating_add(extra);
            return;
        }
        let start = before(self.start, refills);
        if let Some(place) = refills.get_mut(usize::from(start)) {
            *place = self.head;
            self.last = if self.len == 0 { self.head.time } else { self.last };
            (self.start, self.len, self.next) = (start, self.len + 1, self.head.time);
            self.head = Refill { amount: extra, time: now };
        }
    }

    /// So much, less than all, of the last entries goes.
    pub(crate) fn cut(&mut self, refills: &mut [Refill], mut less: Time) {
        while less > 0 && self.len > 0 {
            let last = before(self.end, refills);
            let Some(Refill { amount, .. }) = refills.get_mut(usize::from(last)) else { break };
            let part = less.min(*amount);
            (*amount, less) = (*amount - part, less - part);
            if *amount == 0 {
                (self.end, self.len) = (last, self.len - 1);
            }
        }
        self.head.amount = self.head.amount.saturating_sub(less);
        (self.next, self.last) = match self.len {
            0 => (Time::MAX, 0),
            _ => (
                self.next,
                refills.get(usize::from(before(self.end, refills))).map_or(0, |r| r.time),
            ),
        };
    }

    /// Makes the head longer than the cost of a beginning, if the whole list is, by waiting for later refills.
    #[inline(never)]
    pub(crate) fn gather(&mut self, refills: &[Refill]) {
        while self.head.amount <= self.cost && self.following(refills).is_some() {
            self.merge_later(refills);
        }
    }

    /// Merges head and next at the time of the head. It does so while the next can be used by the time that the head
    /// can be used up.
    #[inline]
    pub(crate) fn merge_now(&mut self, refills: &[Refill]) {
        if self.head.time.wrapping_add(self.head.amount) >= self.next {
            self.take_in(refills);
        }
    }

    #[inline(never)]
    fn take_in(&mut self, refills: &[Refill]) {
        if self.is_limited() {
            return;
        }
        while self.head.time.wrapping_add(self.head.amount) >= self.next {
            let Some(Refill { amount, .. }) = self.pop(refills) else { return };
            self.head.amount = self.head.amount.wrapping_add(amount);
            // Most times there was one.
            if self.len == 0 {
                return;
            }
        }
    }
}

/// Returns the place after one in the ring. A comparison: a limit need not be a power of two.
#[inline]
fn after(place: u16, refills: &[Refill]) -> u16 {
    let next = usize::from(place) + 1;
    if next >= refills.len() { 0 } else { next as u16 }
}

fn before(place: u16, refills: &[Refill]) -> u16 {
    match place {
        0 => refills.len().wrapping_sub(1) as u16,
        place => place - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// A list of up to N + 1.
    struct List<const N: usize>(Account, [Refill; N]);

    impl<const N: usize> List<N> {
        fn new(amount: Time, time: Time, period: Time) -> Self {
            let account = Account::sporadic(amount, period, time).unwrap();
            Self(account, [Refill::default(); N])
        }

        fn split(&mut self, used: Time, period: Time) {
            (self.0.used, self.0.period) = (used, period);
            self.0.split(&mut self.1);
        }

        fn shown(&self) -> Vec<(Time, Time)> {
            let next = self.0.list(&self.1).nth(1);
            assert_eq!(self.0.next, next.map_or(Time::MAX, |next| next.time));
            let last = self.0.list(&self.1).skip(1).last();
            assert!(last.is_none_or(|last| last.time == self.0.last));
            self.0.list(&self.1).map(|r| (r.amount, r.time)).collect()
        }
    }

    #[test]
    fn a_full_list_merges_later() {
        let mut list = List::<1>::new(10, 0, 20);
        list.split(3, 20);
        assert_eq!(list.shown(), [(7, 0), (3, 20)]);
        list.split(2, 20);
        assert_eq!(list.shown(), [(8, 20), (2, 20)]);
        list.0.rotate(&mut list.1);
        assert_eq!(list.shown(), [(2, 20), (8, 40)]);
    }

    #[test]
    fn a_list_of_one_polls() {
        let mut list = List::<0>::new(10, 5, 20);
        list.split(3, 20);
        assert_eq!(list.shown(), [(10, 25)]);
    }

    #[test]
    fn the_head_takes_in_what_it_reaches() {
        let mut list = List::<2>::new(10, 0, 20);
        list.split(4, 9);
        list.split(1, 10);
        assert_eq!(list.shown(), [(5, 0), (4, 9), (1, 10)]);
        list.0.head.time = 4;
        list.0.merge_now(&list.1);
        assert_eq!(list.shown(), [(10, 4)]);
    }

    #[test]
    fn budgets_grow_at_once_and_shrink_at_the_end() {
        let mut list = List::<2>::new(10, 0, 20);
        list.split(4, 20);
        list.0.add(&mut list.1, 5, 0);
        assert_eq!(list.shown(), [(11, 0), (4, 20)]);
        list.0.rotate(&mut list.1);
        list.0.add(&mut list.1, 2, 7);
        assert_eq!(list.shown(), [(2, 7), (4, 20), (11, 20)]);
        list.0.add(&mut list.1, 3, 6);
        assert_eq!(list.shown(), [(5, 7), (4, 20), (11, 20)], "there is no room");
        list.0.cut(&mut list.1, 13);
        assert_eq!(list.shown(), [(5, 7), (2, 20)]);
        list.0.cut(&mut list.1, 2);
        assert_eq!(list.shown(), [(5, 7)]);
        list.0.cut(&mut list.1, 1);
        assert_eq!(list.shown(), [(4, 7)]);
    }

    #[test]
    fn time_ends() {
        let mut list = List::<1>::new(10, Time::MAX - 1, 20);
        list.split(3, 20);
        assert_eq!(list.shown(), [(7, Time::MAX - 1), (3, Time::MAX)]);
        list.0.delay(&mut list.1, 5);
        assert_eq!(list.shown(), [(7, Time::MAX), (3, Time::MAX)]);
    }
}
