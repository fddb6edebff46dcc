//! A monitor's work for channels: it lets a ring become an interrupt or not, and says the last words of a guest that
//! has ended.
//!
//! The receiver's *armed* word lies in a page that only the receiver writes, and is odd while it wants
//! to be woken. Every value of it lets one interrupt through, whatever the sender does.

use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A doorbell that a sandbox may ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Bell {
    /// Monitor-virtual address of the receiver's armed word.
    pub armed: u64,
    /// Message that interrupts the receiver's first core, as the architecture sends it.
    pub message: u64,
    /// Monitor-virtual address of the word by which the receiver's monitor says what to write instead; 0: there is
    /// none. It exists where the receiver's guest chooses core and interrupt.
    pub aim: u64,
    /// Hardware IDs of the receiver's cores, as a set. The word is another monitor's, so it is a claim.
    pub cores: [u64; 4],
}

/// Words of an end of a channel that is the sandbox's own: monitor-virtual addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct End {
    /// Word in which it says its state.
    pub hello: u64,
    /// Armed word; unused by a sender.
    pub armed: u64,
}

/// Most doorbells of a sandbox, as sender and as receiver.
pub const MAX_BELLS: usize = 32;

/// A word that several cores read and change.
pub trait Word {
    /// Reads it, before every later access of this core.
    fn load(&self) -> u64;
    /// From one value to another; whether it had that one.
    fn replace(&self, from: u64, to: u64) -> bool;
    /// As [`Word::replace`]; a full fence follows.
    fn claim(&self, from: u64, to: u64) -> bool;
    /// One more.
    fn count(&self);
    /// To a value; what it was. A full fence follows.
    fn exchange(&self, to: u64) -> u64;
}

impl Word for AtomicU64 {
    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn replace(&self, from: u64, to: u64) -> bool {
        self.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    #[inline(never)]
    fn claim(&self, from: u64, to: u64) -> bool {
        let done = self.replace(from, to);
        fence(Ordering::SeqCst);
        done
    }

    fn count(&self) {
        self.fetch_add(1, Ordering::AcqRel);
    }

    #[inline(never)]
    fn exchange(&self, to: u64) -> u64 {
        let was = self.swap(to, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        was
    }
}

/// Decides whether a ring is delivered. `rung` is the value that the last delivered ring was for; the sender's cores
/// share it.
///
/// It is read first: so what replaces it is newer, and no value comes again. If another core was
/// faster, its interrupt comes after what this one was to tell of.
pub fn admit(rung: &impl Word, armed: &impl Word) -> bool {
    let last = rung.load();
    let now = armed.load();
    now & 1 == 1 && now != last && rung.replace(last, now)
}

/// Says in `word` where interrupts go from now on, 0 for nowhere. Returns true if the guest is to be interrupted there
/// once: a ring may have been lost before.
///
/// The exchange is a fence between this word and the guest's look for messages. The sender has one between its message
/// and its look at this word. So one of both sees the other's.
pub fn aim(word: &impl Word, message: u64) -> bool {
    word.exchange(message) != message && message != 0
}

/// Says for the end of a guest that has ended that it has left, and asks for no interrupt any more. Its other bits
/// stay, for its next life. Its peer has to see this before the peer's monitor is rung: the exchange is a full fence.
pub fn bury(hello: &AtomicU64, armed: &AtomicU64) {
    let said = hello.load(Ordering::Relaxed);
    hello.store(said & u64::MAX >> 2 | CLOSED, Ordering::Release);
    armed.fetch_add(armed.load(Ordering::Relaxed) & 1, Ordering::SeqCst);
}

/// Bits 63:62 of the hello of an end that has closed.
const CLOSED: u64 = 2 << 62;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_gets_through_once_for_each_arming() {
        let (rung, armed) = (AtomicU64::new(0), AtomicU64::new(0));
        let flood = || (0..100).filter(|_| admit(&rung, &armed)).count();
        for n in 0..6 {
            armed.store(7 << 32 | n, Ordering::Relaxed);
            assert_eq!(flood(), n as usize % 2);
        }
        // Another life's first value.
        armed.store(8 << 32 | 5, Ordering::Relaxed);
        assert_eq!(flood(), 1);
    }
}
