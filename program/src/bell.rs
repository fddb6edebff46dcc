//! Doorbells of channels: an end rings by a call of the kernel, and the other sleeps at the notification that its
//! manifest names. A virtio device's ends do both.

use crate::objects::Notification;
use crate::ports::Ports;
use crate::time;
use bulkhead_channel::adaptive::Platform;
use bulkhead_channel::bell::Ring;
use bulkhead_channel_memory::typed::Doorbell;

/// Nanoseconds that a sleep and its end take, more or less: a call, an interrupt, two switches of threads.
pub const SLEEP: u64 = 2_000;

/// The port that a sender rings.
#[derive(Debug)]
pub struct Port {
    ports: Ports,
    port: u16,
}

impl Port {
    pub(crate) const fn of(doorbell: Doorbell) -> Self {
        Self { ports: Ports(doorbell.right), port: doorbell.at }
    }
}

impl Ring for Port {
    fn ring(&mut self) {
        // The right to this port was found on the page with the port itself.
        let _ = self.ports.write8(self.port, 0);
    }
}

/// Where a thread sleeps.
#[derive(Debug)]
pub struct Bed {
    notification: Notification,
    woken: u64,
}

impl Bed {
    pub(crate) const fn new(notification: Notification) -> Self {
        Self { notification, woken: 0 }
    }

    /// How often a signal ended a sleep.
    #[must_use]
    pub const fn woken(&self) -> u64 {
        self.woken
    }
}

impl Platform for Bed {
    fn now(&mut self) -> u64 {
        time::now()
    }

    fn relax(&mut self) {
        core::hint::spin_loop();
    }

    fn sleep(&mut self) {
        // A thread without a context of its own does not sleep here but looks again at once, on the context that it
        // runs on.
        self.woken += u64::from(self.notification.wait().is_ok());
    }
}
