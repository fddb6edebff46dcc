//! Doorbells of channels: a sender rings by a number, a receiver sleeps until its interrupt comes.

use crate::arch::{Architecture, This};
use crate::{interrupt, time};
use bulkhead_channel::adaptive::Platform;
use bulkhead_channel::bell::Ring;
use bulkhead_channel_memory::typed::Doorbell;
use bulkhead_guest::{Here, Instructions};
use core::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds that a sleep and its end take, more or less: an interrupt, and lost contents of caches.
pub const SLEEP: u64 = 2_000;

/// The doorbell that a sender rings.
#[derive(Debug)]
pub struct Bell(pub(crate) u16);

impl Ring for Bell {
    fn ring(&mut self) {
        Here::ring(self.0);
    }
}

/// How often each interrupt came.
static RUNG: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// Where a receiver sleeps: on its sandbox's first core, which its interrupts go to.
#[derive(Debug)]
pub struct Bed {
    interrupt: u8,
    /// How many interrupts it knows of.
    seen: u64,
}

impl Platform for Bed {
    fn now(&mut self) -> u64 {
        time::counter()
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

impl Bed {
    /// Makes one for a channel's interrupt.
    pub(crate) fn new(doorbell: Doorbell) -> Option<Self> {
        let number = u8::try_from(doorbell.at).ok()?;
        interrupt::set(number, |frame, _| {
            // One core takes them.
            let rung = &RUNG[usize::from(This::number(frame))];
            rung.store(rung.load(Ordering::Relaxed) + 1, Ordering::Release);
        });
        Some(Self { interrupt: number, seen: 0 })
    }

    /// How many interrupts came.
    #[must_use]
    pub fn interrupts(&self) -> u64 {
        RUNG[usize::from(self.interrupt)].load(Ordering::Acquire)
    }
}
