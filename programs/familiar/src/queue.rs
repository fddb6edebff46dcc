//! A queue of bounded length: the classical use of two conditions.

use alloc::collections::VecDeque;
use bulkhead_program::{Condvar, Mutex, Notification};

/// Up to `N` items; two threads at most wait for each of its conditions.
pub struct Queue<T, const N: usize> {
    items: Mutex<VecDeque<T>>,
    not_empty: Condvar<2>,
    not_full: Condvar<2>,
}

/// A thread's own notification, to signal and to wait for.
type Own = (Notification, Notification);

impl<T, const N: usize> Queue<T, N> {
    pub const fn new() -> Self {
        let items = Mutex::new(VecDeque::new());
        Self { items, not_empty: Condvar::new(), not_full: Condvar::new() }
    }

    /// Where threads wait for its lock.
    pub fn waits_at(&self, signals: Notification, waits: Notification) {
        self.items.waits_at(signals, waits);
    }

    /// Puts an item in when there is room. False: the thread cannot wait.
    pub fn put(&self, item: T, (signals, waits): Own) -> bool {
        let mut items = self.items.lock();
        while items.len() == N {
            items = match self.not_full.wait(items, signals, waits) {
                Ok(items) => items,
                Err(_) => return false,
            };
        }
        items.push_back(item);
        self.not_empty.notify_one(&items);
        true
    }

    /// Takes the first item when there is one.
    pub fn take(&self, (signals, waits): Own) -> Option<T> {
        let mut items = self.items.lock();
        while items.is_empty() {
            items = self.not_empty.wait(items, signals, waits).ok()?;
        }
        let item = items.pop_front();
        self.not_full.notify_one(&items);
        item
    }
}
