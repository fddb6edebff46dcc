//! Time: stamps from the clock's counter, one-shot timers at absolute times, sleep. Arming costs no exit.

use crate::arch::{Architecture, This};
use crate::interrupt::{self, Handler};
use bulkhead_guest::{Here, Instructions, scale};
use bulkhead_layout::info::Info;
use core::sync::atomic::{AtomicU64, Ordering};

static HZ: AtomicU64 = AtomicU64::new(1_000_000_000);
/// Nanoseconds of a tick, 32 fraction bits.
static NANOS: AtomicU64 = AtomicU64::new(1 << 32);

/// Interrupt of [`sleep_until`].
const SLEEP: u8 = 0xEF;
const NANO: u64 = 1_000_000_000;

/// `(a << 32) / b`, rounded up so that a timer never fires early.
pub(crate) fn ratio(a: u64, b: u64) -> u64 {
    (u128::from(a) << 32).div_ceil(u128::from(b)) as u64
}

pub(crate) fn setup(info: &Info) {
    let hz = info.clock.hz.max(1);
    HZ.store(hz, Ordering::Relaxed);
    NANOS.store(ratio(NANO, hz), Ordering::Relaxed);
    interrupt::set(SLEEP, |_, _| {});
}

/// Reads the counter of the clock, in order with earlier instructions.
#[must_use]
pub fn counter() -> u64 {
    Here::ordered_counter()
}

/// Ticks of the counter in a second.
#[must_use]
pub fn hz() -> u64 {
    HZ.load(Ordering::Relaxed)
}

/// Converts ticks to nanoseconds.
#[must_use]
pub fn nanos(ticks: u64) -> u64 {
    scale(ticks, NANOS.load(Ordering::Relaxed))
}

/// Converts nanoseconds to ticks.
#[must_use]
pub fn ticks(nanos: u64) -> u64 {
    (u128::from(nanos) * u128::from(hz()) / u128::from(NANO)) as u64
}

/// Lets this core's timer raise an interrupt; it is armed by [`arm`]. An interrupt that is
/// in use already costs no exit.
pub fn use_interrupt(number: u8) {
    This::use_timer(number);
}

/// Arms this core's timer for an absolute value of the counter (at once if it is past).
/// It fires once, and early if the time is too far for it: ask the
/// clock again.
pub fn arm(due: u64) {
    This::arm(due);
}

/// Stops this core's timer.
pub fn disarm() {
    This::disarm();
}

/// Sleeps until the counter has reached `due`. Takes the timer of this core; other
/// interrupts are served meanwhile, and are off afterwards.
pub fn sleep_until(due: u64) {
    interrupt::disable();
    use_interrupt(SLEEP);
    while counter() < due {
        arm(due);
        interrupt::wait();
    }
    disarm();
}

/// Sleeps for so many nanoseconds.
pub fn sleep(nanos: u64) {
    sleep_until(counter() + ticks(nanos));
}

/// A periodic release at absolute times: the n-th is due at `start + n * period`,
/// however late an earlier one was served, so there is no drift.
#[derive(Clone, Copy, Debug)]
pub struct Periodic {
    due: u64,
    period: u64,
}

impl Periodic {
    /// First release at `start`, both in ticks.
    #[must_use]
    pub const fn new(start: u64, period: u64) -> Self {
        Self { due: start, period }
    }

    /// When the next release is due.
    #[must_use]
    pub const fn due(&self) -> u64 {
        self.due
    }

    /// The period.
    #[must_use]
    pub const fn period(&self) -> u64 {
        self.period
    }

    /// Goes on to the next release.
    pub const fn advance(&mut self) {
        self.due += self.period;
    }

    /// Registers the handler that serves the releases and arms the first one.
    pub fn start(&self, number: u8, handler: Handler) {
        interrupt::set(number, handler);
        use_interrupt(number);
        arm(self.due);
    }
}
