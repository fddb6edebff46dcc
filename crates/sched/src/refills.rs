//! A list of refills: which part of a budget can be used from when. A ring in
//! storage of the owner's size.
//!
//! What it keeps true: at least one entry; none is empty; times do not fall from head to tail; the
//! amounts add up to what the first one was, whatever is done. Nothing becomes available earlier
//! but where head and next merge at the head's time, which [`crate::server`] argues for.

use crate::{Invalid, Time};

/// A part of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Refill {
    /// Ticks.
    pub amount: Time,
    /// From when it can be used.
    pub time: Time,
}

/// The ring. `R` is an array or a slice of the owner's; its length is the list's limit.
#[derive(Clone, Debug)]
pub struct Refills<R> {
    items: R,
    start: usize,
    len: usize,
}

impl<R: AsRef<[Refill]> + AsMut<[Refill]>> Refills<R> {
    /// A list with one entry in storage whose content does not matter.
    ///
    /// # Errors
    /// [`Invalid::NoRefills`]: storage of length 0.
    pub fn new(mut items: R, first: Refill) -> Result<Self, Invalid> {
        *items.as_mut().first_mut().ok_or(Invalid::NoRefills)? = first;
        Ok(Self { items, start: 0, len: 1 })
    }

    /// How many entries there can be.
    pub fn limit(&self) -> usize {
        self.items.as_ref().len()
    }

    /// Whether a further entry would be one too many.
    pub fn is_full(&self) -> bool {
        self.len == self.limit()
    }

    /// The first entry, in use or next to be used.
    pub fn head(&self) -> Refill {
        self.items.as_ref()[self.start]
    }

    /// The second entry.
    pub fn next(&self) -> Option<Refill> {
        (self.len > 1).then(|| self.items.as_ref()[self.place(1)])
    }

    /// All entries, head first.
    pub fn iter(&self) -> impl Iterator<Item = Refill> {
        (0..self.len).map(|n| self.items.as_ref()[self.place(n)])
    }

    /// Where the `n`th entry lies. A comparison: a limit need not be a power of two.
    fn place(&self, n: usize) -> usize {
        let (place, limit) = (self.start + n, self.limit());
        if place >= limit { place - limit } else { place }
    }

    fn pop(&mut self) -> Refill {
        let head = self.head();
        self.start = self.place(1);
        self.len -= 1;
        head
    }

    /// Not before those that are there: they may come from a longer period.
    fn push(&mut self, Refill { amount, time }: Refill) {
        let last = match self.len {
            0 => 0,
            len => self.items.as_ref()[self.place(len - 1)].time,
        };
        let place = self.place(self.len);
        self.items.as_mut()[place] = Refill { amount, time: time.max(last) };
        self.len += 1;
    }

    /// The head can't be used before `time`. Only for a time up to the next entry's, or
    /// with [`Refills::merge_now`] after it.
    pub(crate) fn hold(&mut self, time: Time) {
        let head = &mut self.items.as_mut()[self.start];
        head.time = head.time.max(time);
    }

    /// The head goes to the tail, a period later.
    pub(crate) fn rotate(&mut self, period: Time) {
        let Refill { amount, time } = self.pop();
        self.push(Refill { amount, time: time.saturating_add(period) });
    }

    /// Every entry comes later.
    pub(crate) fn delay(&mut self, by: Time) {
        for refill in self.items.as_mut() {
            refill.time = refill.time.saturating_add(by);
        }
    }

    /// `used` of the head, less than it has, goes to the tail, a period later. Where
    /// there is no room the rest of the head waits for the entry after it.
    pub(crate) fn split(&mut self, used: Time, period: Time) {
        let Refill { amount, time } = self.head();
        let later = Refill { amount: used, time: time.saturating_add(period) };
        self.items.as_mut()[self.start].amount = amount - used;
        if !self.is_full() {
            self.push(later);
        } else if self.len == 1 {
            self.items.as_mut()[self.start] = Refill { amount, ..later };
        } else {
            self.merge_later();
            self.push(later);
        }
    }

    /// Head and next become one, at the time of the next: later, never earlier.
    fn merge_later(&mut self) {
        let amount = self.pop().amount;
        self.items.as_mut()[self.start].amount += amount;
    }

    /// So much more can be used from `now` on, or with the head if that is later and there is no
    /// room before it.
    pub(crate) fn add(&mut self, extra: Time, now: Time) {
        if self.head().time <= now || self.is_full() {
            self.items.as_mut()[self.start].amount += extra;
            return;
        }
        self.start = if self.start == 0 { self.limit() - 1 } else { self.start - 1 };
        self.len += 1;
        self.items.as_mut()[self.start] = Refill { amount: extra, time: now };
    }

    /// So much, less than all, of the last entries goes.
    pub(crate) fn cut(&mut self, mut less: Time) {
        while less > 0 {
            let last = self.place(self.len - 1);
            let last = &mut self.items.as_mut()[last].amount;
            let part = less.min(*last);
            (*last, less) = (*last - part, less - part);
            self.len -= usize::from(*last == 0);
        }
    }

    /// The head becomes more than `least`, if all is, by waiting for what comes after it.
    pub(crate) fn gather(&mut self, least: Time) {
        while self.len > 1 && self.head().amount <= least {
            self.merge_later();
        }
    }

    /// Head and next become one, at the time of the head, while the next can be used by
    /// the time that the head can be used up.
    pub(crate) fn merge_now(&mut self) {
        while let Some(next) = self.next() {
            let head = self.head();
            if head.time.saturating_add(head.amount) < next.time {
                return;
            }
            self.pop();
            let amount = head.amount + next.amount;
            self.items.as_mut()[self.start] = Refill { amount, time: head.time };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn list<const N: usize>(first: (Time, Time)) -> Refills<[Refill; N]> {
        Refills::new([Refill::default(); N], Refill { amount: first.0, time: first.1 }).unwrap()
    }

    fn shown<const N: usize>(list: &Refills<[Refill; N]>) -> Vec<(Time, Time)> {
        list.iter().map(|r| (r.amount, r.time)).collect()
    }

    #[test]
    fn no_storage_is_refused() {
        assert_eq!(Refills::new([], Refill::default()).err(), Some(Invalid::NoRefills));
    }

    #[test]
    fn a_full_list_merges_later() {
        let mut refills = list::<2>((10, 0));
        refills.split(3, 20);
        assert_eq!(shown(&refills), [(7, 0), (3, 20)]);
        refills.split(2, 20);
        assert_eq!(shown(&refills), [(8, 20), (2, 20)]);
        refills.rotate(20);
        assert_eq!(shown(&refills), [(2, 20), (8, 40)]);
    }

    #[test]
    fn a_list_of_one_polls() {
        let mut refills = list::<1>((10, 5));
        refills.split(3, 20);
        assert_eq!(shown(&refills), [(10, 25)]);
    }

    #[test]
    fn the_head_takes_in_what_it_reaches() {
        let mut refills = list::<3>((10, 0));
        refills.split(4, 9);
        refills.split(1, 10);
        assert_eq!(shown(&refills), [(5, 0), (4, 9), (1, 10)]);
        refills.hold(4);
        refills.merge_now();
        assert_eq!(shown(&refills), [(10, 4)]);
    }

    #[test]
    fn budgets_grow_at_once_and_shrink_at_the_end() {
        let mut refills = list::<3>((10, 0));
        refills.split(4, 20);
        refills.add(5, 0);
        assert_eq!(shown(&refills), [(11, 0), (4, 20)]);
        refills.rotate(20);
        refills.add(2, 7);
        assert_eq!(shown(&refills), [(2, 7), (4, 20), (11, 20)]);
        refills.add(3, 6);
        assert_eq!(shown(&refills), [(5, 7), (4, 20), (11, 20)], "there is no room");
        refills.cut(13);
        assert_eq!(shown(&refills), [(5, 7), (2, 20)]);
        refills.cut(2);
        assert_eq!(shown(&refills), [(5, 7)]);
    }

    #[test]
    fn time_ends() {
        let mut refills = list::<2>((10, Time::MAX - 1));
        refills.split(3, 20);
        assert_eq!(shown(&refills), [(7, Time::MAX - 1), (3, Time::MAX)]);
        refills.delay(5);
        assert_eq!(shown(&refills), [(7, Time::MAX), (3, Time::MAX)]);
    }
}
