//! The lock of registers that several parties use and that are no one word. One is for the machine's interrupt
//! controller, with its pair of index and window for all monitors. Within a sandbox, such locks are for its lines'
//! table and its PCI functions.
//!
//! It never breaks, and nobody waits for a turn longer than its patience: who gives up
//! withdraws, and asks again later. Turns go round among those who want one, so each
//! waits for one turn of each other party at most. Parties that are late:
//!
//! * *before its turn*: after [`Pace::turn`] another one takes the turn, and the late one is
//!   asked again when it looks next.
//! * *with the lock*: the registers are its own until it is back, since what it wrote last
//!   to the index is half of a write. The others' own writes are late by that and nothing else.
//! * *dead with the lock*: who knows that a party will never go on leaves for it ([`Lock::leave`]).
//!
//! No guest runs on a core that has the lock or waits for it, and nothing interrupts it,
//! so no guest can prolong a turn.

use core::sync::atomic::{AtomicU32, Ordering};

/// Bit of [`Lock::state`]: the party in the lower bits has it; else it had it last.
const HELD: u32 = 1 << 31;
/// Most parties: a word is a set of them.
pub const MAX_PARTIES: u32 = 32;

/// A word that several cores read and change.
pub trait Word {
    /// Reads it.
    fn load(&self) -> u32;
    /// From one value to another, before every later access; whether it had that one.
    fn take(&self, from: u32, to: u32) -> bool;
    /// Replaces it, after every earlier access.
    fn give(&self, to: u32);
    /// Sets bits.
    fn add(&self, bits: u32);
    /// Clears bits.
    fn remove(&self, bits: u32);
}

impl Word for AtomicU32 {
    fn load(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }

    fn take(&self, from: u32, to: u32) -> bool {
        self.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn give(&self, to: u32) {
        self.store(to, Ordering::Release);
    }

    fn add(&self, bits: u32) {
        self.fetch_or(bits, Ordering::Relaxed);
    }

    fn remove(&self, bits: u32) {
        self.fetch_and(!bits, Ordering::Relaxed);
    }
}

/// How long a party waits, in ticks of its clock.
#[derive(Clone, Copy)]
pub struct Pace {
    /// In all, before it gives up.
    pub patience: u64,
    /// For a party that has the turn and does not take it.
    pub turn: u64,
}

/// See the module. Zeros are one that is free.
#[derive(Default)]
#[repr(C)]
pub struct Lock<W = AtomicU32> {
    /// The party that has it, or had it last.
    pub state: W,
    /// The parties that want it, as a set. It decides the next turn; it does not say which party has the lock.
    pub want: W,
}

impl<W: Word> Lock<W> {
    /// Does `work` alone, for party `me`; `None` if the turn did not come within its patience: nothing was done.
    ///
    /// A party asks once at a time.
    pub fn with<R>(
        &self,
        me: u32,
        pace: Pace,
        clock: impl Fn() -> u64,
        work: impl FnOnce() -> R,
    ) -> Option<R> {
        let bit = 1 << (me % MAX_PARTIES);
        let begin = clock();
        let (mut seen, mut since) = (self.state.load(), begin);
        loop {
            let (state, want, now) = (self.state.load(), self.want.load(), clock());
            if want & bit == 0 {
                self.want.add(bit);
            }
            if state != seen {
                (seen, since) = (state, now);
            }
            let first = next(want | bit, state);
            let late = now.wrapping_sub(since) > pace.turn;
            let mine = first == me % MAX_PARTIES || late;
            if state & HELD == 0 && mine && self.state.take(state, HELD | (me % MAX_PARTIES)) {
                // One that did not come for its turn is asked again when it looks.
                self.want.remove(bit | 1 << first);
                let result = work();
                self.leave(me);
                return Some(result);
            }
            if now.wrapping_sub(begin) > pace.patience {
                self.want.remove(bit);
                return None;
            }
            core::hint::spin_loop();
        }
    }

    /// Gives the lock back, if `me` has it: at the end of its turn, or because it will never go on.
    pub fn leave(&self, me: u32) {
        let me = me % MAX_PARTIES;
        if self.state.load() == HELD | me {
            self.state.give(me);
        }
    }

    /// Tells if `me` has it.
    pub fn has(&self, me: u32) -> bool {
        self.state.load() == HELD | (me % MAX_PARTIES)
    }
}

/// Returns the first of `parties`, which are some, after the one that had it last.
fn next(parties: u32, last: u32) -> u32 {
    let from = last.wrapping_add(1) % MAX_PARTIES;
    parties.rotate_right(from).trailing_zeros().wrapping_add(from) % MAX_PARTIES
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    const PACE: Pace = Pace { patience: 1000, turn: 50 };

    /// Returns a clock that goes on by one each time that it is read.
    fn ticking(time: &Cell<u64>) -> impl Fn() -> u64 {
        || {
            time.set(time.get() + 1);
            time.get()
        }
    }

    #[test]
    fn one_at_a_time() {
        const ROUNDS: u32 = 20_000;
        // Patience and turns without end, as the host's scheduler has none; and turns that end at once.
        for turn in [u64::MAX, 0] {
            let pace = Pace { patience: u64::MAX, turn };
            let lock = Lock::<AtomicU32>::default();
            let (inside, sum, time) =
                (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
            let work = || {
                assert!(!inside.swap(true, Ordering::Relaxed), "two are inside");
                // Not one operation: lost if two do it at once.
                sum.store(sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                inside.store(false, Ordering::Relaxed);
            };
            // Waiters make room for each other on a host with few cores.
            let clock = || {
                let now = time.fetch_add(1, Ordering::Relaxed);
                if now % 16 == 0 {
                    thread::yield_now();
                }
                u64::from(now)
            };
            thread::scope(|scope| {
                for me in 0..4 {
                    let lock = &lock;
                    scope.spawn(move || {
                        (0..ROUNDS).for_each(|_| lock.with(me, pace, clock, work).unwrap());
                    });
                }
            });
            assert_eq!(sum.into_inner(), 4 * ROUNDS);
            assert_eq!(lock.want.into_inner(), 0);
        }
    }

    #[test]
    fn turns_go_round() {
        assert_eq!(next(0b1011, 0), 1);
        assert_eq!(next(0b1011, 1), 3);
        assert_eq!(next(0b1011, 3), 0);
        assert_eq!(next(1 << 31, 31), 31);
        assert_eq!(next(1 << 31 | 1, 31), 0);
        assert_eq!(next(0b1000, HELD | 3), 3);
    }

    /// A party that waits goes before one that had it and wants it again.
    #[test]
    fn nobody_has_two_turns_while_another_waits() {
        let lock = Lock::<AtomicU32>::default();
        let time = Cell::new(0);
        lock.want.add(1 << 5);
        lock.state.give(2);
        // 5 waits: 2 comes again, and is let in only when 5 has not taken its turn.
        let before = time.get();
        let at = lock.with(2, PACE, ticking(&time), || time.get()).unwrap();
        assert!((50..60).contains(&(at - before)), "{}", at - before);
        // That costs others the time of one turn once, not each time.
        let before = time.get();
        let at = lock.with(2, PACE, ticking(&time), || time.get()).unwrap();
        assert!(at - before < 5, "{}", at - before);
    }

    /// A holder that is late harms nobody for longer than it is late: who waits gives up, and comes in later.
    #[test]
    fn a_late_holder_breaks_nothing() {
        let lock = Lock::<AtomicU32>::default();
        assert!(lock.state.take(0, HELD | 7));
        let time = Cell::new(0);
        for _ in 0..3 {
            let before = time.get();
            let late = lock.with(1, PACE, ticking(&time), || panic!("somebody is inside"));
            assert_eq!(late, None);
            assert!((1000..1010).contains(&(time.get() - before)), "{}", time.get() - before);
            assert_eq!(lock.want.load(Ordering::Relaxed), 0, "who gave up wants nothing");
        }
        lock.leave(1);
        assert!(lock.has(7), "not its own to leave");
        // It is back.
        lock.leave(7);
        assert_eq!(lock.with(1, PACE, ticking(&time), || 1), Some(1));
        assert_eq!(lock.with(7, PACE, ticking(&time), || 7), Some(7));
    }

    /// Another core leaves for a party that will never be back, as its monitor knows.
    #[test]
    fn somebody_leaves_for_the_dead() {
        let lock = Lock::<AtomicU32>::default();
        assert!(lock.state.take(0, HELD | 31));
        assert!(lock.has(31));
        lock.leave(31);
        assert_eq!(lock.with(0, PACE, || 0, || 1), Some(1));
    }
}
