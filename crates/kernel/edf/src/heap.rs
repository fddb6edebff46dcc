//! A binary heap of numbered things, the smallest key first, of which any can be taken out.

/// Each of `0..N` at most once.
#[derive(Clone, Debug)]
pub struct Heap<const N: usize> {
    /// Keys by place; a heap in the first `len`.
    entries: [(u64, usize); N],
    /// Where a thing lies, `N` if it does not.
    places: [usize; N],
    len: usize,
}

impl<const N: usize> Heap<N> {
    pub const fn new() -> Self {
        Self { entries: [(0, 0); N], places: [N; N], len: 0 }
    }

    /// Returns the smallest.
    pub fn first(&self) -> Option<(usize, u64)> {
        (self.len > 0).then(|| (self.entries[0].1, self.entries[0].0))
    }

    pub fn has(&self, thing: usize) -> bool {
        self.places[thing] < N
    }

    /// Puts one in that is not there.
    pub fn push(&mut self, thing: usize, key: u64) {
        let place = self.len;
        self.len += 1;
        self.up(place, (key, thing));
    }

    /// Takes one out that is there.
    pub fn remove(&mut self, thing: usize) {
        let place = core::mem::replace(&mut self.places[thing], N);
        self.len -= 1;
        if place == self.len {
            return;
        }
        let last = self.entries[self.len];
        if place > 0 && last < self.entries[(place - 1) / 2] {
            self.up(place, last);
        } else {
            self.down(place, last);
        }
    }

    fn put(&mut self, place: usize, entry: (u64, usize)) {
        self.entries[place] = entry;
        self.places[entry.1] = place;
    }

    /// Puts an entry at a place or above it.
    fn up(&mut self, mut place: usize, entry: (u64, usize)) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.entries[parent] < entry {
                break;
            }
            self.put(place, self.entries[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    /// Puts an entry at a place or below it.
    fn down(&mut self, mut place: usize, entry: (u64, usize)) {
        loop {
            let mut child = 2 * place + 1;
            if child >= self.len {
                break;
            }
            if child + 1 < self.len && self.entries[child + 1] < self.entries[child] {
                child += 1;
            }
            if entry < self.entries[child] {
                break;
            }
            self.put(place, self.entries[child]);
            place = child;
        }
        self.put(place, entry);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_an_ordered_set(steps in prop::collection::vec((0usize..16, 0u64..8), 1..200)) {
            let (mut heap, mut set) = (Heap::<16>::new(), BTreeSet::new());
            for (thing, key) in steps {
                match set.iter().find(|(_, it)| *it == thing).copied() {
                    Some(entry) => {
                        heap.remove(thing);
                        set.remove(&entry);
                    }
                    None => {
                        heap.push(thing, key);
                        set.insert((key, thing));
                    }
                }
                prop_assert_eq!(heap.first(), set.first().map(|(key, thing)| (*thing, *key)));
                for thing in 0..16 {
                    prop_assert_eq!(heap.has(thing), set.iter().any(|(_, it)| *it == thing));
                }
            }
        }
    }
}
