//! The lock of registers that several cores use and that are no one word: the machine's
//! IOAPIC, with one pair of index and window for all monitors, and a sandbox's own PCI
//! functions.
//!
//! Tickets are served in order, so who waits, waits for those before it: at most one
//! a core. No guest runs on a core that has the lock or waits for it, and nothing
//! interrupts it (GIF is 0), so no guest can prolong that. If a holder dies, the lock
//! breaks: nobody can know what it left half done, so nobody touches the registers
//! any more. Everything then stays as it is, and says so.

use core::sync::atomic::{AtomicU32, Ordering};

/// See the module. Zeros are one that is free.
#[derive(Default)]
#[repr(C)]
pub struct Lock {
    next: AtomicU32,
    serving: AtomicU32,
    broken: AtomicU32,
}

impl Lock {
    /// Does `work` alone; `None` if the lock is broken, or breaks because this turn has
    /// not come after `patience` ticks of the `clock`.
    pub fn with<R>(
        &self,
        patience: u64,
        clock: impl Fn() -> u64,
        work: impl FnOnce() -> R,
    ) -> Option<R> {
        if self.broken.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let begin = clock();
        // Acquire: what the holder before did is seen.
        while self.serving.load(Ordering::Acquire) != ticket {
            if clock().wrapping_sub(begin) > patience {
                self.broken.store(1, Ordering::Relaxed);
            }
            if self.broken.load(Ordering::Relaxed) != 0 {
                return None;
            }
            core::hint::spin_loop();
        }
        let result = work();
        self.serving.store(ticket.wrapping_add(1), Ordering::Release);
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    #[test]
    fn one_at_a_time() {
        const ROUNDS: u32 = 20_000;
        let (lock, inside, sum) = (Lock::default(), AtomicBool::new(false), AtomicU32::new(0));
        let work = || {
            assert!(!inside.swap(true, Ordering::Relaxed), "two are inside");
            // Not one operation: lost if two do it at once.
            sum.store(sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            inside.store(false, Ordering::Relaxed);
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        // Patience without end, as the host's scheduler has none.
                        lock.with(u64::MAX, || 0, work).unwrap();
                        if lock.next.load(Ordering::Relaxed) % 64 == 0 {
                            thread::yield_now();
                        }
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 4 * ROUNDS);
    }

    #[test]
    fn tickets_wrap() {
        let lock = Lock { next: u32::MAX.into(), serving: u32::MAX.into(), broken: 0.into() };
        assert_eq!(lock.with(0, || 0, || 1), Some(1));
        assert_eq!(lock.with(0, || 0, || 2), Some(2));
    }

    #[test]
    fn a_dead_holder_breaks_it() {
        let lock = Lock::default();
        // Takes a ticket and is not heard of again.
        lock.next.fetch_add(1, Ordering::Relaxed);
        let time = Cell::new(0u64);
        let clock = || {
            time.set(time.get() + 1);
            time.get()
        };
        assert_eq!(lock.with(1000, clock, || panic!("somebody is inside")), None);
        assert!((1000..1010).contains(&time.get()), "{}", time.get());
        // Nobody waits again, nor comes in if the dead one rises.
        lock.serving.store(1, Ordering::Relaxed);
        assert_eq!(lock.with(1000, clock, || panic!("it is broken")), None);
        assert!(time.get() < 1010, "it waited again");
    }
}
