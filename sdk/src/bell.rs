//! Doorbells of channels: a sender rings by a write to a port, a receiver sleeps until its interrupt comes.

use crate::{cpu, interrupt, time};
use bulkhead_channel::adaptive::{Platform, Sleeper};
use bulkhead_channel::bell::{Caller, Ring};
use bulkhead_channel_memory::Mapping;
use bulkhead_channel_memory::typed::Pair;
use core::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds that a sleep and its end take, more or less: an interrupt, and lost contents of caches.
pub const SLEEP: u64 = 2_000;

/// The port that a sender rings.
#[derive(Debug)]
pub struct Port(u16);

impl Ring for Port {
    fn ring(&mut self) {
        // SAFETY: the monitor takes the write for a ring and does nothing else.
        unsafe { cpu::outb(self.0, 0) }
    }
}

/// How often each vector's interrupt came.
static RUNG: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// Where a receiver sleeps: on its sandbox's first core, which its interrupts go to.
#[derive(Debug)]
pub struct Bed {
    vector: u8,
    /// How many interrupts it knows of.
    seen: u64,
}

impl Bed {
    /// How many interrupts came.
    #[must_use]
    pub fn interrupts(&self) -> u64 {
        RUNG[usize::from(self.vector)].load(Ordering::Acquire)
    }
}

impl Platform for Bed {
    fn now(&mut self) -> u64 {
        time::tsc()
    }

    fn relax(&mut self) {
        core::hint::spin_loop();
    }

    fn sleep(&mut self) {
        interrupt::without(|| {
            // One that came before now is not slept over, and one that comes from here on ends the sleep.
            if self.interrupts() == self.seen {
                interrupt::wait();
            }
            self.seen = self.interrupts();
        });
    }
}

/// Makes the ring for the receiver of a channel; `None` if the receiver is not to be woken, or this is not the sender.
#[must_use]
pub fn caller(pair: &Pair<'static>) -> Option<Caller<Mapping<'static>, Port>> {
    let doorbell = pair.doorbell().filter(|_| pair.sends())?;
    Some(Caller::new(pair.bell().ok()?, Port(doorbell.at)))
}

/// Sleeps until a channel's sender rings; `None` if it never does, or this is not the receiver. After the end itself
/// has been opened; on the sandbox's first core.
#[must_use]
pub fn sleeper(pair: &Pair<'static>) -> Option<Sleeper<Mapping<'static>, Bed>> {
    let doorbell = pair.doorbell().filter(|_| !pair.sends())?;
    let vector = u8::try_from(doorbell.at).ok()?;
    interrupt::set(vector, |frame, _| {
        // One core takes them.
        let rung = &RUNG[usize::from(frame.vector as u8)];
        rung.store(rung.load(Ordering::Relaxed) + 1, Ordering::Release);
    });
    let spin = doorbell.spin(time::ticks(SLEEP));
    Some(Sleeper::new(pair.arm().ok()?, spin, Bed { vector, seen: 0 }))
}
