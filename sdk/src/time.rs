//! Time: stamps from the TSC, one-shot timers at absolute times from the local
//! APIC, sleep. Arming costs no exit: only the count (or the deadline) is
//! written, the local vector once.

use crate::interrupt::{self, Handler};
use crate::{apic, cpu};
use bulkhead_layout::info::Info;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use crate::cpu::tsc;

static TSC_HZ: AtomicU64 = AtomicU64::new(1_000_000_000);
/// Timer ticks for one TSC tick, 32 fraction bits.
static TICKS: AtomicU64 = AtomicU64::new(1 << 32);
/// Nanoseconds for one TSC tick, 32 fraction bits.
static NANOS: AtomicU64 = AtomicU64::new(1 << 32);
static DEADLINE: AtomicBool = AtomicBool::new(false);

/// Vector of [`sleep_until`].
const SLEEP: u8 = 0xEF;
const NANO: u64 = 1_000_000_000;

/// `value * factor`, the factor with 32 fraction bits.
fn scale(value: u64, factor: u64) -> u64 {
    ((u128::from(value) * u128::from(factor)) >> 32) as u64
}

/// `(a << 32) / b`, rounded up so that a timer never fires early.
fn ratio(a: u64, b: u64) -> u64 {
    (u128::from(a) << 32).div_ceil(u128::from(b)) as u64
}

pub(crate) fn setup(info: &Info) {
    let tsc = info.clock.tsc_hz.max(1);
    TSC_HZ.store(tsc, Ordering::Relaxed);
    TICKS.store(ratio(info.clock.lapic_hz, tsc), Ordering::Relaxed);
    NANOS.store(ratio(NANO, tsc), Ordering::Relaxed);
    let deadline = cpu::cpuid(1, 0)[2] & 1 << 24 != 0;
    DEADLINE.store(deadline, Ordering::Relaxed);
    interrupt::set(SLEEP, |_, _| {});
}

/// TSC ticks a second.
#[must_use]
pub fn tsc_hz() -> u64 {
    TSC_HZ.load(Ordering::Relaxed)
}

/// TSC ticks as nanoseconds.
#[must_use]
pub fn nanos(ticks: u64) -> u64 {
    scale(ticks, NANOS.load(Ordering::Relaxed))
}

/// Nanoseconds as TSC ticks.
#[must_use]
pub fn ticks(nanos: u64) -> u64 {
    (u128::from(nanos) * u128::from(tsc_hz()) / u128::from(NANO)) as u64
}

/// Lets this core's timer raise `vector`; it is armed by [`arm`]. A vector that is
/// in use already costs no exit: only a write of it is mediated.
pub fn use_vector(vector: u8) {
    const DIVIDE_BY_1: u64 = 0b1011;
    const DELIVERY_STATUS: u64 = 1 << 12;
    let mode = if DEADLINE.load(Ordering::Relaxed) { apic::MODE_DEADLINE } else { 0 };
    let entry = mode | u64::from(vector);
    // SAFETY: the timer is this core's own, and every vector has an entry.
    unsafe {
        cpu::wrmsr(apic::DCR, DIVIDE_BY_1);
        if cpu::rdmsr(apic::LVT_TIMER) & !DELIVERY_STATUS != entry {
            cpu::wrmsr(apic::LVT_TIMER, entry);
        }
    }
}

/// Arms this core's timer for an absolute TSC value (at once if it is past).
/// It fires once, and early if the time is beyond the 32-bit counter: ask the
/// clock again.
pub fn arm(due: u64) {
    if DEADLINE.load(Ordering::Relaxed) {
        // SAFETY: the timer is this core's own. 0 would disarm it.
        unsafe { cpu::wrmsr(apic::TSC_DEADLINE, due.max(1)) }
    } else {
        let left = due.saturating_sub(tsc());
        let count = scale(left, TICKS.load(Ordering::Relaxed)).clamp(1, u64::from(u32::MAX));
        // SAFETY: the timer is this core's own.
        unsafe { cpu::wrmsr(apic::TMICT, count) }
    }
}

/// Stops this core's timer.
pub fn disarm() {
    let register = if DEADLINE.load(Ordering::Relaxed) { apic::TSC_DEADLINE } else { apic::TMICT };
    // SAFETY: the timer is this core's own.
    unsafe { cpu::wrmsr(register, 0) }
}

/// Sleeps until the TSC has reached `due`. Takes the timer of this core; other
/// interrupts are served meanwhile, and are off afterwards.
pub fn sleep_until(due: u64) {
    interrupt::disable();
    use_vector(SLEEP);
    while tsc() < due {
        arm(due);
        interrupt::wait();
    }
    disarm();
}

/// Sleeps for so many nanoseconds.
pub fn sleep(nanos: u64) {
    sleep_until(tsc() + ticks(nanos));
}

/// A periodic release at absolute times: the n-th is due at `start + n * period`,
/// however late an earlier one was served, so there is no drift.
#[derive(Clone, Copy, Debug)]
pub struct Periodic {
    due: u64,
    period: u64,
}

impl Periodic {
    /// First release at `start`, both in TSC ticks.
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
    pub fn start(&self, vector: u8, handler: Handler) {
        interrupt::set(vector, handler);
        use_vector(vector);
        arm(self.due);
    }
}
