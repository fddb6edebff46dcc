//! Sees switches as the threads do. Each looks at the clock all the time. One that was away for longer than a look
//! takes has been switched to, from the thread that looked last.

use crate::MOST;
use bulkhead_program::marker::{VALUE, id};
use bulkhead_program::{mark, now};
use core::sync::atomic::{AtomicU64, Ordering};

/// The time when each looked last: the clients, and behind them the thread that runs when no client does.
static LOOKED: [AtomicU64; MOST + 1] = [const { AtomicU64::new(0) }; MOST + 1];
/// Switches seen.
static SWITCHES: AtomicU64 = AtomicU64::new(0);
/// Longer than from one look to the next, ns.
const AWAY: u64 = 200;

/// Switches seen by all.
pub fn switches() -> u64 {
    SWITCHES.load(Ordering::Relaxed)
}

/// A thread's.
#[derive(Debug)]
pub struct Watch {
    me: usize,
    looked: u64,
}

impl Watch {
    pub fn new(me: usize) -> Self {
        Self { me, looked: now() }
    }

    /// Looks. How long the thread ran since the last time, ns.
    #[inline(always)]
    pub fn look(&mut self) -> u64 {
        let time = now();
        let gap = time - core::mem::replace(&mut self.looked, time);
        if gap > AWAY {
            self.was_away(time, time - gap);
            // Finding that out took longer than a look, too.
            self.looked = now();
        }
        LOOKED[self.me].store(self.looked, Ordering::Relaxed);
        if gap > AWAY { 0 } else { gap }
    }

    #[inline(never)]
    fn was_away(&self, back: u64, left: u64) {
        let others = LOOKED.iter().enumerate().filter(|(n, _)| *n != self.me);
        let last = others.map(|(_, looked)| looked.load(Ordering::Relaxed)).max().unwrap_or(0);
        // Else only the scheduler ran meanwhile; or others once more, since it came back.
        if last > left && last < back {
            mark!(VALUE | id::KERNEL_EDF, back - last);
            SWITCHES.fetch_add(1, Ordering::Relaxed);
        }
    }
}
