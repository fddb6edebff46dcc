//! Mutual exclusion among the threads of a program, by notifications.
//!
//! A thread waits here on its own time: a passive server, which has none, must not. Nor does a lock lend its holder a
//! priority. Threads of priorities in between can keep a holder of low priority from going on, and with it the threads
//! that wait for it. Threads of different priorities therefore share data by a passive server at the highest of them:
//! its priority is a ceiling for free. A lock is for threads of one priority, or for those that can wait.

use crate::call::Error;
use crate::objects::Notification;
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may wait.
const WANTED: u32 = 2;

/// Data that one thread at a time may use.
pub struct Mutex<T> {
    state: AtomicU32,
    /// The notification, to signal (upper half) and to wait for; 0 until [`Mutex::waits_at`].
    wakes: AtomicU64,
    data: UnsafeCell<T>,
}

// SAFETY: one thread at a time reaches the data, so they need not be made for several.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// The right to use a mutex's data, until it is dropped.
pub struct Guard<'a, T> {
    mutex: &'a Mutex<T>,
    /// For its thread only: through a guard that two threads had, both would reach data that is made for one.
    own: PhantomData<*const T>,
}

impl<T> Mutex<T> {
    /// Data that no thread uses so far.
    #[must_use]
    pub const fn new(data: T) -> Self {
        let (state, wakes) = (AtomicU32::new(FREE), AtomicU64::new(0));
        Self { state, wakes, data: UnsafeCell::new(data) }
    }

    /// Sets the place where threads wait for the data: a notification of this mutex alone. The program has to be given
    /// both `signals` and `waits` for it, under one name. To be called before a second thread locks.
    pub fn waits_at(&self, signals: Notification, waits: Notification) {
        let both = u64::from(signals.0) << 32 | u64::from(waits.0);
        self.wakes.store(both, Ordering::Release);
    }

    /// Uses the data as soon as no other thread does.
    ///
    /// # Panics
    /// Another thread does, and [`Mutex::waits_at`] was not called; or this thread has no time to wait on.
    pub fn lock(&self) -> Guard<'_, T> {
        if self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_later();
        }
        self.guard()
    }

    #[cold]
    fn lock_later(&self) {
        // A signal that came between the exchange and the wait is still there then.
        while self.state.swap(WANTED, Ordering::Acquire) != FREE {
            let (_, waits) = self.notification().expect("a mutex of several threads waits nowhere");
            waits.wait().expect("a thread that can wait");
        }
    }

    /// Uses the data if no other thread does.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let free = self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        free.ok().map(|_| self.guard())
    }

    fn guard(&self) -> Guard<'_, T> {
        Guard { mutex: self, own: PhantomData }
    }

    fn notification(&self) -> Option<(Notification, Notification)> {
        let both = self.wakes.load(Ordering::Acquire);
        (both != 0).then_some((Notification((both >> 32) as u32), Notification(both as u32)))
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: only the guard's thread reaches the data.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard's thread has the mutex, and there is one guard, which is borrowed exclusively.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if self.mutex.state.swap(FREE, Ordering::Release) == WANTED
            && let Some((signals, _)) = self.mutex.notification()
        {
            signals.signal();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.state.load(Ordering::Relaxed) != FREE;
        f.debug_struct("Mutex").field("held", &held).finish_non_exhaustive()
    }
}

/// Threads, `N` at most, that wait until something is so of a mutex's data, in the order in which they came.
///
/// Each waits at a notification of its own. One notification for all would not do. Another thread could take a signal
/// for a thread that is about to wait, or two signals could become one.
#[derive(Debug)]
pub struct Condvar<const N: usize> {
    /// Addresses of their notifications, to signal; 0 behind the last. Changed by the thread that holds the mutex.
    waiting: [AtomicU32; N],
}

impl<const N: usize> Default for Condvar<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Condvar<N> {
    /// Makes one at which no thread waits.
    #[must_use]
    pub const fn new() -> Self {
        Self { waiting: [const { AtomicU32::new(0) }; N] }
    }

    /// Lets others use the data and waits until one of them has notified this thread. `signals` and `waits` are
    /// capabilities of a notification that is this thread's own. The condition that it waited for may be false again:
    /// look.
    ///
    /// # Errors
    /// As [`Notification::wait`]; it waits no more.
    ///
    /// # Panics
    /// `N` others wait.
    pub fn wait<'a, T>(
        &self,
        guard: Guard<'a, T>,
        signals: Notification,
        waits: Notification,
    ) -> Result<Guard<'a, T>, Error> {
        let mutex = guard.mutex;
        let end = self.waiting.iter().find(|place| place.load(Ordering::Relaxed) == 0);
        end.expect("a place for one more that waits").store(signals.0, Ordering::Relaxed);
        drop(guard);
        loop {
            let woken = waits.wait();
            let guard = mutex.lock();
            let at = self.waiting.iter().position(|w| w.load(Ordering::Relaxed) == signals.0);
            match (woken, at) {
                (_, None) => return Ok(guard),
                (Err(error), Some(at)) => {
                    self.remove(at);
                    return Err(error);
                }
                // An old signal.
                (Ok(_), Some(_)) => drop(guard),
            }
        }
    }

    /// The thread that has waited longest goes on.
    pub fn notify_one<T>(&self, _: &Guard<'_, T>) {
        let first = self.waiting.first().map_or(0, |first| first.load(Ordering::Relaxed));
        if first != 0 {
            self.remove(0);
            Notification(first).signal();
        }
    }

    /// All that wait go on.
    pub fn notify_all<T>(&self, _: &Guard<'_, T>) {
        for place in &self.waiting {
            let address = place.swap(0, Ordering::Relaxed);
            if address != 0 {
                Notification(address).signal();
            }
        }
    }

    fn remove(&self, at: usize) {
        for n in at..N {
            let next = self.waiting.get(n + 1).map_or(0, |next| next.load(Ordering::Relaxed));
            self.waiting[n].store(next, Ordering::Relaxed);
        }
    }
}
