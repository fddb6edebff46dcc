//! Doorbells for receivers that sleep, and for no others.
//!
//! The receiver's *armed* word is odd while it wants to be woken. Only the receiver writes it. A sender rings once
//! for each value of it ([`Bell`]). A sender need not be honest, so the monitor that delivers the ring lets one
//! through for each value (`bulkhead_monitor_abi::bell`).
//!
//! Two fences make sure that no receiver sleeps through a message. The sender's lies between its index and the armed
//! word, the receiver's between the armed word and the sender's index. The end that comes second sees the other's
//! write.

use crate::layout::{ARMED, HELLO};
use crate::memory::{Memory, Word};
use crate::page::Hello;
use crate::{Misfit, Stop};

/// A way to ring: an interrupt, a hypercall, a system call.
pub trait Ring {
    /// Rings.
    fn ring(&mut self);
}

/// Tells if the word asks for a ring.
const fn is_armed(word: u64) -> bool {
    word & 1 == 1
}

/// The sender's.
#[derive(Debug)]
#[cfg_attr(feature = "host", derive(Clone))]
pub struct Bell<M: Memory> {
    mine: M,
    armed: M::Word,
    /// The value that it has rung for.
    rung: u64,
}

impl<M: Memory> Bell<M> {
    /// `mine` is `tx`, `theirs` is `rx`.
    ///
    /// # Errors
    /// If the region is too small.
    pub fn open(mine: M, theirs: &M) -> Result<Self, Misfit> {
        Ok(Self { mine, armed: theirs.word(ARMED).ok_or(Misfit)?, rung: 0 })
    }

    /// Rings if the receiver wants to be woken and was not yet. Called after each send, or after the last of several.
    /// True if it rang.
    pub fn notify(&mut self, ring: &mut impl Ring) -> bool {
        // The index, then the armed word: the receiver does it the other way round.
        self.mine.fence();
        let armed = self.armed.relaxed();
        let wanted = is_armed(armed) && armed != self.rung;
        if wanted {
            self.rung = armed;
            ring.ring();
        }
        wanted
    }
}

/// A [`Bell`], and its way to ring.
#[derive(Debug)]
pub struct Caller<M: Memory, R> {
    bell: Bell<M>,
    ring: R,
}

impl<M: Memory, R: Ring> Caller<M, R> {
    /// Puts the two together.
    pub const fn new(bell: Bell<M>, ring: R) -> Self {
        Self { bell, ring }
    }

    /// Ends an attempt to send, or the last of several: wakes the receiver if there may be news for it, and returns
    /// the result. Without a session that is news, too: the receiver has to answer.
    #[inline]
    pub fn after<T>(&mut self, sent: Result<T, Stop>) -> Result<T, Stop> {
        if !matches!(sent, Err(Stop::Wait | Stop::Size)) {
            self.tell();
        }
        sent
    }

    /// Rings, also if the receiver does not want to be woken: for tests.
    pub fn ring(&mut self) {
        self.ring.ring();
    }

    /// Wakes the receiver if it wants to be woken. Returns true if it did. Also when this end has closed.
    #[inline]
    pub fn tell(&mut self) -> bool {
        self.bell.notify(&mut self.ring)
    }
}

/// The receiver's.
#[derive(Debug)]
#[cfg_attr(feature = "host", derive(Clone))]
pub struct Arm<M: Memory> {
    word: M::Word,
    value: u64,
}

impl<M: Memory> Arm<M> {
    /// `mine` is `rx`; after the end itself has been opened, because the word carries its epoch:
    /// a value of an earlier life never comes again.
    ///
    /// # Errors
    /// If the region is too small.
    pub fn open(mine: &M) -> Result<Self, Misfit> {
        let hello = mine.word(HELLO).ok_or(Misfit)?;
        let epoch = u64::from(Hello::of(hello.relaxed()).epoch);
        let arm = Self { word: mine.word(ARMED).ok_or(Misfit)?, value: epoch << 32 };
        arm.word.release(arm.value);
        Ok(arm)
    }

    /// Asks to be woken. Look for messages once more after this, and then sleep.
    pub fn arm(&mut self) {
        self.step(1);
        // A fence: the armed word, then the index.
        self.word.fenced(self.value);
    }

    /// Asks no longer.
    pub fn disarm(&mut self) {
        self.step(0);
        // A sender that sees it late rings in vain, once: no fence.
        self.word.release(self.value);
    }

    /// Returns how often it has asked since it was opened, modulo 2^31.
    #[must_use]
    pub const fn count(&self) -> u32 {
        (self.value as u32).div_ceil(2)
    }

    /// To the next count of this parity. The count's carry goes nowhere: the epoch stays.
    fn step(&mut self, parity: u32) {
        let count = self.value as u32;
        let next = count.wrapping_add(1 + (count & 1 ^ 1 ^ parity));
        self.value = self.value & !u64::from(u32::MAX) | u64::from(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Region;

    struct Count(u32);

    impl Ring for Count {
        fn ring(&mut self) {
            self.0 += 1;
        }
    }

    #[test]
    fn a_sender_rings_once_for_each_arming() {
        let (tx, rx) = (Region::new(512), Region::new(512));
        let (mut bell, mut arm) =
            (Bell::open(tx, &rx).expect("fits"), Arm::open(&rx).expect("fits"));
        let mut rung = Count(0);
        assert!(!bell.notify(&mut rung));
        for n in 1..=3 {
            arm.arm();
            assert!(bell.notify(&mut rung));
            assert!(!bell.notify(&mut rung));
            arm.disarm();
            assert!(!bell.notify(&mut rung));
            assert_eq!(rung.0, n);
        }
        // Armed again without having been disarmed: another time.
        arm.arm();
        arm.arm();
        assert_eq!(arm.count(), 5);
        assert!(bell.notify(&mut rung));
    }

    #[test]
    fn the_count_wraps_without_touching_the_epoch() {
        let rx = Region::new(512);
        let mut arm = Arm::open(&rx).expect("fits");
        arm.value = 7 << 32 | u64::from(u32::MAX);
        arm.disarm();
        assert_eq!(arm.value, 7 << 32);
        arm.arm();
        assert_eq!(arm.value, 7 << 32 | 1);
    }

    #[test]
    fn what_the_receiver_has_to_learn_rings() {
        let (tx, rx) = (Region::new(512), Region::new(512));
        let mut arm = Arm::open(&rx).expect("fits");
        let mut caller = Caller::new(Bell::open(tx, &rx).expect("fits"), Count(0));
        for (sent, rings) in [
            (Ok(()), 1),
            (Err(Stop::Apart), 2),
            (Err(Stop::Lost), 3),
            (Err(Stop::Wait), 3),
            (Err(Stop::Size), 3),
        ] {
            arm.arm();
            assert_eq!(caller.after(sent), sent);
            assert_eq!(caller.ring.0, rings, "{sent:?}");
        }
    }

    #[test]
    fn a_value_of_an_earlier_life_does_not_come_again() {
        let (tx, rx) = (Region::new(512), Region::new(512));
        let mut bell = Bell::open(tx.clone(), &rx).expect("fits");
        let mut rung = Count(0);
        for life in 1..=3 {
            let _ = crate::mailbox::Reader::open(&rx, &Region::new(1024), 8).expect("fits");
            let mut arm = Arm::open(&rx).expect("fits");
            arm.arm();
            assert!(bell.notify(&mut rung));
            assert_eq!(rung.0, life);
        }
    }
}
