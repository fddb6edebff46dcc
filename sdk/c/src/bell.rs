//! Doorbells: a sender's call, and a receiver's sleep. The interrupt and the sleep are the C runtime's (`bulkhead.c`).
#![forbid(unsafe_code)]

use crate::end::Limit;
use crate::machine;
use bulkhead_channel::adaptive::Platform;
use bulkhead_channel::bell::Ring;
use bulkhead_channel_memory::typed::Doorbell;
use bulkhead_channel_memory::waiting;

/// Nanoseconds that a sleep and its end take, more or less: an interrupt, and lost contents of caches.
const SLEEP: u64 = 2_000;

/// The doorbell that a sender rings.
#[derive(Debug)]
pub struct Call(machine::Call);

impl Call {
    /// Makes one for a sender.
    pub(crate) fn of(doorbell: Doorbell) -> Option<Self> {
        Some(Self(machine::Call::of(doorbell)))
    }
}

impl Ring for Call {
    fn ring(&mut self) {
        self.0.ring();
    }
}

/// Where a receiver sleeps: on its sandbox's first core, which its interrupts go to.
#[derive(Debug)]
pub struct Bed {
    interrupt: u8,
    /// How many interrupts it knows of.
    seen: u64,
    /// Until when it may.
    limit: Limit,
}

impl Bed {
    /// Makes one for a channel's interrupt, if that has a handler.
    pub(crate) fn new(doorbell: Doorbell) -> Option<Self> {
        let interrupt = u8::try_from(doorbell.at).ok()?;
        machine::answer(interrupt);
        Some(Self { interrupt, seen: machine::rung(interrupt), limit: Limit::NONE })
    }

    /// Ticks that a sleep and its end take, more or less.
    pub(crate) fn cost() -> u64 {
        machine::ticks(SLEEP)
    }

    /// How many interrupts came.
    pub(crate) fn interrupts(&self) -> u64 {
        machine::rung(self.interrupt)
    }
}

impl waiting::Bed for Bed {
    type Patience = Limit;

    /// On the core that interrupts go to.
    fn prepare(&mut self, limit: &Limit) -> bool {
        self.limit = *limit;
        machine::is_first_core()
    }
}

impl Platform for Bed {
    fn now(&mut self) -> u64 {
        machine::counter()
    }

    fn relax(&mut self) {
        core::hint::spin_loop();
    }

    fn sleep(&mut self) {
        self.seen = machine::sleep(self.interrupt, self.seen, self.limit.at());
    }
}
