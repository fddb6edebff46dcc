//! Ladders: what is done about a failure, in which order, how often. The words are ARINC 653's.
//!
//! A ladder has rungs. Each failure takes the rung that the ladder stands on. A rung that has been taken so often in so
//! short a time gives way to the next one, and none comes back by itself.

use core::cell::Cell;
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most ladders of a sandbox.
pub const LADDERS: usize = 4;
/// Most rungs of a ladder.
pub const RUNGS: usize = 6;
/// Most times that a rung's limit can allow.
pub const TIMES: usize = 8;

/// A rung: an action, and how often it is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Rung {
    /// One of [`Rung::STOP`], [`Rung::RESTART`], [`Rung::ALTERNATIVE`], [`Rung::WARM`], [`Rung::FAILOVER`].
    pub action: u8,
    /// How often it is taken within `within`, at most [`TIMES`]; 0: without a limit.
    pub times: u8,
    /// [`Rung::ALTERNATIVE`]: number of the guest, from 1. [`Rung::FAILOVER`]: index of the sandbox that the roles go
    /// to, and 1; 0: each role says.
    pub guest: u16,
    /// Milliseconds.
    pub within: u32,
}

impl Rung {
    /// The sandbox stops.
    pub const STOP: u8 = 1;
    /// The guest that runs begins anew.
    pub const RESTART: u8 = 2;
    /// Another guest begins in its place.
    pub const ALTERNATIVE: u8 = 3;
    /// The guest that runs begins anew, and is offered its last snapshot.
    pub const WARM: u8 = 4;
    /// Another sandbox takes over the roles, and the guest that runs begins anew without them.
    pub const FAILOVER: u8 = 5;
    /// No rung, but a deed's action: roles have come from another sandbox.
    pub const TOOK: u8 = 6;
}

/// A ladder. Unused rungs are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Ladder {
    /// From the lowest on.
    pub rungs: [Rung; RUNGS],
}

/// Where one stands on a ladder, all zero at first.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Climb {
    rung: Cell<u32>,
    /// How often this rung was taken.
    taken: Cell<u32>,
    /// When it was, by the remainder of that number.
    when: [Cell<u64>; TIMES],
}

impl Climb {
    /// Takes a rung at a failure at `now`, and says which; `None`: the last one gave way. Times are ticks of a clock
    /// with `hz` of them in a second.
    ///
    /// A limit holds in each window of its length, wherever it begins: the oldest of the last `times` counts.
    pub fn take(&self, ladder: &Ladder, now: u64, hz: u64) -> Option<usize> {
        loop {
            let number = self.rung.get() as usize;
            let rung = ladder.rungs.get(number).filter(|rung| rung.action != 0)?;
            let times = u32::from(rung.times);
            if times == 0 {
                return Some(number);
            }
            let taken = self.taken.get();
            let when = self.when.get(taken.wrapping_rem(times) as usize)?;
            let within = u64::from(rung.within).wrapping_mul(hz) / 1_000;
            if taken >= times && now.wrapping_sub(when.get()) < within {
                self.rung.set(self.rung.get().wrapping_add(1));
                self.taken.set(0);
                continue;
            }
            when.set(now);
            // A number with that remainder, so that it never ends.
            self.taken.set(if taken >= 2 * times { taken - times + 1 } else { taken + 1 });
            return Some(number);
        }
    }

    /// Begins at the lowest rung again.
    pub fn reset(&self) {
        self.rung.set(0);
        self.taken.set(0);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    const HZ: u64 = 1_000;

    fn rung(action: u8, times: u8, within: u32) -> Rung {
        Rung { action, times, guest: 0, within }
    }

    fn ladder(of: &[Rung]) -> Ladder {
        let mut ladder = Ladder::default();
        ladder.rungs[..of.len()].copy_from_slice(of);
        ladder
    }

    fn taken(ladder: &Ladder, at: &[u64]) -> Vec<Option<usize>> {
        let climb = Climb::default();
        at.iter().map(|now| climb.take(ladder, *now, HZ)).collect()
    }

    #[test]
    fn a_rung_without_a_limit_is_taken_for_ever() {
        let ladder = ladder(&[rung(Rung::RESTART, 0, 0)]);
        assert_eq!(taken(&ladder, &[1; 100]), [Some(0); 100]);
    }

    #[test]
    fn a_rung_gives_way_where_its_window_is_full_and_none_comes_back() {
        let ladder = ladder(&[
            rung(Rung::RESTART, 3, 100),
            rung(Rung::ALTERNATIVE, 2, 100),
            rung(Rung::STOP, 0, 0),
        ]);
        // Three in 100 ms, and the fourth at the window's last tick.
        let [first, second, third] = [Some(0), Some(1), Some(2)];
        assert_eq!(taken(&ladder, &[10, 20, 30, 109]), [first, first, first, second]);
        assert_eq!(
            taken(&ladder, &[10, 20, 30, 110, 120, 121]),
            [first, first, first, first, first, second]
        );
        // The alternative has a window of its own, and it stays when its time is over.
        let at = [1, 2, 3, 4, 5, 6, 10_000];
        assert_eq!(taken(&ladder, &at), [first, first, first, second, second, third, third]);
        assert_eq!(
            taken(&ladder, &[1, 2, 3, 4, 5, 1_000, 1_001, 1_002]),
            [first, first, first, second, second, second, second, third]
        );
    }

    /// The oldest of the last `times` decides: no window of that length has more, wherever it begins.
    #[test]
    fn no_window_has_more_than_the_limit() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for round in 0..2_000 {
            let times = 1 + (round % TIMES) as u8;
            let within = 1 + random(200) as u32;
            let ladder = ladder(&[rung(Rung::RESTART, times, within), rung(Rung::STOP, 0, 0)]);
            let climb = Climb::default();
            let (mut now, mut restarts) = (u64::MAX - random(3_000), Vec::new());
            for _ in 0..200 {
                now = now.wrapping_add(random(u64::from(within)));
                let inside = |then: &&u64| now.wrapping_sub(**then) < u64::from(within);
                let recent = restarts.iter().rev().take_while(inside).count();
                let rung = climb.take(&ladder, now, HZ);
                assert_eq!(
                    rung,
                    Some(usize::from(recent >= usize::from(times))),
                    "{times} {within}"
                );
                if rung == Some(1) {
                    break;
                }
                restarts.push(now);
            }
        }
    }

    #[test]
    fn a_ladder_that_ends_says_so_and_a_reset_begins_anew() {
        let ladder = ladder(&[rung(Rung::RESTART, 1, 100)]);
        let climb = Climb::default();
        assert_eq!([1, 2, 3].map(|now| climb.take(&ladder, now, HZ)), [Some(0), None, None]);
        climb.reset();
        assert_eq!(climb.take(&ladder, 4, HZ), Some(0));
    }
}
